"""ONNX Runtime's operator RotaryEmbedding, which requires tables of the tensor's type."""

import numpy
import onnx
import onnxruntime
from work import Unsupported

TYPES = {"f32": (onnx.TensorProto.FLOAT, "f4"), "f16": (onnx.TensorProto.FLOAT16, "f2")}
options = onnxruntime.SessionOptions()


def start(threads):
    options.intra_op_num_threads = threads


def model(element, pairing):
    info = onnx.helper.make_tensor_value_info
    inputs = [info("x", element, [1, None, None]), info("positions", onnx.TensorProto.INT64, [1, None]),
              info("cos", element, [None, None]), info("sin", element, [None, None])]
    node = onnx.helper.make_node("RotaryEmbedding", [value.name for value in inputs], ["y"], domain="com.microsoft",
                                 interleaved=int(pairing == "interleaved"))
    graph = onnx.helper.make_graph([node], "rotary", inputs, [info("y", element, [1, None, None])])
    versions = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()


def prepare(work):
    if work.dtype not in TYPES:
        raise Unsupported("no implementation for bf16 on CPUs")
    element, dtype = TYPES[work.dtype]
    session = onnxruntime.InferenceSession(model(element, work.pairing), options, ["CPUExecutionProvider"])
    values = {"x": work.x.reshape(1, work.tokens, -1).astype(dtype), "positions": numpy.arange(work.tokens)[None],
              "cos": work.cos.astype(dtype), "sin": work.sin.astype(dtype)}
    y = numpy.ones_like(values["x"])
    binding = session.io_binding()
    kept = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()}
    for name, value in kept.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)

    def run():
        session.run_with_iobinding(binding)

    def check():
        run()
        work.check(y[0, -1].reshape(work.heads, -1).astype("f4"))

    return run, check


PEERS = {"rotate": {f"onnxruntime {onnxruntime.__version__}": prepare}}
