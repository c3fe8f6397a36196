"""Who may call over HTTP: TLS, certificates, tokens, rights and rates are those of gRPC's callers."""

import base64
import contextlib
import json
import socket
import ssl
import stat

import numpy
import pytest
import samples
from certificates import Authority, slow_chain
from client import SECONDS, Client
from google.protobuf import json_format
from rest_client import BINARY, Rest, binary, given, http_port, raw
from test_access import Files, line
from test_lifecycle import wait_until

SETTINGS = json_format.MessageToJson(samples.rope_settings())
Q = numpy.ones((1, 2, 1, 8), "f4")
REQUEST = {"inputs": [given("q", Q)], "parameters": {"layout": "BSHD", "offset": 3, "settings": SETTINGS}}
HTTP = ("--http-listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def tls_flags(authority, auth="optional"):
    certificate, key = authority.issue("server.example")
    return "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.certificate, "--tls-client-auth", auth


def context(authority, certificate=None):
    made = ssl.create_default_context(cafile=authority.certificate)
    if certificate is not None:
        made.load_cert_chain(*certificate)
    return made


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_tokens_over_tls(start_server, files, authority):
    files.set_policy({"name": "train", "allow": ["compute", "info"]}, {"name": "probe", "allow": ["info"]})
    files.tokens.write_text(line("train", "good") + line("probe", "look") + line("train", "old", "2020-01-01T00:00:00Z"))
    server = start_server(*HTTP, *tls_flags(authority), *files.flags())
    with Rest(http_port(server), context(authority)) as rest:
        assert rest.json("GET", "/v2/health/ready")["ready"]
        _, arrays = rest.infer("posenc.rotary", REQUEST, **bearer("good"))
        assert arrays["q"].shape == Q.shape
        refused = rest.infer("posenc.rotary", REQUEST, status=401)
        assert refused["reason"] == "NO_CREDENTIALS"
    with Rest(http_port(server), context(authority)) as rest:  # the body was not read
        answer = rest.send("GET", "/v2")
        assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("bad", "old"):
            assert rest.json("GET", "/v2", status=401, **bearer(wrong))["reason"] == "BAD_CREDENTIALS"
        assert rest.json("GET", "/v2", **bearer("look"))["name"] == "posenc"
        refused = rest.infer("posenc.rotary", REQUEST, status=403, **bearer("look"))
        assert refused["reason"] == "NOT_ALLOWED" and "compute" in refused["limit"]
    assert raw(http_port(server), b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n") == b""  # not without TLS


def test_a_token_without_tls_is_refused(start_server, files):
    files.set_policy({"name": "train", "allow": ["info"]})
    files.tokens.write_text(line("train", "good"))
    server = start_server(*HTTP, *files.flags())
    with Rest(http_port(server)) as rest:
        assert rest.json("GET", "/v2", status=401, **bearer("good"))["reason"] == "BAD_CREDENTIALS"


def test_certificates(start_server, files, authority, tmp_path):
    files.set_policy({"name": "train", "certificates": ["dns:train.example"], "allow": ["info"]},
                     {"name": "other", "anonymous": True, "allow": []})
    server = start_server(*HTTP, *tls_flags(authority, "required"), *files.flags())
    port = http_port(server)
    with Rest(port, context(authority, authority.issue("train.example"))) as rest:
        assert rest.json("GET", "/v2")["name"] == "posenc"
    with Rest(port, context(authority, authority.issue("nobody.example"))) as rest:
        assert rest.json("GET", "/v2", status=401)["reason"] == "BAD_CREDENTIALS"
    stranger = Authority(tmp_path, "stranger")
    wrong = [None, stranger.issue("train.example"), authority.issue("late.example", days=-1), slow_chain(tmp_path, 90_000)]
    for certificate in wrong:
        with pytest.raises((ssl.SSLError, ConnectionError, OSError)), Rest(port, context(authority, certificate)) as rest:
            rest.send("GET", "/v2")
    with Rest(port, context(authority, authority.issue("train.example"))) as rest:
        assert rest.json("GET", "/v2")["name"] == "posenc"


def test_new_certificates_serve_new_connections(start_server, authority, tmp_path):
    certificate, key = authority.issue("first.example")
    pem, secret = tmp_path / "server.pem", tmp_path / "server.key"
    pem.write_bytes(certificate.read_bytes())
    secret.write_bytes(key.read_bytes())
    server = start_server(*HTTP, "--tls-cert", pem, "--tls-key", secret)

    def name():
        with socket.create_connection(("127.0.0.1", http_port(server)), timeout=SECONDS) as connection, \
                context(authority).wrap_socket(connection, server_hostname="localhost") as tls:
            return tls.getpeercert()["subject"][0][0][1]
    assert name() == "first.example"
    certificate, key = authority.issue("second.example")
    secret.write_bytes(key.read_bytes())
    pem.write_bytes(certificate.read_bytes())
    wait_until(lambda: name() == "second.example", "the new certificate")


def test_a_rate_and_a_quota(start_server, files):
    files.set_policy({"name": "all", "anonymous": True, "allow": ["compute", "info"], "requests_per_second": 2})
    server = start_server(*HTTP, "--policy", files.policy)
    with Rest(http_port(server)) as rest:
        statuses = [rest.send("GET", "/v2") for _ in range(8)]
        assert {answer.status for answer in statuses} == {200, 503}
        refused = next(answer for answer in statuses if answer.status == 503)
        assert json.loads(refused.body)["reason"] == "QUOTA" and int(refused.headers["retry-after"]) >= 1


def test_unix_sockets_have_no_tls(start_server, authority, tmp_path):
    path = tmp_path / "http.sock"
    server = start_server("--http-listen", f"unix:{path}", *tls_flags(authority))
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(path))
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = b""
        while more := connection.recv(1000):
            received += more
    assert received.endswith(b'{"live":true}')
    server.stop()
    assert not path.exists()


def test_a_large_tensor_over_tls(start_server, authority):
    server = start_server(*HTTP, *tls_flags(authority))
    q = numpy.random.default_rng(3).standard_normal((1, 512, 64, 8)).astype("f4")
    one, data = binary("q", q)
    with Rest(http_port(server), context(authority)) as rest:
        for _ in range(3):
            _, arrays = rest.infer("posenc.rotary", {"inputs": [one], "parameters": {**REQUEST["parameters"], **BINARY}}, [data])
            assert numpy.abs(arrays["q"]).max() > 1


def test_a_refusal_reaches_a_client_that_still_sends_over_tls(start_server, authority):
    server = start_server(*HTTP, *tls_flags(authority), "--max-request-bytes", "1MiB")
    for path, size, status in (("/v2/models/posenc.rotary/infer", 4 << 20, 413), ("/nothing", 1 << 20, 404)):
        with Rest(http_port(server), context(authority)) as rest:
            assert rest.send("POST", path, bytes(size)).status == status


def test_shared_memory_is_for_this_host(start_server):
    """A header of a proxy takes it away, and one of a browser, which shows pages of others."""
    server = start_server(*HTTP, "--inference-memory-prefix", "/posenc-rest")
    with Rest(http_port(server)) as rest:
        assert rest.json("GET", "/v2/systemsharedmemory/status") == []
        for header in ("X-Forwarded-For", "Via", "X-Posenc-Peer", "Origin", "Sec-Fetch-Site"):
            assert rest.json("GET", "/v2/systemsharedmemory/status", status=403, **{header: "a"})["reason"] == "NOT_ALLOWED"


def test_headers_of_a_proxy_are_believed_of_a_proxy_only(start_server, files, authority, tmp_path):
    files.set_policy({"name": "train", "certificates": ["dns:a.train"], "allow": ["compute", "info"]},
                     {"name": "local", "unix_sockets": True, "allow": ["info"]})
    proxy, plain = tmp_path / "proxy", tmp_path / "plain"
    server = start_server("--http-trusted-proxy", f"unix:{proxy}", "--http-listen", f"unix:{plain}", *files.flags(),
                          "--inference-memory-prefix", "/posenc-rest", "--log-level", "debug")
    certificate, _ = authority.issue("a.train")
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    proven = {"X-Posenc-Client-Cert": base64.b64encode(der).decode(), "X-Posenc-Peer": "ipv4:192.0.2.7:1234"}
    assert stat.S_IMODE(proxy.stat().st_mode) == 0o600
    with Rest(proxy) as rest:
        _, arrays = rest.infer("posenc.rotary", REQUEST, **proven)
        assert arrays["q"].shape == Q.shape
        assert rest.json("GET", "/v2/systemsharedmemory/status", status=403, **proven)["reason"] == "NOT_ALLOWED"
        assert rest.json("GET", "/v2", status=401)["reason"] == "NO_CREDENTIALS"
        for wrong in ("%%%", base64.b64encode(b"no certificate").decode(), base64.b64encode(der[:-9]).decode()):
            refused = rest.json("GET", "/v2", status=401, X_Posenc_Client_Cert=wrong)
            assert refused["reason"] == "BAD_CREDENTIALS", wrong
    assert "peer=ipv4:192.0.2.7:1234" in server.log_with("192.0.2.7")
    with Rest(plain) as rest:  # from anybody else they mean nothing
        assert rest.json("GET", "/v2", **proven)["name"] == "posenc"
        assert rest.infer("posenc.rotary", REQUEST, status=403, **proven)["reason"] == "NOT_ALLOWED"


def test_callers_behind_a_proxy_share_no_bodies(start_server, tmp_path):
    """One address that sends half of many bodies leaves others their share of --memory-quota-bytes."""
    proxy = tmp_path / "proxy"
    start_server("--http-trusted-proxy", f"unix:{proxy}", "--memory-quota-bytes", "32MiB", "--max-in-flight-bytes", "8MiB",
                 "--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB")
    half = (b"POST /v2/models/posenc.rotary/infer HTTP/1.1\r\nHost: a\r\nX-Posenc-Peer: ipv4:192.0.2.7:1\r\n"
            b"Content-Length: 8388608\r\n\r\n" + bytes(7 << 20))
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(proxy))
            connection.settimeout(SECONDS)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(half)
        with Rest(proxy) as rest:
            _, arrays = rest.infer("posenc.rotary", REQUEST, X_Posenc_Peer="ipv4:192.0.2.8:1")
            assert arrays["q"].shape == Q.shape


def test_a_bad_address(server_program, start_server):
    server = start_server(*HTTP)
    with pytest.raises(AssertionError, match="--http-listen"):
        start_server("--http-listen", f"127.0.0.1:{http_port(server)}")


def test_connections_are_limited_with_those_of_grpc(start_server):
    server = start_server(*HTTP, "--max-connections-per-peer", "8")
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_connection(("127.0.0.1", http_port(server)), timeout=SECONDS))
        assert raw(http_port(server), b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n") == b""

    def served():
        with contextlib.suppress(ConnectionError, OSError), Rest(http_port(server)) as rest:
            return rest.send("GET", "/v2").status == 200
    wait_until(served, "a connection after the others have ended")
    with Client(server.port) as client:
        client.info()
