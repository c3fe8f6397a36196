"""Models of a repository: what makes one, when it is read, and who may load it."""

import concurrent.futures
import json
import os
import shutil
import signal
import time

import grpc
import gguf_file
import numpy
import pytest
from client import SECONDS
from inference import service_pb2 as oip
from inference_client import InferenceClient, infer
from tensors import FP32

LLAMA = "llama-3.1-8b.json"
Q = numpy.ones((1, 2, 1, 128), "f4")


def add(repository, name, configs, file=LLAMA):
    (repository / name).mkdir(parents=True)
    shutil.copy(configs / file, repository / name / "config.json")


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def serve(start_server):
    """A function that starts a server with these flags and returns it and a client."""
    clients = []

    def start(*flags):
        server = start_server(*flags)
        clients.append(InferenceClient(server.port))
        return server, clients[-1]
    yield start
    for client in clients:
        client.channel.close()


def states(client, own=False):
    """State and reason of each model without a suffix."""
    models = client.call("RepositoryIndex").models
    return {model.name: (model.state, model.reason) for model in models
            if own or not (model.name.startswith("posenc.") or model.name.endswith((".rotary", ".table")))}


def rotates(client, model):
    try:
        return "q" in client.infer(infer(model, [("q", Q, FP32)], layout="BSHD", offset=3))
    except grpc.RpcError as error:
        return error.code().name


def until(client, model, wanted):
    """Waits until a rotation by the model ends so."""
    deadline = time.monotonic() + SECONDS
    while (found := rotates(client, model)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_what_is_a_model(serve, repository, configs):
    add(repository, "saved", configs)
    snapshot = repository / "models--org--hub" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    shutil.copy(configs / LLAMA, snapshot / "config.json")
    (repository / "gguf").mkdir()
    (repository / "gguf" / "model.gguf").write_bytes(
        gguf_file.model("llama", {"rope_freqs.weight": gguf_file.llama3_factors()}))
    (repository / "empty").mkdir()
    (repository / ".hidden").mkdir()
    (repository / "a name").mkdir()
    (repository / "posenc.mine").mkdir()
    (repository / "file").write_text("{}")
    server, client = serve("--model-repository", repository)
    assert states(client) == {name: ("READY", "") for name in ("saved", "models--org--hub", "gguf")}
    assert rotates(client, "saved") is True and rotates(client, "models--org--hub.rotary") is True
    assert "not a model" in server.log_with("a name")


BAD = {"cut": b"{", "list": b"[]", "unknown": b'{"model_type": "nothing"}', "nothing": b'{"model_type": "resnet"}',
       "binary": b"\xff\xfe"}


def test_a_bad_file_makes_its_model_unavailable(serve, repository, configs):
    add(repository, "good", configs)
    for name, text in BAD.items():
        (repository / name).mkdir()
        (repository / name / "config.json").write_bytes(text)
    (repository / "two").mkdir()
    for name in ("a.gguf", os.fsdecode(b"\xff.gguf")):
        (repository / "two" / name).write_bytes(b"GGUF")
    (repository / "pipe").mkdir()
    os.mkfifo(repository / "pipe" / "config.json")
    _, client = serve("--model-repository", repository)
    found = states(client)
    assert found.pop("good") == ("READY", "")
    assert found.keys() == {*BAD, "two", "pipe"}
    for name, (state, reason) in found.items():
        assert state == "UNAVAILABLE" and reason, name
        assert not client.call("ModelReady", name=name).ready
        refusal = client.refusal("ModelInfer", infer(name, [("q", Q, FP32)], layout="BSHD", offset=0))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE")
        assert refusal.message.isascii()
    ready = [model.name for model in client.call("RepositoryIndex", ready=True).models]
    assert "good" in ready and not set(found) & set(ready)
    assert rotates(client, "good") is True


def test_the_repository_can_be_a_model(serve, repository, configs):
    shutil.copy(configs / LLAMA, repository / "config.json")
    _, client = serve("--model-repository", repository)
    assert states(client) == {"models": ("READY", "")}
    _, named = serve("--model-repository", repository, "--model-name", "llama")
    assert states(named) == {"llama": ("READY", "")} and rotates(named, "llama") is True


def remove(path):
    path.unlink(missing_ok=True)


def cut(path):
    path.write_bytes(path.read_bytes()[:100] if path.exists() else b"{")


def nothing(path):
    path.write_text('{"model_type": "resnet"}')


def unreadable(path):
    remove(path)
    path.mkdir()


# What can become of a file that is replaced, copied or deleted at a bad time.
SPOIL = (cut, nothing, remove, unreadable)


def until_listed(client, model, state, reason):
    """Waits until the index shows a model so; `reason`: how its reason begins, or empty for none."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = states(client)[model]
        if found[0] == state and (found[1].startswith(reason) if reason else not found[1]):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_hangup_reads_the_repository_again(serve, repository, configs):
    add(repository, "changes", configs)
    add(repository, "goes", configs)
    server, client = serve("--model-repository", repository)
    before = client.infer(infer("changes", [("q", Q, FP32)], layout="BSHD", offset=3))["q"]
    config = json.loads((configs / LLAMA).read_text())
    config["rope_theta"] = 100.0
    (repository / "changes" / "config.json").write_text(json.dumps(config))
    shutil.rmtree(repository / "goes")
    add(repository, "comes", configs)
    server.signal(signal.SIGHUP)
    until(client, "comes", True)
    until(client, "goes", "NOT_FOUND")
    # A call that was prepared before is not answered from the cache.
    after = client.infer(infer("changes", [("q", Q, FP32)], layout="BSHD", offset=3))["q"]
    assert not numpy.array_equal(before, after)
    for spoil in SPOIL:
        spoil(repository / "changes" / "config.json")
        server.signal(signal.SIGHUP)
        until_listed(client, "changes", "READY", "serves its earlier file: ")
        assert numpy.array_equal(client.infer(infer("changes", [("q", Q, FP32)], layout="BSHD", offset=3))["q"], after)
    assert "model stays as it was" in server.log_with("stay as they were")
    (repository / "changes" / "config.json").rmdir()
    shutil.copy(configs / LLAMA, repository / "changes" / "config.json")
    server.signal(signal.SIGHUP)
    until_listed(client, "changes", "READY", "")
    assert numpy.array_equal(client.infer(infer("changes", [("q", Q, FP32)], layout="BSHD", offset=3))["q"], before)
    shutil.rmtree(repository)
    server.signal(signal.SIGHUP)
    server.log_with("--model-repository")
    assert rotates(client, "changes") is True


def test_models_are_loaded_by_name_if_allowed(serve, repository, configs):
    add(repository, "one", configs)
    _, client = serve("--model-repository", repository, "--model-control", "on")
    client.call("RepositoryModelUnload", model_name="one")
    assert states(client) == {"one": ("UNAVAILABLE", "unloaded")}
    assert rotates(client, "one") == "UNAVAILABLE" and rotates(client, "one.rotary") == "NOT_FOUND"
    client.call("RepositoryModelLoad", model_name="one")
    assert rotates(client, "one.rotary") is True
    add(repository, "two", configs)
    assert rotates(client, "two") == "NOT_FOUND"
    client.call("RepositoryModelLoad", model_name="two")
    assert rotates(client, "two") is True
    answer = client.infer(infer("two", [("q", Q, FP32)], layout="BSHD", offset=3))["q"]
    for spoil in SPOIL:
        spoil(repository / "two" / "config.json")
        refusal = client.refusal("RepositoryModelLoad", model_name="two")
        assert refusal.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL), spoil
        assert refusal.field == "model_name" and "stays as it was" in refusal.message, spoil
        state, reason = states(client)["two"]
        assert state == "READY" and reason.startswith("serves its earlier file: "), reason
        assert client.call("ModelReady", name="two").ready and rotates(client, "two.rotary") is True
        assert numpy.array_equal(client.infer(infer("two", [("q", Q, FP32)], layout="BSHD", offset=3))["q"], answer)
    client.call("RepositoryModelUnload", model_name="two")
    (repository / "two" / "config.json").rmdir()
    (repository / "two" / "config.json").write_text("{")
    assert client.refusal("RepositoryModelLoad", model_name="two").code == grpc.StatusCode.INVALID_ARGUMENT
    assert states(client)["two"][0] == "UNAVAILABLE" and states(client)["one"] == ("READY", "")
    outside = repository.parent / "outside"
    add(repository.parent, "outside", configs)
    for name in (".", str(outside.name), "one.rotary", "posenc.rotary", "one\0", "...", "..one", "one..1"):
        assert client.refusal("RepositoryModelLoad", model_name=name).code == grpc.StatusCode.INTERNAL, name
    for name in ("", " ", " \t\r\n", "..", " ..", ".. ", "../outside", "./one", "one/", "/", "one/..", "a/../one",
                 str(outside), str(repository / "one")):
        refusal = client.refusal("RepositoryModelLoad", model_name=name)
        assert (refusal.code, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, "model_name"), name
        assert client.refusal("RepositoryModelUnload", model_name=name).code == grpc.StatusCode.NOT_FOUND, name
    request = oip.RepositoryModelLoadRequest(model_name="one")
    request.parameters["config"].string_param = "{}"
    assert client.refusal("RepositoryModelLoad", request).reason == "UNSUPPORTED"
    request = oip.RepositoryModelUnloadRequest(model_name="one")
    request.parameters["unload_dependents"].string_param = "true"
    refusal = client.refusal("RepositoryModelUnload", request)
    assert (refusal.reason, refusal.field) == ("MISMATCH", "unload_dependents") and rotates(client, "one") is True
    request.parameters["unload_dependents"].bool_param = True
    client.call("RepositoryModelUnload", request)
    assert rotates(client, "one") == "UNAVAILABLE"


def test_an_unloaded_encoding_is_loaded_with_its_model(serve, repository, configs):
    add(repository, "one", configs)
    add(repository, "one.table", configs)
    _, client = serve("--model-repository", repository, "--model-control", "on")
    for model in ("one.rotary", "one.table"):
        client.call("RepositoryModelUnload", model_name=model)
        assert rotates(client, model) == "UNAVAILABLE" and rotates(client, "one") is True
    client.call("RepositoryModelLoad", model_name="one")
    assert rotates(client, "one.rotary") is True
    assert rotates(client, "one.table") == "UNAVAILABLE", "a folder of its own"
    client.call("RepositoryModelLoad", model_name="one.table")
    assert rotates(client, "one.table") is True


def test_models_are_listed_while_they_change(serve, repository, configs):
    for n in range(200):
        add(repository, f"m{n}", configs)
    _, client = serve("--model-repository", repository, "--model-control", "on", "--threads", "4")

    def load(n):
        for _ in range(20):
            client.call("RepositoryModelLoad", model_name=f"m{n}")

    def list_all(method):
        for _ in range(40):
            answer = client.call(method)
            assert len(getattr(answer, "models", ())) + len(getattr(answer, "model_stats", ())) == 605
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        for ended in [*(threads.submit(load, n) for n in range(8)),
                      *(threads.submit(list_all, method) for method in ("RepositoryIndex", "ModelStatistics") * 2)]:
            ended.result()


def test_callers_cannot_fill_the_log(serve, repository, configs):
    add(repository, "one", configs)
    (repository / "a name").mkdir()  # each load reads the repository
    server, client = serve("--model-repository", repository, "--model-control", "on", "--max-call-log-lines", "1")
    begin = time.monotonic()
    for _ in range(100):
        client.call("RepositoryModelUnload", model_name="one")
    for _ in range(100):
        client.call("RepositoryModelLoad", model_name="one")
        client.call("RepositoryModelUnload", model_name="one")
    seconds = time.monotonic() - begin
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    lines = server.log().count("model is unavailable") + server.log().count("not a model")
    assert lines <= seconds + 4, server.log()


def test_models_are_not_loaded_otherwise(serve, repository, configs):
    add(repository, "one", configs)
    _, client = serve("--model-repository", repository)
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        assert client.refusal(method, model_name="one").code == grpc.StatusCode.UNAVAILABLE
    assert rotates(client, "one") is True


def test_rights(serve, repository, configs, tmp_path):
    add(repository, "one", configs)
    policy = tmp_path / "policy.json"

    def allow(*rights):
        policy.write_text(json.dumps({"identities": [{"name": "me", "anonymous": True, "allow": rights}]}))
        return serve("--model-repository", repository, "--model-control", "on", "--policy", policy)[1]

    def refused(client, method, **fields):
        try:
            client.call(method, **fields)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.PERMISSION_DENIED
        return False
    client = allow("compute")
    assert rotates(client, "one") is True
    assert client.call("ServerLive").live and client.call("ServerReady").ready
    for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex", "ServerMetadata",
                   "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
                   "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryRegister"):
        assert refused(client, method), method
    with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
        list(client.method("ModelStreamInfer")(iter([]), timeout=SECONDS))
    client = allow("info", "models")
    assert client.call("ModelReady", name="one").ready and rotates(client, "one") == "PERMISSION_DENIED"
    client.call("RepositoryModelUnload", model_name="one")
    assert not client.call("ModelReady", name="one").ready


def test_flags(server_program, tmp_path):
    import subprocess
    for flags, said in ((["--model-repository", tmp_path / "nothing"], "--model-repository"),
                        (["--model-name", "a"], "--model-name needs --model-repository"),
                        (["--inference-memory-prefix", "a"], "must begin with a slash")):
        ended = subprocess.run([*server_program, "--listen", "127.0.0.1:0", *map(str, flags)], capture_output=True,
                               text=True, timeout=SECONDS)
        assert ended.returncode != 0 and said in ended.stderr
