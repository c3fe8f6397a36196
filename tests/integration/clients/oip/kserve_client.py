"""KServe's Python client, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one fails."""

import os

import grpc
import numpy
from kserve import InferenceGRPCClient, InferInput, InferRequest
from common import EXPECTED, SHAPE, X, run

ADDRESS = os.environ["POSENC_TEST_ADDRESS"]


def request(binary, **parameters):
    given = InferInput("q", list(SHAPE), "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return InferRequest(model_name="llama", infer_inputs=[given], request_id="7", parameters=parameters)


async def test_health(client):
    assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("llama")


async def test_raw_bytes(client):
    answer = await client.infer(request(True, layout="BSHD", offset=100_000))
    assert answer.id == "7" and numpy.array_equal(answer.outputs[0].as_numpy(), EXPECTED)


async def test_contents(client):
    answer = await client.infer(request(False, layout="BSHD", offset=100_000))
    assert numpy.array_equal(answer.outputs[0].as_numpy(), EXPECTED)


async def test_error(client):
    try:
        await client.infer(request(True, layout="BSHD"))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    else:
        raise AssertionError("not refused")


run(globals(), lambda: InferenceGRPCClient(url=ADDRESS))
