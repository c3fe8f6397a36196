"""Checks Analyze's numbers bit for bit: cosines correctly rounded by mpmath, summed from the first pair to the last."""

import math

import mpmath
import numpy
import pytest
import samples
from posenc.v1 import embedding_pb2, rotary_pb2, service_pb2
from tensors import FP64, array, tensor

mpmath.mp.prec = 300
DISTANCES = (0.0, 1.0, 4.0, -7.0, 0.5, 255.0, 131_071.0)


def frequencies(dim, theta):
    return [float(mpmath.mpf(theta) ** (-mpmath.mpf(2 * i) / dim)) for i in range(dim // 2)]


def curves(inv_freq, distances):
    """Cosine sum and decay bound (arXiv:2104.09864, section 3.4.3) at each distance."""
    sums, bounds = [], []
    for distance in distances:
        real = imaginary = magnitudes = 0.0
        for frequency in inv_freq:
            angle = mpmath.mpf(distance) * mpmath.mpf(frequency)
            real += float(mpmath.cos(angle))
            imaginary += float(mpmath.sin(angle))
            magnitudes += math.sqrt(real * real + imaginary * imaginary)
        sums.append(real)
        bounds.append(magnitudes / len(inv_freq))
    return sums, bounds


@pytest.mark.parametrize("dim, theta", [(8, 10_000), (128, 10_000), (64, 500_000)])
def test_curves_of_rope(client, dim, theta):
    answer = client.call("Analyze", samples.analysis(DISTANCES, rotary_dim=dim, theta=theta))
    inv_freq = frequencies(dim, theta)
    assert [pair.inv_freq for pair in answer.pairs] == inv_freq
    sums, bounds = curves(inv_freq, DISTANCES)
    assert array(answer.cosine_sum).tolist() == sums
    assert array(answer.decay_bound).tolist() == bounds
    assert sums[0] == dim / 2 and bounds[0] == (dim / 2 + 1) / 2


def test_dot_products_of_sinusoidal_encodings(client):
    request = service_pb2.AnalyzeRequest(
        sinusoidal=embedding_pb2.Sinusoidal(convention=embedding_pb2.SINUSOIDAL_CONVENTION_INTERLEAVED, dim=8),
        distances=rotary_pb2.Positions(ids=tensor(DISTANCES, FP64)))
    sums = array(client.call("Analyze", request).cosine_sum)
    # The value for positions 7 and 3 is computed by hand from sum_k cos((a - b) w_k); the maximum is D/2.
    assert sums[2] == pytest.approx(2.2666095, abs=5e-8) and sums[0] == 4
    rows = samples.embedding(8, 8, FP64)
    encodings = array(client.call("GenerateEmbedding", rows).embedding)
    assert numpy.dot(encodings[7], encodings[3]) == pytest.approx(sums[2], abs=1e-14)


def test_what_a_scaling_touches(client, configs):
    """Llama 3.1 keeps 29 pairs with wavelengths below 2048, and divides 29 pairs above 8192 by 8."""
    model = rotary_pb2.ModelConfig(config_json=(configs / "llama-3.1-8b.json").read_bytes())
    answer = client.call("Analyze", service_pb2.AnalyzeRequest(rotary=rotary_pb2.RotarySource(model=model)))
    assert not answer.HasField("cosine_sum")
    kept, interpolated, mixed = (
        [pair for pair in answer.pairs if pair.scaling == getattr(service_pb2, f"PAIR_SCALING_{name}")]
        for name in ("KEPT", "INTERPOLATED", "MIXED"))
    assert (len(kept), len(mixed), len(interpolated)) == (29, 6, 29)
    assert max(pair.wavelength for pair in kept) < 2048
    assert min(2 * math.pi / pair.unscaled_inv_freq for pair in interpolated) > 8192
    assert {round(pair.ratio, 12) for pair in interpolated} == {0.125}


def test_the_sequences_length_is_asked_for_where_it_counts(client):
    request = samples.analysis(rotary_dim=8)
    request.rotary.settings.rope_parameters.rope_type = "dynamic"
    request.rotary.settings.rope_parameters.factor = 2
    request.rotary.settings.max_position_embeddings = 64
    assert client.refusal("Analyze", request).field == "seq_len"
    request.seq_len = 128
    assert client.call("Analyze", request).info.sequences[0].seq_len == 128
