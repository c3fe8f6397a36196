"""Adds positional columns to a data set and feeds it to torch, for two epochs.

    python features.py ROWS.parquet CACHE --model config.json [--workers N] [--server ADDRESS]

ROWS.parquet has the columns timestep (a number), start (the first token's position) and q (lists [tokens, heads, head_dim] of
one shape). `datasets` adds timestep and sinusoidal embeddings, by N processes, and keeps them in CACHE for other runs. q is
rotated when a worker of the DataLoader reads its row, from a start that differs by epoch.
"""

import argparse

import datasets
import posenc
import posenc.arrow
import torch
from torch.utils.data import DataLoader, Dataset

WIDTH = 256


def add_embeddings(table, client):
    """Adds two columns to an Arrow table of rows."""
    table = posenc.arrow.embedding(client, table, "timestep", into="timestep_embedding", dtype="FP32",
                                   timestep={"dim": WIDTH, "flip_sin_to_cos": True, "downscale_freq_shift": 0})
    return posenc.arrow.embedding(client, table, "start", into="sinusoidal", dtype="FP32",
                                  sinusoidal={"convention": "INTERLEAVED", "dim": WIDTH})


class Rows(Dataset):
    """The rows of an epoch, with q rotated by the model's RoPE."""

    def __init__(self, rows, client, model, epoch=0):
        self.rows, self.client, self.model, self.epoch = rows, client, model, epoch

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        start = int(row["start"]) + 1000 * self.epoch
        (row["q"],) = self.client.rope(row["q"][None], model=self.model, positions=start, layout="BSHD")
        return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("rows")
    arguments.add_argument("cache")
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--server", help="of posenc; otherwise each worker computes in its own process")
    arguments.add_argument("--wait", type=float, default=600, help="seconds for a server that comes back")
    given = arguments.parse_args()
    client = posenc.connect(given.server, retry=posenc.RetryPolicy(total=given.wait)) if given.server else posenc.local()
    rows = datasets.load_dataset("parquet", data_files=given.rows, cache_dir=given.cache, split="train")
    rows = rows.with_format("arrow").map(add_embeddings, batched=True, fn_kwargs={"client": client}, num_proc=given.workers,
                                         desc="embeddings").with_format("torch")
    for epoch in range(2):
        loader = DataLoader(Rows(rows, client, posenc.Model(given.model), epoch), batch_size=8, num_workers=given.workers,
                            multiprocessing_context="spawn" if given.workers else None)
        total = sum(float(batch["q"].double().abs().sum() + batch["timestep_embedding"].double().sum()
                          + batch["sinusoidal"].double().sum()) for batch in loader)  # a step of training
        print(f"epoch {epoch}: {len(rows)} rows, sum {total:.9g}")


if __name__ == "__main__":
    main()
