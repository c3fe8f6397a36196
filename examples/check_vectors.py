"""Checks a port's rotation against the file that `posenc vectors` wrote. Copy it into a test suite; it needs numpy.

check(path, rotate) calls rotate(q, positions, settings) for each layer type of the file and raises AssertionError where
the result differs by more than the file's tolerance. `q` is float32 [1, P, 2, D], `positions` int64 [P] or [P, axes].
"""

import json

import numpy

TYPES = {"I64": "<i8", "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def load(path):
    """Returns metadata and tensors of a .safetensors file; BF16 as its bits."""
    contents = open(path, "rb").read()
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:end])
    metadata = {name: json.loads(text) for name, text in header.pop("__metadata__").items() if text[0] in "{["}
    return metadata, {
        name: numpy.frombuffer(contents[end:], TYPES[entry["dtype"]], int(numpy.prod(entry["shape"], dtype=int)),
                               entry["data_offsets"][0]).reshape(entry["shape"]) for name, entry in header.items()}


def pair_norms(rows, settings):
    """Returns for each element of rows [..., D] the norm of the pair that rotates; 0 for those that do not rotate."""
    width = int(settings["rotary_dim"])
    turned = rows[..., :width].astype("f8")
    norms = numpy.zeros(rows.shape)
    if settings.get("output_pairing", settings["input_pairing"]) == "PAIRING_INTERLEAVED":
        norms[..., :width] = numpy.repeat(numpy.hypot(turned[..., ::2], turned[..., 1::2]), 2, -1)
    else:
        parts = turned.reshape(*turned.shape[:-1], int(settings.get("half_split_parts", 1)), 2, -1)
        pairs = numpy.hypot(parts[..., 0, :], parts[..., 1, :])[..., None, :]
        norms[..., :width] = numpy.broadcast_to(pairs, parts.shape).reshape(turned.shape)
    return norms


def check(path, rotate, precision="exact"):
    metadata, tensors = load(path)
    suffix = f"rotated.fp32.{precision}"
    for name in (name for name in tensors if name.endswith(suffix)):
        prefix, expected, settings = name[:-len(suffix)], tensors[name], metadata[name[:-len(suffix)] + "settings"]
        actual = rotate(tensors[prefix + "q.fp32"], tensors[prefix + "positions"], settings)
        bound = metadata[name]["tolerance_of_pair_norm"] * pair_norms(expected, settings)
        wrong = numpy.argwhere(~(numpy.abs(actual.astype("f8") - expected) <= bound))
        assert len(wrong) == 0, (f"{name}: {len(wrong)} of {expected.size} differ by more than the tolerance, the first "
                                 f"at [batch, token, head, element] {wrong[0].tolist()}")
