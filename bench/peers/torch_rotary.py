"""torch: the expressions with which models rotate, eager and compiled. Tables have the tensor's type, as in models."""

import functools

import torch
import torch._inductor.config
from work import Unsupported

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def start(threads):
    torch.set_num_threads(threads)
    torch._inductor.config.cpp.threads = threads  # also part of its cache's key
    torch.set_grad_enabled(False)


def rotate_half(x):
    """Llama in transformers: half-split."""
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def rotate_every_two(x):
    """GPT-J in transformers: interleaved."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotate(x, cos, sin, swap):
    return x * cos + swap(x) * sin


def multiply_complex(x, turns):
    """Llama's own release: interleaved, in float32 for every tensor type."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


def prepared(work, run):
    return run, lambda: work.check(run()[-1].float().numpy())


def arguments(work):
    """Returns the tensor, tables as wide as a head row that broadcast over heads, and the function that swaps pairs."""
    dtype = TYPES[work.dtype]
    if work.pairing == "interleaved":
        widen, swap = (lambda table: table.repeat_interleave(2, dim=-1)), rotate_every_two
    else:
        widen, swap = (lambda table: torch.cat((table, table), dim=-1)), rotate_half
    cos, sin = (widen(torch.from_numpy(table)).to(dtype).unsqueeze(1) for table in (work.cos, work.sin))
    return torch.from_numpy(work.x).to(dtype), cos, sin, swap


def eager(work):
    return prepared(work, functools.partial(rotate, *arguments(work)))


def compiled(work):
    x, cos, sin, swap = arguments(work)
    for tensor in (x, cos, sin):
        torch._dynamo.mark_dynamic(tensor, 0)  # the number of tokens: one compilation serves every size
    run = functools.partial(compile_rotation(work.dtype, work.head_dim, swap), x, cos, sin)
    try:
        run()
    except Exception as error:  # e.g. no compiler is installed
        raise Unsupported(f"torch.compile: {str(error).strip().splitlines()[0]}") from error
    return prepared(work, run)


@functools.lru_cache(maxsize=1)
def compile_rotation(dtype, head_dim, swap):
    """Keeps one compiled function, so that calls do not choose among several. Files cache those of earlier runs."""
    torch.compiler.reset()
    return torch.compile(lambda x, cos, sin: rotate(x, cos, sin, swap))


def as_complex(work):
    if work.pairing != "interleaved":
        raise Unsupported("complex numbers are interleaved")
    turns = torch.complex(torch.from_numpy(work.cos), torch.from_numpy(work.sin)).unsqueeze(1)
    return prepared(work, functools.partial(multiply_complex, torch.from_numpy(work.x).to(TYPES[work.dtype]), turns))


NAME = f"torch {torch.__version__.partition('+')[0]}"
PEERS = {"rotate": {f"{NAME} eager": eager, f"{NAME} complex": as_complex, f"{NAME} compile": compiled}}
