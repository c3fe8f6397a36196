"""examples/pipelines/audit.py on a Ray cluster of three nodes."""

import json

import ml_dtypes
import numpy as np
import pytest
from conftest import CONFIGS, PIPELINES, PYTHON, kill_one
from safetensors.numpy import save_file

MODELS = 1000


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """1,000 files: the golden ones with other bases; and folders with a dump that differs and one that does not."""
    folder = tmp_path_factory.mktemp("models")
    golden = sorted(CONFIGS.glob("*.json"))
    for number in range(MODELS - 3):
        path = golden[number % len(golden)]
        config = json.loads(path.read_text())
        if "rope_theta" in config:
            config["rope_theta"] = 10000 + number
        (folder / f"{number:04}-{path.name}").write_text(json.dumps(config))
    config = {"model_type": "llama", "rope_theta": 10000, "hidden_size": 128, "num_attention_heads": 1, "num_hidden_layers": 1,
              "max_position_embeddings": 4096}
    before = np.random.default_rng(1).standard_normal((1, 16, 1, 128)).astype(ml_dtypes.bfloat16).astype("f4")
    for name, shift in (("right", 0), ("shifted", 1)):
        angles = (np.arange(16) + shift)[:, None] * 10000.0 ** (-np.arange(64) / 64)
        x, y = before[..., :64].astype("f8"), before[..., 64:].astype("f8")
        cos, sin = np.cos(angles)[None, :, None], np.sin(angles)[None, :, None]
        after = np.concatenate([x * cos - y * sin, y * cos + x * sin], -1).astype("f4")
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**config, **({"rope_tetha": 3} if shift else {})}))
        kind = ml_dtypes.bfloat16 if name == "right" else np.float32
        save_file({"before": before.astype(kind), "after": after.astype(kind), "positions": np.arange(16)},
                  folder / name / "dump.safetensors")
    (folder / "broken").mkdir()
    (folder / "broken/dump.safetensors").write_bytes(b"cut")
    (folder / "broken/config.json").write_text('{"model_type": "llama"')
    return folder


def test_audit(run, ray_address, models, tmp_path, server):
    """The second run loses a worker and, for a while, the server. Its table is that of the first, which needed neither."""
    command = [PYTHON, PIPELINES / "audit.py", models]
    said = run(*command, tmp_path / "local", "--ray", ray_address).said()
    assert f"{MODELS} models" in said
    job = run(*command, tmp_path / "remote", "--ray", ray_address, "--server", server.address)
    job.runs_until(lambda: server.calls() > 100, "calls")
    kill_one(r"^ray::.*[Mm]ap")
    server.restart()
    job.said()
    local, remote = ((tmp_path / name / "verdicts.html").read_text() for name in ("local", "remote"))
    assert local == remote
    rows = local.split("<tr>")[2:]
    assert len(rows) == MODELS + 3
    assert "shifted<td>diagnose<td>DIFFERS<td>positions start at 1, not 0" in rows[0]
    assert "broken<td>diagnose<td>REFUSED" in rows[1] and "broken<td>explain<td>REFUSED" in rows[2]
    assert any("rope_tetha: model_type" in row for row in rows if row.startswith("<td>shifted"))
    assert any("right<td>diagnose<td>MATCHES" in row for row in rows)


def test_no_server(run, ray_address, models, tmp_path):
    job = run(PYTHON, PIPELINES / "audit.py", models, tmp_path / "out", "--ray", ray_address, "--server", "127.0.0.1:1", "--wait", "1")
    assert "127.0.0.1:1" in job.said(1)
