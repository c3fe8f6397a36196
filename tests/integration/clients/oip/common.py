"""Data of the programs here, and how they run their tests."""

import asyncio
import inspect
import os
import pathlib
import sys
import traceback

import numpy

DATA = pathlib.Path(os.environ["POSENC_TEST_DATA"])
SHAPE = (1, 3, 32, 128)
X = (((37 * numpy.arange(numpy.prod(SHAPE)) + 11) % 257 - 128) / 64).astype("<f4").reshape(SHAPE)
EXPECTED = numpy.frombuffer((DATA / "rotated.fp32").read_bytes(), "<f4").reshape(SHAPE)
EXPECTED_BF16 = (DATA / "rotated.bf16").read_bytes()
PARAMETERS = {"layout": "BSHD", "offset": 100_000}


def run(tests, make_client=None):
    """Runs each test_... of a module and prints a line for it. Ends the program, with 1 if one has failed. Coroutines get a
    client of their own, which `make_client` makes."""
    async def with_client(test):
        client = make_client()
        try:
            await test(client)
        finally:
            await client.close()

    failed = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_"):
            continue
        try:
            asyncio.run(with_client(test)) if inspect.iscoroutinefunction(test) else test()
            print(f"pass {name}")
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"fail {name}")
    sys.exit(failed > 0)
