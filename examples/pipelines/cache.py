"""Moves the cached keys of many documents to other positions, on a Spark cluster, without computing them again.

    spark-submit cache.py MANIFEST OUT --model config.json [--server ADDRESS]

MANIFEST is a folder of Parquet files with the columns path (of a safetensors file with the keys of each layer, [1, tokens,
heads, head_dim], rotated from the position `start` on), start and to. Writes each document's moved keys to OUT/NAME of its
file, and what was done to OUT/moved.parquet. A file appears only when it is whole, so that a task that runs again does no
harm. All workers must see the files and OUT, which must not be the documents' folder.
"""

import argparse
import hashlib
import pathlib
import uuid

import posenc
import pyarrow as pa
from pyspark.sql import SparkSession
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file


def move(client, model, path, start, to, out):
    """Moves a document's keys. Returns the number of bytes and the digest of the file written."""
    import ml_dtypes  # noqa: F401  gives the worker's NumPy its bfloat16

    target = pathlib.Path(out) / pathlib.Path(path).name
    if target.parent.samefile(pathlib.Path(path).parent):
        raise OSError(f"{out} must not be the folder of the document, whose keys would move twice")
    keys = load_file(path)
    for name, k in keys.items():
        client.move_keys(k, model=model, from_positions=start, positions=to, layout="BSHD", out=k)
    part = target.with_suffix(f".{uuid.uuid4().hex}.part")
    save_file(keys, part)
    data = part.read_bytes()
    part.rename(target)
    return len(data), hashlib.sha256(data).hexdigest()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("manifest")
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--server", help="of posenc; otherwise each worker computes in its own process")
    arguments.add_argument("--wait", type=float, default=600, help="seconds for a server that comes back")
    given = arguments.parse_args()
    client = posenc.connect(given.server, retry=posenc.RetryPolicy(total=given.wait)) if given.server else posenc.local()
    model, out = posenc.Model(given.model), str(given.out.resolve())
    given.out.mkdir(parents=True, exist_ok=True)

    def documents(batches):
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    size, digest = move(client, model, **row, out=out)
                    done = {"bytes": size, "sha256": digest}
                except (posenc.InvalidArgument, posenc.TooLarge, SafetensorError, OSError) as problem:  # others end the job
                    done = {"error": str(problem)}
                yield pa.RecordBatch.from_pylist([{**row, **done}], schema=answer)

    columns = [("path", pa.string()), ("start", pa.int64()), ("to", pa.int64())]
    answer = pa.schema([*columns, ("bytes", pa.int64()), ("sha256", pa.string()), ("error", pa.string())])
    spark = SparkSession.builder.appName("posenc: cached keys").getOrCreate()
    manifest = spark.read.parquet(given.manifest).select("path", "start", "to")
    names = [pathlib.Path(row.path).name for row in manifest.select("path").collect()]
    if len(set(names)) < len(names):
        raise SystemExit(f"two documents have the same name: {max(names, key=names.count)}")
    moved = manifest.mapInArrow(documents, "path string, start long, to long, bytes long, sha256 string, error string")
    moved.write.mode("overwrite").parquet(str(given.out / "moved.parquet"))
    moved = spark.read.parquet(str(given.out / "moved.parquet"))
    for row in moved.where("error is not null").collect():
        print(f"not moved: {row.path}: {row.error}")
    print(f"moved {moved.where('error is null').count()} of {moved.count()} documents to {given.out}")
    spark.stop()


if __name__ == "__main__":
    main()
