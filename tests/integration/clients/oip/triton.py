"""Triton's Python client, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one fails."""

import asyncio
import os
import queue

import ml_dtypes
import numpy
import tritonclient.grpc as triton
import tritonclient.grpc.aio
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from common import EXPECTED, EXPECTED_BF16, PARAMETERS, SHAPE, X, run

ADDRESS = os.environ["POSENC_TEST_ADDRESS"]
client = triton.InferenceServerClient(ADDRESS)


def tensor(values, name="q", datatype="FP32"):
    given = triton.InferInput(name, values.shape, datatype)
    given.set_data_from_numpy(values)
    return given


def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return error.status().removeprefix("StatusCode.")
    raise AssertionError("not refused")


def test_server_and_models():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("llama", "1")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata().name == "posenc"
    assert [one.name for one in client.get_model_metadata("llama").outputs] == ["q", "k"]
    assert client.get_model_config("llama", as_json=True)["config"]["input"][1]["optional"] is True
    assert "llama.table" in [model.name for model in client.get_model_repository_index().models]


def test_infer():
    answer = client.infer("llama", [tensor(X)], parameters=PARAMETERS, request_id="7")
    assert numpy.array_equal(answer.as_numpy("q"), EXPECTED) and answer.get_response().id == "7"
    ids = numpy.arange(100_000, 100_003)
    answer = client.infer("llama", [tensor(ids, "position_ids", "INT64"), tensor(X)], parameters={"layout": "BSHD"},
                          outputs=[triton.InferRequestedOutput("q")])
    assert numpy.array_equal(answer.as_numpy("q"), EXPECTED)


def test_bf16():
    answer = client.infer("llama", [tensor(X.astype(ml_dtypes.bfloat16), datatype="BF16")], parameters=PARAMETERS)
    assert answer.get_response().raw_output_contents[0] == EXPECTED_BF16
    values = numpy.frombuffer(EXPECTED_BF16, ml_dtypes.bfloat16).reshape(SHAPE)
    assert numpy.array_equal(answer.as_numpy("q").astype("f4"), values.astype("f4"))


def test_fp16():
    answer = client.infer("llama", [tensor(X.astype("f2"), datatype="FP16")], parameters=PARAMETERS)
    assert answer.as_numpy("q").dtype == numpy.float16


def test_empty_tensor():
    assert client.infer("llama", [tensor(X[:, :0])], parameters=PARAMETERS).as_numpy("q").shape == (1, 0, 32, 128)


def test_async_infer():
    answers = queue.Queue()
    for _ in range(8):
        client.async_infer("llama", [tensor(X)], lambda result, error: answers.put((result, error)), parameters=PARAMETERS)
    for _ in range(8):
        result, error = answers.get(timeout=60)
        assert error is None and numpy.array_equal(result.as_numpy("q"), EXPECTED)


def test_stream():
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(20):
        client.async_stream_infer("llama" if number != 7 else "nothing", [tensor(X)], parameters=PARAMETERS,
                                  request_id=str(number), enable_empty_final_response=True)
    for number in range(20):
        result, error = answers.get(timeout=60)
        if number == 7:
            assert "nothing" in error.message()
            continue
        assert result.get_response().id == str(number) and numpy.array_equal(result.as_numpy("q"), EXPECTED)
        assert result.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()


def test_asyncio():
    async def run():
        async with tritonclient.grpc.aio.InferenceServerClient(ADDRESS) as other:
            answers = await asyncio.gather(*(other.infer("llama", [tensor(X)], parameters=PARAMETERS) for _ in range(8)))
            assert all(numpy.array_equal(answer.as_numpy("q"), EXPECTED) for answer in answers)

            async def requests():
                for _ in range(5):
                    yield {"model_name": "llama", "inputs": [tensor(X)], "parameters": PARAMETERS}
            count = 0
            async for result, error in other.stream_infer(requests()):
                assert error is None and numpy.array_equal(result.as_numpy("q"), EXPECTED)
                count += 1
            assert count == 5
    asyncio.run(run())


def test_shared_memory():
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    size, key = X.nbytes, f"/posenc_test_{os.getpid()}"
    region = shared_memory.create_shared_memory_region("tensors", key, 2 * size)
    try:
        shared_memory.set_shared_memory_region(region, [X])
        client.register_system_shared_memory("tensors", key, 2 * size)
        assert list(client.get_system_shared_memory_status().regions) == ["tensors"]
        assert refused(lambda: client.register_system_shared_memory("tensors", key, size)) == "ALREADY_EXISTS"
        given, wanted = triton.InferInput("q", SHAPE, "FP32"), triton.InferRequestedOutput("q")
        given.set_shared_memory("tensors", size)
        wanted.set_shared_memory("tensors", size, size)
        answer = client.infer("llama", [given], parameters=PARAMETERS, outputs=[wanted])
        assert list(answer.get_response().raw_output_contents) == [b""]
        assert numpy.array_equal(shared_memory.get_contents_as_numpy(region, numpy.float32, (2, *SHAPE))[1], EXPECTED)
        client.unregister_system_shared_memory("tensors")
        client.unregister_system_shared_memory("tensors")
        assert refused(lambda: client.infer("llama", [given], parameters=PARAMETERS)) == "NOT_FOUND"
        assert refused(lambda: client.register_cuda_shared_memory("gpu", b"aGFuZGxl", 0, size)) == "INVALID_ARGUMENT"
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_positions_in_shared_memory():
    """Requests of the same bytes follow the positions that the region has, by each kind of call."""
    position = numpy.dtype("<i8")
    size, key = position.itemsize * SHAPE[1], f"/posenc_test_{os.getpid()}"
    region = shared_memory.create_shared_memory_region("positions", key, size)
    client.register_system_shared_memory("positions", key, size)
    ids = triton.InferInput("position_ids", SHAPE[:2], "INT64")
    ids.set_shared_memory("positions", size)
    inputs, parameters = [tensor(X), ids], {"layout": "BSHD"}
    answers = queue.Queue()

    def streamed():
        client.async_stream_infer("llama", inputs, parameters=parameters)
        result, error = answers.get(timeout=60)
        assert error is None
        return result

    async def awaited():
        async with tritonclient.grpc.aio.InferenceServerClient(ADDRESS) as other:
            return await other.infer("llama", inputs, parameters=parameters)
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        for call in (lambda: client.infer("llama", inputs, parameters=parameters), streamed, lambda: asyncio.run(awaited())):
            for offset in (0, 100_000, 100_000, 7):
                shared_memory.set_shared_memory_region(region, [offset + numpy.arange(SHAPE[1], dtype=position)])
                wanted = client.infer("llama", [tensor(X)], parameters={"layout": "BSHD", "offset": offset}).as_numpy("q")
                assert numpy.array_equal(call().as_numpy("q"), wanted)
                assert numpy.array_equal(wanted, EXPECTED) == (offset == 100_000)
    finally:
        client.stop_stream()
        client.unregister_system_shared_memory("positions")
        shared_memory.destroy_shared_memory_region(region)


def test_statistics():
    before = client.get_inference_statistics("llama").model_stats[0].inference_count
    client.infer("llama", [tensor(X)], parameters=PARAMETERS)
    assert client.get_inference_statistics("llama").model_stats[0].inference_count == before + 1


def test_input_validation():
    assert refused(lambda: client.infer("nothing", [tensor(X)])) == "NOT_FOUND"
    assert refused(lambda: client.infer("llama", [tensor(X)], model_version="2")) == "NOT_FOUND"
    q, v, integers = tensor(X), tensor(X, "v"), tensor(X.astype("i4"), datatype="INT32")
    for inputs in ([], [q, q], [v], [q, v], [integers]):
        assert refused(lambda: client.infer("llama", inputs, parameters=PARAMETERS)) == "INVALID_ARGUMENT"
    misspelt = {**PARAMETERS, "layuot": 1}
    assert refused(lambda: client.infer("llama", [q], parameters=misspelt)) == "INVALID_ARGUMENT"
    assert refused(lambda: client.infer("llama", [tensor(X)])) == "INVALID_ARGUMENT"
    wrong = tensor(X)
    wrong.set_shape([1, 3, 32, 127])
    assert refused(lambda: client.infer("llama", [wrong], parameters=PARAMETERS)) == "INVALID_ARGUMENT"
    assert refused(lambda: client.load_model("llama")) == "UNAVAILABLE"
    assert refused(lambda: client.get_trace_settings()) == "UNIMPLEMENTED"


def test_the_stub():
    import grpc
    with grpc.insecure_channel(ADDRESS) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="llama")
        request.parameters["layout"].string_param = "BSHD"
        request.parameters["offset"].int64_param = 100_000
        given = request.inputs.add(name="q", datatype="FP32", shape=SHAPE)
        given.contents.fp32_contents.extend(X.ravel().tolist())
        assert stub.ModelInfer(request).raw_output_contents[0] == EXPECTED.tobytes()


run(globals())
