"""Replaced models beside what programs do with models: copies, files, export, compilation, devices, types, processes."""

import copy
import io
import pickle
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import posenc.torch  # noqa: E402
from rotary_models import MODELS, model_of, rotary_modules  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

TOKENS, IDS = torch.arange(1, 25)[None], torch.arange(24)[None]


class States(torch.nn.Module):
    """A model with tensors as arguments and answer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, ids):
        return self.model(input_ids=tokens, position_ids=ids, use_cache=False).last_hidden_state


@torch.no_grad()
def states(model):
    return States(model)(TOKENS, IDS)


def saved(write, value):
    file = io.BytesIO()
    write(value, file)
    file.seek(0)
    return file


def save_and_load(model):
    other = torch.load(saved(torch.save, model), weights_only=False)
    other.load_state_dict(torch.load(saved(torch.save, model.state_dict()), weights_only=True))
    return states(other)


def export(model):
    program = torch.export.export(States(model), (TOKENS, IDS), strict=False)
    return torch.export.load(saved(torch.export.save, program)).module()(TOKENS, IDS)


@torch.no_grad()
def fullgraph(model):
    torch._dynamo.reset()
    return torch.compile(States(model), fullgraph=True, backend="aot_eager")(TOKENS, IDS)


@torch.no_grad()
def trace(model):
    """Traces at other positions."""
    return torch.jit.trace(States(model), (TOKENS, IDS + 100), check_trace=False)(TOKENS, IDS)


@torch.no_grad()
def fake(model):
    """Only the shape is known."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        shape = States(model)(mode.from_tensor(TOKENS), mode.from_tensor(IDS)).shape
    answer = states(model)
    assert shape == answer.shape
    return answer


def data_parallel(model):
    """Also a step of training."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        answer = torch.nn.parallel.DistributedDataParallel(States(model))(TOKENS, IDS)
        answer.sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert all(torch.isfinite(one.grad).all() for one in model.parameters() if one.grad is not None)
    return answer.detach()


def threads(model):
    answers = []
    callers = [threading.Thread(target=lambda: answers.append(states(model))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 4 and all(torch.equal(one, answers[0]) for one in answers)
    return answers[0]


OPERATIONS = {
    "deepcopy": lambda model: states(copy.deepcopy(model)),
    "pickle": lambda model: states(pickle.loads(pickle.dumps(model))),
    "save and load": save_and_load,
    "export": export,
    "fullgraph": fullgraph,
    "to": lambda model: states(model.to(torch.float64)).float(),
    "half": lambda model: states(model.bfloat16()).float(),
    "DDP": data_parallel,
    "threads": threads,
    "fake tensors": fake,
    "trace": trace,
    "AveragedModel": lambda model: states(torch.optim.swa_utils.AveragedModel(model).module),
    "quantize_dynamic": lambda model: states(torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})),
}
TOLERANCES = {"half": 0.25, "quantize_dynamic": 0.1}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_replaced_model_does_what_the_original_does(name, operation):
    model = model_of(name)
    expected = states(model) if operation != "quantize_dynamic" else OPERATIONS[operation](model_of(name))
    posenc.torch.replace(model)
    try:
        got = OPERATIONS[operation](model)
    except Exception as error:
        with pytest.raises(type(error)):  # some models' other parts have no float64
            OPERATIONS[operation](model_of(name))
        assert operation == "to"
        return
    assert torch.allclose(got, expected, rtol=0, atol=TOLERANCES.get(operation, 1e-4))


@pytest.mark.parametrize("name", MODELS)
def test_models_on_the_meta_device(name):
    """The modules of a model without numbers give the originals' shapes there, and the numbers of any model elsewhere."""
    with torch.device("meta"):
        model, original = model_of(name), model_of(name)
    posenc.torch.replace(model)
    x, ids = torch.empty(1, 24, 64, device="meta", dtype=torch.bfloat16), torch.empty(1, 24, device="meta", dtype=torch.int64)
    real = model_of(name)
    expected = states(real)
    for module_name, ours in rotary_modules(model).items():
        theirs = original.get_submodule(module_name)
        for arguments in [(layer_type,) for layer_type in getattr(theirs, "layer_types", [])] or [()]:
            if "dynamic" not in theirs.rope_type:  # the original compares a length, which has no number there
                for got, wanted in zip(ours(x, ids, *arguments), theirs(x, ids, *arguments), strict=True):
                    assert (got.shape, got.dtype, got.device) == (wanted.shape, wanted.dtype, wanted.device)
        parent, _, last = module_name.rpartition(".")
        setattr(real.get_submodule(parent), last, ours.to_empty(device="cpu"))
    assert torch.allclose(states(real), expected, rtol=0, atol=1e-4)


def test_an_exported_model_runs_in_another_process(tmp_path):
    model = model_of("phi3")
    posenc.torch.replace(model)
    length = torch.export.Dim("length", min=2, max=256)
    program = torch.export.export(States(model), (TOKENS, IDS), strict=False, dynamic_shapes=({1: length}, {1: length}))
    torch.export.save(program, tmp_path / "model.pt2")
    longer = torch.arange(1, 101)[None]  # by the long factors
    torch.save(model.eval()(input_ids=longer, use_cache=False).last_hidden_state.detach(), tmp_path / "expected.pt")
    code = f"""
import sys; sys.path[:] = {sys.path!r}
import torch, posenc.torch
program = torch.export.load({str(tmp_path / 'model.pt2')!r}).module()
expected = torch.load({str(tmp_path / 'expected.pt')!r})
assert torch.allclose(program(torch.arange(1, 101)[None], torch.arange(100)[None]), expected, rtol=0, atol=1e-5)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "phi3"])
def test_the_operator_is_one_to_torch(name):
    """torch's own checks: schema, fake kernel, backward, and all of them under compilation."""
    model = model_of(name)
    posenc.torch.replace(model)
    for ids in (IDS, IDS.float() + 0.25, (IDS.double() + 0.25).requires_grad_()):
        for module in rotary_modules(model).values():
            for table in module._tables.values():
                torch.library.opcheck(posenc.torch.rotary_table, (ids, table, torch.float32))


def test_a_module_has_no_client():
    module = next(iter(rotary_modules(_replaced("llama")).values()))
    assert b"Client" not in pickle.dumps(module)
    child = subprocess.run([sys.executable, "-c", f"""
import sys; sys.path[:] = {sys.path!r}
import pickle, torch
cos, sin = pickle.load(sys.stdin.buffer)(torch.zeros(1, 2, 8), torch.tensor([[0, 1]]))
assert cos.shape == (1, 2, 16) and bool((cos[0, 0] == 1).all())
"""], input=pickle.dumps(module), capture_output=True, check=False)
    assert child.returncode == 0, child.stderr


def _replaced(name):
    model = model_of(name)
    posenc.torch.replace(model)
    return model
