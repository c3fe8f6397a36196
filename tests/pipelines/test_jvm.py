"""examples/pipelines/jvm: Spark's Java API and the Java package, against three servers behind the proxy."""

import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import LLAMA, PIPELINES, ROOT, SERVER, calls, kill_one
from front import PROGRAM, Front, ServerBehind

import posenc

ROWS = 2000


@pytest.fixture(scope="module")
def jar():
    if not shutil.which("mvn"):
        pytest.skip("no Maven: scripts/install-dependencies clients")
    for folder, goal in ((ROOT / "client/java", ["-DskipTests", "install"]), (PIPELINES / "jvm", ["package"])):
        subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", folder, *goal], check=True)
    return PIPELINES / "jvm/target/rotate-rows-1.jar"


@pytest.fixture
def proxied(tmp_path):
    """Three servers, and the address of the proxy before them."""
    if not PROGRAM:
        pytest.skip("no haproxy")
    servers = []
    for number in range(3):
        (tmp_path / f"server{number}").mkdir()
        servers.append(ServerBehind(SERVER, tmp_path / f"server{number}", tmp_path / f"{number}.socket"))
    with Front(tmp_path, None, servers) as front:
        yield servers, f"127.0.0.1:{front.port}"
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("rows")
    q = random.standard_normal((ROWS, 4 * 2 * 128)).astype("f4")
    start = random.integers(0, 100000, ROWS)
    for part in range(8):
        pa.parquet.write_table(pa.table({"id": np.arange(ROWS)[part::8], "start": start[part::8],
                                         "q": pa.FixedSizeListArray.from_arrays(pa.array(q[part::8].reshape(-1)), 4 * 2 * 128)}),
                               path / f"{part}.parquet")
    return path, q, start


def test_jvm(run, spark, jar, proxied, rows, tmp_path):
    """An executor and one of the servers are killed."""
    servers, address = proxied
    path, q, start = rows
    job = run(*spark, "--class", "RotateRows", jar, address, LLAMA, "2", "128", path, tmp_path / "out")
    job.runs_until(lambda: calls(f"127.0.0.1:{servers[0].port}") > ROWS // 20, "calls")
    servers[1].kill()
    kill_one("CoarseGrainedExecutorBackend")
    assert f"rotated {ROWS} rows" in job.said()
    table = pa.parquet.read_table(tmp_path / "out").sort_by("id")
    assert table["id"].to_pylist() == list(range(ROWS))
    found = np.array(table["q"].to_pylist(), "f4")
    with posenc.local() as client:
        for row in range(ROWS):
            (expected,) = client.rope(q[row].reshape(1, 4, 2, 128), model=LLAMA, positions=int(start[row]), layout="BSHD")
            assert (found[row] == expected.reshape(-1)).all()
