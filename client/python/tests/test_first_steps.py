"""What one meets who begins: installing, examples, stubs beside the package, servers that do not answer, spellings."""

import asyncio
import importlib.metadata
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import LLAMA, SERVER, ServerProcess

import posenc
import posenc.aio
from posenc._unreachable import no_answer

ROOT = pathlib.Path(__file__).resolve().parents[3]
Q = np.random.default_rng(5).standard_normal((1, 3, 2, 128)).astype(np.float32)
ROTATION = {"model": LLAMA, "positions": 3, "layout": "BSHD"}
ALIBI = {"method": {"alibi": {"num_heads": 8, "rule": "POWER_OF_TWO", "form": "CAUSAL"}}, "form": "DENSE",
         "geometry": {"query_length": 4, "key_length": 4}}


def test_pip_installs_a_client_from_the_sources(server, tmp_path):
    """It makes what is not in git, calls servers, and says what it lacks to compute."""
    clone = tmp_path / "clone"
    left_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "libposenc.so", "api.binpb", "fields.py",
                                      "messages.py", "aio.py", "*_pb2*")
    shutil.copytree(ROOT / "client/python", clone / "client/python", ignore=left_out)
    shutil.copytree(ROOT / "proto", clone / "proto")
    there = tmp_path / "there"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", there, clone / "client/python"],
                   capture_output=True, text=True, check=True)
    code = ("import posenc, posenc.v1.service_pb2; print(posenc.__file__); "
            f"print(posenc.connect('127.0.0.1:{server.port}').info().version); posenc.local()")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(there), "POSENC_LIBRARY": ""})
    assert said.stdout.splitlines() == [str(there / "posenc/__init__.py"), importlib.metadata.version("posenc")]
    assert "servers only" in said.stderr


def test_a_client_without_what_only_linux_has(server):
    """Other libraries are imported first: they know what their platform has."""
    code = ("import os, sys, socket, tempfile, threading, grpc, numpy, importlib.resources\n"
            "del os.register_at_fork, os.memfd_create, os.sched_getaffinity, socket.AF_UNIX; sys.modules['fcntl'] = None\n"
            f"import posenc; print(posenc.connect('127.0.0.1:{server.port}').info().version)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.strip() == importlib.metadata.version("posenc"), said.stderr


def test_the_example(server, llama):
    said = subprocess.run([sys.executable, ROOT / "examples/rotate.py", f"127.0.0.1:{server.port}", llama], capture_output=True,
                          text=True, check=True).stdout
    assert said.startswith("[")


@pytest.mark.skipif(not shutil.which("grpc_python_plugin"), reason="no protoc with gRPC's plugin for Python")
def test_stubs_beside_the_package(server, llama, tmp_path):
    """The stubs' folder has the package posenc.v1, that of the wheel the package posenc."""
    subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}",
                    f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}",
                    *sorted(map(str, (ROOT / "proto").glob("posenc/v1/*.proto")))], check=True)
    (tmp_path / "both.py").write_text((ROOT / "examples/rotate_stubs.py").read_text() +
                                      "import posenc\nprint(posenc.connect(address).info().version)\n")
    said = subprocess.run([sys.executable, tmp_path / "both.py", f"127.0.0.1:{server.port}", llama], capture_output=True,
                          text=True, check=False)
    assert said.returncode == 0 and said.stdout.startswith("["), said.stderr


def test_a_wrong_certificate(tls):
    """On localhost, where another address of the name may refuse connections."""
    process, _, _ = tls
    with posenc.connect(f"localhost:{process.port}", tls=True) as client, pytest.raises(posenc.Unavailable) as caught:
        client.info()
    assert "TLS failed" in caught.value.message and "--listen" not in caught.value.message


def test_the_most_telling_error_of_several_addresses():
    refused = "ipv6:[::1]:50051: Failed to connect to remote host: Connection refused"
    failed = "ipv4:127.0.0.1:50051: Ssl handshake failed: certificate verify failed"
    for said in ([failed, refused], [refused, failed]):
        message = no_answer("localhost:50051", said)
        assert "TLS failed" in message and refused in message and "--listen" not in message
    assert "--listen localhost:50051" in no_answer("localhost:50051", [refused])


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_proxy(server, variable, monkeypatch):
    for other in ("http_proxy", "https_proxy", "grpc_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, "http://user:secret@127.0.0.1:1")
    once = posenc.RetryPolicy(max_attempts=1)
    with posenc.connect(f"localhost:{server.port}", retry=once) as client, pytest.raises(posenc.Unavailable) as caught:
        client.info()
    assert f"${variable}" in caught.value.message and "--listen" not in caught.value.message
    assert "secret" not in caught.value.message
    monkeypatch.setenv("no_proxy", "example.org,localhost")
    with posenc.connect(f"localhost:{server.port}") as client:
        assert client.info().version


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]



@pytest.mark.parametrize("kind", ["sync", "asyncio", "stream"])
def test_a_client_that_starts_before_its_server(kind, tmp_path, monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    tried = threading.Semaphore(0)
    wait_after = posenc._retry.Retries.wait_after

    def counted(*arguments):
        tried.release()
        return wait_after(*arguments)
    monkeypatch.setattr("posenc._retry.Retries.wait_after", counted)

    def call():
        if kind == "asyncio":
            async def work():
                async with posenc.aio.connect(address, wait_for_ready=True) as client:
                    return (await client.rope(Q, **ROTATION, timeout=120)).q
            answers.append(asyncio.run(work()))
        else:
            with posenc.connect(address, wait_for_ready=True) as client:
                rope = client.rope if kind == "sync" else client.rope_in_chunks
                answers.append(rope(Q, **ROTATION, timeout=120).q)
    answers = []
    caller = threading.Thread(target=call)
    caller.start()
    for _ in range(posenc.RetryPolicy().max_attempts + 2):
        assert tried.acquire(timeout=60)
    with ServerProcess([*SERVER, "--listen", address], tmp_path):
        caller.join(60)
    assert answers and answers[0].shape == Q.shape


def test_a_server_that_never_comes():
    with posenc.connect("127.0.0.1:1", wait_for_ready=True) as client, pytest.raises(posenc.Unavailable, match="--listen 127.0.0.1:1"):
        client.info(timeout=2)


def test_bfloat16_needs_no_further_package(client):
    assert client.bias(**ALIBI, dtype="BF16").bias.dtype.name == "bfloat16"


def test_one_array_as_out(client):
    expected = client.rope(Q, **ROTATION).q
    for rope in (client.rope, client.rope_in_chunks):
        for out in (np.empty_like(Q), [np.empty_like(Q)]):
            answer = rope(Q, **ROTATION, out=out)
            assert answer.q is (out[0] if isinstance(out, list) else out) and (answer.q == expected).all()
    scores = np.zeros((1, 8, 4, 4), np.float32)
    biased = client.add_bias(scores.copy(), method=ALIBI["method"], out=scores)
    assert biased.scores is scores and scores.any()


def test_float64_has_a_hint(client):
    with pytest.raises(posenc.InvalidArgument, match=r"astype\('float32'\)") as caught:
        client.rope(Q.astype(np.float64), **ROTATION)
    assert caught.value.field == "q.tensor.dtype"


def test_names_in_lower_case(client):
    expected = client.rope(Q, **ROTATION).q
    assert (client.rope(Q, **{**ROTATION, "layout": "bshd"}).q == expected).all()
    assert (client.rope(Q, **{**ROTATION, "layout": "layout_bshd"}).q == expected).all()
    assert client.bias(**{**ALIBI, "form": "dense"}, dtype="fp32").bias.shape
    with pytest.raises(posenc.InvalidArgument, match="layout"):
        client.rope(Q, **{**ROTATION, "layout": "bsdh"})
