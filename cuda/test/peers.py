"""peers.py HELPERS: posenc's rotation beside torch.compile's and FlashInfer's, on the same device, stream and tensors.

Llama's shape, 256 MiB a tensor, tables given. Medians of kernels that take turns. A peer that is not there is left out.
"""

import ctypes
import statistics
import sys
from ctypes import byref, c_bool, c_int, c_uint64, c_void_p

import torch

HEADS, HEAD_DIM, BYTES, ROUNDS = 32, 128, 256 << 20, 21
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class RotateArguments(ctypes.Structure):
    """As cuda/launch.h has it."""

    _fields_ = [("dtype", c_int), ("rounding", c_int), ("input_pairing", c_int), ("output_pairing", c_int),
                ("half_split_parts", c_uint64), ("head_dim", c_uint64), ("rotary_offset", c_uint64),
                ("pairs", c_uint64), ("tokens", c_uint64), ("heads", c_uint64), ("table_is_double", c_bool),
                ("cos", c_void_p), ("sin", c_void_p), ("x", c_void_p), ("y", c_void_p), ("token_stride", c_uint64),
                ("head_stride", c_uint64)]


def posenc(helpers, x, y, cos, sin):
    size = x.element_size()
    work = RotateArguments(dtype=TYPES[x.dtype], rounding=0, input_pairing=1, output_pairing=1, half_split_parts=1,
                           head_dim=HEAD_DIM, pairs=HEAD_DIM // 2, tokens=len(x), heads=HEADS, cos=cos.data_ptr(),
                           sin=sin.data_ptr(), x=x.data_ptr(), y=y.data_ptr(), token_stride=HEADS * HEAD_DIM * size,
                           head_stride=HEAD_DIM * size)

    def run():
        error = helpers.posenc_test_rotate(byref(work), c_void_p(torch.cuda.current_stream().cuda_stream))
        assert error == 0, f"CUDA's error {error}"
        return y
    return run


def half_split(x, cos, sin):
    """As transformers writes it."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def compiled(x, cos, sin):
    """In the tensor's type, as transformers' models do: each operation is rounded, unless they are fused."""
    cos, sin = (torch.cat((table, table), -1)[:, None].to(x.dtype) for table in (cos, sin))
    rotate = torch.compile(half_split)
    return lambda: rotate(x, cos, sin)


def compiled_float32(x, cos, sin):
    cos, sin = (torch.cat((table, table), -1)[:, None] for table in (cos, sin))
    rotate = torch.compile(lambda x, cos, sin: half_split(x.float(), cos, sin).to(x.dtype))
    return lambda: rotate(x, cos, sin)


def flashinfer(x, cos, sin):
    """In place, over half of the heads as q and half as k."""
    import flashinfer as library

    rotated = x.clone().view(len(x), -1)
    q, k = rotated.chunk(2, -1)
    cache, positions = torch.cat((cos, sin), -1).contiguous(), torch.arange(len(x), device="cuda")
    return lambda: library.apply_rope_with_cos_sin_cache_inplace(positions, q, k, HEAD_DIM, cache, is_neox=True)


def seconds(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def compare(helpers, dtype):
    tokens = BYTES // (HEADS * HEAD_DIM * dtype.itemsize)
    x = torch.randn(tokens, HEADS, HEAD_DIM, device="cuda", dtype=dtype)
    angles = torch.arange(tokens, device="cuda")[:, None] * 10000.0 ** (-torch.arange(HEAD_DIM // 2, device="cuda") / 64)
    cos, sin = angles.cos(), angles.sin()
    y = torch.empty_like(x)
    ours = posenc(helpers, x, y, cos, sin)
    runs = {"posenc": ours, "copy": lambda: y.copy_(x)}
    for peer in (compiled, compiled_float32, flashinfer):
        try:
            run = peer(x, cos, sin)
            result = run()
            if result is not None:
                torch.testing.assert_close(result, ours(), rtol=0.02, atol=0.02)  # of the same rotation
            runs[peer.__name__] = run
        except Exception as error:  # a peer that is not there, or not for this device
            print(f"left out: {peer.__name__}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    for run in runs.values():
        run()
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{dtype}: posenc {2 * BYTES / medians['posenc'] / 1e9:.0f} GB/s;",
          ", ".join(f"{value / medians['posenc']:.2f} times as fast as {name}" for name, value in medians.items()
                    if name != "posenc"))


def main():
    helpers = ctypes.CDLL(sys.argv[1])
    if c_uint64.in_dll(helpers, "posenc_test_rotate_size").value != ctypes.sizeof(RotateArguments):
        sys.exit("peers: peers.py and cuda/launch.h differ")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        compare(helpers, dtype)


if __name__ == "__main__":
    main()
