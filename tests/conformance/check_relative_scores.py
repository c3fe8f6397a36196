"""Compares attention scores whose position terms depend on q and k."""

import numpy
import relative_scores
from table import Row, place_of

WHY = "torch adds float32 products in float32, in an order of its own"
METHODS = {
    "deberta": ("DeBERTa v1", "transformers deberta"),
    "deberta_v2": ("DeBERTa v2, v3", "transformers deberta_v2"),
    "xlnet": ("Transformer-XL", "transformers xlnet"),
    "transfo-xl": ("Transformer-XL", "transformers 4.57 transfo_xl"),
    "wav2vec2_bert": ("Shaw", "transformers wav2vec2_bert"),
    "wav2vec2_conformer": ("Transformer-XL", "transformers wav2vec2_conformer"),
    "speecht5": ("Shaw", "transformers speecht5"),
    "bert relative_key": ("BERT relative_key", "transformers 4.57 bert"),
    "bert relative_key_query": ("BERT relative_key_query", "transformers 4.57 bert"),
}
SEE = {"transfo-xl": "docs/accuracy.md#against-the-originals", "deberta_v2": "docs/accuracy.md#against-the-originals"}


def rows(service):
    found = {}
    records = [*relative_scores.relative_scores(small=False), *relative_scores.older_relative_scores("--large")]
    for record in map(relative_scores.nested_lists, records):
        model = record["model"]
        row = found.setdefault(model, Row(*METHODS[model], within=8, of="the largest score", why=WHY, see=SEE.get(model, "")))
        theirs = numpy.array(record["scores"], "f4")
        shown = theirs > numpy.finfo("f4").min
        row.compare(ask(service, record), theirs, unit=place_of(numpy.abs(theirs[shown]).max()))
    return list(found.values())


def ask(service, record):
    geometry = {"query_offset": record["past"], "key_length": len(record["k"][0][0])}
    mask = {"mask": record["mask"]} if "mask" in record else {}
    return service.scores(method=record["method"], geometry=geometry, layout="LAYOUT_BHSD", content=True, q=record["q"],
                          k=record["k"], **mask)
