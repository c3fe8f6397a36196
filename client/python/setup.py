"""Makes the files that are not in git, and the wheel's tag: any platform, or this one if the folder has libposenc.so.

Wheels that compute are made by client/python/build-wheel.
"""

import pathlib
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
COMPUTES = (HERE / "posenc/libposenc.so").exists()
if not (HERE / "posenc/api.binpb").exists():
    if not (HERE.parents[1] / "proto/posenc/v1").exists():
        sys.exit("posenc: install it from a clone of the repository (pip install ./client/python) or from a wheel: "
                 "this folder lacks the protos, ../../proto")
    subprocess.run([sys.executable, str(HERE / "generate")], check=True)


class OfPlatform(Distribution):
    def has_ext_modules(self) -> bool:
        return COMPUTES


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2]) if COMPUTES else super().get_tag()


setup(distclass=OfPlatform, cmdclass={"bdist_wheel": Wheel})
