"""Files that the caller names."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
from typing import BinaryIO


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file. Raises OSError for anything else: a pipe would make its reader wait, a device need not end."""
    # Without O_NONBLOCK, the call that opens a pipe waits for a writer.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


def read_all(file: BinaryIO, most: int) -> bytes:
    """Returns the file's bytes from where it stands. Raises OSError if there are more than `most`."""
    contents = file.read(most + 1)
    if len(contents) > most:
        raise OSError(errno.EFBIG, f"has more than {most} bytes", file.name)
    return contents


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    with open_file(pathlib.Path(path)) as file:
        return read_all(file, most)
