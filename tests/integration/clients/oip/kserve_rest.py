"""KServe's Python client over REST, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one
fails."""

import asyncio
import os
import pathlib
import sys
import traceback

import httpx
import numpy
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.constants.constants import PredictorProtocol

BASE = "http://" + os.environ["POSENC_TEST_HTTP_ADDRESS"]
SHAPE = (1, 3, 32, 128)
X = (((37 * numpy.arange(numpy.prod(SHAPE)) + 11) % 257 - 128) / 64).astype("<f4").reshape(SHAPE)
DATA = pathlib.Path(os.environ["POSENC_TEST_DATA"])
EXPECTED = numpy.frombuffer((DATA / "rotated.fp32").read_bytes(), "<f4").reshape(SHAPE)
PARAMETERS = {"layout": "BSHD", "offset": 100_000}


def request(binary, **parameters):
    given = InferInput("q", list(SHAPE), "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return InferRequest(model_name="llama", infer_inputs=[given], parameters=parameters)


async def test_health(client):
    assert await client.is_server_live(BASE) and await client.is_server_ready(BASE)
    assert await client.is_model_ready(BASE, "llama") and not await client.is_model_ready(BASE, "nothing")


async def test_infer(client):
    for binary_in in (True, False):
        for binary_out in (True, False):
            more = {"binary_data_output": True} if binary_out else {}
            answer = await client.infer(BASE, request(binary_in, **PARAMETERS, **more), model_name="llama")
            assert numpy.array_equal(answer.outputs[0].as_numpy(), EXPECTED)


async def test_a_dict(client):
    given = {"inputs": [{"name": "q", "shape": SHAPE, "datatype": "FP32", "data": X.ravel().tolist()}], "parameters": PARAMETERS}
    answer = await client.infer(BASE, given, model_name="llama")
    outputs = answer["outputs"] if isinstance(answer, dict) else answer.to_dict()["outputs"]
    assert numpy.array_equal(numpy.array(outputs[0]["data"], "f4").reshape(SHAPE), EXPECTED)


async def test_error(client):
    try:
        await client.infer(BASE, request(True, layout="BSHD"), model_name="llama")
    except httpx.HTTPStatusError as error:
        assert "position" in str(error) and "400" in str(error), error
    else:
        raise AssertionError("not refused")


async def main():
    failed = 0
    client = InferenceRESTClient(RESTConfig(protocol=PredictorProtocol.REST_V2))
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
