"""Tensors at the edges: of no elements or no axes, read-only, on other devices, of foreign byte order; bfloat16."""

import concurrent.futures

import ml_dtypes
import numpy as np
import pytest
from conftest import LLAMA

import posenc

Q = np.random.default_rng(7).standard_normal((1, 3, 4, 128)).astype(np.float32)
ROTATION = {"model": LLAMA, "positions": 3, "layout": "BSHD"}


def test_tensors_of_no_elements(client):
    for shape in ((1, 0, 4, 128), (0, 3, 4, 128)):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            answer = client.rope(np.zeros(shape, dtype), **ROTATION).q
            assert answer.shape == shape and answer.dtype == dtype


def test_tensors_of_no_axes(client):
    with pytest.raises(posenc.InvalidArgument) as caught:
        client.rope(np.float32(1), **ROTATION)
    assert caught.value.field == "q.tensor.shape" and "BSHD" in caught.value.limit
    with pytest.raises(posenc.InvalidArgument):
        client.rope(np.array(1, np.float32), **ROTATION)


def test_read_only_tensors(client):
    expected = client.rope(Q, **ROTATION).q
    frozen = Q.copy()
    frozen.flags.writeable = False
    assert (client.rope(frozen, **ROTATION).q == expected).all() and client.rope(frozen, **ROTATION).q.flags.writeable
    of_bytes = np.frombuffer(Q.tobytes(), np.float32).reshape(Q.shape)
    assert (client.rope(of_bytes, **ROTATION).q == expected).all()
    narrow = Q.astype(ml_dtypes.bfloat16)
    again = narrow.copy()
    again.flags.writeable = False
    assert (client.rope(again, **ROTATION).q == client.rope(narrow, **ROTATION).q).all()


def test_repeated_and_reversed_rows(client):
    """Strides of zero and below zero."""
    expected = client.rope(np.ascontiguousarray(np.broadcast_to(Q[:, :1], Q.shape)), **ROTATION).q
    assert (client.rope(np.broadcast_to(Q[:, :1], Q.shape), **ROTATION).q == expected).all()
    assert (client.rope(Q[..., ::-1][..., ::-1], **ROTATION).q == client.rope(Q, **ROTATION).q).all()
    backwards = client.rope(Q[:, :, :, ::-1], **ROTATION).q
    assert (backwards == client.rope(Q[:, :, :, ::-1].copy(), **ROTATION).q).all()


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i8"])
def test_byte_orders(client, dtype):
    if dtype == ">i8":
        ids = np.array([3, 1, 4], dtype)
        given = {**ROTATION, "positions": ids}
        assert (client.rope(Q, **given).q == client.rope(Q, **{**ROTATION, "positions": ids.astype("<i8")}).q).all()
        return
    q = Q.astype(dtype)
    answer = client.rope(q, **ROTATION).q
    assert (answer == client.rope(q.astype(np.dtype(dtype).newbyteorder("<")), **ROTATION).q).all()


def test_subclasses_of_arrays(client, tmp_path):
    mapped = np.memmap(tmp_path / "q", np.float32, "w+", shape=Q.shape)
    mapped[:] = Q
    expected = client.rope(Q, **ROTATION).q
    assert (client.rope(mapped, **ROTATION).q == expected).all()
    client.rope(mapped, **ROTATION, out=[mapped])
    assert (mapped == expected).all()


class Elsewhere:
    """A tensor with DLPack on a GPU."""

    def __dlpack__(self, **_):
        raise BufferError("cannot export a tensor on cuda:0 to the CPU")

    def __dlpack_device__(self):
        return 2, 0


def test_tensors_elsewhere_are_refused(client):
    with pytest.raises(posenc.InvalidArgument, match="by DLPack to the CPU") as caught:
        client.rope(Elsewhere(), **ROTATION)
    assert caught.value.field == "q.tensor"


def test_bfloat16_is_rounded_once(client):
    q = Q.astype(ml_dtypes.bfloat16)
    exact = client.rope(q.astype(np.float32), **ROTATION).q
    answer = client.rope(q, **ROTATION).q
    assert answer.dtype == ml_dtypes.bfloat16
    assert (answer == exact.astype(ml_dtypes.bfloat16)).mean() > 0.99  # float32 is rounded before, in rare cases to a tie


def test_equal_requests_are_encoded_once_and_others_anew(client):
    """Settings, types, shapes and the position that differ from an earlier call's count; so does a changed dict."""
    settings = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rotary_dim": 128, "input_pairing": "HALF_SPLIT"}

    def rotated(**changes):
        return client.rope(Q, **{"settings": settings, "positions": 3, "layout": "BSHD", **changes}).q

    first = rotated()
    assert (rotated() == first).all()
    assert (rotated(positions=4) != first).any() and (rotated(positions=np.array([3, 4, 5])) == first).all()
    assert (rotated(positions=np.array([3, 4, 5], np.int32)) == first).all()
    assert (rotated(positions=np.array([3, 4, 6])) != first).any()
    assert (rotated(layout=1) == first).all() and (rotated(direction="INVERSE") != first).any()
    settings["rope_parameters"]["rope_theta"] = 1e5
    second = rotated()
    assert (second != first).any()
    settings["rope_parameters"]["rope_theta"] = 1e4
    assert (rotated() == first).all()
    for wrong in (True, 128.0):
        with pytest.raises(posenc.InvalidArgument):
            rotated(settings={**settings, "rotary_dim": wrong})
    assert (client.rope(Q.astype(np.float16), settings=settings, positions=3, layout="BSHD").q.astype("f4") != first).any()
    for shape in ((1, 3, 4, 128), (3, 1, 4, 128), (1, 1, 12, 128)):
        assert client.rope(Q.reshape(shape), settings=settings, positions=3, layout="BSHD").q.shape == shape


def test_threads_with_equal_requests_get_their_own_answers(client):
    """Calls of one kind share what was prepared for them, but not at the same time."""
    expected = [client.rope(Q, model=LLAMA, positions=n, layout="BSHD").q for n in range(8)]

    def differs(n):
        return any((client.rope(Q, model=LLAMA, positions=n, layout="BSHD").q != expected[n]).any() for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(differs, range(8)))


def test_destinations_change_from_call_to_call(local):
    """A prepared call takes a caller's memory, then the answer's own, and none for an operand that is absent."""
    expected = local.rope(Q, model=LLAMA, positions=3, layout="BSHD").q
    for out in (None, [np.zeros_like(Q)], None, [np.zeros_like(Q)]):
        answer = local.rope(Q, model=LLAMA, positions=3, layout="BSHD", out=out)
        assert (answer.q == expected).all() and answer.k is None
        assert out is None or answer.q is out[0]
    q, k = local.rope(Q, Q, model=LLAMA, positions=3, layout="BSHD", out=[np.zeros_like(Q)])
    assert (q == expected).all() and (k == expected).all()
    with pytest.raises(posenc.InvalidArgument) as error:
        local.rope(Q, model=LLAMA, positions=3, layout="BSHD", out=[np.zeros_like(Q) for _ in range(3)])
    assert (error.value.field, error.value.value) == ("out", "3")
