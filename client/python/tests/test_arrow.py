"""posenc.arrow: columns in, columns out, in record batches, tables and the engines that pass them around."""

import json
import os
import re
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import LLAMA

import posenc

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import posenc.arrow  # noqa: E402

B, S, H, D = 6, 3, 2, 128
Q = np.random.default_rng(3).standard_normal((B, S, H, D)).astype(np.float32)
K = np.random.default_rng(4).standard_normal((B, S, 1, D)).astype(np.float32)
RAGGED = [Q[0], Q[1, :1], Q[2, :0], Q[3, :2]]  # sequences of 3, 1, 0 and 2 tokens
STARTS = [7, 100, 3, 0]
ALIBI = {"alibi": {"num_heads": 2, "rule": "POWER_OF_TWO", "form": "CAUSAL"}}
SINES = {"convention": "INTERLEAVED", "dim": 8}
FLAT, LISTS = pa.list_(pa.list_(pa.list_(pa.float32(), D), H)), pa.list_(pa.list_(pa.list_(pa.float32())))


def tensors(array):
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array)


def nested(rows, kind=FLAT):
    return pa.array([None if row is None else np.asarray(row).tolist() for row in rows], kind)


def numpy_of(column):
    return np.array(column.to_pylist(), np.float32)


def rotated(client, q, start):
    """What a call with one row gives."""
    return client.rope(q[None], model=LLAMA, positions=start, layout="BSHD").q[0]


@pytest.mark.parametrize("kind", [
    pa.list_(pa.list_(pa.list_(pa.float32(), D), H), S), FLAT, LISTS, pa.large_list(pa.list_(pa.large_list(pa.float32()), H)),
], ids=["fixed", "ragged", "lists", "large"])
def test_nested_lists(client, kind):
    batch = pa.record_batch({"id": list(range(B)), "q": nested(Q, kind), "start": [7] * B})
    found = posenc.arrow.rope(client, batch, "q", model=LLAMA, positions="start")
    assert isinstance(found, pa.RecordBatch) and found.schema == batch.schema and found["id"] == batch["id"]
    expected = client.rope(Q, model=LLAMA, positions=7, layout="BSHD").q
    assert (numpy_of(found["q"]) == expected).all()
    found.validate(full=True)


def test_fixed_shape_tensors(client):
    batch = pa.record_batch({"q": tensors(Q), "k": tensors(K)})
    found = posenc.arrow.rope(client, batch, "q", "k", model=LLAMA, positions=7)
    q, k = client.rope(Q, K, model=LLAMA, positions=7, layout="BSHD")
    assert found.schema == batch.schema
    assert (found["q"].to_numpy_ndarray() == q).all() and (found["k"].to_numpy_ndarray() == k).all()
    added = posenc.arrow.rope(client, batch, "q", "k", model=LLAMA, positions=7, into=["rq", "rk"])
    assert added.schema.names == ["q", "k", "rq", "rk"] and added["q"] == batch["q"] and added["rk"] == found["k"]


@pytest.mark.parametrize("column", [tensors(Q), nested(Q, pa.list_(pa.list_(pa.list_(pa.float32(), D), H), S)), nested(Q)])
@pytest.mark.parametrize("begin", [0, 2])
def test_no_copies(local, monkeypatch, column, begin):
    """The call gets Arrow's memory, and Arrow the answer's."""
    seen = {}

    def rope(q, k=None, **fields):
        seen["given"], answer = q.__array_interface__["data"][0], type(local).rope(local, q, k, **fields)
        seen["made"] = answer.q.__array_interface__["data"][0]
        return answer
    monkeypatch.setattr(local, "rope", rope, raising=False)
    batch = pa.record_batch({"q": column}).slice(begin)
    found = posenc.arrow.rope(local, batch, "q", model=LLAMA, positions=0)["q"]

    def address(array):
        inner = array.storage if isinstance(array, pa.ExtensionArray) else array
        while hasattr(inner, "values"):
            inner = inner.values
        return inner.buffers()[1].address
    assert seen["given"] == address(column) + begin * Q[0].nbytes and seen["made"] == address(found)


@pytest.mark.parametrize("kind", [FLAT, LISTS], ids=["ragged", "lists"])
@pytest.mark.parametrize("positions", ["start", "each", 5, {"offset": "start"}], ids=str)
def test_ragged_rows(client, kind, positions):
    """A row of packed tokens has the same bytes as a call of its own."""
    each = [list(range(start, start + len(row))) for start, row in zip(STARTS, RAGGED)]
    batch = pa.record_batch({"q": nested(RAGGED, kind), "start": STARTS, "each": each})
    found = posenc.arrow.rope(client, batch, "q", model=LLAMA, positions=positions)["q"].to_pylist()
    starts = [5] * 4 if positions == 5 else STARTS
    assert len(found[2]) == 0
    for n in (0, 1, 3):
        assert (np.array(found[n], np.float32) == rotated(client, RAGGED[n], starts[n])).all()


def test_a_row_does_not_depend_on_its_batch(client):
    """Where frequencies depend on the length, it is each row's own."""
    model = {**LLAMA, "max_position_embeddings": 4, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    batch = pa.record_batch({"q": nested(RAGGED), "start": STARTS})
    whole = posenc.arrow.rope(client, batch, "q", model=model, positions="start")
    alone = [posenc.arrow.rope(client, batch.slice(n, 1), "q", model=model, positions="start") for n in range(4)]
    assert pa.Table.from_batches([whole]) == pa.Table.from_batches(alone).combine_chunks()


def test_halves(client):
    q = Q.astype(np.float16)
    found = posenc.arrow.rope(client, pa.record_batch({"q": tensors(q)}), "q", model=LLAMA, positions=2)["q"]
    assert (found.to_numpy_ndarray() == client.rope(q, model=LLAMA, positions=2, layout="BSHD").q).all()


def test_bfloat16(client):
    q = Q.astype(ml_dtypes.bfloat16)
    batch = pa.record_batch({"q": tensors(q.view(np.uint16))})
    found = posenc.arrow.rope(client, batch, "q", model=LLAMA, positions=2, dtype="BF16")["q"]
    expected = client.rope(q, model=LLAMA, positions=2, layout="BSHD").q
    assert found.type == batch["q"].type and (found.to_numpy_ndarray() == expected.view(np.uint16)).all()
    with pytest.raises(posenc.InvalidArgument, match="uint16.*dtype='BF16'"):
        posenc.arrow.rope(client, batch, "q", model=LLAMA, positions=2)


@pytest.mark.parametrize("axes, rows", [
    ("HSD", Q.transpose(0, 2, 1, 3)), ("HD", Q[:, 0]), ("SD", Q[:, :, 0]), ("D", Q[:, 0, 0])], ids=["HSD", "HD", "SD", "D"])
def test_axes(client, axes, rows):
    starts = list(range(B))
    expected = np.stack([rotated(client, Q[n], n) for n in starts])
    expected = {"HSD": expected.transpose(0, 2, 1, 3), "HD": expected[:, 0], "SD": expected[:, :, 0], "D": expected[:, 0, 0]}[axes]
    kind = pa.float32()
    for _ in axes:
        kind = pa.list_(kind)
    for column in (tensors(np.ascontiguousarray(rows)), nested(rows, kind)):
        found = posenc.arrow.rope(client, pa.record_batch({"q": column, "start": starts}), "q", model=LLAMA, positions="start",
                                  axes=axes)["q"]
        assert found.type == column.type and (numpy_of(found).reshape(expected.shape) == expected).all()


def test_slices_chunks_metadata_and_order(client):
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"unit": "row"}), pa.field("q", tensors(Q).type, metadata={"a": "b"}),
                        pa.field("start", pa.int32())], metadata={"job": "7"})
    batches = [pa.RecordBatch.from_arrays([pa.array(range(B)), tensors(Q), pa.array(range(B), pa.int32())], schema=schema)
               .slice(begin, length) for begin, length in ((4, 2), (0, 0), (1, 3))]
    table = pa.Table.from_batches(batches)
    # Columns whose chunks differ.
    table = table.set_column(2, schema.field("start"), pa.chunked_array([pa.array([4], pa.int32()), pa.array([5, 1, 2, 3], pa.int32())]))
    found = posenc.arrow.rope(client, table, "q", model=LLAMA, positions="start")
    assert isinstance(found, pa.Table) and found.schema.equals(schema, check_metadata=True)
    assert found["id"].to_pylist() == [4, 5, 1, 2, 3]
    for n, row in zip([4, 5, 1, 2, 3], found["q"].combine_chunks().to_numpy_ndarray()):
        assert (row == rotated(client, Q[n], n)).all()


@pytest.mark.parametrize("empty", [pa.table({"q": tensors(Q), "start": [0] * B}).slice(0, 0), pa.schema(
    [("q", FLAT), ("start", pa.int64())]).empty_table()], ids=["fixed", "ragged"])
def test_no_rows(client, empty):
    found = posenc.arrow.rope(client, empty, "q", model=LLAMA, positions="start")
    assert found.schema == empty.schema and found.num_rows == 0
    assert posenc.arrow.table(client, empty, "start", model=LLAMA, dtype="FP32", form="HALF_WIDTH").schema.field("cos").type == \
        pa.list_(pa.float32(), D // 2)


def test_nulls(client):
    q = nested([Q[0], None, Q[2], Q[3]], pa.list_(pa.list_(pa.list_(pa.float32(), D), H), S))
    batch = pa.record_batch({"q": q, "start": pa.array([1, 2, None, 4])})
    found = posenc.arrow.rope(client, batch, "q", model=LLAMA, positions="start")
    assert found["q"].is_null().to_pylist() == [False, True, True, False] and found.schema == batch.schema
    assert (np.array(found["q"][3].as_py(), np.float32) == rotated(client, Q[3], 4)).all()
    with pytest.raises(posenc.InvalidArgument, match="column 'q', row 1: is null; must have a value"):
        posenc.arrow.rope(client, batch, "q", model=LLAMA, positions="start", nulls="error")
    masked = pa.ExtensionArray.from_storage(tensors(Q).type, tensors(Q).storage.take(pa.array([0, None, 2])))
    found = posenc.arrow.rope(client, pa.record_batch({"q": masked}), "q", model=LLAMA, positions=1)["q"]
    assert found.is_null().to_pylist() == [False, True, False] and found.type == masked.type


def test_bad_rows_do_not_lose_the_others(client):
    """Each message names column, row and what was expected. The rows are those of the whole table."""
    null_within = Q[3].tolist()
    null_within[1][1][5] = None
    uneven = Q[4].tolist()
    uneven[1][0] = uneven[1][0][:7]
    q = [Q[0].tolist(), [[[1.0] * 64] * H], Q[2].tolist(), null_within, uneven, Q[5].tolist(), Q[0].tolist(), None]
    positions = [[1, 2, 3], [1], [1, 2], [1, 2, 3], [1, 2, 3], [1.0, float("nan"), 2.0], [4, 5, 6], [0]]
    table = pa.concat_tables([pa.table({"q": pa.array(part, LISTS), "at": pa.array(at, pa.list_(pa.float64()))})
                              for part, at in ((q[:2], positions[:2]), (q[2:], positions[2:]))])
    found = posenc.arrow.rope(client, table, "q", model=LLAMA, positions="at", errors="column", error_column="problem")
    said = found["problem"].to_pylist()
    expected = [None, "column 'q', row 1: q.tensor.shape: is .*64.*must be at least the rotary width 128",
                "column 'at', row 2: has 2 tokens; must have 3, as column 'q'",
                "column 'q', row 3: has a null within its tensor; must have none",
                "column 'q', row 4: has lists of 7 and of 128 items on axis 2; must have one length",
                "column 'at', row 5: positions.ids.*nan; must be finite", None, None]
    for text, pattern in zip(said, expected):
        assert (text is None) == (pattern is None) and (text is None or re.search(pattern, text)), (text, pattern)
    assert found["q"].is_null().to_pylist() == [False, True, True, True, True, True, False, True]
    assert (np.array(found["q"][6].as_py(), np.float32) == rotated(client, Q[0], 4)).all()
    with pytest.raises(posenc.InvalidArgument, match="column 'q', row 1: ") as caught:
        posenc.arrow.rope(client, table, "q", model=LLAMA, positions="at")
    assert caught.value.field == "column 'q', row 1"


@pytest.mark.parametrize("columns, arguments, match", [
    ({"x": tensors(Q)}, {}, r"column 'q': is there 0 times; must be there once; the columns are x"),
    ({"q": pa.array(["a"])}, {}, r"column 'q', row 0: is string; must be numbers, lists of them or fixed-shape tensors, of float32"),
    ({"q": pa.array([[[[1, 2]]]])}, {}, r"column 'q', row 0: is list.*int64.*of float32"),
    ({"q": nested(Q[:, :, 0], pa.list_(pa.list_(pa.float32())))}, {}, r"column 'q', row 0: is list.*must have 3 axes, as axes='SHD'"),
    ({"q": tensors(Q[..., :64])}, {}, r"column 'q', row 0: q.tensor.shape: is .*64.*rotary width 128"),
    ({"q": tensors(Q), "at": pa.array(["a"] * B)}, {"positions": "at"}, r"column 'at', row 0: is string; .*integers or floats"),
    ({"q": tensors(Q)}, {"positions": "at"}, r"column 'at': is there 0 times"),
    ({"q": tensors(Q)}, {"nulls": "none"}, r"nulls: is none; must be one of null, error"),
    ({"q": tensors(Q)}, {"axes": "BSHD"}, r"axes: is BSHD; must be one of SHD"),
])
def test_wrong_columns(local, columns, arguments, match):
    with pytest.raises(posenc.InvalidArgument, match=match):
        posenc.arrow.rope(local, pa.table(columns), "q", **{"model": LLAMA, "positions": 0, **arguments})


def test_rows_that_need_several_calls(local, monkeypatch):
    monkeypatch.setattr("posenc._arrow_rows._MOST_ROWS", 2)
    batch = pa.record_batch({"q": tensors(Q), "start": list(range(B))})
    found = posenc.arrow.rope(local, batch, "q", model=LLAMA, positions="start")["q"].to_numpy_ndarray()
    assert all((found[n] == rotated(local, Q[n], n)).all() for n in range(B))


def test_an_unreachable_server_is_not_a_row():
    with posenc.connect("127.0.0.1:1", retry=posenc.RetryPolicy(max_attempts=1)) as client, pytest.raises(posenc.Unavailable):
        posenc.arrow.rope(client, pa.table({"q": tensors(Q)}), "q", model=LLAMA, positions=0, errors="column")


def test_tables(client):
    fields = {"model": LLAMA, "dtype": "FP32", "form": "HALF_WIDTH"}
    found = posenc.arrow.table(client, pa.table({"at": [5, None, 9]}), "at", **fields)
    cos, sin = client.table(positions={"ids": np.array([5, 9])}, **fields)
    assert found["cos"].to_pylist()[1] is None and (numpy_of(found["cos"].drop_null()) == cos).all()
    assert (numpy_of(found["sin"].drop_null()) == sin).all()
    ragged = posenc.arrow.table(client, pa.table({"at": [[5], [], [9, 5]]}), "at", **fields)["cos"].to_pylist()
    assert [len(row) for row in ragged] == [1, 0, 2] and (np.array(ragged[2], np.float32) == cos[::-1]).all()
    half = posenc.arrow.table(client, pa.table({"at": [5, 9]}), "at", **{**fields, "dtype": "BF16"})["cos"]
    expected = client.table(positions={"ids": np.array([5, 9])}, **{**fields, "dtype": "BF16"}).cos
    assert (np.array(half.to_pylist(), np.uint16) == expected.view(np.uint16)).all()


def test_embeddings(client):
    found = posenc.arrow.embedding(client, pa.table({"at": [[1, 2], [3]]}), "at", sinusoidal=SINES, dtype="FP32")["embedding"]
    expected = client.embedding(positions={"ids": np.array([1, 2, 3])}, sinusoidal=SINES, dtype="FP32").embedding
    assert (np.array(sum(found.to_pylist(), []), np.float32) == expected).all()
    data = pa.table({"at": [1, 3], "x": pa.array([[[1.0] * 8] * 2, [[2.0] * 8]], pa.list_(pa.list_(pa.float32(), 8)))})
    added = posenc.arrow.embedding(client, data, "at", add_to="x", sinusoidal=SINES)
    x = np.repeat(np.array([1, 1, 2], np.float32), 8).reshape(3, 8)
    expected = client.embedding(positions={"ids": np.array([1, 2, 3])}, sinusoidal=SINES, add_to=x).embedding
    assert added.schema == data.schema and (np.array(sum(added["x"].to_pylist(), []), np.float32) == expected).all()


def test_biases(client):
    data = pa.table({"n": [2, None, 3, 2]})
    found = posenc.arrow.bias(client, data, {"query_length": "n", "key_length": "n"}, method=ALIBI, dtype="FP32")["bias"]
    for n, row in zip([2, None, 3, 2], found.to_pylist()):
        if n is None:
            assert row is None
            continue
        geometry = {"query_length": n, "key_length": n}
        expected = client.bias(method=ALIBI, geometry=geometry, form="DENSE", dtype="FP32").bias
        assert (np.array(row, np.float32) == expected.reshape(2, n, n)).all()


def test_explanations(client):
    data = pa.table({"config": [json.dumps(LLAMA), None, "{", '{"model_type": "x"}']})
    found = posenc.arrow.explain(client, data, "config", errors="column")
    assert "128 elements of a head rotate" in found["explanation"][0].as_py()[0] and found["explanation"][1].as_py() is None
    assert found["error"][0].as_py() is None and "column 'config', row 2: " in found["error"][2].as_py()
    assert "model_type" in found["error"][3].as_py()


def test_diagnoses(client):
    rotation = posenc.arrow.rope(client, pa.table({"q": tensors(Q)}), "q", model=LLAMA, positions=7, into="r")
    wrong = rotation["r"].combine_chunks().to_numpy_ndarray().copy()
    wrong[1] = Q[1]
    data = rotation.append_column("w", tensors(wrong))
    found = posenc.arrow.diagnose(client, data, "q", "w", model=LLAMA, positions=7)["diagnosis"].to_pylist()
    assert [row["kind"] for row in found] == ["MATCHES", "DIFFERS"] + ["MATCHES"] * (B - 2) and found[1]["sentence"]


# The engines, each once.

LLAMA_ROPE = {"model": LLAMA, "positions": "start"}


def expected_rows(client):
    return np.stack([rotated(client, Q[n], n) for n in range(B)])


def test_spark(client, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    data = pa.table({"id": list(range(B)), "q": nested(Q, LISTS), "start": list(range(B))})
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        frame = session.createDataFrame([tuple(row.values()) for row in data.to_pylist()],
                                        "id long, q array<array<array<float>>>, start long")

        def rotate(batches):
            for batch in batches:
                yield posenc.arrow.rope(client, batch, "q", **LLAMA_ROPE)
        rows = sorted(frame.repartition(2).mapInArrow(rotate, frame.schema).collect())
        assert (np.array([row.q for row in rows], np.float32) == expected_rows(client)).all()
    finally:
        session.stop()


def test_ray(client):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    data = pytest.importorskip("ray.data", reason="ray.data is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {
        name: os.environ[name] for name in ("POSENC_LIBRARY", "PYTHONPATH") if name in os.environ}})
    try:
        given = {"arrow": data.from_arrow(pa.table({"q": tensors(Q), "start": list(range(B))})),
                 "numpy": data.from_items([{"q": Q[n], "start": n} for n in range(B)])}
        for kind, rows in given.items():
            found = rows.map_batches(lambda batch: posenc.arrow.rope(client, batch, "q", **LLAMA_ROPE), batch_format="pyarrow",
                                     batch_size=4).take_all()
            found = np.stack([row["q"] for row in sorted(found, key=lambda row: row["start"])])
            assert (found == expected_rows(client)).all(), kind
    finally:
        ray.shutdown()


def test_duckdb(client):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    data = pa.table({"q": nested(Q, pa.list_(pa.list_(pa.list_(pa.float32(), D), H), S)), "start": list(range(B))})
    relation = duckdb.from_arrow(data)
    found = posenc.arrow.rope(client, relation, "q", **LLAMA_ROPE)
    back = duckdb.from_arrow(found).order("start").fetchall()
    assert (np.array([row[0] for row in back], np.float32) == expected_rows(client)).all()


def test_polars(client):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"q": Q, "start": range(B)}, schema={"q": polars.Array(polars.Float32, (S, H, D)), "start": polars.Int64})
    found = polars.from_arrow(posenc.arrow.rope(client, frame, "q", **LLAMA_ROPE))
    assert found.schema == frame.schema and (found["q"].to_numpy() == expected_rows(client)).all()


def test_daft(client):
    daft = pytest.importorskip("daft", reason="daft is not installed")
    data = pa.table({"q": tensors(Q), "start": list(range(B))})
    frame = daft.from_arrow(data)
    found = daft.from_arrow(posenc.arrow.rope(client, frame.to_arrow(), "q", **LLAMA_ROPE)).sort("start").to_pydict()
    assert (np.stack(found["q"]).reshape(Q.shape) == expected_rows(client)).all()
