"""The demo itself: calls the server with the posenc command, recomputes with mpmath, compares. See scripts/demo."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import mpmath
import numpy

MODEL = "llama-3.1-8b.json"
POSITIONS = [0, 1, 8191, 131071]
NUMPY = {"BF16": "<u2", "F32": "<f4"}
DUMB = os.environ.get("TERM", "dumb") == "dumb"
COLOURS = sys.stdout.isatty() and not DUMB and "NO_COLOR" not in os.environ
STEPS = ".:-=+*#@" if DUMB else "▁▂▃▄▅▆▇█"


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOURS else text


def title(text):
    print("\n" + paint("1", text))


def posenc(*arguments):
    """Prints a posenc command, runs it and returns its output."""
    # A flag and its value stay on one line.
    words = re.sub(r"(^| )(--?\S+) (?!-)", r"\1\2~", "$ posenc " + " ".join(arguments))
    lines = textwrap.wrap(words, 100, break_long_words=False, break_on_hyphens=False)
    print(paint("36", " \\\n    ".join(lines).replace("~", " ")))
    return subprocess.run(["posenc", *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout


# Files: a safetensors file is the header's length, a JSON header, and the elements.

def save_bf16(path, tensors):
    header, data = {}, b""
    for name, bits in tensors.items():
        header[name] = {"dtype": "BF16", "shape": bits.shape, "data_offsets": [len(data), len(data) + bits.nbytes]}
        data += bits.tobytes()
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def load(path):
    contents = pathlib.Path(path).read_bytes()
    data = 8 + int.from_bytes(contents[:8], "little")
    return {name: numpy.frombuffer(contents[data:][slice(*tensor["data_offsets"])],
                                   NUMPY[tensor["dtype"]]).reshape(tensor["shape"])
            for name, tensor in json.loads(contents[8:data]).items() if name != "__metadata__"}


# An independent computation from the published rule, with 200-bit numbers.

def rounded(number, bits):
    with mpmath.workprec(bits):
        return float(+number)


def llama3_frequencies(config, head_dim):
    """Yields theta^(-2i/d), unchanged for short wavelengths, divided by factor for long ones, blended in between."""
    rule = config["rope_scaling"]
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    for i in range(head_dim // 2):
        frequency = mpmath.power(config["rope_theta"], mpmath.mpf(-2 * i) / head_dim)
        turns = rule["original_max_position_embeddings"] * frequency / (2 * mpmath.pi)
        kept = min(max((turns - low) / (high - low), 0), 1)
        yield rounded(kept * frequency + (1 - kept) * frequency / rule["factor"], 53)


def tables(frequencies):
    """Returns cos and sin [positions, 1, pairs], each rounded once to float32."""
    angles = [[mpmath.mpf(p) * mpmath.mpf(f) for f in frequencies] for p in POSITIONS]
    return (numpy.array([[rounded(function(angle), 24) for angle in row] for row in angles], "<f4")[:, None, :]
            for function in (mpmath.cos, mpmath.sin))


def to_bf16(values):
    """Rounds to nearest, ties to even."""
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def rotate(bits, cos, sin):
    """Rotates bfloat16 [1, S, H, D] in float32 and rounds once to bfloat16."""
    first, second = numpy.split((bits.astype("<u4") << 16).view("<f4"), 2, axis=-1)
    return to_bf16(numpy.concatenate([first * cos - second * sin, second * cos + first * sin], -1))


def show_wavelengths(config, frequencies):
    title(f"Wavelength of each of the {len(frequencies)} pairs, in tokens, on a logarithmic scale")
    logarithms = [float(mpmath.log(2 * mpmath.pi / f)) for f in frequencies]
    low, high = min(logarithms), max(logarithms)
    strip = "".join(STEPS[round((value - low) / (high - low) * (len(STEPS) - 1))] for value in logarithms)
    shortest, longest = (float(2 * mpmath.pi / f) for f in (frequencies[0], frequencies[-1]))
    print(f"{shortest:.2f} {paint('33', strip)} {longest:,.0f}")
    rule = config["rope_scaling"]
    length = rule["original_max_position_embeddings"]
    kept = sum(2 * mpmath.pi / f < length / rule["high_freq_factor"] for f in frequencies)
    divided = sum(2 * mpmath.pi / f > length / rule["low_freq_factor"] * rule["factor"] for f in frequencies)
    parts = (("kept", kept), ("blend", len(frequencies) - kept - divided),
             (f"divided by {rule['factor']:.0f}", divided))
    print("     " + "".join(f"<{label:-^{count - 2}}>" for label, count in parts))


def check_rotation(config, frequencies, head_dim):
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    title(f"Rotate q and k ({heads['q']} and {heads['k']} heads of {head_dim}, bfloat16) at tokens "
          + ", ".join(f"{p:,}" for p in POSITIONS))
    chance = numpy.random.default_rng(2024)
    tensors = {name: to_bf16(chance.standard_normal((1, len(POSITIONS), count, head_dim)))
               for name, count in heads.items()}
    save_bf16("in.safetensors", tensors)
    said = posenc("rope", "--model", MODEL, "--layout", "bshd", "--positions", ",".join(map(str, POSITIONS)),
                  "--q", "in.safetensors:q", "--k", "in.safetensors:k",
                  "--q-out", "out.safetensors", "--k-out", "out.safetensors")
    print(*(line for line in said.splitlines() if line.startswith("out.")), sep="\n")
    answer = load("out.safetensors")
    cos, sin = tables(frequencies)
    equal = sum(int((answer[name] == rotate(bits, cos, sin)).sum()) for name, bits in tensors.items())
    total = sum(bits.size for bits in tensors.values())
    verdict = paint("32", "the same, bit for bit") if equal == total else paint("31", "the same: MISMATCH")
    print(f"Computed once more with mpmath, from the published rule: {equal:,} of {total:,} elements are {verdict}.")
    return equal == total


def show_why(frequencies):
    title("Why exact: the largest error of any cosine, with exact angles and with float32 angles, as in most code")
    where = [128, 1024, 8192, 32768, 131071]
    table = ("table", "--model", MODEL, "--positions", ",".join(map(str, where)), "--dtype", "fp32", "--form",
             "half-width")
    for precision in ("exact", "f32"):
        posenc(*table, "--precision", precision, "-o", f"{precision}.safetensors")
    exact, f32 = (load(f"{precision}.safetensors")["cos"].astype("<f8") for precision in ("exact", "f32"))
    truth = [[float(mpmath.cos(mpmath.mpf(p) * mpmath.mpf(f))) for f in frequencies] for p in where]
    print("  token     exact   float32")
    for p, ours, theirs in zip(where, abs(exact - truth).max(1), abs(f32 - truth).max(1)):
        bar = ("#" if DUMB else "█") * round(8 * float(numpy.log10(theirs / 1e-8)))
        print(f"{p:>7,}   {ours:.1e}   {theirs:.1e}  {paint('31', bar)}")
    print("(bfloat16 itself rounds by at most 2.0e-3: in long contexts the float32 angle is the larger error)")


def main():
    model, work = pathlib.Path(sys.argv[1]), sys.argv[2]
    shutil.copy(model, pathlib.Path(work) / MODEL)
    config = json.loads(model.read_text())
    os.chdir(work)
    mpmath.mp.prec = 200
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    frequencies = list(llama3_frequencies(config, head_dim))

    title("What does this config.json mean?")
    print(posenc("explain", "--model", MODEL), end="")
    show_wavelengths(config, frequencies)
    held = check_rotation(config, frequencies, head_dim)
    show_why(frequencies)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
