"""Planned stops: a restart on the same address, and an update behind one address, fail no call of a gRPC client that has
nothing but the standard service config."""

import itertools
import pathlib
import signal
import subprocess
import threading
import time

import grpc
import numpy
import pytest
import samples
from client import APART, SECONDS, Client

SERVICE_CONFIG = (pathlib.Path(__file__).resolve().parents[2] / "client" / "service_config.json").read_text()
OPTIONS = (*APART, ("grpc.service_config", SERVICE_CONFIG))
REQUESTS = [samples.rotary(numpy.ones((1, tokens, 4, 64)), rotary_dim=64) for tokens in (1, 64)]  # 1 and 64 KiB


class Callers:
    """Callers with a connection each, which call without a pause until the end of the block."""

    def __init__(self, address, count):
        self.errors, self.answers = [], [0] * count
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(address, n), daemon=True) for n in range(count)]

    def _run(self, address, n):
        with Client(address, OPTIONS) as client:
            for request in itertools.cycle(REQUESTS):
                if self._stop.is_set():
                    return
                try:
                    client.call("ApplyRotary", request)
                    self.answers[n] += 1
                except grpc.RpcError as error:
                    self.errors.append(error)

    def wait_for_more(self):
        """Waits until each caller has got ten answers more, or a call has failed."""
        begin, deadline = list(self.answers), time.monotonic() + SECONDS
        while not self.errors and any(now < before + 10 for now, before in zip(self.answers, begin)):
            assert time.monotonic() < deadline, "the callers do not get on"
            time.sleep(0.01)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)


@pytest.mark.parametrize("away", (0, 2), ids="away for {} s".format)
@pytest.mark.parametrize("count", (4, 64), ids="{} callers".format)
def test_a_restart_fails_no_call(start_server, count, away):
    server = start_server()
    with Callers(server.port, count) as callers:
        callers.wait_for_more()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        time.sleep(away)
        start_server("--listen", f"127.0.0.1:{server.port}")
        callers.wait_for_more()
    assert callers.errors == []


class Relay:
    """HAProxy that passes connections on to servers and does not know HTTP, like a Service of Kubernetes."""

    def __init__(self, directory, servers):
        path, socket = directory / "relay.cfg", directory / "relay.sock"
        lines = ["defaults", " mode tcp", " timeout connect 2s", " timeout client 1h", " timeout server 1h",
                 " option redispatch 1", "frontend all", f" bind unix@{socket}", " default_backend servers",
                 "backend servers",
                 *(f" server s{server.port} 127.0.0.1:{server.port} check inter 50ms" for server in servers)]
        path.write_text("\n".join(lines) + "\n")
        self.address = f"unix:{socket}"
        self._process = subprocess.Popen(["haproxy", "-q", "-f", path], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        while not socket.exists():
            assert time.monotonic() < deadline and self._process.poll() is None, "HAProxy does not listen"
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("notice", (0, 1), ids="notice of {} s".format)
@pytest.mark.parametrize("count", (4, 16), ids="{} callers".format)
def test_an_update_behind_one_address_fails_no_call(start_server, tmp_path, count, notice):
    """A connection stays at its server until that closes it, as behind a Service that balances connections."""
    old = [start_server("--drain-notice", str(notice)) for _ in range(2)]
    new = [start_server() for _ in range(2)]
    with Relay(tmp_path, [*old, *new]) as relay, Callers(relay.address, count) as callers:
        callers.wait_for_more()
        for server in old:
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            callers.wait_for_more()
    assert callers.errors == []


def test_calls_beside_a_long_one_are_served_while_it_drains(start_server):
    """The long call is a stream whose caller does not read: it keeps the server from being idle."""
    server = start_server("--drain-timeout", "16")  # a quarter of it is for such calls
    with Client(server.port, APART) as slow, Callers(server.port, 2) as callers:
        tiles = slow.method("StreamTable")(samples.stream(count=10_000_000, rotary_dim=128), timeout=SECONDS)
        next(tiles)
        server.signal(signal.SIGTERM)
        server.log_with("draining")
        callers.wait_for_more()
        assert callers.errors == []
        tiles.cancel()
        assert server.wait() == 0
        start_server("--listen", f"127.0.0.1:{server.port}")
        callers.wait_for_more()
    assert callers.errors == []
