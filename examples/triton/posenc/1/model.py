"""A step of a Triton ensemble: sends its inputs to a model of posenc-server and returns that model's outputs.

The parameters of config.pbtxt say where: "address" of posenc-server (gRPC), its "model", and "request", the parameters of
each request as JSON, for example {"layout": "BSHD"}. Inputs and outputs have posenc's names.
"""

import json

import numpy
import triton_python_backend_utils as pb_utils
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.client = triton.InferenceServerClient(given["address"])
        self.model, self.parameters = given["model"], json.loads(given.get("request", "{}"))
        self.inputs = [one["name"] for one in config["input"]]
        self.outputs = [one["name"] for one in config["output"]]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        inputs = []
        for name in self.inputs:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is None:
                continue  # optional
            values = numpy.ascontiguousarray(tensor.as_numpy())
            inputs.append(triton.InferInput(name, values.shape, np_to_triton_dtype(values.dtype)))
            inputs[-1].set_data_from_numpy(values)
        wanted = [triton.InferRequestedOutput(name) for name in self.outputs]
        try:
            answer = self.client.infer(self.model, inputs, outputs=wanted, parameters=self.parameters)
        except InferenceServerException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"posenc: {error.message()}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, answer.as_numpy(name)) for name in self.outputs])

    def finalize(self):
        self.client.close()
