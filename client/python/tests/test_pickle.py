"""Clients and answers in other processes: by pickle, and by fork."""

import asyncio
import copy
import hashlib
import json
import multiprocessing
import os
import pathlib
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import LLAMA, SERVER, ServerProcess

import posenc
import posenc.aio

Q = np.random.default_rng(7).standard_normal((1, 3, 2, 128)).astype(np.float32)
ROTATION = {"model": LLAMA, "positions": 3, "layout": "BSHD"}
ALIBI = {"method": {"alibi": {"num_heads": 8, "rule": "POWER_OF_TWO", "form": "CAUSAL"}}, "form": "DENSE",
         "geometry": {"query_length": 4, "key_length": 4}}
WATCHDOG = 120  # seconds


def travelled(value):
    return pickle.loads(pickle.dumps(value))


def test_a_client_travels(client):
    expected = client.rope(Q, **ROTATION).q
    other = travelled(client)
    assert type(other) is type(client) and other is not client
    assert (other.rope(Q, **ROTATION).q == expected).all()


def test_a_process_has_one_client(client):
    """Each task of an engine brings a copy. One of them that is closed does not end the others."""
    data = pickle.dumps(client)
    copies = [pickle.loads(data) for _ in range(100)]
    assert len(set(map(id, copies))) == 1
    with copies[0]:
        pass
    assert copies[1].rope(Q, **ROTATION).q.shape == Q.shape


def test_threads_unpickle_one_client(local):
    data, found = pickle.dumps(local), []
    threads = [threading.Thread(target=lambda: found.append(pickle.loads(data).rope(Q, **ROTATION).q)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8


def test_options_travel(server):
    retry = posenc.RetryPolicy(max_attempts=2)
    address = f"127.0.0.1:{server.port}"
    with posenc.connect(address, timeout=7, retry=retry, shared_memory=False, wait_for_ready=True) as client:
        other = travelled(client)
        assert other._arguments == client._arguments == (address, False, 7, retry, False, None, True)
        assert other is not travelled(posenc.connect(address))
    with posenc.local(threads=1, max_output_bytes=1000) as client:
        with pytest.raises(posenc.Error, match="at most 1000"):
            travelled(client).rope(Q, **ROTATION)
    with posenc.local(threads=1, max_request_bytes=1000) as client:
        with pytest.raises(posenc.Error, match="request: is .* at most 1000 bytes"):
            client.rope(Q, **ROTATION)


def test_copies_are_the_client(client):
    assert copy.copy(client) is client and copy.deepcopy([client])[0] is client


def test_nothing_is_needed_before_the_first_use(tmp_path):
    """Neither the server nor the files of a worker have to be there when a client is unpickled."""
    for name in ("ca", "token"):
        (tmp_path / name).write_text("text")
    client = posenc.connect("127.0.0.1:1", tls=posenc.TLS(ca=tmp_path / "ca"), token=posenc.Token(file=tmp_path / "token"),
                            retry=posenc.RetryPolicy(max_attempts=1))
    data = pickle.dumps(client)
    (tmp_path / "ca").unlink()
    other = pickle.loads(data)
    with pytest.raises(posenc.InvalidArgument, match=r"tls: is .*ca; must be a readable file here"):
        other.info()
    (tmp_path / "token").unlink()
    (tmp_path / "ca").write_text("text")
    with pytest.raises(posenc.InvalidArgument, match=r"token.file: is .*token; must be a readable file here"):
        pickle.loads(data).info()


def test_secrets_do_not_travel():
    key = b"-----BEGIN PRIVATE KEY-----"
    with posenc.connect("127.0.0.1:1", token="a-secret") as client:
        with pytest.raises(pickle.PicklingError, match=r"token: is a string.*posenc.Token\(file=\.\.\.\)"):
            pickle.dumps(client)
        assert "a-secret" not in repr(client._arguments)
    with posenc.connect("127.0.0.1:1", tls=posenc.TLS(certificate=b"x", key=key)) as client:
        with pytest.raises(pickle.PicklingError, match="tls.certificate: is bytes.*the path of a file") as caught:
            pickle.dumps(client)
        assert "PRIVATE" not in str(caught.value)


def test_tls_by_paths_travels(tls):
    process, authority, (certificate, key) = tls
    paths = posenc.TLS(ca=authority.certificate, certificate=certificate, key=key)
    with posenc.connect(f"localhost:{process.port}", tls=paths) as client:
        data = pickle.dumps(client)
        assert pathlib.Path(key).read_bytes() not in data
        assert pickle.loads(data).info().version


def test_tokens_by_file_and_variable(tmp_path, monkeypatch):
    """A file is read again when it changes."""
    token = "a-long-and-random-token-0123456789"
    (tmp_path / "policy.json").write_text(json.dumps({"identities": [{"name": "batch", "allow": ["compute"]}]}))
    (tmp_path / "tokens").write_text(f"batch {hashlib.sha256(token.encode()).hexdigest()}\n")
    (tmp_path / "mine").write_text(f"{token}\n")
    monkeypatch.setenv("MY_TOKEN", token)
    address = f"unix:{tmp_path}/socket"
    with ServerProcess([*SERVER, "--listen", address, "--policy", tmp_path / "policy.json", "--token-file",
                        tmp_path / "tokens"], tmp_path):
        for where in (posenc.Token(file=tmp_path / "mine"), posenc.Token(variable="MY_TOKEN")):
            with posenc.connect(address, token=where) as client:
                data = pickle.dumps(client)
                assert token.encode() not in data
                for one in (client, pickle.loads(data)):
                    assert one.rope(Q, **ROTATION).q.shape == Q.shape
        other = pickle.loads(data)
        monkeypatch.delenv("MY_TOKEN")
        with pytest.raises(posenc.InvalidArgument, match="the variable MY_TOKEN must have a token"):
            other.rope(Q, **ROTATION)
        with posenc.connect(address, token=posenc.Token(file=tmp_path / "mine")) as client:
            (tmp_path / "mine").write_text("another-token")
            with pytest.raises(posenc.NotAllowed):
                client.rope(Q, **ROTATION)


def test_asyncio_clients_travel(server):
    async def call(client):
        async with client:
            return (await client.rope(Q, **ROTATION)).q
    for made in (posenc.aio.local(), posenc.aio.connect(f"127.0.0.1:{server.port}")):
        data = pickle.dumps(made)
        expected = asyncio.run(call(made)) if data.find(b"Local") >= 0 else None
        for _ in range(2):  # each event loop has a copy
            found = asyncio.run(call(pickle.loads(data)))
            assert expected is None or (found == expected).all()


def test_answers_travel(client):
    answer = client.rope(Q, Q[:, :, :1], **ROTATION)
    other = travelled(answer)
    assert type(other) is type(answer) and repr(other.info) == repr(answer.info)
    assert (other.q == answer.q).all() and (other.k == answer.k).all() and len(list(other)) == 2
    other.q[:] = 0  # like an answer's own memory
    assert repr(travelled(other).info) == repr(answer.info)
    assert len(pickle.dumps(answer)) < answer.q.nbytes + answer.k.nbytes + 2000  # the tensors are in it once
    assert repr(copy.deepcopy(answer).info) == repr(answer.info)


def test_an_answer_without_a_tensor_travels(client):
    answer = travelled(client.rope(Q, **ROTATION))
    assert answer.k is None and len(list(answer)) == 1


def test_answers_of_bfloat16_travel(client):
    q = Q.astype(ml_dtypes.bfloat16)
    answer = client.rope(q, **ROTATION)
    assert travelled(answer).q.dtype == ml_dtypes.bfloat16 and (travelled(answer).q == answer.q).all()
    bias = client.bias(**ALIBI, dtype="BF16")
    assert (travelled(bias).bias == bias.bias).all()


def test_other_answers_travel(client):
    explained = client.explain(LLAMA)
    other = travelled(explained)
    assert repr(other) == repr(explained)
    settings = travelled(explained.layers[0].info.plan.rotary)  # a message within one can go into a request
    assert (client.rope(Q, settings=settings, positions=3, layout="BSHD").q == client.rope(Q, **ROTATION).q).all()
    table = {"model": LLAMA, "positions": 0, "count": 4, "dtype": "FP32", "form": "HALF_WIDTH"}
    tile = next(iter(client.stream_table(**table)))
    assert (travelled(tile).cos == tile.cos).all()
    whole = client.rope_in_chunks(Q, **ROTATION)
    assert (travelled(whole).q == whole.q).all() and repr(travelled(whole).info) == repr(whole.info)
    part = next(iter(client.stream_rope(Q, **ROTATION)))
    assert (travelled(part).rows == part.rows).all()
    diagnosis = client.diagnose(Q, whole.q, **ROTATION)
    assert travelled(diagnosis).verdict.kind == diagnosis.verdict.kind == "MATCHES"


def test_errors_and_models_travel(client):
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope(Q, model=LLAMA, positions=0, layout="THD")
    other = travelled(caught.value)
    assert type(other) is posenc.InvalidArgument and vars(other) == vars(caught.value) and str(other) == str(caught.value)
    model = travelled(posenc.Model(LLAMA, layer=1))
    assert (client.rope(Q, model=model, positions=3, layout="BSHD").q == client.rope(Q, **ROTATION).q).all()


def rotate(client):
    """Work of a process: in spawned ones, this module is imported anew."""
    answer = client.rope(Q, **ROTATION)
    return os.getpid(), answer, id(client)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes(client, method):
    """The client has been used before the processes begin."""
    expected = client.rope(Q, **ROTATION).q
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        results = pool.map_async(rotate, [client] * 6, chunksize=1).get(WATCHDOG)
    assert all((answer.q == expected).all() and answer.info.rotary_dim == 128 for _, answer, _ in results)
    assert len({(process, made) for process, _, made in results}) == len({process for process, _, _ in results})


INHERITED = {}


def rotate_inherited(_):
    return INHERITED["client"].rope(Q, **ROTATION).q


def test_forked_workers_use_the_client_that_they_inherit(client):
    INHERITED["client"] = client
    expected = client.rope(Q, **ROTATION).q
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all((q == expected).all() for q in pool.map_async(rotate_inherited, range(6)).get(WATCHDOG))
    assert (client.rope(Q, **ROTATION).q == expected).all()


def test_an_asyncio_client_in_a_forked_process(server):
    """gRPC's asyncio does not work there. A client that was not used yet does, and a local one."""
    async def work():
        async with posenc.aio.connect(f"127.0.0.1:{server.port}") as client:
            await client.rope(Q, **ROTATION)
            child = os.fork()
            if child == 0:
                try:
                    await client.rope(Q, **ROTATION)
                except RuntimeError as error:
                    os._exit(7 if "make the client there" in str(error) else 1)
                finally:
                    os._exit(2)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert asyncio.run(work()) == 7


class Rotated:
    """A data set that rotates."""

    def __init__(self, client):
        self.client = client

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.client.rope(Q, model=LLAMA, positions=index, layout="BSHD").q


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_data_loaders_of_torch(client, method):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    expected = client.rope(Q, model=LLAMA, positions=5, layout="BSHD").q
    loader = data.DataLoader(Rotated(client), num_workers=2, batch_size=None, multiprocessing_context=method, timeout=WATCHDOG)
    found = list(loader)
    assert len(found) == 6 and (found[5].numpy() == expected).all()


class Threads(Rotated):
    def __getitem__(self, index):
        return self.client.info().devices[0].threads


def test_one_thread_in_a_worker_of_torch(local):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    loader = data.DataLoader(Threads(local), num_workers=1, batch_size=None, multiprocessing_context="spawn", timeout=WATCHDOG)
    assert list(loader) == [1] * 6


def threads_inherited(_):
    os.environ["OMP_NUM_THREADS"] = "1"
    return INHERITED["client"].info().devices[0].threads


def test_a_forked_worker_has_its_own_share(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with posenc.local() as client:
        INHERITED["client"] = client
        before = client.info().devices[0].threads
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map_async(threads_inherited, [0]).get(WATCHDOG) == [1]
        assert client.info().devices[0].threads == before


@pytest.mark.parametrize("value, threads", [("1", 1), ("1,2", 1), ("100000", len(os.sched_getaffinity(0))), ("", None), ("x", None)])
def test_threads_are_the_workers_share(local, monkeypatch, value, threads):
    """Engines tell it by OMP_NUM_THREADS."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with posenc.local() as client:
        usual = client.info().devices[0].threads
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    with posenc.local() as client:
        assert client.info().devices[0].threads == (threads or usual)
    with posenc.local(threads=2) as client:
        assert client.info().devices[0].threads == 2
