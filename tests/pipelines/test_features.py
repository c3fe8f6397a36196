"""examples/pipelines/features.py, with the processes of `datasets` and torch's DataLoader."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import LLAMA, PIPELINES, PYTHON, kill_one

pytest.importorskip("torch", reason="torch is not installed: scripts/test-pipelines --torch")
ROWS = 3000


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    q = random.standard_normal((ROWS, 4, 2, 128)).astype("f4")
    pa.parquet.write_table(pa.table({"timestep": random.uniform(0, 1000, ROWS), "start": random.integers(0, 1000, ROWS),
                                     "q": pa.array(q.tolist(), pa.list_(pa.list_(pa.list_(pa.float32()))))}), path)
    return path


def sums(text):
    found = re.findall(rf"^epoch \d: {ROWS} rows, sum \S+$", text, re.MULTILINE)
    assert len(found) == 2, text[-3000:]
    return found


def test_features(run, rows, server, tmp_path):
    """A process of `datasets` is killed, which ends the job; the job that is started again loses the server for a while."""
    command = [PYTHON, PIPELINES / "features.py", rows]
    expected = sums(run(*command, tmp_path / "local", "--model", LLAMA).said())
    command += [tmp_path / "remote", "--model", LLAMA, "--server", server.address]
    job = run(*command)
    kill_one("features.py", job.process.pid, of=3)  # a manager and two workers
    job.said(1)
    job = run(*command)
    job.runs_until(lambda: server.calls() > ROWS // 2, "calls of the loader")
    server.restart()
    assert sums(job.said()) == expected
