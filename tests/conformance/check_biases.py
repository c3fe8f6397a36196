"""Compares biases of distances: ALiBi, T5, Swin, Swin v2, BEiT. Modules of tests/golden run the originals."""

import importlib

import alibi_biases
import numpy
import relative_biases
import torch
from table import Row, place_of
from tensors import BF16, INT32, array
from transformers import AutoConfig

SEE = "docs/accuracy.md#biases"
POW = "torch's pow may be two places off, and the product is rounded"
HEADS = (1, 2, 3, 6, 7, 8, 12, 16, 25, 32, 40, 71, 112)
MASKS = ([1] * 300, [0] * 5 + [1] * 20)
T5_TYPES = {"t5": "T5", "mt5": "MT5", "longt5": "LongT5", "pop2piano": "Pop2Piano",
            "switch_transformers": "SwitchTransformers"}
WINDOWS = ((1, 1), (2, 2), (3, 3), (7, 7), (2, 4), (4, 2), (5, 8))


def rows(service):
    return [bloom(service), mpt(service), falcon(service), *t5_buckets(service), *t5_biases(service), udop(service),
            swin(service), *beit(service), swin_v2(service)]


def alibi(service, record, **settings):
    """Returns the bias [heads][keys] of the query at the last key."""
    keys = record["n_keys"]
    valid = torch.tensor([record["attention_mask"]], dtype=torch.bool)
    if settings["form"] == "ALIBI_FORM_BLOOM":
        settings["position_mask"] = valid
    answer = service.bias({"alibi": {"num_heads": record["n_heads"], **settings}},
                          {"query_length": 1, "key_length": keys, "query_offset": keys - 1})
    return array(answer).reshape(-1, keys)


def recorded(record, name="bias"):
    return numpy.array(record[name], "f4")


def bloom(service):
    row = Row("ALiBi, BLOOM", "transformers bloom", within=3, why=POW)
    for record in (alibi_biases.bloom_record(heads, mask) for heads in HEADS for mask in MASKS):
        row.compare(alibi(service, record, form="ALIBI_FORM_BLOOM", rule="ALIBI_SLOPE_RULE_POWER_OF_TWO"), recorded(record))
    return row


def mpt(service):
    row = Row("ALiBi, MPT", "transformers mpt", within=3, why=POW)
    for record in (alibi_biases.mpt_record(heads, keys, most) for heads in HEADS for keys in (9, 300) for most in (8, 16)):
        row.compare(alibi(service, record, form="ALIBI_FORM_MPT", rule="ALIBI_SLOPE_RULE_MPT",
                          alibi_bias_max=record["alibi_bias_max"]), recorded(record))
    return row


def falcon(service):
    row = Row("ALiBi, Falcon (bfloat16)", "transformers falcon", see=SEE)
    for record in (alibi_biases.falcon_record(heads, mask) for heads in HEADS for mask in MASKS):
        row.compare(alibi(service, record, form="ALIBI_FORM_BLOOM", rule="ALIBI_SLOPE_RULE_POWER_OF_TWO", bias_dtype=BF16),
                    recorded(record))
    return row


def buckets(service, record, preset):
    settings = {name: record[name] for name in ("num_buckets", "max_distance", "bidirectional")}
    largest = record["largest"]
    answer = service.bias({"t5": settings}, {"query_length": largest + 1, "key_length": largest + 1}, preset,
                          form="BIAS_FORM_COMPACT_INDEX", dtype=INT32)
    return array(answer)


def t5_buckets(service):
    """Compares the buckets of t5 and umt5; relative_biases.t5_buckets asserts that they are equal."""
    chain = Row("T5's buckets, FLOAT32", "transformers t5, umt5")
    exact = Row("T5's buckets, EXACT", "transformers t5, umt5", see=SEE, why=(
        "the original is off where the formula is a whole number: of 34 buckets up to distance 27 at +-18, and on some "
        "processors at +-12, by torch's logarithm"))
    for record in (relative_biases.t5_buckets(*setting) for setting in relative_biases.T5_SETTINGS):
        theirs, largest = numpy.array(record["buckets"], "i4"), record["largest"]
        ours, rounded = buckets(service, record, "EXACT"), buckets(service, record, "F32")
        if record["num_buckets"] != 34:
            chain.compare(rounded, theirs)
            exact.compare(ours, theirs)
            continue
        differ = (numpy.flatnonzero(ours != theirs) - largest).tolist()
        exact.check(differ in ([-18, 18], [-18, -12, 12, 18]), f"34 buckets differ at the distances {differ}")
        differ = (numpy.flatnonzero(rounded != theirs) - largest).tolist()
        chain.check(differ in ([], [-12, 12]), f"34 buckets differ at the distances {differ}")
    return [chain, exact]


def t5_biases(service):
    """Compares dense biases of each class of the family by its own config: encoder, decoder, decoder with a cache."""
    for model_type, name in T5_TYPES.items():
        row = Row("T5's bias", f"transformers {model_type}")
        modeling = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
        for decoder, past in ((False, 0), (True, 0), (True, 150)):
            config = AutoConfig.for_model(model_type, d_model=12, num_heads=3, d_kv=4)
            config.is_decoder = decoder
            attention = getattr(modeling, f"{name}Attention")(config, has_relative_attention_bias=True, layer_idx=0)
            table = relative_biases.random_weights(32, 3)
            attention.relative_attention_bias.weight.data = table
            theirs = attention.compute_bias(200, 200 + past, past_seen_tokens=past)[0]
            settings = {"num_buckets": config.relative_attention_num_buckets, "bidirectional": not decoder,
                        "max_distance": config.relative_attention_max_distance}
            ours = service.bias({"t5": settings, **with_table(table)},
                                {"query_length": 200, "key_length": 200 + past, "query_offset": past})
            row.compare(array(ours), theirs.detach())
        yield row


def udop(service):
    """Compares the bias of tokens, the first in the encoder's list, and the decoder's bias, both by the config."""
    row = Row("T5's bias", "transformers udop")
    config = AutoConfig.for_model("udop", d_model=12, num_heads=3, d_kv=4, d_ff=8, num_layers=1, vocab_size=8,
                                  relative_attention_num_buckets=16, relative_attention_max_distance=64)
    model = importlib.import_module("transformers.models.udop.modeling_udop").UdopModel(config)
    encoder = model.encoder.relative_bias.biases[0]
    decoder = model.decoder.block[0].layer[0].SelfAttention
    for name, module, theirs in (("encoder", encoder, encoder(torch.ones(1, 200))),
                                 ("decoder", decoder, decoder.compute_bias(200, 200))):
        method = {"model": {"config_json": config.to_json_string().encode(), "component": name}}
        ours = service.bias(method | with_table(module.relative_attention_bias.weight.detach()),
                            {"query_length": 200, "key_length": 200})
        row.compare(array(ours), theirs[0].detach())
    return row


def with_table(table):
    return {"table": table, "table_layout": "BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS"}


def window_of(record):
    return {"window_height": record["window"][0], "window_width": record["window"][1]}


def swin(service):
    row = Row("Swin", "transformers swin")
    for record in map(relative_biases.swin_record, WINDOWS):
        row.compare(array(service.bias({"swin": window_of(record), **with_table(record["table"])})), recorded(record))
    return row


def beit(service):
    square = Row("BEiT, square windows", "transformers beit")
    oblong = Row("BEiT, other windows", "transformers beit", within=4, of="a row's number times the table's largest", see=SEE,
                 why="the original exchanges width and height and resizes the table, by rows and columns rounded to float32")
    for record in map(relative_biases.beit_record, WINDOWS[1:]):
        method = {"beit": window_of(record) | {"table": "BEIT_TABLE_TRANSFORMERS"}, **with_table(record["table"])}
        row = square if record["window"][0] == record["window"][1] else oblong
        unit = place_of(2 * max(record["window"])) * numpy.abs(recorded(record, "table")).max()
        row.compare(array(service.bias(method)), recorded(record), unit=unit)
    return square, oblong


def swin_v2(service):
    row = Row("Swin v2", "transformers swinv2", within=8, of="16, the largest bias", see=SEE,
              why="torch adds the network's 512 products in float32, in an order of its own")
    for window, pretrained in (((2, 2), (0, 0)), ((4, 4), (0, 0)), ((3, 3), (6, 6)), ((2, 4), (0, 0)), ((8, 8), (0, 0)),
                               ((16, 16), (8, 8))):
        record = relative_biases.swin_v2_record(window, pretrained)
        method = window_of(record) | {name: record[name] for name in ("hidden_weight", "hidden_bias", "output_weight")}
        if pretrained != (0, 0):
            method |= {"pretrained_window_height": pretrained[0], "pretrained_window_width": pretrained[1]}
        row.compare(array(service.bias({"swin_v2": method})), recorded(record), unit=place_of(16))
    return row
