"""ONNX graphs from transformers and PyTorch, run by onnxruntime: does posenc say of them what they do?

  PYTHONPATH=tests/integration python tests/conformance/check_onnx.py build/release/bin/posenc

Needs torch, transformers, onnx, onnxscript and onnxruntime, which the tests do not. Each operator has a graph whose
pairing is right and one whose is wrong:

- ai.onnx RotaryEmbedding: a Llama of transformers, exported by torch.onnx with torch.onnx.ops.rotary_embedding and the
  model's own tables.
- com.microsoft RotaryEmbedding: the same graph, its nodes changed to that domain.
- com.microsoft GroupQueryAttention: one node with the model's tables.

onnxruntime runs each: the right ones give the logits, or the rotated keys, of transformers; the wrong ones do not. And
attributes that documentation leaves open: onnxruntime ignores `scale`, and a table narrower than half a head is refused
without rotary_embedding_dim by RotaryEmbedding, while GroupQueryAttention rotates as many elements as it has.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROWS, WIDTH, MICROSOFT = 256, 32, "com.microsoft"
IDS = torch.arange(12)[None]
failed = []


def check(holds, text):
    print("ok  " if holds else "FAIL", text)
    if not holds:
        failed.append(text)


def posenc(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=128, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=64,
                         vocab_size=32, max_position_embeddings=ROWS, attn_implementation="eager")
    return LlamaForCausalLM(config).eval()


class Cached(torch.nn.Module):
    """The tables of the model's own module, by position."""

    def __init__(self, original):
        super().__init__()
        cos, sin = original(torch.zeros(1, 1), torch.arange(ROWS)[None])
        self.register_buffer("cos_cache", cos[0, :, :WIDTH // 2].contiguous())
        self.register_buffer("sin_cache", sin[0, :, :WIDTH // 2].contiguous())

    def forward(self, x, position_ids):
        self.ids = position_ids
        return self.cos_cache, self.sin_cache


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, position_ids):
        return self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False).logits


def export(path, interleaved):
    """Returns the logits of transformers' own code, and the model's tables."""
    model = llama()
    expected = Logits(model)(IDS, IDS).detach().numpy()
    cached = model.model.rotary_emb = Cached(model.model.rotary_emb)
    original = modeling_llama.apply_rotary_pos_emb

    def rotate(q, k, cos, sin, unsqueeze_dim=1):
        return tuple(torch.onnx.ops.rotary_embedding(x, cos, sin, cached.ids, interleaved=interleaved) for x in (q, k))

    modeling_llama.apply_rotary_pos_emb = rotate
    torch.onnx.export(Logits(model), (IDS, IDS), dynamo=True, opset_version=23, verbose=False).save(path)
    modeling_llama.apply_rotary_pos_emb = original
    return expected, cached.cos_cache.numpy(), cached.sin_cache.numpy()


def to_microsoft(source, target):
    """Changes the standard nodes to those of com.microsoft, whose inputs have another order."""
    model = onnx.load(source)
    for node in model.graph.node:
        if node.op_type == "RotaryEmbedding":
            x, cos, sin, ids = node.input
            del node.input[:]
            node.input.extend([x, ids, cos, sin])
            node.domain = MICROSOFT
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    onnx.save(model, target)


def attention(path, cos, sin, interleaved):
    """Writes a GroupQueryAttention of the tables; returns its unrotated keys."""
    node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "last", "length", "cos_cache", "sin_cache"], ["o", "pk", "pv"],
                            "attention", domain=MICROSOFT, num_heads=4, kv_num_heads=2, do_rotary=1, rotary_interleaved=interleaved)
    tokens = IDS.shape[1]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, tokens, heads * WIDTH]) for name, heads in
              (("q", 4), ("k", 2), ("v", 2))]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("o", "pk", "pv")]
    stored = [numpy_helper.from_array(array, name) for array, name in (
        (cos, "cos_cache"), (sin, "sin_cache"), (numpy.array([tokens - 1], "i4"), "last"), (numpy.array(tokens, "i4"), "length"))]
    graph = helper.make_graph([node], "g", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)], ir_version=10), path)


def run(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})


def rotated_keys(keys):
    """transformers' rotation of [1, tokens, heads * width]."""
    x = torch.from_numpy(keys).view(1, -1, 2, WIDTH).transpose(1, 2)
    cos, sin = llama().model.rotary_emb(x, IDS)
    return modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)[1].numpy()


def say(path, name, right):
    code, said = posenc("compare", str(path), str(path.parent / "config.json"))
    check(code == (0 if right else 1), f"compare: {name} is {'right' if right else 'wrong'}\n{said}")
    if not right:
        check("different: pairing" in said, f"compare: {name}: the pairing is what differs")
    check("MATCHES" in said, f"compare: {name}: the table is the model's")


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    llama().config.save_pretrained(folder)
    ids = IDS.numpy().astype("i8")
    for interleaved in (0, 1):
        right = interleaved == 0
        expected, cos, sin = export(folder / f"standard{interleaved}.onnx", bool(interleaved))
        to_microsoft(folder / f"standard{interleaved}.onnx", folder / f"microsoft{interleaved}.onnx")
        for kind in ("standard", "microsoft"):
            path = folder / f"{kind}{interleaved}.onnx"
            off = numpy.abs(run(path, {"input_ids": ids, "position_ids": ids})[0] - expected).max()
            check((off < 1e-5) == right, f"onnxruntime: {path.name} is {off:.2g} from transformers' logits")
            say(path, path.name, right)
        path = folder / f"gqa{interleaved}.onnx"
        attention(path, cos, sin, interleaved)
        rng = numpy.random.default_rng(1)
        inputs = {name: rng.standard_normal((1, IDS.shape[1], heads * WIDTH)).astype("f4") for name, heads in (("q", 4), ("k", 2), ("v", 2))}
        off = numpy.abs(run(path, inputs)[1] - rotated_keys(inputs["k"])).max()
        check((off < 1e-5) == right, f"onnxruntime: {path.name} is {off:.2g} from transformers' keys")
        say(path, path.name, right)
    print(posenc("explain", str(folder / "standard0.onnx"))[1])
    print(f"{'failed: ' + '; '.join(failed) if failed else 'all is as expected'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
