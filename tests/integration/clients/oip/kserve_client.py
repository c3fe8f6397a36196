"""KServe's Python client, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one fails."""

import asyncio
import os
import pathlib
import sys
import traceback

import grpc
import numpy
from kserve import InferenceGRPCClient, InferInput, InferRequest

ADDRESS = os.environ["POSENC_TEST_ADDRESS"]
SHAPE = (1, 3, 32, 128)
X = (((37 * numpy.arange(numpy.prod(SHAPE)) + 11) % 257 - 128) / 64).astype("<f4").reshape(SHAPE)
DATA = pathlib.Path(os.environ["POSENC_TEST_DATA"])
EXPECTED = numpy.frombuffer((DATA / "rotated.fp32").read_bytes(), "<f4").reshape(SHAPE)


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


async def main():
    failed = 0
    client = InferenceGRPCClient(url=ADDRESS)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                await test(client)
                print(f"pass {name}")
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"fail {name}")
    await client.close()
    return failed > 0


sys.exit(asyncio.run(main()))
