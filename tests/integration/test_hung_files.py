"""Files that the server reads again every five seconds, while their file system hangs."""

import fcntl
import json
import os
import signal

import pytest
from certificates import Authority
from client import Client
from test_lifecycle import wait_until


class Lease:
    """While it is held, who opens the file waits, for up to 45 seconds (/proc/sys/fs/lease-break-time)."""

    def __init__(self, path):
        self._file = os.open(path, os.O_RDWR)
        fcntl.fcntl(self._file, fcntl.F_SETSIG, signal.SIGURG)  # ignored; the default would end this process
        try:
            fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            os.close(self._file)
            pytest.skip("this file system has no leases")

    def is_awaited(self):
        return fcntl.fcntl(self._file, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def __enter__(self):
        return self

    def end(self):
        os.close(self._file)

    def __exit__(self, *_):
        self.end()


@pytest.mark.parametrize("hung", ["--token-file", "--tls-client-ca"])
def test_files_that_hang_hold_up_nothing(start_server, tmp_path, hung):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server.example")
    policy, tokens = tmp_path / "policy.json", tmp_path / "tokens"
    policy.write_text(json.dumps({"identities": [{"name": "me", "unix_sockets": True, "allow": ["info"]}]}))
    tokens.write_text("")
    files = {"--policy": policy, "--token-file": tokens, "--tls-cert": certificate, "--tls-key": key,
             "--tls-client-ca": authority.certificate}
    socket = f"unix:{tmp_path / 'socket'}"
    server = start_server("--listen", socket, "--tls-client-auth", "optional",
                          *(word for flag in files.items() for word in flag))
    with Lease(files[hung]) as lease, Client(socket) as client:
        wait_until(lease.is_awaited, "the file is not read")
        client.info()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, server.log()
    assert "files are still read or closed" in server.log() and "stopped all_answered=true" in server.log()
