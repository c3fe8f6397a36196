"""The Open Inference Protocol over HTTP through HAProxy with deploy/haproxy.cfg."""

import contextlib
import http.client
import http.server
import json
import re
import select
import signal
import socket
import socketserver
import ssl
import threading

import numpy
import pytest
import samples
from client import SECONDS
from front import PROGRAM, Certificates, Front, ServerBehind
from google.protobuf import json_format
from rest_client import BINARY, Rest, binary, raw
from test_lifecycle import wait_until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no haproxy")
PARAMETERS = {"layout": "BSHD", "offset": 3, "settings": json_format.MessageToJson(samples.rope_settings()), **BINARY}
PATH = "/v2/models/posenc.rotary/infer"


def rotation(rows):
    one, data = binary("q", numpy.arange(rows * 64 * 8).reshape(1, rows, 64, 8) % 7)
    return {"inputs": [one], "parameters": PARAMETERS}, [data]


SMALL, LARGE = rotation(1), rotation(4096)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def behind(server_program, tmp_path):
    with ServerBehind(server_program, tmp_path, tmp_path / "socket", "--log-level", "debug") as server:
        yield server


@pytest.fixture
def front(certificates, behind, tmp_path):
    with Front(tmp_path, certificates, [behind]) as front:
        yield front


def test_requests_pass(front, behind, certificates):
    with Rest(front.http_port, certificates.context()) as through, Rest(behind.http_socket) as direct:
        wait_until(lambda: through.send("GET", "/v2/health/ready").status == 200, "the front sends no requests")
        for verb, path in (("GET", "/v2"), ("GET", "/v2/models/posenc.rotary"), ("POST", "/v2/repository/index"), ("GET", "/nothing")):
            answers = [rest.send(verb, path, b"") for rest in (through, direct)]
            assert answers[0].status == answers[1].status and answers[0].body == answers[1].body
        for request in (SMALL, LARGE):
            answers = [rest.infer("posenc.rotary", *request) for rest in (through, direct)]
            assert answers[0][0] == answers[1][0] and numpy.array_equal(answers[0][1]["q"], answers[1][1]["q"])
    assert re.search(r"peer=ipv4:127\.0\.0\.1:\d+", behind.log_with("peer=ipv4"))


def test_chunks_and_100_continue_pass(front, certificates):
    text = json.dumps(SMALL[0]).encode()
    head = (f"POST {PATH} HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: {len(text)}\r\nConnection: close\r\n"
            "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
    with contextlib.closing(certificates.context().wrap_socket(socket.create_connection(("127.0.0.1", front.http_port), SECONDS))) as tls:
        tls.sendall(head.encode())
        received = tls.recv(1000)
        assert received.startswith(b"HTTP/1.1 100")
        for piece in (text, *SMALL[1], b""):
            tls.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        while more := tls.recv(1 << 16):
            received += more
    assert b"HTTP/1.1 200" in received


def test_a_certificate_is_an_identity(server_program, certificates, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [{"name": "known", "certificates": ["dns:caller"], "allow": ["compute"]}]}))
    with ServerBehind(server_program, tmp_path, tmp_path / "socket", "--policy", policy, "--log-level", "debug") as behind:
        with Front(tmp_path, certificates, [behind], certificates.authority) as front:
            with Rest(front.http_port, certificates.context(certificates)) as rest:
                wait_until(lambda: rest.send("GET", "/v2/health/ready").status == 200, "the front sends no requests")
                rest.infer("posenc.rotary", *SMALL)
                assert rest.json("GET", "/v2", status=403)["reason"] == "NOT_ALLOWED"
            with pytest.raises((ssl.SSLError, ConnectionError)), Rest(front.http_port, certificates.context()) as rest:
                rest.send("GET", "/v2")
        assert re.search(r"peer=ipv4:127\.0\.0\.1:\d+ identity=known", behind.log_with("identity=known"))


class Fields(http.server.BaseHTTPRequestHandler):
    """Answers with the fields of the request as JSON."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps(self.headers.items()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


def test_a_caller_cannot_say_who_it_is(certificates, tmp_path):
    false = ("forwarded", "x-forwarded-for", "x-forwarded-client-cert", "x-posenc-peer", "x-posenc-client-cert")
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "socket"), Fields) as server:
        threading.Thread(target=server.serve_forever).start()
        with Front(tmp_path, certificates, [tmp_path / "socket"]) as front, Rest(front.http_port, certificates.context()) as rest:
            fields = json.loads(rest.send("GET", "/", **dict.fromkeys((*false, "x-kept"), "x")).body)
        server.shutdown()
    assert [name for name, value in fields if value == "x"] == ["x-kept"]
    [peer] = [value for name, value in fields if name in false]
    assert re.fullmatch(r"ipv4:127\.0\.0\.1:\d+", peer)


def test_a_source_has_few_connections(front, certificates):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", front.http_port), SECONDS, ("127.0.0.2", 0)))
                       for _ in range(17)]
        closed, _, _ = select.select(connections, [], [], SECONDS)
        assert len(closed) == 1
        with Rest(front.http_port, certificates.context()) as rest:
            assert rest.send("GET", "/v2").status in (200, 503)


def test_without_a_server_the_front_answers_in_json(certificates, tmp_path):
    with Front(tmp_path, certificates, [tmp_path / "nobody"]) as front, Rest(front.http_port, certificates.context()) as rest:
        for request in (("GET", "/v2"), ("POST", PATH, SMALL[1][0])):
            answer = rest.send(*request)
            assert answer.status == 503 and json.loads(answer.body)["error"].startswith("proxy: ")


def test_only_http_1_passes(front):
    assert raw(front.http_port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == b""  # nor without TLS


class Callers:
    """Threads that send one request after another until the end. Keeps what was not answered by 200."""

    def __init__(self, front, certificates):
        self.wrong, self.answered, self._stop = [], 0, threading.Event()
        self._port, self._context = front.http_port, certificates.context()
        self._threads = [threading.Thread(target=self._call) for _ in range(4)]

    def _call(self):
        while not self._stop.is_set():
            try:
                with Rest(self._port, self._context) as rest:
                    while not self._stop.is_set():
                        status = rest.send("GET", "/v2/models/posenc.rotary").status
                        if status != 200:
                            self.wrong.append(status)
                        self.answered += 1
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(error)

    def wait_for_more(self):
        begin = self.answered
        wait_until(lambda: self.answered > begin + 200, "the callers do not get on")

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("ends", (signal.SIGTERM, signal.SIGKILL), ids=("drains", "is killed"))
def test_a_server_of_two_ends(server_program, certificates, tmp_path, ends):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(ServerBehind(server_program, tmp_path / name, tmp_path / f"{name}.socket", "--drain-notice", "5"))
                   for name in ("first", "second") if (tmp_path / name).mkdir() is None]
        front = stack.enter_context(Front(tmp_path, certificates, servers))
        with Rest(front.http_port, certificates.context()) as rest:
            wait_until(lambda: rest.send("GET", "/v2/health/ready").status == 200, "the front sends no requests")
        callers = stack.enter_context(Callers(front, certificates))
        callers.wait_for_more()
        servers[0].signal(ends)
        servers[0].wait()
        callers.wait_for_more()
        # Those in flight at the killed one, and one more of each connection that HAProxy had not yet seen to end.
        assert len(callers.wrong) <= (0 if ends == signal.SIGTERM else 8), callers.wrong
