"""An HAProxy process with deploy/haproxy.cfg in front of servers, and certificates for it."""

import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess

import grpc
from certificates import Authority
from server_process import ServerProcess, memory_of

CONFIG = pathlib.Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
# Debian installs it where only root's PATH leads.
PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Certificates:
    """The certificates of an authority: one for the front, and one for a caller."""

    def __init__(self, directory):
        authority = Authority(directory)
        self.authority = authority.certificate
        self._caller = authority.issue("caller")
        # HAProxy reads certificate and key from one file.
        self.front = directory / "front-with-key.pem"
        self.front.write_bytes(b"".join(path.read_bytes() for path in authority.issue("front")))

    def context(self, caller=None):
        """As credentials(), for HTTP."""
        made = ssl.create_default_context(cafile=self.authority)
        made.check_hostname = False
        if caller:
            made.load_cert_chain(*caller._caller)
        return made

    def credentials(self, caller=None):
        """Credentials of a client that knows this authority, with the caller's certificate of `caller`, if any."""
        certificate, key = (path.read_bytes() for path in caller._caller) if caller else (None, None)
        return grpc.ssl_channel_credentials(self.authority.read_bytes(), key, certificate)


class ServerBehind(ServerProcess):
    """A server that believes the proxy at a Unix socket who calls, and listens on TCP for the test itself."""

    def __init__(self, program, directory, path, *flags):
        # HAProxy 2.6 loses the end of calls on connections that the server ends because of their age.
        self.socket, self.http_socket = path, path.with_name(f"{path.name}-http")
        super().__init__(program, directory, "--trusted-proxy", f"unix:{path}", "--http-trusted-proxy",
                         f"unix:{self.http_socket}", "--max-connection-age", "31536000", *flags)


class Front:
    """Listens at `port` of 127.0.0.1, and at `other_address`, whose callers have another source address: ::1. REST is at
    `http_port` of 127.0.0.1."""

    def __init__(self, directory, certificates, servers, client_authority=None):
        """`certificates`: None for connections without TLS. `servers`: of ServerBehind, or paths of gRPC's Unix sockets."""
        self._log_path = directory / "front.log"
        sockets = [getattr(server, "socket", server) for server in servers]
        http_sockets = [getattr(server, "http_socket", server) for server in servers]

        def with_others(line):
            """Adds lines for the other servers, as an operator would."""
            return "\n".join([line[0], *(
                line[0].replace("server1", f"server{number}").replace("${POSENC_FRONT_SERVER}", f"unix@{path}")
                       .replace("${POSENC_FRONT_REST_SERVER}", f"unix@{http_path}")
                for number, (path, http_path) in enumerate(zip(sockets[1:], http_sockets[1:], strict=True), 2))])

        config = directory / "haproxy.cfg"
        text = re.sub(r"^    server server1 .*", with_others, CONFIG.read_text(), flags=re.MULTILINE)
        config.write_text(text if certificates else re.sub(r"(?<=proto h[12]) ssl crt .*", "", text))
        # The listening sockets are passed on, so that no other process can take their ports.
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, \
                socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=128) as other, \
                socket.create_server(("127.0.0.1", 0), backlog=128) as rest, \
                open(self._log_path, "wb") as log:
            self.port, self.other_address = listener.getsockname()[1], f"[::1]:{other.getsockname()[1]}"
            self.http_port = rest.getsockname()[1]
            environment = {"POSENC_FRONT_LISTEN": f"fd@{listener.fileno()},fd@{other.fileno()}",
                           "POSENC_FRONT_CERT": certificates and certificates.front,
                           "POSENC_FRONT_SERVER": f"unix@{sockets[0]}",
                           "POSENC_FRONT_REST_LISTEN": f"fd@{rest.fileno()}",
                           "POSENC_FRONT_REST_SERVER": f"unix@{http_sockets[0]}"}
            if client_authority:
                environment["POSENC_FRONT_CLIENT_CA"] = client_authority
            self._process = subprocess.Popen(
                [PROGRAM, "-f", config], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno(), other.fileno(), rest.fileno()],
                env={**os.environ, **{key: str(value) for key, value in environment.items()}})

    def anonymous_memory(self):
        """Resident memory that is not backed by files. Bytes."""
        return memory_of(self._process.pid, "RssAnon")

    def log(self):
        return self._log_path.read_text()

    def drain(self):
        """Ends HAProxy after the calls in flight. Returns its exit code."""
        self._process.send_signal(signal.SIGUSR1)
        return self._process.wait()

    def stop(self):
        """Ends HAProxy. One that has ended by itself fails the test."""
        ended = self._process.poll()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        assert not ended, f"haproxy ended by itself: {self.log()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
