"""Triton's Python client over HTTP, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one
fails."""

import asyncio
import os

import ml_dtypes
import numpy
import tritonclient.http as triton
import tritonclient.http.aio
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException
from common import EXPECTED, EXPECTED_BF16, PARAMETERS, SHAPE, X, run

ADDRESS = os.environ["POSENC_TEST_HTTP_ADDRESS"]
client = triton.InferenceServerClient(ADDRESS, concurrency=4)


def tensor(values, name="q", datatype="FP32", binary=True):
    given = triton.InferInput(name, values.shape, datatype)
    given.set_data_from_numpy(values, binary_data=binary)
    return given


def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return error.status(), error.message()
    raise AssertionError("not refused")


def test_server_and_models():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("llama", "1")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata()["name"] == "posenc"
    assert [one["name"] for one in client.get_model_metadata("llama")["outputs"]] == ["q", "k"]
    assert client.get_model_config("llama")["input"][1]["optional"] is True
    assert "llama.table" in [model["name"] for model in client.get_model_repository_index()]
    assert client.get_inference_statistics("llama")["model_stats"][0]["name"] == "llama"


def test_infer():
    for binary_in in (True, False):
        for binary_out in (True, False):
            answer = client.infer("llama", [tensor(X, binary=binary_in)], parameters=PARAMETERS, request_id="7",
                                  outputs=[triton.InferRequestedOutput("q", binary_data=binary_out)])
            assert numpy.array_equal(answer.as_numpy("q"), EXPECTED) and answer.get_response()["id"] == "7"
    ids = numpy.arange(100_000, 100_003)
    answer = client.infer("llama", [tensor(ids, "position_ids", "INT64", False), tensor(X)], parameters={"layout": "BSHD"})
    assert numpy.array_equal(answer.as_numpy("q"), EXPECTED)


def test_16_bits():
    answer = client.infer("llama", [tensor(X.astype(ml_dtypes.bfloat16), datatype="BF16")], parameters=PARAMETERS)
    assert answer.as_numpy("q").astype(ml_dtypes.bfloat16).tobytes() == EXPECTED_BF16
    answer = client.infer("llama", [tensor(X.astype("f2"), datatype="FP16")], parameters=PARAMETERS)
    assert answer.as_numpy("q").dtype == numpy.float16


def test_empty_tensor():
    assert client.infer("llama", [tensor(X[:, :0])], parameters=PARAMETERS).as_numpy("q").shape == (1, 0, 32, 128)


def test_async_infer():
    pending = [client.async_infer("llama", [tensor(X)], parameters=PARAMETERS) for _ in range(8)]
    for one in pending:
        assert numpy.array_equal(one.get_result().as_numpy("q"), EXPECTED)


def test_asyncio():
    async def ask():
        async with tritonclient.http.aio.InferenceServerClient(ADDRESS) as aio:
            assert await aio.is_server_live() and (await aio.get_server_metadata())["name"] == "posenc"
            answers = await asyncio.gather(*(aio.infer("llama", [tensor(X)], parameters=PARAMETERS) for _ in range(8)))
            for answer in answers:
                assert numpy.array_equal(answer.as_numpy("q"), EXPECTED)
    asyncio.run(ask())


def test_shared_memory():
    where = shared_memory.create_shared_memory_region("q", "/posenc-test-http", 2 * X.nbytes)
    try:
        shared_memory.set_shared_memory_region(where, [X])
        client.register_system_shared_memory("q", "/posenc-test-http", 2 * X.nbytes)
        assert [one["name"] for one in client.get_system_shared_memory_status()] == ["q"]
        given = triton.InferInput("q", SHAPE, "FP32")
        given.set_shared_memory("q", X.nbytes)
        wanted = triton.InferRequestedOutput("q")
        wanted.set_shared_memory("q", X.nbytes, X.nbytes)
        client.infer("llama", [given], parameters=PARAMETERS, outputs=[wanted])
        got = shared_memory.get_contents_as_numpy(where, numpy.float32, SHAPE, X.nbytes)
        assert numpy.array_equal(got, EXPECTED)
        client.unregister_system_shared_memory()
        assert client.get_system_shared_memory_status() == []
    finally:
        shared_memory.destroy_shared_memory_region(where)


def test_errors():
    status, message = refused(lambda: client.infer("llama", [tensor(X)], parameters={"layout": "BSHD"}))
    assert status == "400" and "position" in message, message
    assert refused(lambda: client.infer("nothing", [tensor(X)]))[0] == "404"
    assert refused(lambda: client.load_model("llama"))[0] == "503"
    assert refused(lambda: client.get_model_metadata("llama", "2"))[0] == "404"


run(globals())
