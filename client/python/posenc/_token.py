"""Bearer tokens, by where they are."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from posenc._files import read_file

if TYPE_CHECKING:
    from typing import TypeAlias

Metadata: TypeAlias = "tuple[tuple[str, str], ...] | None"
_MOST = 64 << 10  # bytes


@dataclasses.dataclass(frozen=True)
class Token:
    """A bearer token in a file, which is read again when it changes, or in a variable of the environment."""
    file: str | os.PathLike[str] | None = None
    variable: str | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.variable is None):
            raise ValueError("token: must be a file or a variable")


@dataclasses.dataclass(frozen=True)
class Secret:
    """A bearer token that the caller gave as a string. Its representation does not show it."""
    text: str = dataclasses.field(repr=False)


class Bearer:
    """The metadata of calls with a token. Thread-safe."""

    def __init__(self, token: Token | Secret | None):
        self._token = token
        self._stamp: tuple[int, ...] = ()
        self._metadata = None if token is None else _metadata(token.text) if isinstance(token, Secret) else None

    def metadata(self) -> Metadata:
        """Raises OSError or ValueError if the token cannot be read."""
        if isinstance(self._token, Token):
            if self._token.file is None:
                return _metadata(os.environ.get(self._token.variable or "", ""), f"the variable {self._token.variable}")
            found = os.stat(self._token.file)
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            if stamp != self._stamp:
                text = read_file(self._token.file, _MOST).decode("ascii", "replace")
                self._metadata, self._stamp = _metadata(text, os.fspath(self._token.file)), stamp
        return self._metadata


def _metadata(text: str, origin: str = "it") -> Metadata:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"token: {origin} must have a token of visible ASCII characters")
    return (("authorization", f"Bearer {token}"),)
