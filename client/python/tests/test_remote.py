"""What only a server's client does: retries, TLS, asyncio, lost servers."""

import asyncio
import concurrent.futures
import hashlib
import json

import grpc
import numpy as np
import pytest
from conftest import LLAMA, ServerProcess, SERVER

import posenc
import posenc.aio
from posenc._descriptors import api, varint

Q = np.ones((1, 2, 1, 128), np.float32)
INFO = b"\x0a\x030.1"  # GetServerInfoResponse { version: "0.1" }


class Refusing(grpc.GenericRpcHandler):
    """Refuses the first calls, each with the trailers given for it, and counts all of them."""

    def __init__(self, refusals):
        self._refusals, self.calls = list(refusals), 0

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request, context):
        self.calls += 1
        if self._refusals:
            code, trailers = self._refusals.pop(0)
            context.set_trailing_metadata(trailers)
            context.abort(code, "refused")
        return INFO


@pytest.fixture
def refusing():
    """Starts such a server. Returns its handler and a client."""
    servers = []

    def start(*refusals, **options):
        handler = Refusing(refusals)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers([handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return handler, posenc.connect(f"127.0.0.1:{port}", **options)

    yield start
    for server in servers:
        server.stop(0)


@pytest.fixture
def waits(monkeypatch):
    """Records the waits between attempts instead of sleeping."""
    recorded = []
    monkeypatch.setattr("posenc._remote.time.sleep", recorded.append)
    monkeypatch.setattr("posenc._retry.random.uniform", lambda a, b: 0.0)
    return recorded


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def pushed_back(milliseconds):
    return UNAVAILABLE, (("grpc-retry-pushback-ms", str(milliseconds)),)


def test_push_back_replaces_the_wait(refusing, waits):
    handler, client = refusing((UNAVAILABLE, ()), (UNAVAILABLE, ()), pushed_back(250), (UNAVAILABLE, ()))
    assert client.info().version == "0.1"
    assert handler.calls == 5 and waits == [0.1, 0.4, 0.25, 0.1]


def test_a_total_time_replaces_the_number_of_attempts(refusing, waits):
    handler, client = refusing(*[(UNAVAILABLE, ())] * 20, retry=posenc.RetryPolicy(total=3600))
    assert client.info().version == "0.1"
    assert handler.calls == 21 and waits[:4] == [0.1, 0.4, 1.6, 5.0] and max(waits) == 5.0


def test_the_error_after_a_total_time_names_the_address(refusing, waits):
    handler, client = refusing(*[(UNAVAILABLE, ())] * 2, retry=posenc.RetryPolicy(total=0))
    with pytest.raises(posenc.Unavailable, match=r"waited 0 s for 127\.0\.0\.1:\d+ to come back"):
        client.info()
    assert handler.calls == 1 and not waits


@pytest.mark.parametrize("value", [-1, "soon"])
def test_a_negative_push_back_forbids_retries(refusing, waits, value):
    handler, client = refusing(pushed_back(value))
    with pytest.raises(posenc.Unavailable):
        client.info()
    assert handler.calls == 1 and waits == []


def test_attempts_are_limited(refusing, waits):
    handler, client = refusing(*[(UNAVAILABLE, ())] * 9)
    with pytest.raises(posenc.Unavailable):
        client.info()
    assert handler.calls == 5
    handler, client = refusing(*[(UNAVAILABLE, ())] * 9, wait_for_ready=True)
    with pytest.raises(posenc.Unavailable):
        client.info()
    assert handler.calls == 5, "a server was reached"
    handler, client = refusing((UNAVAILABLE, ()), retry=posenc.RetryPolicy(max_attempts=1))
    with pytest.raises(posenc.Unavailable):
        client.info()
    assert handler.calls == 1


def test_a_wait_past_the_deadline_is_not_waited(refusing, waits):
    handler, client = refusing(pushed_back(5000))
    with pytest.raises(posenc.Unavailable):
        client.info(timeout=1)
    assert handler.calls == 1 and waits == []


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL])
def test_other_errors_are_not_retried(refusing, waits, code):
    handler, client = refusing((code, ()))
    with pytest.raises(posenc.Error) as caught:
        client.info()
    assert handler.calls == 1 and caught.value.code == code.name


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN])
def test_a_call_that_its_server_did_not_end_is_made_again(refusing, waits, code):
    handler, client = refusing((code, ()))
    assert client.info().version == "0.1" and handler.calls == 2


def refusal(started):
    """The trailers of a refusal by posenc, as its server makes them."""
    def field(number, data):
        return varint(number << 3 | 2) + varint(len(data)) + data
    info = field(1, b"OVERLOADED") + field(2, b"posenc") + field(3, field(1, b"started") + field(2, started))
    any_ = field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + field(2, info)
    return UNAVAILABLE, (("grpc-status-details-bin", b"\x08\x0e" + field(2, b"full") + field(3, any_)),)


def test_calls_in_shared_memory_are_retried_only_if_they_had_not_begun(refusing, waits):
    region = {"token": b"x" * 16, "offset": 0, "byte_size": 8}
    request = {"q": {"tensor": {"dtype": "FP32", "shape": [2], "region": region}}}
    handler, client = refusing(refusal(b"false"))
    client.call("ApplyRotary", request)
    assert handler.calls == 2
    handler, client = refusing(refusal(b"true"))
    with pytest.raises(posenc.Unavailable) as caught:
        client.call("ApplyRotary", request)
    assert handler.calls == 1 and caught.value.reason == "OVERLOADED"


def test_no_server():
    with posenc.connect("127.0.0.1:1", retry=posenc.RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(posenc.Unavailable, match="posenc-server --listen 127.0.0.1:1"):
            client.info()


def test_a_server_that_comes_back(tmp_path):
    with ServerProcess(SERVER, tmp_path) as process:
        address = f"127.0.0.1:{process.port}"
        client = posenc.connect(address, retry=posenc.RetryPolicy(max_attempts=40, max_backoff=0.5))
        assert client.info().version
    (tmp_path / "again").mkdir()
    with ServerProcess([*SERVER, "--listen", address], tmp_path / "again"):
        assert client.info().version


def test_tls(tls):
    process, authority, (certificate, key) = tls
    address = f"localhost:{process.port}"
    for files in (posenc.TLS(authority.certificate, certificate, key),
                  posenc.TLS(*(path.read_bytes() for path in (authority.certificate, certificate, key)))):
        with posenc.connect(address, tls=files) as client:
            assert client.rope(Q, model=LLAMA, positions=0, layout="BSHD").q.shape == Q.shape
    once = posenc.RetryPolicy(max_attempts=1)
    for wrong in (posenc.TLS(authority.certificate), True, False):
        with posenc.connect(address, tls=wrong, retry=once) as client, pytest.raises(posenc.Unavailable, match="TLS"):
            client.info()
    with pytest.raises(ValueError, match="together"):
        posenc.connect(address, tls=posenc.TLS(authority.certificate, certificate))


def test_a_certificate_of_another_name(tls):
    process, authority, (certificate, key) = tls
    with posenc.connect(f"127.0.0.2:{process.port}", tls=posenc.TLS(authority.certificate, certificate, key),
                        retry=posenc.RetryPolicy(max_attempts=1)) as client, pytest.raises(posenc.Unavailable):
        client.info()


@pytest.mark.parametrize("place", ["remote", "local"])
def test_asyncio(server, place, local):
    async def work():
        client = posenc.aio.local() if place == "local" else posenc.aio.connect(f"127.0.0.1:{server.port}")
        async with client:
            answers = await asyncio.gather(*(client.rope(Q, Q, model=LLAMA, positions=n, layout="BSHD") for n in range(20)))
            for n, (q, _) in enumerate(answers):
                assert (q == local.rope(Q, model=LLAMA, positions=n, layout="BSHD").q).all()
            assert (await client.compare(LLAMA, LLAMA)).same
            with pytest.raises(posenc.InvalidArgument) as caught:
                await client.rope(Q, model=LLAMA, positions=0, layout="THD")
            assert caught.value.field == "q.tensor.shape"
    asyncio.run(work())


def test_asyncio_has_all_methods():
    def names(client):
        return {name for name in vars(client) if not name.startswith("__")}
    assert names(posenc.Client) == names(posenc.aio.AsyncClient)
    iterators = {"stream_rope", "stream_table", "stream_bias", "_tiles", "_rows"}
    assert all(asyncio.iscoroutinefunction(getattr(posenc.aio.AsyncClient, name)) for name in names(posenc.Client) - iterators
               if name != "_abc_impl")


def test_asyncio_retries(refusing, monkeypatch):
    handler, sync = refusing(pushed_back(1), pushed_back(-1))

    async def work():
        async with posenc.aio.connect(sync._address) as client:
            with pytest.raises(posenc.Unavailable):
                await client.info()
            return await client.info()
    assert asyncio.run(work()).version == "0.1" and handler.calls == 3


def test_threads_share_a_client(client):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.table(model=LLAMA, positions=n, count=1, dtype="FP64", form="HALF_WIDTH").cos,
                                range(200)))
    assert [answer[0, 0] for answer in answers] == [np.cos(np.float64(n)) for n in range(200)] or all(
        abs(answer[0, 0] - np.cos(n)) < 1e-15 for n, answer in enumerate(answers))


def test_all_rpcs_have_paths():
    assert api().rpcs["ApplyRotary"].path == "/posenc.v1.PositionalEncodingService/ApplyRotary"


@pytest.fixture
def sharing(tmp_path):
    """A server with a side socket, and its client, with the number of registered regions."""
    side = str(tmp_path / "side.sock")
    with ServerProcess(SERVER, tmp_path, "--shared-memory-socket", side, "--max-regions", "12") as process:
        with posenc.connect(f"127.0.0.1:{process.port}", shared_memory=side) as client:
            yield client


def large(heads=4):
    return np.random.default_rng(7).standard_normal((1, 1024, heads, 128)).astype(np.float32)


def test_shared_memory(sharing, local):
    q, k = large(), large(2)
    expected = local.rope(q, k, model=LLAMA, positions=3, layout="BSHD")
    before = q.copy()
    answer = sharing.rope(q, k, model=LLAMA, positions=3, layout="BSHD")
    assert (answer.q == expected.q).all() and (answer.k == expected.k).all() and (q == before).all()
    assert sharing.info().counters.regions == 2
    del answer
    q2, k2 = sharing.rope(q, k, model=LLAMA, positions=3, layout="BSHD")
    assert sharing.info().counters.regions == 2, "blocks are used again when their answer is gone"
    again = sharing.rope(q, model=LLAMA, positions=4, layout="BSHD").q
    assert (q2 == expected.q).all() and (again != q2).any()
    assert sharing.info().counters.regions == 3
    out = [np.empty_like(q)]
    assert sharing.rope(q, model=LLAMA, positions=3, layout="BSHD", out=out).q is out[0]
    assert (out[0] == expected.q).all()
    scores = np.ones((1, 2, 512, 512), np.float32)
    method = {"alibi": {"num_heads": 2, "rule": "POWER_OF_TWO", "form": "CAUSAL"}}
    assert (sharing.add_bias(scores, method=method).scores == local.add_bias(scores, method=method).scores).all()


def test_small_tensors_are_not_shared(sharing):
    sharing.rope(Q, model=LLAMA, positions=0, layout="BSHD")
    assert sharing.info().counters.regions == 0


def test_without_room_for_more_regions_messages_are_used(sharing, local):
    q = large()
    expected = local.rope(q, model=LLAMA, positions=3, layout="BSHD").q
    kept = [sharing.rope(q, model=LLAMA, positions=3, layout="BSHD").q for _ in range(15)]
    assert all((one == expected).all() for one in kept)
    assert sharing.info().counters.regions == 12


def test_a_server_that_has_forgotten_the_memory(tmp_path, local):
    q, side = large(), str(tmp_path / "side.sock")
    expected = local.rope(q, model=LLAMA, positions=3, layout="BSHD").q
    with ServerProcess(SERVER, tmp_path, "--shared-memory-socket", side) as process:
        address = f"127.0.0.1:{process.port}"
        client = posenc.connect(address, shared_memory=side, retry=posenc.RetryPolicy(max_attempts=40, max_backoff=0.5))
        assert (client.rope(q, model=LLAMA, positions=3, layout="BSHD").q == expected).all()
    (tmp_path / "again").mkdir()
    with ServerProcess([*SERVER, "--listen", address], tmp_path / "again", "--shared-memory-socket", side) as process:
        assert (client.rope(q, model=LLAMA, positions=3, layout="BSHD").q == expected).all()
        assert client.info().counters.regions == 1


def test_shared_memory_of_no_server(server, tmp_path):
    with posenc.connect(f"127.0.0.1:{server.port}", shared_memory=str(tmp_path / "none")) as client:
        with pytest.raises(posenc.Unavailable, match="--shared-memory-socket"):
            client.rope(large(), model=LLAMA, positions=0, layout="BSHD")
        assert client.rope(Q, model=LLAMA, positions=0, layout="BSHD").q.shape == Q.shape


@pytest.fixture
def found(sharing, tmp_path, monkeypatch):
    """The side socket is named by the environment; returns its path."""
    path = str(tmp_path / "side.sock")
    monkeypatch.setenv("POSENC_SHARED_MEMORY_SOCKET", path)
    return path


def rotate_large(client, local):
    q = large()
    expected = local.rope(q, model=LLAMA, positions=3, layout="BSHD").q
    assert (client.rope(q, model=LLAMA, positions=3, layout="BSHD").q == expected).all()


def test_shared_memory_is_found(sharing, found, local):
    with posenc.connect(sharing._address) as client:
        rotate_large(client, local)
        assert sharing.info().counters.regions == 1
    with posenc.connect(sharing._address, shared_memory=False) as client:
        rotate_large(client, local)

    async def work():
        async with posenc.aio.connect(sharing._address) as client:
            answer = await client.rope(large(), model=LLAMA, positions=3, layout="BSHD")
            assert (answer.q == local.rope(large(), model=LLAMA, positions=3, layout="BSHD").q).all()
            return sharing.info().counters.regions
    assert asyncio.run(work()) == 1


def test_a_found_socket_of_another_server_is_not_used(server, sharing, found, local, tmp_path):
    """Of a server without shared memory, of one with its own, and of nobody."""
    with posenc.connect(f"127.0.0.1:{server.port}") as client:
        rotate_large(client, local)
        assert client._shared._off
    (tmp_path / "other").mkdir()
    with ServerProcess(SERVER, tmp_path / "other", "--shared-memory-socket", str(tmp_path / "other.sock")) as process:
        with posenc.connect(f"127.0.0.1:{process.port}") as client:
            rotate_large(client, local)
            rotate_large(client, local)
            assert client._shared._off and client.info().counters.regions == 0


def test_a_found_socket_that_nobody_serves(server, local, tmp_path, monkeypatch):
    (tmp_path / "nobody.sock").touch()
    monkeypatch.setenv("POSENC_SHARED_MEMORY_SOCKET", str(tmp_path / "nobody.sock"))
    with posenc.connect(f"127.0.0.1:{server.port}") as client:
        rotate_large(client, local)
        assert client._shared._off


def test_a_server_that_restarts_shares_memory_again(tmp_path, local, monkeypatch):
    side = str(tmp_path / "side.sock")
    monkeypatch.setenv("POSENC_SHARED_MEMORY_SOCKET", side)
    with ServerProcess(SERVER, tmp_path, "--shared-memory-socket", side) as process:
        address = f"127.0.0.1:{process.port}"
        client = posenc.connect(address, retry=posenc.RetryPolicy(max_attempts=40, max_backoff=0.5))
        rotate_large(client, local)
    (tmp_path / "again").mkdir()
    with ServerProcess([*SERVER, "--listen", address], tmp_path / "again", "--shared-memory-socket", side):
        rotate_large(client, local)
        assert client.info().counters.regions == 1


@pytest.mark.parametrize("address, is_local", [
    ("localhost:50051", True), ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("unix:/run/posenc/grpc.sock", True),
    ("ipv4:127.0.0.1:1", True), ("dns:///localhost:1", True), ("10.0.0.1:1", False), ("localhost.example:1", False),
    ("dns:///posenc.example:443", False), ("127.0.0.1.example:1", False)])
def test_only_local_addresses_look_for_shared_memory(tmp_path, monkeypatch, address, is_local):
    (tmp_path / "side.sock").touch()
    monkeypatch.setenv("POSENC_SHARED_MEMORY_SOCKET", str(tmp_path / "side.sock"))
    with posenc.connect(address) as client:
        assert (client._shared is not None) == is_local


def test_a_policy(tmp_path):
    (tmp_path / "policy.json").write_text(json.dumps({"identities": [{"name": "batch", "allow": ["compute"]}]}))
    (tmp_path / "tokens").write_text(f"batch {hashlib.sha256(b'a-long-and-random-token-0123456789').hexdigest()}\n")
    address = f"unix:{tmp_path}/grpc.sock"
    with ServerProcess([*SERVER, "--listen", address, "--policy", tmp_path / "policy.json", "--token-file",
                        tmp_path / "tokens"], tmp_path):
        with posenc.connect(address, token="a-long-and-random-token-0123456789") as client:
            assert client.rope(Q, model=LLAMA, positions=0, layout="BSHD").q.shape == Q.shape
            with pytest.raises(posenc.NotAllowed) as caught:
                client.info()
            assert caught.value.reason == "NOT_ALLOWED"
        for token, reason in (("another", "BAD_CREDENTIALS"), (None, "NO_CREDENTIALS")):
            with posenc.connect(address, token=token) as client, pytest.raises(posenc.NotAllowed) as caught:
                client.rope(Q, model=LLAMA, positions=0, layout="BSHD")
            assert caught.value.reason == reason
