"""Checks a folder of models on a Ray cluster: what each file says, whether two files agree, what a program computed.

    python audit.py MODELS OUT [--server ADDRESS] [--ray ADDRESS]

A model is MODELS/NAME.json, or a folder MODELS/NAME with config.json; beside it may be a GGUF, which is compared with it, and
dump.safetensors with before, after [batch, tokens, heads, head_dim] and positions [tokens], which are diagnosed. All workers
must see MODELS. Writes OUT/verdicts.parquet and OUT/verdicts.html; what needs a person comes first.
"""

import argparse
import html
import pathlib

import posenc
import ray
from safetensors import SafetensorError
from safetensors.numpy import load_file

ORDER = ["DIFFERS", "SEVERAL_FAULTS", "UNKNOWN", "REFUSED"]  # needs a person; the others do not


def explain(client, model):
    answer = client.explain(model)
    said = [sentence for layer in answer.layers for part in layer.text for sentence in part.sentence]
    notes = dict.fromkeys(f"{note.field}: {note.message}" for layer in answer.layers if layer.info for note in layer.info.notes)
    return "EXPLAINED", " ".join([*said, *notes])


def compare(client, model, gguf):
    answer = client.compare(model, gguf)
    said = "; ".join(f"{field.path}: {field.a} in config.json, {field.b} in {gguf.name}"
                     for layer in answer.layers for field in layer.fields)
    return ("MATCHES", f"as {gguf.name}") if answer.same else ("DIFFERS", said or "the layers do not correspond")


def diagnose(client, model, dump):
    import ml_dtypes  # noqa: F401  gives the worker's NumPy its bfloat16
    kept = load_file(dump)
    verdict = client.diagnose(kept["before"], kept["after"], model=model, positions=kept["positions"], layout="BSHD").verdict
    return verdict.kind, verdict.sentence


def audit(row, client):
    """Returns a row for each check of a model."""
    folder = pathlib.Path(row["item"])
    model = folder / "config.json" if folder.is_dir() else folder
    checks = [(explain, []), *((compare, [gguf]) for gguf in sorted(folder.glob("*.gguf"))),
              *((diagnose, [dump]) for dump in folder.glob("dump.safetensors"))]
    for check, others in checks:
        try:
            verdict, sentence = check(client, model, *others)
        except (posenc.InvalidArgument, posenc.TooLarge, SafetensorError, OSError, KeyError) as error:  # others end the job
            verdict, sentence = "REFUSED", f"{type(error).__name__}: {error}"
        yield {"model": folder.name, "check": check.__name__, "verdict": verdict, "sentence": sentence}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "out"):
        arguments.add_argument(name, type=pathlib.Path)
    arguments.add_argument("--server", help="of posenc; otherwise each worker computes in its own process")
    arguments.add_argument("--wait", type=float, default=600, help="seconds for a server that comes back")
    arguments.add_argument("--ray", help="of a cluster; otherwise Ray starts here")
    given = arguments.parse_args()
    client = posenc.connect(given.server, retry=posenc.RetryPolicy(total=given.wait)) if given.server else posenc.local()
    ray.init(given.ray)
    models = sorted(str(path.resolve()) for path in given.models.iterdir() if path.is_dir() or path.suffix == ".json")
    table = ray.data.from_items(models).flat_map(audit, fn_args=(client,)).to_pandas()
    urgency = table.verdict.map(lambda verdict: ORDER.index(verdict) if verdict in ORDER else len(ORDER))
    table = table.assign(urgency=urgency).sort_values(["urgency", "model", "check"], ignore_index=True).drop(columns="urgency")
    given.out.mkdir(parents=True, exist_ok=True)
    table.to_parquet(given.out / "verdicts.parquet")
    lines = ["".join(f"<td>{html.escape(str(value))}" for value in row) for row in table.itertuples(index=False)]
    (given.out / "verdicts.html").write_text("<!doctype html><meta charset=utf-8><title>Models</title><table border=1>"
                                             f"<tr><th>{'<th>'.join(table.columns)}<tr>{'<tr>'.join(lines)}</table>\n")
    print(f"{len(models)} models, {table.verdict.isin(ORDER).sum()} checks need a person: {given.out / 'verdicts.html'}")


if __name__ == "__main__":
    main()
