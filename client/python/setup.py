"""The wheel's tag: it holds programs and a library for this platform, and no module of a certain Python."""

import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent / "posenc"
# What client/python/build-wheel adds to the sources, without which the package cannot be imported.
if missing := [name for name in ("api.binpb", "libposenc.so", "programs/posenc-server") if not (PACKAGE / name).exists()]:
    sys.exit(f"posenc: these are only the sources of the wheel (without {', '.join(missing)}). Make and install the wheel with:\n"
             "    pip install $(scripts/package python)")

from setuptools import Distribution, setup  # noqa: E402
from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402


class WithPrograms(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithPrograms, cmdclass={"bdist_wheel": PlatformWheel})
