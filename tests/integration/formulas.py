"""The methods' formulas over the real numbers, from their papers, with mpmath. They share no code with posenc."""

import math

import mpmath
import numpy
from tensors import BF16, FP16, FP32, FP64

# Bits of the significand, and the smallest normal exponent.
FORMATS = {FP32: (24, -126), FP16: (11, -14), BF16: (8, -126), FP64: (53, -1022)}

mpmath.mp.prec = 240


def round_to(value, dtype):
    """Rounds a real number to the nearest element of the type, ties to even; returns a Python float."""
    precision, smallest = FORMATS[dtype]
    if value == 0:
        return 0.0
    exponent = max(mpmath.frexp(value)[1] - 1, smallest)
    quantum = mpmath.ldexp(1, exponent - precision + 1)
    return float(mpmath.nint(value / quantum) * quantum)


def rounded_array(values, dtype):
    """Rounds nested lists of real numbers to the type; returns a float64 numpy array."""
    if isinstance(values, list):
        return numpy.array([rounded_array(value, dtype) for value in values])
    return round_to(values, dtype)


def rope_inv_freq(theta, dim):
    """arXiv:2104.09864: theta^(-2i/dim), each rounded once to float64."""
    return [round_to(mpmath.power(theta, mpmath.mpf(-2 * i) / dim), FP64) for i in range(dim // 2)]


def llama3_inv_freq(theta, dim, factor, low_freq_factor, high_freq_factor, original_length):
    """Llama 3.1's rule: short wavelengths kept, long ones divided by factor, blended in between."""
    frequencies = []
    for i in range(dim // 2):
        frequency = mpmath.power(theta, mpmath.mpf(-2 * i) / dim)
        wavelength = 2 * mpmath.pi / frequency
        if wavelength > mpmath.mpf(original_length) / low_freq_factor:
            frequency /= factor
        elif wavelength >= mpmath.mpf(original_length) / high_freq_factor:
            smooth = (original_length / wavelength - low_freq_factor) / (mpmath.mpf(high_freq_factor) - low_freq_factor)
            frequency = (1 - smooth) * frequency / factor + smooth * frequency
        frequencies.append(round_to(frequency, FP64))
    return frequencies


def table(inv_freq, positions, dtype=FP32, scaling=1.0):
    """cos and sin of position * inv_freq, times scaling, each rounded once: two arrays [positions, frequencies]."""
    angles = [[mpmath.mpf(p) * mpmath.mpf(f) for f in inv_freq] for p in positions]
    return tuple(
        rounded_array([[scaling * function(angle) for angle in row] for row in angles], dtype).reshape(
            len(angles), len(inv_freq)) for function in (mpmath.cos, mpmath.sin))


def rotate(x, cos, sin, interleaved):
    """Rotates the pairs of the last axis in float32; cos and sin must broadcast against half of it."""
    x = numpy.asarray(x, "<f4")
    cos, sin = numpy.float32(cos), numpy.float32(sin)
    pairs = x.shape[-1] // 2
    x0, x1 = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :pairs], x[..., pairs:])
    y0, y1 = x0 * cos - x1 * sin, x1 * cos + x0 * sin
    return numpy.stack([y0, y1], -1).reshape(x.shape) if interleaved else numpy.concatenate([y0, y1], -1)


def sinusoidal(dim, positions, dtype, interleaved):
    """arXiv:1706.03762; interleaved, or with the sines in the first half."""
    frequencies = rope_inv_freq(10000, dim)
    cos, sin = table(frequencies, positions, dtype)
    return numpy.stack([sin, cos], -1).reshape(len(positions), dim) if interleaved else numpy.concatenate([sin, cos], -1)


def timestep(dim, timesteps, dtype, max_period=10000, shift=1, scale=1, flip=False):
    """diffusers' get_timestep_embedding over the real numbers; the frequency, scale included, is a float64."""
    half = dim // 2
    frequencies = [round_to(scale * mpmath.power(max_period, -mpmath.mpf(k) / (half - mpmath.mpf(shift))), FP64)
                   for k in range(half)]
    cos, sin = table(frequencies, timesteps, dtype)
    padding = numpy.zeros((len(timesteps), dim % 2))
    return numpy.concatenate([*((cos, sin) if flip else (sin, cos)), padding], -1)


def grid_axis(indices, width, dtype, distance=1, spread=None):
    """Sines and cosines, `width` elements, of indices along an axis. `distance` of two indices scales frequencies."""
    pairs = width // 2
    frequencies = [round_to(distance * mpmath.power(10000, -mpmath.mpf(k) / (spread or pairs)), FP64)
                   for k in range(pairs)]
    cos, sin = table(frequencies, map(int, indices), dtype)
    return numpy.concatenate([sin, cos], -1)


def fourier(points, frequencies, dtype):
    """arXiv:2006.10739."""
    turns = [[mpmath.fsum(mpmath.mpf(b) * mpmath.mpf(x) for b, x in zip(row, point)) for row in frequencies]
             for point in points]
    sin, cos = (rounded_array([[function(2 * t) for t in row] for row in turns], dtype)
                for function in (mpmath.sinpi, mpmath.cospi))
    return numpy.concatenate([sin, cos], -1)


def alibi_slopes(heads):
    """The released code of arXiv:2108.12409, in float32."""
    def of_power_of_two(count):
        return [float(mpmath.power(2, mpmath.mpf(-8 * (h + 1)) / count)) for h in range(count)]

    if math.log2(heads).is_integer():
        slopes = of_power_of_two(heads)
    else:
        below = 2 ** math.floor(math.log2(heads))
        slopes = of_power_of_two(below) + of_power_of_two(2 * below)[0::2][:heads - below]
    return numpy.array(slopes, "<f4")
