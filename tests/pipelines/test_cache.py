"""examples/pipelines/cache.py on a standalone Spark cluster of two workers."""

import hashlib

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import LLAMA, PIPELINES, kill_one
from safetensors.numpy import load_file, save_file

import posenc

DOCUMENTS = 200


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A manifest, and files with the bfloat16 keys of two layers. Two files are not as they should be."""
    folder = tmp_path_factory.mktemp("documents")
    random = np.random.default_rng(5)
    rows = []
    for number in range(DOCUMENTS):
        path = folder / f"{number:03}.safetensors"
        shape = (1, int(random.integers(1, 200)), 8, 64 if number == 7 else 128)
        save_file({f"layer{n}": random.standard_normal(shape).astype(ml_dtypes.bfloat16) for n in range(2)}, path)
        rows.append({"path": str(path), "start": int(random.integers(0, 10000)), "to": int(random.integers(0, 10000))})
    rows[9]["path"] = str(folder / "missing.safetensors")
    (folder / "manifest").mkdir()
    for part in range(8):
        pa.parquet.write_table(pa.Table.from_pylist(rows[part::8]), folder / "manifest" / f"{part}.parquet")
    return folder / "manifest", rows


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}


def test_cache(run, spark, documents, server, tmp_path):
    """The second run loses an executor and, for a while, the server. Its files are those of the first, which needed neither."""
    manifest, rows = documents
    command = [*spark, PIPELINES / "cache.py", manifest]
    said = run(*command, tmp_path / "local", "--model", LLAMA).said()
    assert f"moved {DOCUMENTS - 2} of {DOCUMENTS} documents" in said
    assert "not moved: " + rows[7]["path"] + ": k.tensor.shape" in said  # its keys are narrower than the model's
    assert "not moved: " + rows[9]["path"] in said
    job = run(*command, tmp_path / "remote", "--model", LLAMA, "--server", server.address)
    job.runs_until(lambda: server.calls() > DOCUMENTS // 4, "calls")
    kill_one("CoarseGrainedExecutorBackend")
    server.restart()
    assert f"moved {DOCUMENTS - 2} of {DOCUMENTS} documents" in job.said()
    made = digests(tmp_path / "local")
    assert made == digests(tmp_path / "remote") and len(made) == DOCUMENTS - 2
    told = [pa.parquet.read_table(tmp_path / name / "moved.parquet").sort_by("path") for name in ("local", "remote")]
    assert told[0].drop_columns("error") == told[1].drop_columns("error") and told[0].num_rows == DOCUMENTS
    row = rows[0]
    with posenc.local() as client:
        for name, k in load_file(row["path"]).items():
            (expected,) = client.move_keys(k, model=LLAMA, from_positions=row["start"], positions=row["to"], layout="BSHD")
            moved = load_file(tmp_path / "local" / "000.safetensors")[name]
            assert (moved.view(np.uint16) == expected.view(np.uint16)).all()


def test_no_server(run, spark, documents, tmp_path):
    job = run(*spark, PIPELINES / "cache.py", documents[0], tmp_path / "out", "--model", LLAMA, "--server", "127.0.0.1:1",
              "--wait", "1")
    assert "waited 1 s for 127.0.0.1:1" in job.said(1)
