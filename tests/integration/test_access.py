"""Who may call: tokens, client certificates, Unix sockets, a trusted proxy, and the policy's limits."""

import base64
import contextlib
import hashlib
import json
import os
import queue
import random
import re
import signal
import ssl
import stat
import subprocess
import threading

import grpc
import inference_client
import numpy
import pytest
import samples
from bare_http2 import ShutWindow
from certificates import Authority
from client import APART, SECONDS, WAITING_CALL, Client, Refusal
from google.protobuf import json_format
from grpc_peers_pb2 import HealthCheckRequest, ServerReflectionRequest
from h2.events import ResponseReceived
from posenc.v1 import service_pb2
from server_process import SANITIZER_BYTES
from test_lifecycle import wait_until
from test_tls import TlsClient

ALL = ["compute", "stream", "diagnose", "shared_memory", "info", "reflection", "models"]
INFO = service_pb2.GetServerInfoRequest()


def bearer(token):
    return [("authorization", f"Bearer {token}")]


def line(name, token, expiry=""):
    return f"{name} {hashlib.sha256(token.encode()).hexdigest()} {expiry}\n"


def write(path, text):
    """Replaces the file at once, as an administrator should."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


class Files:
    def __init__(self, directory):
        self.policy, self.tokens = directory / "policy.json", directory / "tokens"
        self.tokens.write_text("")

    def set_policy(self, *identities):
        write(self.policy, json.dumps({"identities": identities}))

    def flags(self):
        return "--policy", self.policy, "--token-file", self.tokens


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_files(authority):
    certificate, key = authority.issue("server.example")
    return "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.certificate, \
        "--tls-client-auth", "optional"


def code(client, name="GetServerInfo", request=INFO, **options):
    """Returns None if the call succeeds, otherwise (code, reason)."""
    try:
        client.call(name, request, **options)
    except grpc.RpcError as error:
        refusal = Refusal.of(error)
        return refusal.code.name, refusal.reason
    return None


def test_tokens(start_server, files, authority, server_files):
    files.set_policy({"name": "train", "allow": ["compute", "info"]}, {"name": "probe", "allow": ["info"]})
    files.tokens.write_text(line("train", "good") + line("train", "old", "2020-01-01T00:00:00Z") + line("probe", "look") +
                            line("train", "long", "2099-01-01T00:00:00Z"))
    server = start_server(*server_files, *files.flags())
    with TlsClient(server.port, authority) as client:
        assert code(client, metadata=bearer("good")) is None
        assert code(client, metadata=bearer("long")) is None
        assert code(client, "ApplyRotary", samples.rotary(), metadata=bearer("good")) is None
        assert code(client) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
        for wrong in ("bad", "", "good ", "Good", "old", line("train", "good").split()[1]):
            assert code(client, metadata=bearer(wrong)) == ("UNAUTHENTICATED", "BAD_CREDENTIALS"), wrong
        assert code(client, metadata=[("authorization", "Basic good")]) == ("UNAUTHENTICATED", "BAD_CREDENTIALS")
        refusal = client.refusal("ApplyRotary", samples.rotary(), metadata=bearer("look"))
        assert (refusal.code.name, refusal.reason) == ("PERMISSION_DENIED", "NOT_ALLOWED")
        assert refusal.field == "method" and "ApplyRotary" in refusal.value and "compute" in refusal.limit
        assert refusal.started == "false"
        # Streams and reflection are guarded too; health is not.
        assert code(client, "StreamTable", samples.stream(), metadata=bearer("good")) == ("PERMISSION_DENIED", "NOT_ALLOWED")
        assert code(client, "StreamApplyRotary", iter([])) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
        with pytest.raises(grpc.RpcError) as error:
            reflection = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
            list(reflection(iter([ServerReflectionRequest(list_services="").SerializeToString()]), timeout=SECONDS))
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        health = client.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(HealthCheckRequest().SerializeToString(), timeout=SECONDS) == b"\x08\x01"
    # No secret is in the log.
    assert not re.search(r"good|look|Bearer", server.log())


def test_tokens_over_plain_tcp_are_refused(start_server, files, tmp_path):
    files.set_policy({"name": "a", "allow": ALL})
    files.tokens.write_text(line("a", "secret"))
    socket = f"unix:{tmp_path}/socket"
    server = start_server("--listen", socket, *files.flags())
    with Client(server.port) as client:
        refusal = client.refusal("GetServerInfo", INFO, metadata=bearer("secret"))
        assert refusal.reason == "BAD_CREDENTIALS" and "TLS" in refusal.limit
    with Client(socket) as client:
        assert code(client, metadata=bearer("secret")) is None
        assert code(client) == ("UNAUTHENTICATED", "NO_CREDENTIALS")


def test_certificates(start_server, files, authority, server_files):
    files.set_policy({"name": "train", "certificates": ["dns:*.train.example"], "allow": ["compute", "info"]},
                     {"name": "one", "certificates": ["dns:one.example"], "allow": ["info"]},
                     {"name": "rest", "anonymous": True, "allow": []})
    files.tokens.write_text(line("one", "of-one"))
    server = start_server(*server_files, *files.flags(), "--log-level", "debug")
    with TlsClient(server.port, authority, authority.issue("a.train.example")) as client:
        assert code(client, "ApplyRotary", samples.rotary()) is None
        # A token counts before the certificate.
        assert code(client, "ApplyRotary", samples.rotary(), metadata=bearer("of-one")) == ("PERMISSION_DENIED", "NOT_ALLOWED")
    with TlsClient(server.port, authority, authority.issue("one.example")) as client:
        assert code(client) is None
        assert code(client, "ApplyRotary", samples.rotary()) == ("PERMISSION_DENIED", "NOT_ALLOWED")
    with TlsClient(server.port, authority, authority.issue("a.b.train.example")) as client:
        assert code(client) == ("UNAUTHENTICATED", "BAD_CREDENTIALS")
    with TlsClient(server.port, authority) as client:
        assert code(client) == ("PERMISSION_DENIED", "NOT_ALLOWED")  # anonymous
    assert "identity=train" in server.log_with("identity=one")


def test_headers_of_a_proxy_are_believed_of_a_proxy_only(start_server, files, authority, server_files, tmp_path):
    files.set_policy({"name": "train", "certificates": ["dns:a.train"], "allow": ALL},
                     {"name": "local", "unix_sockets": True, "allow": ["info"]})
    proxy, plain = tmp_path / "proxy", tmp_path / "plain"
    server = start_server(*server_files, *files.flags(), "--trusted-proxy", f"unix:{proxy}", "--listen", f"unix:{plain}",
                          "--log-level", "debug")
    certificate, _ = authority.issue("a.train")
    der = subprocess.run(["openssl", "x509", "-in", certificate, "-outform", "DER"], capture_output=True, check=True).stdout
    proven = [("x-posenc-client-cert", base64.b64encode(der).decode()), ("x-posenc-peer", "ipv4:192.0.2.7:1234")]
    assert stat.S_IMODE(proxy.stat().st_mode) == 0o600
    with Client(f"unix:{proxy}") as client:
        assert code(client, "ApplyRotary", samples.rotary(), metadata=proven) is None
        assert code(client) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
        for wrong in ("", "%%%", base64.b64encode(b"no certificate").decode(), base64.b64encode(der[:-9]).decode()):
            expected = "NO_CREDENTIALS" if wrong == "" else "BAD_CREDENTIALS"
            assert code(client, metadata=[("x-posenc-client-cert", wrong)]) == ("UNAUTHENTICATED", expected), wrong
    assert "peer=ipv4:192.0.2.7:1234" in server.log_with("192.0.2.7")
    # The same headers from anybody else mean nothing.
    with Client(f"unix:{plain}") as client:
        assert code(client, metadata=proven) is None
        assert code(client, "ApplyRotary", samples.rotary(), metadata=proven) == ("PERMISSION_DENIED", "NOT_ALLOWED")
    with TlsClient(server.port, authority) as client:
        assert code(client, metadata=proven) == ("UNAUTHENTICATED", "NO_CREDENTIALS")


def test_limits_of_an_identity(start_server, files, tmp_path):
    files.set_policy({"name": "small", "allow": ALL, "max_in_flight_requests": 2, "max_in_flight_bytes": 1 << 20},
                     {"name": "slow", "allow": ALL, "requests_per_second": 0.01},
                     {"name": "free", "allow": ALL})
    files.tokens.write_text("".join(line(name, name) for name in ("small", "slow", "free")))
    socket = f"unix:{tmp_path}/socket"
    start_server("--listen", socket, *files.flags())
    big = samples.rotary(q=numpy.ones((1, 1 << 15, 2, 8)))
    with Client(socket, APART) as client:
        refusal = client.refusal("ApplyRotary", big, metadata=bearer("small"))
        assert refusal.code.name == "RESOURCE_EXHAUSTED" and str(1 << 20) in refusal.limit
        assert code(client, "ApplyRotary", big, metadata=bearer("free")) is None
        # The first call of the slow one may begin, the second comes too soon.
        assert code(client, metadata=bearer("slow")) is None
        refusal = client.refusal("GetServerInfo", INFO, metadata=bearer("slow"))
        assert (refusal.code.name, refusal.reason) == ("UNAVAILABLE", "QUOTA")
        assert int(refusal.trailers["grpc-retry-pushback-ms"]) > 0
        assert code(client, metadata=bearer("free")) is None
        # Two streams of the small one are open: a third call of it is over its quota, one of another is not.
        streams = [client.method("StreamApplyRotary")(held_open(stop), timeout=SECONDS, metadata=bearer("small"))
                   for stop in (threading.Event(), threading.Event())]
        for stream in streams:
            next(stream)
        refusal = client.refusal("Explain", samples.explain(), metadata=bearer("small"))
        assert (refusal.code.name, refusal.reason) == ("UNAVAILABLE", "QUOTA")
        assert code(client, "Explain", samples.explain(), metadata=bearer("free")) is None
        for stream in streams:
            stream.cancel()
        wait_until(lambda: code(client, "Explain", samples.explain(), metadata=bearer("small")) is None, "the calls have not ended")


def slow(chance):
    """A small answer that takes milliseconds of compute time, and is in no cache."""
    return samples.table(count=4096, rotary_dim=2, dtype=samples.FP64, offset=2**51 + chance.randrange(1 << 24))


def test_two_identities_share_compute_time(start_server, files, tmp_path):
    """One keeps 32 calls in flight, the other two: it would get a seventeenth in order of arrival, and gets a half whenever
    its next call has come in time."""
    files.set_policy({"name": "many", "allow": ALL}, {"name": "few", "allow": ALL})
    files.tokens.write_text(line("many", "many") + line("few", "few"))
    socket = f"unix:{tmp_path}/socket"
    start_server("--listen", socket, "--threads", "1", *files.flags())
    answered, stop = {"many": 0, "few": 0}, threading.Event()

    def keep_calling(name, number):
        chance = random.Random(f"{name} {number}")
        with Client(socket, APART) as client:
            while not stop.is_set():
                client.call("GenerateTable", slow(chance), metadata=bearer(name))
                answered[name] += 1
                if answered["few"] >= 50:
                    stop.set()

    threads = [threading.Thread(target=keep_calling, args=(name, number))
               for name, count in (("many", 32), ("few", 2)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answered["few"] >= 50 and answered["many"] < 4 * answered["few"], answered


def test_limits_of_cost(start_server, files, tmp_path):
    files.set_policy({"name": "cheap", "allow": ALL, "max_call_cost": 2000}, {"name": "free", "allow": ALL})
    files.tokens.write_text(line("cheap", "cheap") + line("free", "free"))
    socket = f"unix:{tmp_path}/socket"
    start_server("--listen", socket, *files.flags())
    chance = random.Random(1)
    with Client(socket) as client:
        refusal = client.refusal("GenerateTable", slow(chance), metadata=bearer("cheap"))
        assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "TOO_LARGE")
        assert "at most 2000 slow steps (the policy's max_call_cost)" in refusal.message
        assert code(client, "GenerateTable", slow(chance), metadata=bearer("free")) is None


def test_fields_without_effect_are_named_in_the_log(start_server, files):
    files.set_policy({"name": "a", "allow": ALL, "weight": 2})
    files.tokens.write_text("")
    server = start_server(*files.flags())
    server.log_with("this release ignores a field identity=a field=weight")
    files.set_policy({"name": "b", "allow": ALL, "compute_per_second": 0.5})
    server.log_with("this release ignores a field identity=b field=compute_per_second")
    assert server.log().count("ignores a field") == 2


def test_messages_of_a_stream_are_requests(start_server, files, tmp_path):
    files.set_policy({"name": "slow", "allow": ALL, "requests_per_second": 0.001}, {"name": "free", "allow": ALL})
    files.tokens.write_text(line("slow", "slow") + line("free", "free"))
    socket = f"unix:{tmp_path}/socket"
    start_server("--listen", socket, *files.flags())
    settings = json_format.MessageToJson(service_pb2.GenerateEmbeddingRequest(sinusoidal=samples.embedding().sinusoidal))
    request = inference_client.infer("posenc.embedding", settings=settings, offset=0, count=3, dtype="FP32")
    messages = queue.Queue()
    with inference_client.InferenceClient(socket) as client, Client(socket, APART) as other:
        stream = client.method("ModelStreamInfer")(iter([request] * 3), timeout=SECONDS, metadata=bearer("slow"))
        errors = [answer.error_message for answer in stream]
        assert errors[0] == "" and len(errors) == 3 and all("than the policy allows" in error for error in errors[1:]), errors
        # A stream of an identity that is removed ends with its next message.
        stream = client.method("ModelStreamInfer")(iter(messages.get, None), timeout=SECONDS, metadata=bearer("free"))
        messages.put(request)
        assert next(stream).error_message == ""
        write(files.tokens, line("slow", "slow"))
        wait_until(lambda: code(other, metadata=bearer("free")) == ("UNAUTHENTICATED", "BAD_CREDENTIALS"), "not revoked")
        messages.put(request)
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert Refusal.of(ended.value).reason == "BAD_CREDENTIALS"
        messages.put(None)


# A certificate of 8 KiB can have so many names, which would take 87 KiB. docs/run.md allows a stream 25 KiB.
@pytest.mark.parametrize("stream", ("/inference.GRPCInferenceService/ModelStreamInfer", "StreamApplyRotary"))
def test_streams_keep_no_names_of_their_callers(start_server, files, authority, server_files, stream):
    connections, calls = 4, 75
    files.set_policy({"name": "many", "certificates": ["dns:many"], "allow": ALL})
    tls = ssl.create_default_context(cafile=authority.certificate)
    tls.set_alpn_protocols(["h2"])
    tls.load_cert_chain(*authority.issue("many", names=["a"] * 2150))
    server = start_server(*server_files, *files.flags(), "--max-concurrent-streams", "100")

    def wait_for_answers(client):
        client.wait_for(ResponseReceived, client.call("GetServerInfo", INFO))

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ShutWindow(server.port, tls=tls)) for _ in range(connections)]
        for client in clients:
            wait_for_answers(client)
        base = server.peak_memory()
        for client in clients:
            for _ in range(calls):
                client.begin(stream)
            wait_for_answers(client)  # so all streams have begun
        assert server.peak_memory() - base < connections * calls * (WAITING_CALL << 10) + SANITIZER_BYTES


def test_each_message_of_a_stream_is_of_its_certificate(start_server, files, authority, server_files):
    def set_policy(name):
        files.set_policy({"name": "train", "certificates": [f"dns:{name}"], "allow": ALL})

    set_policy("a.train")
    server = start_server(*server_files, *files.flags())
    ready = inference_client.infer("posenc.embedding", settings="{}", offset=0, count=3, dtype="FP32")
    messages = queue.Queue()
    with TlsClient(server.port, authority, authority.issue("a.train")) as client:
        method = client.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer",
                                              lambda request: request.SerializeToString())
        stream = method(iter(messages.get, None), timeout=SECONDS)
        for _ in range(3):
            messages.put(ready)
            next(stream)
        set_policy("another")
        wait_until(lambda: code(client) == ("UNAUTHENTICATED", "BAD_CREDENTIALS"), "not revoked")
        messages.put(ready)
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert Refusal.of(ended.value).reason == "BAD_CREDENTIALS"
        messages.put(None)


def held_open(stop):
    """The header of a stream, and then nothing."""
    header = samples.rotary(q=numpy.ones((1, 2, 1, 8)))
    header.q.tensor.ClearField("data")
    yield service_pb2.StreamApplyRotaryRequest(header=header)
    stop.wait(SECONDS)


def test_files_are_read_again(start_server, files, tmp_path):
    files.set_policy({"name": "a", "allow": ["info"]})
    files.tokens.write_text(line("a", "first"))
    socket = f"unix:{tmp_path}/socket"
    server = start_server("--listen", socket, *files.flags())
    with Client(socket) as client:
        assert code(client, metadata=bearer("first")) is None
        write(files.tokens, line("a", "second"))
        wait_until(lambda: code(client, metadata=bearer("second")) is None, "the tokens are not read again")
        assert code(client, metadata=bearer("first")) == ("UNAUTHENTICATED", "BAD_CREDENTIALS")
        # Wrong files change nothing, and the log says what is wrong with them.
        failures = 0
        for change in (lambda: write(files.policy, '{"identities": [{"name": "a", "allow": ["everything"]}]}'),
                       lambda: write(files.policy, '{"identities": []}'),  # the token's identity is gone
                       lambda: os.remove(files.policy)):
            before = server.log().count("policy not reloaded")
            change()
            server.signal(signal.SIGHUP)  # looks at the files now, not only every 5 s
            wait_until(lambda: server.log().count("policy not reloaded") > before, "the log says nothing")
            failures += 1
            counters = client.call("GetServerInfo", INFO, metadata=bearer("second")).counters
            assert (counters.policy_reloads, counters.policy_failed_reloads) == (1, failures)
            assert code(client, metadata=bearer("second")) is None
        files.set_policy({"name": "a", "allow": ["compute"]})
        server.signal(signal.SIGHUP)
        wait_until(lambda: code(client, metadata=bearer("second")) == ("PERMISSION_DENIED", "NOT_ALLOWED"),
                   "the policy is not read again")


@pytest.mark.parametrize("flags, message", [
    (["--token-file", "tokens"], "--policy"),
    (["--policy", "missing"], "missing"),
    (["--policy", "pipe"], "must be a regular file"),
    (["--tls-cert", "policy.json", "--tls-key", "pipe"], "must be a regular file"),
    (["--trusted-proxy", "127.0.0.1:0"], "--trusted-proxy: is 127.0.0.1:0; must be unix:PATH"),
    (["--http-trusted-proxy", "127.0.0.1:0"], "--http-trusted-proxy: is 127.0.0.1:0; must be unix:PATH"),
    (["--policy", "policy.json", "--token-file", "tokens"], "line 1"),
])
def test_wrong_settings(server_program, tmp_path, flags, message):
    (tmp_path / "policy.json").write_text('{"identities": []}')
    (tmp_path / "tokens").write_text("nobody " + "a" * 64)
    os.mkfifo(tmp_path / "pipe")
    ended = subprocess.run([*server_program, "--listen", "127.0.0.1:0", *flags], capture_output=True, text=True,
                           timeout=SECONDS, cwd=tmp_path)
    assert ended.returncode in (1, 2) and message in ended.stderr, ended


def test_the_command_and_the_load_tester_send_a_token(start_server, files, authority, server_files, posenc, tmp_path):
    files.set_policy({"name": "a", "allow": ALL})
    files.tokens.write_text(line("a", "secret"))
    socket = f"unix:{tmp_path}/socket"
    server = start_server("--listen", socket, *server_files, *files.flags())
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "wrong").write_text("sacred")
    over_tls = ("--server", f"localhost:{server.port}", "--tls-ca", authority.certificate)
    for address in (over_tls, ("--server", socket)):
        posenc(*address, "--token-file", "token", "info")
        posenc(*address, "info", POSENC_TOKEN_FILE="token")
        posenc("load", *address, "--token-file", "token", "--count", "20", "--concurrency", "1")
        assert "must be a token of the server" in posenc(*address, "--token-file", "wrong", "info", exit_code=3).stderr
        assert "authorization" in posenc(*address, "info", exit_code=3).stderr
        posenc("health", *address)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "two").write_text("a b")
    for name in ("empty", "two", "missing"):
        assert name in posenc(*over_tls, "--token-file", name, "info", exit_code=2).stderr
