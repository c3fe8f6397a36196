"""Compares what llama.cpp rotates by a GGUF with posenc's answer for the same file.

libllama runs a tiny model of each architecture: the metadata and frequency factors are a file of gguf_models, the weights
random (llama_capture.cc). Its operands before each rotation go to posenc, whose answer must be its operands after it.

ggml computes in float32, with u = 2^-24, and powers of theta as products: pair i's angle is off by at most (2i + 12) u of
itself, and cosine, sine, magnitude and the two products by at most 16 u together. So |y' - y| is at most
(|x0| + |x1|) a ((2i + 12) u |angle| + 16 u); distances are counted in this bound.
"""

import dataclasses
import os
import pathlib
import subprocess
import tempfile

import grpc
import numpy as np
from posenc.v1 import rotary_pb2, service_pb2
from tensors import array

import gguf_models
from service import fill
from table import Row

TOKENS, FIRST = 6, 3000
U = 2.0**-24
WHY = "ggml's float32 angles; see tests/conformance/check_gguf.py"
LATENT = {"attention.head_count_kv": 1, "attention.key_length": 40, "attention.value_length": 32, "attention.key_length_mla": 24,
          "attention.value_length_mla": 32, "rope.dimension_count": 8}
DELTA = {"full_attention_interval": 2, "ssm.inner_size": 32}
LISTED = {"attention.sliding_window": 16, "attention.sliding_window_pattern": [0, 1]}
WINDOW = {"attention.sliding_window": 16}
SECTIONS = {"rope.dimension_sections": [8, 4, 4, 0]}
LATENT_HEADS = ("plm", "minicpm3", "deepseek4")
RAMP = [1.0 + n / 4 for n in range(16)]
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
LENGTHS = {LONG: RAMP, SHORT: [2.0] * 16}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 512}

# Keys without which an architecture's tiny model does not run or shows one kind of layer only.
KEYS = {
    "deepseek2": LATENT, "mistral4": LATENT, "plm": {"rope.dimension_count": 16}, "minicpm3": {"rope.dimension_count": 16},
    "granite_swa": LISTED, "mimo2": LISTED, "spark2_5": LISTED, "step35": LISTED, "maple": LISTED | {"swiglu_clamp_exp": 7.0},
    "gemma4": LISTED | {"attention.key_length_swa": 16, "attention.value_length_swa": 16, "rope.dimension_count_swa": 16},
    "cohere2": WINDOW | {"block_count": 4}, "cohere2moe": WINDOW | {"block_count": 8}, "gemma2": WINDOW,
    "gemma3": WINDOW | {"block_count": 6}, "gemma3n": WINDOW | {"block_count": 22}, "gpt-oss": WINDOW,
    "olmo2": WINDOW | {"block_count": 4}, "mellum": WINDOW | {"block_count": 4}, "muse-glimmer": WINDOW | {"block_count": 4},
    "plamo3": WINDOW | {"block_count": 8}, "afmoe": WINDOW | {"block_count": 4}, "exaone-moe": WINDOW | {"block_count": 4},
    "smallthinker": WINDOW | {"block_count": 8}, "laguna": WINDOW | {"block_count": 4}, "smollm3": {"block_count": 4},
    "modern-bert": WINDOW | {"block_count": 3}, "baichuan": {"block_count": 32}, "exaone4": {"block_count": 64},
    "lfm2": {"attention.head_count_kv": [2, 0]}, "lfm2moe": {"attention.head_count_kv": [2, 0]},
    "granitehybrid": {"attention.head_count_kv": [2, 0]},
    "chameleon": {"vocab_size": 16384}, "gemma-embedding": WINDOW | {"block_count": 6},
    **{name: SECTIONS | DELTA for name in ("qwen35", "qwen35moe")}, "qwen3next": DELTA,
    "llama4": {"interleave_moe_layer_step": 1, "block_count": 4},
    "deepseek4": {
        "attention.sliding_window": 16, "attention.head_count_kv": 1, "attention.key_length": 32, "attention.value_length": 32,
        "rope.dimension_count": 8, "attention.compress_ratios": [0, 4], "attention.compress_rope_freq_base": 160000.0,
        "attention.indexer.head_count": 2, "attention.indexer.key_length": 64, "attention.indexer.top_k": 2,
        "attention.output_group_count": 1, "attention.output_lora_rank": 16, "hyper_connection.count": 4,
        "hyper_connection.sinkhorn_iterations": 2, "hyper_connection.epsilon": 1e-6, "hash_layer_count": 0,
        "expert_gating_func": 4, "expert_weights_scale": 1.0, "expert_weights_norm": True, "swiglu_clamp_exp": 7.0},
    **{name: SECTIONS for name in ("qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen3tts")},
}
COMPRESSED = "deepseek4"  # its compressed keys need a context up to the last position, and are rotated besides q and kv
# Architectures that posenc reads and whose models do not run with so few and small weights.
NOT_RUN = {"deepseek32", "glm-dsa", "hy_v4", "minimax-m3", "plamo2", "minimax-01", "qwen3tts"}

# Changes after which a graph may not fit together for reasons other than positions.
ANY_GRAPH = ("key_length", "no window")
# Sections that llama.cpp reads and posenc refuses.
NOT_EXPRESSED = ("llama.cpp repeats shorter sections", "it has no axis in this order")
# Changes of keys and factors; the last entry is a key that the architecture's base must have.
CHANGES = [
    ("freq_base", {"rope.freq_base": 500000.0}, {}, None),
    ("freq_base_swa", {"rope.freq_base_swa": 777.0}, {}, None),
    ("linear", {"rope.scaling.factor": 4.0}, {}, None),
    ("scale_linear", {"rope.scale_linear": 2.5}, {}, None),
    ("factor of 0", {"rope.scaling.factor": 0.0}, {}, None),
    ("type none", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, {}, None),
    ("attn_factor", {"rope.scaling.attn_factor": 1.25}, {}, None),
    ("yarn", YARN, {}, None),
    ("yarn, attn_factor", YARN | {"rope.scaling.attn_factor": 0.75}, {}, None),
    ("yarn_log_multiplier", YARN | {"rope.scaling.yarn_log_multiplier": 0.0707}, {}, None),
    ("yarn, betas", YARN | {"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0}, {}, None),
    ("yarn_ext_factor", {"rope.scaling.yarn_ext_factor": 0.5, "rope.scaling.factor": 8.0}, {}, None),
    ("yarn, context_length", {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}, {}, None),
    ("finetuned", {"rope.scaling.finetuned": False}, {}, None),
    ("alpha", {"rope.scaling.alpha": 50.0}, {}, None),
    ("rope_freqs", {}, {FREQS: RAMP}, None),
    ("rope_freqs, linear", {"rope.scaling.factor": 4.0}, {FREQS: RAMP}, None),
    ("rope_freqs, yarn", YARN, {FREQS: RAMP}, None),
    ("long and short, longrope", {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.19,
                                  "rope.scaling.original_context_length": 512}, LENGTHS, None),
    ("long and short, factor", {"rope.scaling.original_context_length": 32, "rope.scaling.factor": 2.0}, LENGTHS, None),
    ("dimension_count", {"rope.dimension_count": 16}, {}, None),
    ("dimension_count_swa", {"rope.dimension_count_swa": 16}, {}, None),
    ("key_length", {"attention.key_length": 16, "attention.value_length": 16}, {}, None),
    ("sections", {"rope.dimension_sections": [6, 5, 5, 0]}, {}, "rope.dimension_sections"),
    ("sections of a later version", {"rope.dimension_sections": [4, 6, 6, 0]}, {}, "rope.dimension_sections"),
    ("four sections", {"rope.dimension_sections": [4, 4, 4, 4]}, {}, "rope.dimension_sections"),
    ("full_first pattern", {"attention.sliding_window_pattern": [1, 0]}, {}, "attention.sliding_window_pattern"),
    ("no window", {"attention.sliding_window": 0}, {}, "attention.sliding_window_pattern"),
    ("rope_pattern", {"attention.rope_pattern": [0, 1]}, {}, "attention.sliding_window_pattern"),
]


class Refused(Exception):
    """posenc or libllama refused the file; the text is the message."""


@dataclasses.dataclass
class Rotation:
    layer: int
    before: np.ndarray  # [tokens, heads, width]
    after: np.ndarray


@dataclasses.dataclass
class File:
    architecture: str
    path: pathlib.Path
    data: bytes


def rows(service):
    beside = Beside(service)
    for architecture in architectures():
        if architecture not in NOT_RUN:
            yield beside.row(architecture)
    yield beside.axes_row()
    yield beside.alibi_row()


def architectures():
    """Returns the names that posenc rotates, from the lists of docs/model-types.md."""
    page = (pathlib.Path(__file__).parents[2] / "docs/model-types.md").read_text()
    lists = [part.split("**")[1] for part in page.split("**GGUF: rotary")[1:]]
    return [name for names in lists for n, name in enumerate(names.split("`")) if n % 2]


def turns(layer):
    """Returns what a layer rotates, for positions that are equal on all axes."""
    info = layer.info
    frequencies = [tuple(plan.inv_freq) for plan in info.plan.frequencies]
    scaling = [sequence.attention_scaling for sequence in info.sequences]
    fourth = [axis == 3 for plan in info.plan.frequencies for axis in plan.axis if axis == 3]  # text has 0 there
    return list(layer.layer_index), info.rotated, info.rotary_dim, info.input_pairing, frequencies, scaling, fourth


class Beside:
    def __init__(self, service):
        self.service = service
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-gguf-"))

    def row(self, architecture):
        """Compares the base model, and each changed key, which must move both answers or neither."""
        row = Row(architecture, "libllama", within=1, of="the bound of its rounding", why=WHY)
        base = KEYS.get(architecture, {})
        plain = self.write(architecture, base, {})
        try:
            self.check(row, "base", plain, self.capture(plain))
        except Refused as error:
            row.fail(f"base: {error}")
            return row
        for name, keys, factors, needs in CHANGES:
            if needs is not None and needs not in base:
                continue
            file = self.write(architecture, base | keys, factors)
            for context in (64, 1024) if factors is LENGTHS else (64,):
                try:
                    self.check_change(row, name, plain, file, context)
                except Refused as error:
                    row.check(any(reason in str(error) for reason in NOT_EXPRESSED), f"{name}: {error}")
        return row

    def check_change(self, row, name, plain, file, context):
        try:
            rotations = self.capture(file, context=context)
        except Refused as theirs:  # posenc must refuse the file, too
            try:
                self.settings(file, context)
            except Refused:
                row.check(True, "")
            else:
                latent = name == "dimension_count" and file.architecture in ("deepseek2", "mistral4")
                row.check(name in ANY_GRAPH or latent, f"{name}: {theirs}")
            return
        moves = [turns(layer) for layer in self.settings(file, context)] != [turns(layer) for layer in self.settings(plain, context)]
        self.check(row, name, file, rotations, context)
        try:
            theirs_moves = self.distance(plain, rotations, context) > 1
        except Refused:  # of another width; the last elements of a head rotate alike in any width
            theirs_moves = moves or file.architecture != COMPRESSED
        row.check(theirs_moves == moves, f"{name}: theirs {'moves' if theirs_moves else 'stays'}, ours does not so")

    def axes_row(self):
        """Compares positions that differ by axis."""
        row = Row("positions (t, h, w)", "libllama", within=1, of="the bound of its rounding", why=WHY)
        for architecture in ("qwen2vl", "qwen3vl"):
            for sections in ([8, 4, 4, 0], [6, 5, 5, 0], [5, 6, 5, 0]):
                file = self.write(architecture, {"rope.dimension_sections": sections}, {})
                try:
                    self.check(row, f"{architecture} {sections}", file, self.capture(file, first=-FIRST), axes=True)
                except Refused as error:
                    row.fail(f"{architecture} {sections}: {error}")
        return row

    def alibi_row(self):
        """Compares softmax of the scores plus posenc's bias with libllama's softmax."""
        row = Row("ALiBi: bloom, mpt, jais, refact, baichuan", "libllama", within=64, of="1", why="softmax in float32")
        cases = [("bloom", {}), ("refact", {}), ("baichuan", {"block_count": 40}), ("mpt", {"attention.max_alibi_bias": 8.0}),
                 ("mpt", {"attention.max_alibi_bias": 4.0}), ("jais", {"attention.max_alibi_bias": 8.0}),
                 ("bloom", {"attention.head_count": 6, "attention.head_count_kv": 6, "embedding_length": 96})]
        for architecture, keys in cases:
            file = self.write(architecture, keys, {})
            try:
                arrays = self.arrays(file, 0, 64)
                scores, weights = (next(values for name, _, values in arrays if name == wanted)[0][:, :TOKENS, :TOKENS]
                                   for wanted in ("scores", "softmax"))
                geometry = {"query_length": TOKENS, "key_length": TOKENS, "query_offset": 0}
                bias = array(self.service.bias({"model": {"gguf": file.data}}, geometry)).reshape(scores.shape)
            except (Refused, StopIteration, grpc.RpcError) as error:
                row.fail(f"{architecture}: {error!r}")
                continue
            biased = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores.astype("f8") + bias, -np.inf)
            expected = np.exp(biased - biased.max(-1, keepdims=True))
            expected /= expected.sum(-1, keepdims=True)
            row.compare(expected.astype("f4"), weights, unit=U)
        return row

    def check(self, row, name, file, rotations, context=64, axes=False):
        distance = self.distance(file, rotations, context, axes)
        row.elements += sum(rotation.before.size for rotation in rotations)
        row.worst = max(row.worst, distance)
        row.check(distance <= 1, f"{name}: {distance:.3g} of the bound; inf: other layers or elements rotate")

    def distance(self, file, rotations, context=64, axes=False):
        """Returns the largest distance of posenc's answer in bounds; infinite if other layers or elements rotate."""
        layers = {index: layer.info for layer in self.settings(file, context) for index in layer.layer_index}
        if {index for index, info in layers.items() if info.rotated} != {rotation.layer for rotation in rotations}:
            return np.inf
        return max((self.distance_of(file, rotation, layers[rotation.layer], context, axes) for rotation in rotations), default=0)

    def distance_of(self, file, rotation, info, context, axes):
        plan = info.plan.frequencies[0]
        frequencies, axis = np.array(plan.inv_freq), np.array(plan.axis or [0] * len(plan.inv_freq))
        tokens = np.arange(TOKENS, dtype="f8")
        by_axis = np.stack([FIRST + tokens, 2 * tokens, 3 * tokens])
        if not axes and axis.max() == 3:  # text has position 0 on the fourth axis
            axes, by_axis = True, np.stack([FIRST + tokens] * 3 + [0 * tokens])
        ids = by_axis if axes else by_axis[0]
        angles = ids[axis].T * frequencies if axes else ids[:, None] * frequencies
        ours = self.rotate(file, rotation, ids, axes, context if info.sequences[0].branch else None)

        # Operands of latent attention are the rotated part alone, or a whole head of which the last elements rotate.
        half, neighbours = info.rotary_dim // 2, info.input_pairing == rotary_pb2.PAIRING_INTERLEAVED
        offset = ours.shape[-1] - 2 * half if file.architecture in LATENT_HEADS else 0
        first = offset + np.arange(half) * (2 if neighbours else 1)
        pairs = np.stack([first, first + (1 if neighbours else half)], -1)
        size = np.abs(rotation.before[..., pairs]).sum(-1) * info.sequences[0].attention_scaling  # [tokens, heads, pairs]
        bound = size * ((2 * np.arange(half) + 12) * U * np.abs(angles)[:, None, :] + 16 * U) + 1e-30
        error = np.abs(ours.astype("f8") - rotation.after)
        if error[..., np.setdiff1d(np.arange(ours.shape[-1]), pairs)].max(initial=0) != 0:
            return np.inf
        return float((error[..., pairs].max(-1) / bound).max())

    def rotate(self, file, rotation, ids, axes, seq_len):
        request = {"rotary": {"model": {"gguf": file.data, "layer_index": rotation.layer}}, "layout": "LAYOUT_BSHD",
                   "positions": {"ids": ids}, "q": {"tensor": rotation.before[None]}}
        request["positions"]["axis_dimension"] = "AXIS_DIMENSION_FIRST" if axes else "AXIS_DIMENSION_NONE"
        if seq_len:
            request["positions"] |= {"scaling_length_rule": "SCALING_LENGTH_RULE_GIVEN", "seq_len": [seq_len]}
        return array(self.call("ApplyRotary", fill(service_pb2.ApplyRotaryRequest(), request)).q)[0]

    def settings(self, file, context):
        """Returns the layers of Explain's answer, without the notes."""
        request = fill(service_pb2.ExplainRequest(), {"model": {"gguf": file.data}})
        layers = self.call("Explain", request).layers
        if any(sequence.branch for layer in layers for sequence in layer.info.sequences):
            request.seq_len.append(context)
            layers = self.call("Explain", request).layers
        for layer in layers:
            layer.info.ClearField("notes")
            layer.ClearField("text")
        return list(layers)

    def call(self, name, request):
        try:
            return self.service.client.call(name, request)
        except grpc.RpcError as error:
            raise Refused(error.details()) from error

    def capture(self, file, first=FIRST, context=64):
        before, rotations = {}, []
        for name, layer, values in self.arrays(file, first, context):
            when, _, node = name.partition(" ")
            if when == "before":
                before[node] = values[0]
            elif when == "after" and (file.architecture != COMPRESSED or node.startswith(("q-", "kv-"))):
                rotations.append(Rotation(layer, before[node], values[0]))
        return rotations

    def arrays(self, file, first, context):
        """Returns (name, layer, values) of what libllama computed; values have its sizes, outermost first."""
        out = self.directory / "captured"
        context = max(context, 4096) if file.architecture == COMPRESSED else context
        done = subprocess.run([os.environ["LLAMA_CAPTURE"], file.path, out, str(TOKENS), str(first), str(context)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused("libllama: " + " ".join(done.stderr.split())[-300:])
        header, _, numbers = out.read_bytes().partition(b"\n\n")
        arrays, start = [], 0
        for line in filter(None, header.decode().splitlines()):
            name, layer, count, *sizes = line.split("\t")
            values = np.frombuffer(numbers, "<f4", int(count), start).reshape([int(size) for size in reversed(sizes)])
            arrays.append((name, int(layer), values))
            start += 4 * int(count)
        return arrays

    def write(self, architecture, keys, factors):
        path = self.directory / "model.gguf"
        gguf_models.write(path, architecture, keys, factors)
        return File(architecture, path, path.read_bytes())
