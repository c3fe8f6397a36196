"""conformance.py PLUGIN HELPERS [N]: holds a plugin against the cases of tests/digests, and against larger ones; against
every Nth of them.

HELPERS is the library with cuda/test/device_memory.cc. Ends with one line, "N passed, N failed".
"""

import sys

import numpy

import cases
import larger
from cases import kernels
from plugin import Plugin


def recorded_cases():
    """Yields (name, function of a plugin that returns (expected, actual))."""
    for line, case in cases.read("sincos_rows.txt"):
        yield f"table {line}", lambda plugin, case=case: (kernels.sincos_rows(case), cases.sincos_rows(plugin, case))
    for file, expected, actual in (("rotate_pairs.txt", kernels.rotate_pairs, cases.rotate_pairs),
                                   ("distance_bias.txt", kernels.distance_bias, cases.distance_bias)):
        for line, case in cases.read(file):
            for on_device in (False, True):
                yield (f"{'on the device' if on_device else 'in pieces'} {line}",
                       lambda plugin, case=case, on_device=on_device, expected=expected, actual=actual: (
                           expected(case), actual(plugin, case, on_device)))


def main():
    plugin = Plugin(*sys.argv[1:3])
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    passed = failed = 0
    with numpy.errstate(all="ignore"):
        for name, run in [*recorded_cases(), *larger.all_cases()][::every]:
            try:
                expected, actual = run(plugin)
                wrong = None if expected == actual else first_difference(expected, actual)
            except Exception as error:  # of one case, which must not hide the others
                wrong = f"{type(error).__name__}: {error}"
            passed, failed = passed + (wrong is None), failed + (wrong is not None)
            if wrong is not None:
                print(f"FAILED: {name}\n    {wrong}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


def first_difference(expected, actual):
    if len(expected) != len(actual):
        return f"{len(actual)} bytes, not {len(expected)}"
    return f"first at byte {next(n for n, (a, b) in enumerate(zip(expected, actual)) if a != b)} of {len(actual)}"


if __name__ == "__main__":
    sys.exit(main())
