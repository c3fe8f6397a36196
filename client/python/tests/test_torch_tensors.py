"""Tensors of torch, in this process and on a server, beside NumPy's; and torch beside the package in one process."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import LLAMA

torch = pytest.importorskip("torch")

import posenc  # noqa: E402

Q = np.random.default_rng(7).standard_normal((1, 3, 4, 128)).astype(np.float32)
ROTATION = {"model": LLAMA, "positions": 3, "layout": "BSHD"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_types(client, dtype):
    q = torch.from_numpy(Q).to(dtype)
    answer = client.rope(q, q, **ROTATION)
    for one in answer:
        assert isinstance(one, torch.Tensor) and one.dtype == dtype and one.shape == q.shape
    expected = client.rope(q.float(), **ROTATION).q
    assert torch.allclose(answer.q.float(), expected, rtol=2**-7, atol=1e-2)
    assert (client.rope(torch.from_numpy(Q), **ROTATION).q.numpy() == client.rope(Q, **ROTATION).q).all()


def test_bfloat16_has_the_bits_of_numpys(client):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q = torch.from_numpy(Q).bfloat16()
    theirs = client.rope(q.view(torch.int16).numpy().view(ml_dtypes.bfloat16), **ROTATION).q
    assert (client.rope(q, **ROTATION).q.view(torch.int16).numpy() == theirs.view(np.int16)).all()


def test_outputs_must_not_overlap(client):
    memory = torch.empty(2 * Q.size)
    q = torch.from_numpy(Q)
    for begin in (0, 1, Q.size - 1):
        out = [memory[:Q.size].view(Q.shape), memory[begin:begin + Q.size].view(Q.shape)]
        with pytest.raises(posenc.InvalidArgument, match=r"out.1.: is in the memory of out.0."):
            client.rope(q, q, **ROTATION, out=out)
        with pytest.raises(posenc.InvalidArgument, match=r"out.1.: is in the memory of out.0."):
            client.rope(q, q, **ROTATION, out=[out[0].numpy(), out[1]])


def test_strided_tensors(client):
    expected = client.rope(torch.from_numpy(Q), **ROTATION).q
    for q in (torch.from_numpy(Q).transpose(1, 2).contiguous().transpose(1, 2), torch.from_numpy(np.repeat(Q, 2, -1))[..., ::2],
              torch._neg_view(-torch.from_numpy(Q))):
        assert not q.is_contiguous() or q.is_neg()
        assert (client.rope(q, **ROTATION).q == expected).all()
    expanded = torch.from_numpy(Q[:, :1].copy()).expand(1, 3, 4, 128)
    assert (client.rope(expanded, **ROTATION).q == client.rope(expanded.contiguous(), **ROTATION).q).all()


def test_tensors_of_no_elements_or_no_axes(client):
    assert client.rope(torch.zeros(1, 0, 4, 128), **ROTATION).q.shape == (1, 0, 4, 128)
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope(torch.tensor(1.0), **ROTATION)
    assert caught.value.field == "q.tensor.shape"


def test_other_devices_are_refused(client):
    devices = ["meta"] + (["cuda"] if torch.cuda.is_available() else [])
    for device in devices:
        with pytest.raises(posenc.InvalidArgument, match="must be cpu: use tensor.cpu") as caught:
            client.rope(torch.empty(1, 3, 4, 128, device=device), **ROTATION)
        assert caught.value.field == "q.tensor.device"


def test_gradients_are_refused(client):
    q = torch.from_numpy(Q).requires_grad_()
    with pytest.raises(posenc.InvalidArgument, match="tensor.detach"):
        client.rope(q, **ROTATION)
    with torch.no_grad():
        assert client.rope(q, **ROTATION).q.shape == q.shape


def test_other_types_are_refused(client):
    for dtype in (torch.complex64, torch.uint8):
        with pytest.raises(posenc.InvalidArgument, match="must be float32"):
            client.rope(torch.zeros(1, 3, 4, 128, dtype=dtype), **ROTATION)


def test_out_and_chunks(client):
    q = torch.from_numpy(Q.copy())
    expected = client.rope(q, **ROTATION).q
    assert (client.rope_in_chunks(q, **ROTATION, chunk_bytes=600).q == expected).all()
    for part in client.stream_rope(q, **ROTATION, chunk_bytes=600):
        assert isinstance(part.rows, torch.Tensor)
        assert (expected.reshape(-1, 128)[part.begin:part.begin + len(part.rows)] == part.rows).all()
    assert client.rope(q, **ROTATION, out=[q]).q is q and (q == expected).all()


def test_positions_and_the_kind_of_answers(client):
    ids = torch.tensor([3, 4, 5])
    assert (client.rope(Q, **ROTATION | {"positions": ids}).q == client.rope(Q, **ROTATION).q).all()
    table = client.table(model=LLAMA, positions=ids, dtype="BF16", form="HALF_WIDTH", like=ids)
    assert table.cos.dtype == torch.bfloat16 and table.cos.shape == (3, 64)


@pytest.mark.parametrize("order", ["torch, posenc", "posenc, torch"])
def test_one_process(order):
    """torch has its own protobuf and OpenMP inside."""
    code = f"import {order}\n" + """
with posenc.local() as client:
    q = torch.ones(1, 3, 4, 128)
    settings = {"rope_parameters": {"rope_type": "default"}, "rotary_dim": 128, "input_pairing": "HALF_SPLIT"}
    rotated = client.rope(q, settings=settings, positions=0, layout="BSHD").q
    assert (rotated[0, 0] == 1).all() and torch.matmul(rotated, rotated.transpose(-1, -2)).shape == (1, 3, 4, 4)
try:
    import google.protobuf.struct_pb2
except ImportError:
    pass
print("rotated")
"""
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0 and done.stdout == "rotated\n", done.stdout + done.stderr
