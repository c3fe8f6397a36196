"""Compares Inkling's bias and the factor of its queries with its classes' attention modules."""

import json

import numpy
import torch
from table import Row
from tensors import BF16, FP16, FP32

import check_query_scale
import inkling

DTYPES = {torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
TOKENS = 16
CACHES = ((0, 0, 0), (5, 0, 0), (90, 60, 4), (131_060, 131_040, 9))  # past, evicted, padding
# Where tau begins: within the cases above, or nowhere.
FLOORS = {"inkling_text": (None, 9, 100), "inkling2_text": (9, 128_000), "inkling2_loop_text": (9, 8192)}
SUM_WHY = "torch multiplies r and proj in an order of its own"


def rows(service):
    torch.manual_seed(4)
    found = {}
    for name, floors in FLOORS.items():
        for floor in floors:
            config = inkling.config_of(name, log_scaling_n_floor=floor)
            for layer in (0, 5):
                for dtype in DTYPES:
                    compare(service, found, config, layer, dtype)
    return list(found.values())


def row_of(found, config, layer, dtype, what, **expected):
    title = f"{config.model_type}: {what}, {config.layer_types[layer]}, {str(dtype)[6:]}"
    return found.setdefault(title, Row(title, "transformers", **expected))


def compare(service, found, config, layer, dtype):
    file = {"config_json": json.dumps(config.to_dict(), default=str).encode(), "layer_index": layer}
    of_largest = {"within": 2, "of": "the largest element", "why": SUM_WHY}
    for past, evicted, padding in CACHES:
        seen = inkling.run(config, layer, dtype, TOKENS, past, evicted, padding)
        theirs = inkling.numbers(seen.bias)
        unit = float(numpy.abs(theirs).max()) * torch.finfo(dtype).eps
        # q has the class's type, and so has the answer. F32 rounds once, MODEL as the class does.
        for preset in ("F32", "MODEL"):
            row = row_of(found, config, layer, dtype, f"bias, {preset.lower()}", **of_largest)
            row.compare(inkling.scores(service, seen, {"model": file}, DTYPES[dtype], preset), theirs, unit)
        if config.layer_types[layer] == inkling.SLIDING or config.log_scaling_n_floor is None:
            same = torch.equal(seen.queries, seen.unscaled)
            row_of(found, config, layer, dtype, "queries have no factor").check(same, "they have")
            continue
        tau = {"query_scale": {"function": "QUERY_SCALE_FUNCTION_INKLING",
                               "log_scaling_alpha": config.log_scaling_alpha,
                               "log_scaling_n_floor": config.log_scaling_n_floor}}
        is_wide = dtype == torch.float32
        row = row_of(found, config, layer, dtype, "queries", within=2 if is_wide else 0,
                     why=check_query_scale.LOG_WHY if is_wide else "")
        precision = {"axes": {"frequencies": "FREQUENCY_ARITHMETIC_FLOAT32", "table_dtype": "TABLE_DTYPE_TENSOR",
                              "rounding": "ROUNDING_EACH_OPERATION"}}
        ours = check_query_scale.ask(service.client, {"settings": tau}, seen.unscaled,
                                     torch.from_numpy(seen.query_positions)[None], preset=precision)
        row.compare(ours, inkling.numbers(seen.queries))
