"""What posenc costs in a pipeline: the same job with a function that copies its batch, and with one that rotates it.

    ~/.cache/posenc/pipelines/bin/python bench/pipelines.py [--batches 24] [--repeat 3] [--server ADDRESS] [ENGINE...]

ENGINE: ray, spark. Batches have 16 MiB of float32, 128 rows of [32 tokens, 8 heads, 128]. Prints medians of whole jobs, whose
first run is not counted, and their ratio to the copy's. scripts/test-pipelines makes the Python that has the engines.
"""

import argparse
import functools
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import posenc
import posenc.arrow
import pyarrow as pa
import pyarrow.parquet

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS, SHAPE = 128, (32, 8, 128)
SCHEMA = "q array<array<array<float>>>, start long"


def nested(values):
    """The column of lists within lists for an array [rows, tokens, heads, elements]."""
    column = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def copied(batch):
    """The least that a function of a batch can do: one pass over its values."""
    column = batch.column("q")
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    layers = []
    while not pa.types.is_float32(column.type):
        layers.append(column)
        column = column.flatten()
    made = pa.array(column.to_numpy().copy())
    for layer in reversed(layers):
        fixed = pa.types.is_fixed_size_list(layer.type)
        made = pa.FixedSizeListArray.from_arrays(made, layer.type.list_size) if fixed else pa.ListArray.from_arrays(layer.offsets, made)
    return batch.set_column(batch.schema.get_field_index("q"), "q", made)


def functions(server):
    model = posenc.Model(ROOT / "tests/golden/configs/llama-3.1-8b.json")

    def rotating(client):
        return lambda batch: posenc.arrow.rope(client, batch, "q", model=model, positions="start")
    found = {"copy": copied, "in process": rotating(posenc.local())}
    return found | ({"server": rotating(posenc.connect(server))} if server else {})


def ray_jobs(path, work):
    import ray
    ray.init(num_cpus=2, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def job(function):
        ray.data.read_parquet(str(path)).map_batches(function, batch_format="pyarrow", batch_size=ROWS, zero_copy_batch=True).materialize()
    return {name: functools.partial(job, function) for name, function in work.items()}


def spark_jobs(path, work):
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (SparkSession.builder.master("local[2]").config("spark.driver.memory", "6g").config("spark.ui.enabled", "false")
             .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS).config("spark.log.level", "ERROR").getOrCreate())

    def job(function):
        frame = spark.read.parquet(str(path)).mapInArrow(lambda batches: map(function, batches), SCHEMA)
        frame.write.format("noop").mode("overwrite").save()
    return {name: functools.partial(job, function) for name, function in work.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("engines", nargs="*", default=["ray", "spark"])
    arguments.add_argument("--batches", type=int, default=24)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--server")
    given = arguments.parse_args()
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for number in range(given.batches):
            table = pa.table({"q": nested(random.standard_normal((ROWS, *SHAPE), "f4")), "start": np.arange(ROWS) * 100})
            pa.parquet.write_table(table, path / f"{number:03}.parquet", compression="none", use_dictionary=False)
        for engine in given.engines:
            jobs = {"ray": ray_jobs, "spark": spark_jobs}[engine](path, functions(given.server))
            seconds = {name: [] for name in jobs}
            for _ in range(given.repeat + 1):
                for name, job in jobs.items():
                    begin = time.perf_counter()
                    job()
                    seconds[name].append(time.perf_counter() - begin)
            medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
            for name, median in medians.items():
                print(f"{engine:6} {name:11} {median:7.2f} s  {median / medians['copy']:.2f}", flush=True)


if __name__ == "__main__":
    main()
