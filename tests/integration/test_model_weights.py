"""Compares results by config.json and weights, with a server and in process, with what the model computed."""

import json
import pathlib

import numpy
import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "recorded"
SCORES = json.loads((GOLDEN / "relative_scores.json").read_text())["records"]
BIASES = json.loads((GOLDEN / "relative_biases.json").read_text())["swin_v2_stage"]
TABLES = json.loads((GOLDEN / "embeddings.json").read_text())["learned"]
LAYOUT = "WEIGHT_LAYOUT_"


def save(path, values, dtype="<f4"):
    numpy.save(path, numpy.array(values, dtype))
    return path


def weight_flags(prefix, method, directory):
    """Returns the flags of a method's weights, but none of its settings."""
    flags = []
    for name, value in method.items():
        flag = f"{prefix}-{name.replace('_', '-')}"
        if isinstance(value, dict):
            flags += weight_flags(flag, value, directory)
        elif isinstance(value, list):
            flags += [flag, save(directory / f"{flag}.npy", value)]
        elif str(value).startswith(LAYOUT):
            flags += [flag, value.removeprefix(LAYOUT).lower().replace("_", "-")]
    return flags


def run_twice(posenc, address, directory, config, *arguments):
    """Returns what the command writes; asserts that it is the same with a server and without one."""
    (directory / "config.json").write_text(json.dumps(config))
    for place, flags in (("here", ()), ("there", ("--server", address))):
        posenc(*arguments, *flags, "--model", "config.json", "-o", f"{place}.npy")
    assert (directory / "here.npy").read_bytes() == (directory / "there.npy").read_bytes()
    return numpy.load(directory / "there.npy")


@pytest.mark.parametrize("record", SCORES, ids=[record["model"] for record in SCORES])
def test_scores(posenc, address, tmp_path, record):
    (method,) = record["method"]
    weights = weight_flags(f"--{method.replace('_', '-')}", record["method"][method], tmp_path)
    mask = ("--causal", "--fill", "lowest", "--fully-masked-row", "fill") if "mask" in record else ()
    got = run_twice(posenc, address, tmp_path, record["config"], "scores", *weights, *mask, "--layout", "bhsd",
                    "--content", "true", "--dtype", "fp32", "--query-offset", record["past"],
                    "--q", save(tmp_path / "q.npy", record["q"]), "--k", save(tmp_path / "k.npy", record["k"]))
    expected = numpy.array(record["scores"], "<f4")
    assert got.shape == expected.shape
    assert numpy.allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("record", BIASES, ids=[record["layer_type"] for record in BIASES])
def test_swin_v2_by_stage(posenc, address, tmp_path, record):
    weights = []
    for name in ("hidden_weight", "hidden_bias", "output_weight"):
        weights += [f"--swin-v2-{name.replace('_', '-')}", save(tmp_path / f"{name}.npy", record[name])]
    got = run_twice(posenc, address, tmp_path, record["config"], "bias", *weights, "--layer-type", record["layer_type"],
                    "--bias-form", "dense", "--dtype", "fp32")
    assert numpy.allclose(got, numpy.array(record["bias"], "<f4"), rtol=0, atol=2e-5)


@pytest.mark.parametrize("record", TABLES, ids=[record["config"]["model_type"] for record in TABLES])
def test_learned_tables(posenc, address, tmp_path, record):
    got = run_twice(posenc, address, tmp_path, record["config"], "embedding", "--learned-table",
                    save(tmp_path / "table.npy", record["table"]), "--learned-token-valid",
                    save(tmp_path / "valid.npy", record["token_valid"], bool), "--dtype", "fp32")
    assert (got == numpy.array(record["values"], "<f4")).all()


@pytest.mark.parametrize("config, given, flags", (
    ({"model_type": "marian", "d_model": 8}, (), ("--convention", "halves", "--dim", "8")),
    ({"model_type": "xglm", "d_model": 8}, (), ("--convention", "fairseq", "--dim", "8", "--padding-idx", "1")),
    ({"model_type": "speecht5", "hidden_size": 8}, (), ("--convention", "fairseq", "--dim", "8", "--padding-idx", "1")),
    ({"model_type": "musicgen", "text_encoder": {"model_type": "t5"},
      "decoder": {"model_type": "musicgen_decoder", "hidden_size": 8}}, (),
     ("--convention", "tensor2tensor", "--dim", "8", "--cosines-first")),
    ({"model_type": "mask2former", "hidden_dim": 8, "backbone_config": {"model_type": "swin"}},
     ("--grid-height", "2", "--grid-width", "3"), ("--grid-convention", "detr", "--grid-dim", "8", "--grid-height", "2", "--grid-width", "3")),
    ({"model_type": "detr", "d_model": 8}, ("--grid-height", "2", "--grid-width", "3"),
     ("--grid-convention", "detr", "--grid-dim", "8", "--grid-height", "2", "--grid-width", "3")),
    ({"model_type": "vit_mae", "hidden_size": 8, "image_size": 32}, (),
     ("--grid-convention", "mae", "--grid-dim", "8", "--grid-height", "2", "--grid-width", "2", "--grid-extra-tokens", "1")),
), ids=lambda value: value["model_type"] if isinstance(value, dict) else "")
def test_sines_of_the_input(posenc, address, tmp_path, config, given, flags):
    tokens = () if "-grid-" in "".join(flags) else ("--offset", "3", "--count", "5")
    got = run_twice(posenc, address, tmp_path, config, "embedding", *given, *tokens, "--dtype", "fp32")
    posenc("embedding", *flags, *tokens, "--dtype", "fp32", "-o", "flags.npy")
    assert (got == numpy.load(tmp_path / "flags.npy")).all()


@pytest.mark.parametrize("config, said", (
    ({"model_type": "bert"}, "--learned-table"),
    ({"model_type": "bloom", "n_head": 8}, "no sinusoidal encoding"),
    ({"model_type": "mpnet"}, "--learned-table"),
))
def test_a_model_that_adds_no_sines(posenc, tmp_path, config, said):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert said in posenc("embedding", "--model", "config.json", "--dtype", "fp32", "-o", "out.npy", exit_code=2).stderr


def test_explain_says_what_is_there(posenc, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SCORES[1]["config"]))
    said = posenc("explain", "--model", "config.json").stdout
    for line in ("deberta", "position_buckets", "relative_embeddings", "note: config_json.pos_att_type"):
        assert (line in said) == (line != "relative_embeddings"), said


SCORES_OF_Q = ("scores", "--q", "q.npy", "--layout", "bshd", "--content", "true")


@pytest.mark.parametrize("arguments, said", (
    ((*SCORES_OF_Q, "--model", "config.json"), "--shaw-table"),
    ((*SCORES_OF_Q, "--model", "config.json", "--wpr-scales", "4"), "Wpr"),
    ((*SCORES_OF_Q, "--shaw-before", "4", "--layer-index", "1"), "needs --model"),
    (("embedding", "--timestep-dim", "8", "--dtype", "fp32", "--model", "config.json"), "Timestep"),
    (("bias", "--kerple-kernel", "log", "--model", "config.json"), "not allowed with --model"),
))
def test_misuse(posenc, tmp_path, arguments, said):
    save(tmp_path / "q.npy", numpy.zeros((1, 2, 3, 4)))
    (tmp_path / "config.json").write_text("{}")
    assert said in posenc(*arguments, "-o", "out.npy", exit_code=2).stderr
