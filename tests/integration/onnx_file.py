"""Writes ONNX graphs (onnx.in.proto, IR version 10) without the package that usually does."""

import numpy

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
TYPES = {numpy.dtype("<f4"): FLOAT, numpy.dtype("<f2"): FLOAT16, numpy.dtype("<f8"): DOUBLE}
MICROSOFT = "com.microsoft"


def varint(value):
    value &= 2**64 - 1
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    """A field of protobuf's wire format: an int, a float (fixed32), a str or bytes, or a list of these."""
    if isinstance(value, list):
        return b"".join(field(number, each) for each in value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + numpy.float32(value).tobytes()
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(key, value):
    return field(1, key) + field(2, str(value))


def bfloat16(array):
    """The bits of the nearest BF16, as uint16."""
    bits = numpy.asarray(array, "<f4").view("<u4").astype("<u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def tensor(name, array, external=None, typed=False):
    """`array` of uint16 stands for BF16. `external`: location, offset and length; `typed`: not as raw_data."""
    array = numpy.ascontiguousarray(array)
    kind = BFLOAT16 if array.dtype == numpy.uint16 else TYPES[array.dtype]
    text = field(1, [int(size) for size in array.shape]) + field(2, kind) + field(8, name)
    if external is not None:
        text += field(13, [entry(key, value) for key, value in external.items()]) + field(14, 1)
    elif not typed:
        text += field(9, array.tobytes())
    elif kind in (FLOAT, DOUBLE):
        text += field(4 if kind == FLOAT else 10, array.tobytes())
    else:
        text += field(5, b"".join(varint(int(bits)) for bits in array.view("<u2").ravel()))
    return text


def attribute(name, value):
    """An int, a float, bytes of a TensorProto, a Graph, or a Reference to a function's attribute."""
    text = field(1, name)
    if isinstance(value, Graph):
        return text + field(6, value.data) + field(20, 5)
    if isinstance(value, Reference):
        return text + field(21, value.name) + field(20, 2)
    if isinstance(value, bytes):
        return text + field(5, value) + field(20, 4)
    return text + field(3 if isinstance(value, int) else 2, value) + field(20, 2 if isinstance(value, int) else 1)


class Graph:
    """Bytes of a GraphProto; `inputs` are names, or (name, shape) for tensors."""

    def __init__(self, nodes, initializers=(), inputs=(), outputs=(), values=()):
        self.data = (field(1, list(nodes)) + field(2, "g") + field(5, list(initializers)) + field(11, list(map(value, inputs)))
                     + field(12, list(map(value, outputs))) + field(13, list(map(value, values))))


class Reference:
    def __init__(self, name):
        self.name = name


def value(described):
    if isinstance(described, str):
        return field(1, described)
    name, shape = described
    dims = field(1, [field(1, size) if isinstance(size, int) else field(2, size) for size in shape])
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, dims)))


def node(op_type, inputs, outputs, domain="", name="", **attributes):
    return (field(1, list(inputs)) + field(2, list(outputs)) + (field(3, name) if name else b"") + field(4, op_type)
            + field(5, [attribute(key, each) for key, each in attributes.items()]) + (field(7, domain) if domain else b""))


def function(domain, name, inputs, outputs, nodes, **defaults):
    return (field(1, name) + field(4, list(inputs)) + field(5, list(outputs)) + field(7, list(nodes))
            + field(9, [field(1, "") + field(2, 23)]) + field(10, domain)
            + field(11, [attribute(key, each) for key, each in defaults.items()]))


def model(graph, functions=(), opsets=(("", 23), (MICROSOFT, 1))):
    return (field(1, 10) + field(2, "onnx_file.py") + field(7, graph.data)
            + field(8, [field(1, domain) + field(2, version) for domain, version in opsets]) + field(25, list(functions)))


def tables(inv_freq, rows, scaling=1.0):
    """Cosines and sines in float32, as transformers computes them."""
    angles = numpy.arange(rows, dtype="f4")[:, None] * numpy.asarray(inv_freq, "f4")[None]
    return (numpy.cos(angles) * numpy.float32(scaling)).astype("<f4"), (numpy.sin(angles) * numpy.float32(scaling)).astype("<f4")


def inv_freq(width, theta=10000.0):
    """transformers' default frequencies, in float32."""
    return (1.0 / numpy.float32(theta) ** (numpy.arange(0, width, 2, dtype="f4") / numpy.float32(width))).astype("f4")


def rotary(kind, interleaved=0, layers=2, heads=4, key_heads=2, head_size=64, cos="cos_cache", sin="sin_cache", **more):
    """Nodes of an attention's rotation by one operator: "standard", "microsoft" or "gqa"."""
    nodes = []
    for layer in range(layers):
        if kind == "gqa":
            inputs = [f"q{layer}", f"k{layer}", f"v{layer}", "", "", "seqlens_k", "total_sequence_length", cos, sin]
            nodes.append(node("GroupQueryAttention", inputs, [f"o{layer}"], MICROSOFT, f"/layers.{layer}/attn", num_heads=heads,
                              kv_num_heads=key_heads, do_rotary=1, rotary_interleaved=interleaved, **more))
            continue
        for operand in ("q", "k"):
            x = f"{operand}{layer}"
            inputs = [x, cos, sin, "position_ids"] if kind == "standard" else [x, "position_ids", cos, sin]
            nodes.append(node("RotaryEmbedding", inputs, [f"{x}_rotated"], "" if kind == "standard" else MICROSOFT,
                              f"/layers.{layer}/{operand}_rotary", **({"interleaved": interleaved} | more)))
    return nodes


def rotating(kind, cos, sin, interleaved=0, heads=4, head_size=64, external=None, typed=False, **more):
    """A model whose only nodes rotate. `external`: describes the data of both tables."""
    external = external or (None, None)
    values = [(f"{operand}{layer}", ["batch", heads, "tokens", head_size]) for layer in range(2) for operand in "qk"]
    return model(Graph(rotary(kind, interleaved, heads=heads, **more),
                       [tensor("cos_cache", cos, external[0], typed), tensor("sin_cache", sin, external[1], typed)],
                       ["position_ids"], values=[] if kind == "gqa" else values))
