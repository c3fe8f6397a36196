"""TLS: who may connect, and certificates that change while the server runs."""

import concurrent.futures
import contextlib
import os
import signal
import socket
import ssl

import grpc
import pytest
import samples
from certificates import Authority
from client import APART, NEWER_GRPC, SECONDS, Client
from posenc.v1 import service_pb2
from server_process import SANITIZER_BYTES, ServerProcess
from test_lifecycle import wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def start_tls(authority, server_program, tmp_path):
    """A function that starts a server with a certificate of the authority."""
    certificate, key = authority.issue("server.example")
    servers = []

    def start(*flags):
        servers.append(ServerProcess(server_program, tmp_path, "--tls-cert", certificate, "--tls-key", key, *flags))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


class TlsClient(Client):
    def __init__(self, port, authority, pair=()):
        certificate, key = (path.read_bytes() for path in pair) if pair else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), key, certificate)
        super().__init__(f"localhost:{port}", APART, credentials)


def refused(client):
    with client, pytest.raises(grpc.RpcError) as error:
        client.call("GetServerInfo", service_pb2.GetServerInfoRequest(), timeout=5)
    return error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def handshake(port, authority, version=None, protocols=()):
    """Returns the version of TLS and the server's certificate (DER). `protocols`: further ones that the client offers."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["h2", *protocols])
    if version:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection, \
            context.wrap_socket(connection, server_hostname="localhost") as secure:
        assert secure.selected_alpn_protocol() == "h2"
        return secure.version(), secure.getpeercert(binary_form=True)


def der(path):
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_calls_are_encrypted(start_tls, authority, stranger):
    server = start_tls()
    with TlsClient(server.port, authority) as client:
        client.call("ApplyRotary", samples.rotary())
        assert len(client.call("StreamTable", samples.stream())) > 0
        assert client.info().tls_certificate.not_after_seconds > 0
    assert refused(TlsClient(server.port, stranger))
    assert refused(Client(server.port, APART))


def test_versions_of_tls(start_tls, authority):
    server = start_tls()
    assert handshake(server.port, authority, ssl.TLSVersion.TLSv1_2)[0] == "TLSv1.2"
    assert handshake(server.port, authority, ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        handshake(server.port, authority, ssl.TLSVersion.TLSv1_1)


@pytest.mark.parametrize("version, hellos", ((ssl.TLSVersion.TLSv1_2, 1), (ssl.TLSVersion.TLSv1_3, 2)))
def test_long_handshakes_are_refused(start_tls, authority, version, hellos):
    server = start_tls()
    handshake(server.port, authority, version, ["x" * 255] * (88 // hellos))  # 22 KiB
    if NEWER_GRPC:
        hellos = 1  # each hello is limited, not both together
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(server.port, authority, version, ["x" * 255] * (104 // hellos))


def test_a_long_hello_is_refused_before_its_end(start_tls):
    server = start_tls("--handshake-timeout", "3600")
    record = b"\x16\x03\x01\x40\x00"  # the header of 16 KiB
    hello = b"\x01\x01\xff\x00"  # the header of 130,816 bytes
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as connection:
        connection.sendall(record + hello.ljust(16384, b"\0") + record)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("auth", ("optional", "required"))
def test_certificates_of_clients(start_tls, authority, stranger, auth):
    server = start_tls("--tls-client-auth", auth, "--tls-client-ca", authority.certificate)
    with TlsClient(server.port, authority, authority.issue("client")) as client:
        client.call("ApplyRotary", samples.rotary())
    # Servers may tell TLS 1.3 clients of a wrong certificate only after the handshake.
    assert refused(TlsClient(server.port, authority, stranger.issue("client")))
    assert refused(TlsClient(server.port, authority, authority.issue("late", days=-1)))
    nobody = TlsClient(server.port, authority)
    if auth == "required":
        assert refused(nobody)
    else:
        with nobody:
            nobody.call("ApplyRotary", samples.rotary())


def test_several_cas(start_tls, authority, stranger):
    server = start_tls("--tls-client-auth", "required", "--tls-client-ca", authority.certificate,
                       "--tls-client-ca", stranger.certificate)
    for of in (authority, stranger):
        with TlsClient(server.port, authority, of.issue("any")) as client:
            client.call("ApplyRotary", samples.rotary())


def test_a_unix_socket_is_not_encrypted(start_tls, authority, posenc, tmp_path):
    start_tls("--listen", f"unix:{tmp_path}/socket")
    with Client(f"unix:{tmp_path}/socket") as client:
        client.call("ApplyRotary", samples.rotary())
    posenc("health", "--server", f"unix:{tmp_path}/socket", POSENC_TLS_CA=str(authority.certificate))


def test_a_changed_certificate_is_loaded_without_a_lost_call(authority, server_program, tmp_path):
    first, second = authority.issue("first"), authority.issue("second")
    # The way of Kubernetes: `current` is a link to a directory, and a new link is renamed over it.
    for name, (certificate, key) in (("1", first), ("2", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.crt").write_bytes(certificate.read_bytes())
        (tmp_path / name / "tls.key").write_bytes(key.read_bytes())

    def publish(name):
        os.symlink(name, tmp_path / "next")
        os.rename(tmp_path / "next", tmp_path / "current")

    publish("1")
    with ServerProcess(server_program, tmp_path, "--tls-cert", tmp_path / "current" / "tls.crt",
                       "--tls-key", tmp_path / "current" / "tls.key") as server, \
            TlsClient(server.port, authority) as client:
        assert handshake(server.port, authority)[1] == der(first[0])

        def serves(condition):
            client.call("ApplyRotary", samples.rotary())
            with TlsClient(server.port, authority) as new:
                new.call("ApplyRotary", samples.rotary())
            return condition()

        publish("2")
        wait_until(lambda: serves(lambda: handshake(server.port, authority)[1] == der(second[0])), "it is not loaded")
        assert client.info().tls_certificate.reloads == 1
        (tmp_path / "2" / "tls.crt").write_bytes(b"")
        server.signal(signal.SIGHUP)  # looks at the files now, not only every 5 s
        wait_until(lambda: serves(lambda: client.info().tls_certificate.failed_reloads == 1), "nobody is told")
        assert "tls.crt" in server.log_with("certificate not reloaded; the old one is kept")
        assert handshake(server.port, authority)[1] == der(second[0])


def test_wrong_files_are_named(authority, stranger, server_program, tmp_path):
    certificate, key = authority.issue("server.example")
    garbage = tmp_path / "garbage"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    cases = ((garbage, key, "--tls-cert"), (certificate, garbage, "--tls-key"),
             (certificate, stranger.issue("other")[1], "is not the key of the certificate"),
             (tmp_path / "missing", key, "No such file"), (*authority.issue("old", days=-1), "expired"))
    for wrong_certificate, wrong_key, why in cases:
        with pytest.raises(AssertionError) as error:
            ServerProcess(server_program, tmp_path, "--tls-cert", wrong_certificate, "--tls-key", wrong_key)
        assert "posenc-server ended" in str(error.value) and why in str(error.value)


def test_the_command_encrypts(start_tls, authority, stranger, posenc):
    server = start_tls("--tls-client-auth", "required", "--tls-client-ca", authority.certificate)
    certificate, key = authority.issue("command")
    address = ("--server", f"localhost:{server.port}")
    mine = ("--tls-cert", certificate, "--tls-key", key)
    assert "valid until" in posenc(*address, *mine, "--tls-ca", authority.certificate, "info").stdout
    posenc("health", *address, POSENC_TLS_CA=str(authority.certificate), POSENC_TLS_CERT=str(certificate),
           POSENC_TLS_KEY=str(key))
    posenc("load", *address, *mine, "--tls-ca", authority.certificate, "--tls-server-name", "server.example",
           "--count", "20", "--concurrency", "1")
    for wrong in (("--tls-ca", authority.certificate), (*mine, "--tls-ca", stranger.certificate), (),
                  (*mine, "--tls-ca", authority.certificate, "--tls-server-name", "other.example")):
        # Not localhost: newer releases of gRPC report the last of its addresses, at which nobody listens.
        ended = posenc("--server", f"127.0.0.1:{server.port}", *wrong, "info", "--timeout", "2", exit_code=3)
        assert "does only one side use TLS" in ended.stderr, ended
    for wrong in (("--tls-cert", certificate), ("--tls-ca", "missing.pem"), ("--tls-ca", "."), ("--tls-ca", key),
                  ("--tls-cert", certificate, "--tls-key", stranger.issue("other")[1])):
        posenc(*address, *wrong, "info", exit_code=2)


@pytest.fixture
def required(start_tls, authority):
    """A server that requires certificates of its clients."""
    return start_tls("--tls-client-ca", authority.certificate, "--tls-client-auth", "required")


def with_more(authority, pair, size, path):
    """The pair with copies of the authority's certificate behind its own, of at most so many bytes (DER) together."""
    certificate, key = pair
    copies = (size - len(der(certificate)) - 3) // (len(der(authority.certificate)) + 3)
    path.write_text(certificate.read_text() + copies * authority.certificate.read_text())
    return path, key


def test_long_chains_are_refused(required, authority, tmp_path):
    pair = authority.issue("a.train")
    with TlsClient(required.port, authority, with_more(authority, pair, 7 << 10, tmp_path / "chain")) as client:
        client.call("ApplyRotary", samples.rotary())
    assert refused(TlsClient(required.port, authority, with_more(authority, pair, 9 << 10, tmp_path / "longer")))


def test_many_callers_connect_at_once(start_tls, authority):
    """More than the handshakes that an address may begin in seconds."""
    server = start_tls("--tls-client-ca", authority.certificate, "--tls-client-auth", "required",
                       "--max-handshakes-per-second", "8")
    pair = authority.issue("a.train")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(TlsClient(server.port, authority, pair)) for _ in range(60)]
        calls = [client.method("ApplyRotary").future(samples.rotary(), timeout=SECONDS) for client in clients]
        for call in calls:
            call.result()
    assert "new connections wait" in server.log()


def test_clients_that_connect_anew_for_each_call_take_turns(start_tls, authority):
    """Four at a time, which is more than the handshakes that may begin."""
    server = start_tls("--tls-client-ca", authority.certificate, "--tls-client-auth", "required",
                       "--max-handshakes-per-second", "8")
    pair, calls = authority.issue("a.train"), iter(range(48))

    def call_again_and_again(_):
        answered = 0
        for _ in calls:
            with TlsClient(server.port, authority, pair) as client:
                client.call("ApplyRotary", samples.rotary())
            answered += 1
        return answered

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answered = list(pool.map(call_again_and_again, range(4)))
    assert "new connections wait" in server.log()
    assert min(answered) >= 8, answered


def test_clients_that_gave_up_or_say_nothing_take_no_turn(start_tls, authority):
    """At one a second, their handshakes would take longer than a call waits."""
    server = start_tls("--tls-client-ca", authority.certificate, "--tls-client-auth", "required",
                       "--max-handshakes-per-second", "1")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(b"\x16\x03\x01")
        with TlsClient(server.port, authority, authority.issue("a.train")) as client:
            client.call("ApplyRotary", samples.rotary())
        server.signal(signal.SIGTERM)  # most still wait for their handshakes
        assert server.wait() == 0


def test_the_memory_of_ended_connections_is_given_back(required, authority, tmp_path):
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(*with_more(authority, authority.issue("a.train"), 7 << 10, tmp_path / "chain"))
    base = required.anonymous_memory()
    with contextlib.ExitStack() as stack:
        for number in range(80):  # more than one address may have
            connection = stack.enter_context(socket.create_connection(
                ("127.0.0.1", required.port), timeout=SECONDS, source_address=(f"127.0.0.{1 + number % 2}", 0)))
            secure = stack.enter_context(context.wrap_socket(connection, server_hostname="localhost"))
            assert secure.recv(1), "the handshake has failed"
        taken = required.anonymous_memory() - base
        assert taken > 8 << 20
    wait_until(lambda: required.anonymous_memory() < base + taken // 2 + SANITIZER_BYTES, "the memory stays")
