"""The model of examples/triton, under a stand-in of Triton's triton_python_backend_utils, against a posenc-server: Triton's
server comes in images only. Also parses the configurations with Triton's own message. Prints a line for each test; exits
with 1 if one fails."""

import importlib.util
import json
import os
import pathlib
import sys
import types

import numpy
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2
from common import EXPECTED, X, run

EXAMPLE = pathlib.Path(__file__).resolve().parents[4] / "examples" / "triton"


class Tensor:
    def __init__(self, name, values):
        self._name, self._values = name, values

    def name(self):
        return self._name

    def as_numpy(self):
        return self._values


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.output_tensors, self.error = output_tensors, error


class TritonError:
    def __init__(self, message):
        self.message = message


def stand_in():
    module = types.ModuleType("triton_python_backend_utils")
    module.Tensor, module.InferenceResponse, module.TritonError = Tensor, InferenceResponse, TritonError
    module.get_input_tensor_by_name = lambda request, name: request.get(name)
    return module


def config(name):
    return text_format.Parse((EXAMPLE / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def model():
    sys.modules["triton_python_backend_utils"] = stand_in()
    spec = importlib.util.spec_from_file_location("model", EXAMPLE / "posenc" / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = config("posenc")
    given.parameters["address"].string_value = os.environ["POSENC_TEST_ADDRESS"]
    made = module.TritonPythonModel()
    made.initialize({"model_config": json.dumps(json_format.MessageToDict(given, preserving_proto_field_name=True))})
    return made


def test_rotation():
    made = model()
    ids = numpy.arange(100_000, 100_003)[None]
    requests = [{"q": Tensor("q", X), "position_ids": Tensor("position_ids", ids)} for _ in range(2)]
    for answer in made.execute(requests):
        assert answer.error is None and answer.output_tensors[0].name() == "q"
        assert numpy.array_equal(answer.output_tensors[0].as_numpy(), EXPECTED)
    made.finalize()


def test_an_error_is_one_requests():
    made = model()
    ids = numpy.arange(100_000, 100_003)[None]
    wrong, right = made.execute([{"q": Tensor("q", X)}, {"q": Tensor("q", X), "position_ids": Tensor("position_ids", ids)}])
    assert "position" in wrong.error.message and right.error is None
    made.finalize()


def test_the_ensemble_fits_the_model():
    ensemble, step = config("rotated_query"), config("posenc")
    [only] = ensemble.ensemble_scheduling.step
    assert only.model_name == step.name
    assert set(only.input_map) == {one.name for one in step.input} and set(only.output_map) == {one.name for one in step.output}
    assert set(only.input_map.values()) == {one.name for one in ensemble.input}
    assert set(only.output_map.values()) == {one.name for one in ensemble.output}


run(globals())
