"""Recomputes the test vectors that posenc vectors writes for other projects, from the papers' formulas."""

import ctypes
import importlib.util
import json
import pathlib
import subprocess

import formulas
import numpy
import pytest
from tensors import BF16, FP32, from_bf16, rounded

TYPES = {"I64": "<i8", "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def load(path):
    """Returns metadata and tensors of a .safetensors file, BF16 as float32."""
    contents = path.read_bytes()
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:end])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        values = numpy.frombuffer(contents[end + begin:end + stop], TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = from_bf16(values) if entry["dtype"] == "BF16" else values
    return metadata, tensors


@pytest.fixture
def vectors(posenc, configs, tmp_path):
    def make(model, *flags):
        posenc("vectors", "--model", configs / f"{model}.json", "--out", "v.safetensors", *flags)
        return load(tmp_path / "v.safetensors")
    return make


def test_the_factor_of_queries_is_left_out(vectors):
    metadata, _ = vectors("ministral-3-3b-reasoning-2512", "--component", "text")
    left_out = json.loads(metadata["left_out"])["query_scale"]
    assert left_out["function"] == "QUERY_SCALE_FUNCTION_MINISTRAL3"
    assert "query_scale" not in json.loads(metadata["settings"])


def test_of_llama_are_what_the_formula_says(vectors):
    metadata, tensors = vectors("llama-3.1-8b")
    positions = tensors["positions"].tolist()
    assert positions == [0, 1, 2, 3, 8191, 8192, 8193, 32768, 65536, 1 << 20, (1 << 24) + 1]
    inv_freq = formulas.llama3_inv_freq(500000, 128, 8, 1, 4, 8192)
    assert tensors["inv_freq"].tolist() == inv_freq
    cos, sin = formulas.table(inv_freq, positions)
    assert (tensors["cos.exact"] == cos).all() and (tensors["sin.exact"] == sin).all()

    q = tensors["q.fp32"]
    assert q.shape == (1, 11, 2, 128) and q.min() < -3.5 and q.max() > 3.5
    assert (tensors["q.bf16"] == rounded(q, BF16)).all()
    # The preset exact uses float32 tables and arithmetic, and rounds once.
    exact = [table[:, None] for table in formulas.table(inv_freq, positions, FP32)]
    rotated = formulas.rotate(q, *exact, interleaved=False)
    assert numpy.abs(tensors["rotated.fp32.exact"] - rotated).max() < 1e-6
    narrow = formulas.rotate(tensors["q.bf16"], *exact, interleaved=False)
    assert numpy.abs(tensors["rotated.bf16.exact"] - rounded(narrow, BF16)).max() <= 2 ** -5  # an ulp of 4 .. 8
    assert (tensors["rotated.bf16.exact"] != tensors["rotated.bf16.hf_eager"]).any()
    made = json.loads(metadata["rotated.bf16.hf_eager"])
    assert made["call"] == "ApplyRotary" and made["input"] == "q.bf16"
    assert made["precision"]["rounding"] == "ROUNDING_EACH_OPERATION"
    assert json.loads(metadata["settings"])["rope_parameters"]["rope_type"] == "llama3"
    assert set(metadata) == set(tensors) | {"posenc", "numerics_version", "seed", "settings"}


def numpy_port(q, positions, settings):
    """A port with float32 tables whose angles and products are float64."""
    inv_freq = 500000.0 ** (-numpy.arange(0, 128, 2) / 128)
    wavelength = 2 * numpy.pi / inv_freq
    smooth = numpy.clip((8192 / wavelength - 1) / 3, 0, 1)
    inv_freq = (1 - smooth) * inv_freq / 8 + smooth * inv_freq
    angles = positions[:, None] * inv_freq
    cos, sin = numpy.cos(angles).astype("f4")[:, None], numpy.sin(angles).astype("f4")[:, None]
    a, b = q[..., :64].astype("f8"), q[..., 64:].astype("f8")
    return numpy.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype("f4")


def test_the_checkers_accept_a_correct_port_and_find_an_error(vectors, tmp_path):
    metadata, tensors = vectors("llama-3.1-8b")
    path = tmp_path / "v.safetensors"
    examples = pathlib.Path(__file__).parents[2] / "examples"
    spec = importlib.util.spec_from_file_location("check_vectors", examples / "check_vectors.py")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    checker.check(path, numpy_port)
    with pytest.raises(AssertionError, match="differ by more than the tolerance, the first at"):
        checker.check(path, lambda q, positions, settings: numpy_port(q, positions + 1, settings))

    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", tmp_path / "check.so",
                    examples / "check_vectors.c", "-lm"], check=True)
    check = ctypes.CDLL(tmp_path / "check.so").check_rotated
    check.restype = ctypes.c_long
    expected = numpy.ascontiguousarray(tensors["rotated.fp32.exact"])
    tolerance = json.loads(metadata["rotated.fp32.exact"])["tolerance_of_pair_norm"]

    def first_wrong(actual):
        actual = numpy.ascontiguousarray(actual, dtype="<f4")
        return check(actual.ctypes.data_as(ctypes.c_void_p), expected.ctypes.data_as(ctypes.c_void_p),
                     ctypes.c_long(expected.size // 128), ctypes.c_long(128), ctypes.c_long(128), 0,
                     ctypes.c_double(tolerance))

    port = numpy_port(tensors["q.fp32"], tensors["positions"], None)
    assert (port != expected).any() and first_wrong(port) == -1
    broken = expected.copy()
    broken[0, 3, 1, 70] += 1e-3
    assert first_wrong(broken) == (3 * 2 + 1) * 128 + 70


def test_are_the_same_bytes_again_by_a_server_and_on_any_processor(posenc, address, configs, tmp_path):
    files = []
    other = json.loads(posenc("info", "--json").stdout)["cpu_targets"][-1]
    for flags, environment in (((), {}), (("--server", address), {}), ((), {"POSENC_TARGET": other}), (("--seed", 2), {})):
        posenc("vectors", "--model", configs / "phi-2.json", "--out", "v.safetensors", *flags, **environment)
        files.append((tmp_path / "v.safetensors").read_bytes())
    assert files[0] == files[1] == files[2] != files[3]


def test_layers_that_differ_have_their_own(vectors):
    metadata, tensors = vectors("gemma-3-1b-it")
    assert {name.split("/")[0] for name in tensors} == {"full_attention", "sliding_attention"}
    bases = {kind: json.loads(metadata[f"{kind}_attention/settings"])["rope_parameters"]["rope_theta"]
             for kind in ("full", "sliding")}
    assert bases == {"full": 1000000, "sliding": 10000}
    assert (tensors["full_attention/inv_freq"] != tensors["sliding_attention/inv_freq"]).any()


def test_lengths_that_matter_are_within_and_beyond(vectors):
    _, tensors = vectors("phi-3-mini-128k-instruct")
    short, long = tensors["seq_len_4096/inv_freq"], tensors["seq_len_16384/inv_freq"]
    plain = numpy.array(formulas.rope_inv_freq(10000, 96))
    numpy.testing.assert_allclose((plain / short)[:4], [1.1, 1.1, 1.1, 1.3], rtol=1e-12)
    numpy.testing.assert_allclose((plain / long)[:2], [1.07, 1.12], rtol=1e-6)


@pytest.mark.parametrize("model", ("bloom-560m", "mpt-7b"))
def test_without_a_rotation_there_are_none(posenc, configs, tmp_path, model):
    ended = posenc("vectors", "--model", configs / f"{model}.json", "--out", "v.safetensors", exit_code=3)
    assert "no rotary embedding" in ended.stderr and not (tmp_path / "v.safetensors").exists()


def test_another_kind_of_file_is_a_usage_error(posenc, configs):
    assert "safetensors" in posenc("vectors", "--model", configs / "phi-2.json", "--out", "v.npy", exit_code=2).stderr
