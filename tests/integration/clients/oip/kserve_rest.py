"""KServe's Python client over REST, unmodified, against a posenc-server. Prints a line for each test; exits with 1 if one
fails."""

import os

import httpx
import numpy
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.constants.constants import PredictorProtocol
from common import EXPECTED, PARAMETERS, SHAPE, X, run

BASE = "http://" + os.environ["POSENC_TEST_HTTP_ADDRESS"]


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


run(globals(), lambda: InferenceRESTClient(RESTConfig(protocol=PredictorProtocol.REST_V2)))
