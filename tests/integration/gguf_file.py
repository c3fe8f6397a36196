"""Writes GGUF files, version 3, without the package that usually does."""

import struct

import numpy

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
ALIGNMENT = 32


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key, value):
    """A key and its value: a str, bool, int (UINT32), float (FLOAT32), or a list of int (INT32) or of str."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    kind, items = (STRING, map(text, value)) if isinstance(value[0], str) else (INT32, (struct.pack("<i", n) for n in value))
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(items)


def gguf(pairs, factors=None, padding=0):
    """Returns a file. `factors`: float32 tensors by name; `padding`: bytes of another tensor before them."""
    tensors, data = [], b""
    named = ({"token_embd.weight": numpy.zeros(padding // 4)} if padding else {}) | (factors or {})
    for name, values in named.items():
        stored = numpy.asarray(values, "<f4").tobytes()
        tensors.append(text(name) + struct.pack("<IQIQ", 1, len(values), 0, len(data)))
        data += stored + bytes(-len(stored) % ALIGNMENT)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    header += b"".join(pair(key, value) for key, value in pairs.items()) + b"".join(tensors)
    return header + bytes(-len(header) % ALIGNMENT) + data


def model(architecture, factors=None, padding=0, **keys):
    """A model's file; `keys` without the architecture's name, with "__" for ".". """
    pairs = {"general.architecture": architecture, f"{architecture}.block_count": 32,
             f"{architecture}.context_length": 131072, f"{architecture}.embedding_length": 4096,
             f"{architecture}.attention.head_count": 32}
    pairs |= {f"{architecture}.{name.replace('__', '.')}": value for name, value in keys.items()}
    return gguf(pairs | {"tokenizer.ggml.tokens": ["a", "b"]}, factors, padding)


def llama3_factors(pairs=64, theta=500000.0, factor=8.0, low=1.0, high=4.0, original=8192):
    """Divisors of Llama 3.1's frequencies in float32, as a conversion stores them."""
    wavelengths = 2 * numpy.pi * theta ** (numpy.arange(pairs) / pairs)
    smooth = numpy.clip((original / wavelengths - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype("<f4")
