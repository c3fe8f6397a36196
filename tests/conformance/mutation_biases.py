"""Reads off transformers' own models the bias that a config.json makes them add: slopes, buckets or windows."""

import importlib

import grpc
import numpy
import torch
from client import Refusal
from posenc.v1 import service_pb2
from tensors import array
from transformers.initialization import no_init_weights

import check_biases
import mutation_fields
import mutation_originals
import original
import release
import weighted
from mutation_originals import Raised, raising
from table import Row

OF_IMAGES = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 24, "image_size": 64,
             "patch_size": 16, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
OF_TEXT = {"d_model": 64, "d_kv": 16, "d_ff": 24, "num_heads": 4, "num_layers": 1, "num_decoder_layers": 1,
           "vocab_size": 32, "hidden_size": 64}
SIZES = {
    "bloom": {"hidden_size": 64, "n_head": 4, "n_layer": 1, "vocab_size": 32},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 1, "vocab_size": 32, "max_seq_len": 64, "attn_config": {"alibi": True}},
    "falcon": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32, "alibi": True},
    "udop": OF_TEXT,
    "clap_audio_model": {"num_attention_heads": [2, 4], "depths": [1, 1], "patch_embeds_hidden_size": 16},
    "cpmant": {"hidden_size": 64, "num_attention_heads": 4, "dim_head": 16, "num_hidden_layers": 1, "vocab_size": 64},
    "mpnet": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 24},
    "wavlm": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 24,
              "num_conv_pos_embedding_groups": 4},
    "beit": {"use_relative_position_bias": True},
    "data2vec-vision": {"use_relative_position_bias": True},
}
TYPES = ("bloom", "mpt", "falcon", "longt5", "mt5", "pop2piano", "switch_transformers", "t5", "udop", "umt5", "cpmant",
         "mpnet", "pix2struct_text_model", "wavlm", "beit", "clap_audio_model", "data2vec-vision", "donut-swin",
         "maskformer-swin", "swin", "swin2sr", "swinv2")
NOT_ADDED = {"udop": "encoder.block"}  # modules whose tables the model does not use
NESTED = {"alibi_bias_max": (4, 16, 32), "alibi": (True,), "qk_ln": (True,)}  # fields of MPT's attn_config
WITHIN = 1e-5  # of slopes; Falcon's are bfloat16
WITHIN_BFLOAT16 = 1e-2


def rows(service, only, excepted):
    """Yields a Row for each type. `excepted` looks failures up in the exceptions."""
    for name in TYPES:
        if not only or name in only:
            yield of_type(service, name, release.config_classes()[name], excepted)


def of_type(service, name, config_class, excepted):
    row, base, reader = Row(name, ""), base_file(name, config_class), Biases(config_class)
    unchanged = reader.answer(base)
    said, moving, tried = settings_of(explained(service, base)), set(), 0
    differ = difference(service, name, base, unchanged, explained(service, base))
    row.check(not differ, f"unchanged file: {differ}")
    for field in mutation_fields.fields_of(config_class):
        if field == "is_decoder":  # belongs to one of two stacks, which the model sets itself
            continue
        values = [*mutation_fields.values_of(field, config_class, base), None, mutation_fields.ABSENT]
        changes = [mutation_fields.Change((field,), value) for value in values]
        if isinstance(base.get(field), dict):
            changes += [mutation_fields.Change((field, key), value) for key in NESTED for value in NESTED[key]]
        for change in changes:
            file, tried = change.apply(base), tried + 1
            ours = explained(service, file)
            try:
                theirs = reader.answer(file)
            except (Raised, original.CannotRun, StopIteration):  # the values of other fields do not fit, or it is no bias
                continue
            if settings_of(ours) == said and same(theirs, unchanged):
                continue
            failure = difference(service, name, file, theirs, ours)
            if failure and excepted(name, (field,), failure, ours):
                continue
            moving.add(field)
            row.check(not failure, f"{change}: {failure}")
    row.original = f"biases, {len(mutation_fields.fields_of(config_class))} fields, {len(moving)} move, {tried} files"
    return row


def settings_of(ours):
    return ours.message if isinstance(ours, Refusal) else [
        (entry.component, tuple(entry.layer_index), entry.info.plan.SerializeToString(deterministic=True)) for entry in ours]


def base_file(name, config_class):
    """Returns a config.json of a small model."""
    fields = mutation_fields.fields_of_class(config_class)
    sizes = OF_IMAGES if "image_size" in fields else OF_TEXT
    return {"model_type": name} | SIZES.get(name, {field: value for field, value in sizes.items() if field in fields})


class Biases:
    """Runs models of one type, and reads what their modules say about the bias."""

    def __init__(self, config_class):
        self.config_class = config_class

    @torch.no_grad()
    def answer(self, file):
        """Returns {name of a part: what it adds}. Raises Raised."""
        config = mutation_originals.config_of(self.config_class, file)
        with raising(), mutation_originals.bounded_memory(), no_init_weights():
            if file["model_type"] in ("bloom", "mpt", "falcon"):
                return {"": slopes_of(file["model_type"], config)}
            model = weighted.small_model(config)
            found = {}
            for path, module in model.named_modules():
                if path.startswith(NOT_ADDED.get(file["model_type"], "-")):
                    continue
                part = "decoder" if "decoder" in path else "encoder"
                said = bias_of(module)
                if said is not None and part not in found:
                    found[part] = said
            return found


def slopes_of(name, config):
    """Returns ALiBi's slopes: how much the bias of one key exceeds that of the key before it. None without ALiBi."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    if name == "mpt":
        attention = config.attn_config
        if not attention.alibi:
            raise Raised(ValueError("no ALiBi"), True)
        bias = module.build_mpt_alibi_tensor(config.n_heads, 8, attention.alibi_bias_max)
    else:
        if name == "falcon" and not config.alibi:
            raise Raised(ValueError("no ALiBi"), True)
        heads = config.n_head if name == "bloom" else config.num_attention_heads
        bias = module.build_alibi_tensor(torch.ones(1, 8), heads, torch.float32)
    bias = bias.reshape(heads_of(bias), -1).float().numpy()
    return "slopes", bias[:, 1] - bias[:, 0] if name == "mpt" else bias[:, 1]


def heads_of(bias):
    return bias.numel() // bias.shape[-1]


def bias_of(module):
    """Returns ("bias", the table, the bias made of it), ("window", height and width, of the pretraining), or None."""
    if hasattr(module, "pretrained_window_size"):
        return "window", tuple(module.window_size), tuple(module.pretrained_window_size)
    table = getattr(module, "relative_position_bias_table", None)
    if table is not None and hasattr(module, "window_size"):
        return "window", tuple(module.window_size), None
    if hasattr(module, "rel_attn_embed") or torch.is_tensor(
            getattr(getattr(module, "relative_attention_bias", None), "weight", getattr(module, "relative_attention_bias", None))):
        weight = getattr(module, "rel_attn_embed", None) or module.relative_attention_bias
        weight = getattr(weight, "weight", weight)
        if hasattr(module, "compute_bias") and "block_length" in release.parameters_of(module.compute_bias):
            return None  # LongT5's encoder adds it by blocks
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
        found = weighted.buckets_of(module)
        return None if found is None else ("bias", found[0].float().numpy(), found[1].squeeze(0).float().numpy())
    return None


def explained(service, file):
    """Returns posenc's entries for a file, or its Refusal."""
    request = service_pb2.ExplainRequest()
    request.model.config_json = mutation_fields.as_json(file)
    try:
        return list(service.client.call("Explain", request).layers)
    except grpc.RpcError as error:
        return Refusal.of(error)


def difference(service, name, file, theirs, ours):
    """Returns how the answers differ, or ""."""
    if isinstance(ours, Refusal):
        return f"refused: {ours.reason} {ours.message}" if theirs else ""
    for part, said in theirs.items():
        entries = [entry for entry in ours if entry.component in ("", part)] or ours
        plan = entries[0].info.plan
        if said[0] == "slopes":
            mine = numpy.array(plan.slopes)
            if len(mine) != len(said[1]):
                return f"{len(mine)} slopes, the original has {len(said[1])}"
            within = WITHIN_BFLOAT16 if name == "falcon" else WITHIN
            if not numpy.allclose(mine, said[1], rtol=within):
                return f"slopes differ by {numpy.abs(mine - said[1]).max():.2g}"
        elif said[0] == "window":
            kind = plan.bias.WhichOneof("method")
            window = getattr(plan.bias, kind)
            if (window.window_height, window.window_width) != said[1]:
                return f"a window of {window.window_height} x {window.window_width}, the original has {said[1]}"
            pretrained = said[2] and (window.pretrained_window_height, window.pretrained_window_width)
            if pretrained != said[2]:
                return f"a pretrained window of {pretrained}, the original has {said[2]}"
        else:
            method = {"model": {"config_json": mutation_fields.as_json(file), "component": entries[0].component}}
            try:
                mine = service.bias(method | check_biases.with_table(said[1]),
                                    {"query_length": length_of(said), "key_length": length_of(said)}, "MODEL")
            except grpc.RpcError as error:
                refusal = Refusal.of(error)
                return f"refused: {refusal.reason} {refusal.message}"
            if not numpy.array_equal(array(mine).reshape(said[2].shape), said[2]):
                return "the bias differs"
    return ""


def length_of(said):
    return said[2].shape[-1]


def same(a, b):
    """Returns whether two answers of the original are equal."""
    if a.keys() != b.keys():
        return False
    for part, said in a.items():
        other = b[part]
        if said[0] != other[0] or any(not numpy.array_equal(x, y) for x, y in zip(said[1:], other[1:])):
            return False
    return True
