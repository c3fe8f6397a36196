"""The commands and the code of docs/clients/python_stubs.md."""

import time

import grpc
import numpy
import pytest
import samples
from client import SERVICE
from languages import ROOT, needs
from posenc.v1 import service_pb2


def test_the_page(page, expected):
    needs("grpc_python_plugin")
    page.rotates(expected, refusal="rotary.model.config_json.rope_theta: is -1; must be")


@pytest.fixture
def rotate(page, peers, monkeypatch):
    """A call over the page's channel, to the proxy that refuses calls first, and the page's function for details."""
    channel, details = page.blocks("python")
    monkeypatch.setenv("POSENC", str(ROOT))
    names = {}
    exec(channel.replace("localhost:50051", peers["POSENC_TEST_REFUSING"]) + details, names)
    call = names["channel"].unary_unary(
        f"/{SERVICE.full_name}/ApplyRotary", service_pb2.ApplyRotaryRequest.SerializeToString,
        service_pb2.ApplyRotaryResponse.FromString)

    def rotate(wish, tokens):
        request = samples.rotary(numpy.ones((1, tokens, 32, 128)))
        request.hints.request_id = f"{wish} python {time.time_ns()}"
        return call(request)

    yield rotate, names["details"]
    names["channel"].close()


def test_the_pages_channel_retries_and_its_details_are_read(rotate):
    call, details = rotate
    assert len(call("refuse 4 pushback 1", tokens=512).q.data) == 8 << 20
    with pytest.raises(grpc.RpcError) as error:
        call("refuse 1 pushback -1", tokens=1)
    assert details(error.value).reason == "OVERLOADED"
