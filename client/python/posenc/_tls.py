"""Encrypted channels."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from posenc._files import read_file

if TYPE_CHECKING:
    from typing import TypeAlias

_MOST_PEM = 1 << 20  # bytes
File: TypeAlias = "str | os.PathLike[str] | bytes"


@dataclasses.dataclass(frozen=True)
class TLS:
    """Files in PEM form, by their paths, or their contents as bytes."""
    ca: File | None = None  # authorities that the server's certificate is checked by; None: the system's
    certificate: File | None = None  # this client's, if the server asks for one
    key: File | None = None  # required with a certificate
    server_name: str = ""  # the name in the server's certificate, if it is not the address's

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Returns CA, key and certificate, in gRPC's order."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("tls: certificate and key must be given together")
        return _read(self.ca), _read(self.key), _read(self.certificate)


def _read(file: File | None) -> bytes | None:
    return file if file is None or isinstance(file, bytes) else read_file(file, _MOST_PEM)
