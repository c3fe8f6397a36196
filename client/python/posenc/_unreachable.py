"""Why no server answers, as far as gRPC's words and this process's environment tell."""

from __future__ import annotations

import os
from collections.abc import Sequence

_TLS = "handshake failed", "peer certificate", "CERTIFICATE_VERIFY_FAILED"
_CLOSED = "Socket closed", "Connection reset", "Broken pipe"


def no_answer(address: str, said: Sequence[str]) -> str:
    """Returns the message of a call that no server answered. `said`: what gRPC said of each attempt, if it differs.

    Of the addresses of a name, such as 127.0.0.1 and ::1 of localhost, gRPC reports one: all attempts together tell more
    than the last.
    """
    told = "; ".join(said)
    if any(words in told for words in _TLS):
        hint = ("a server listens there, but TLS failed: it may use none, or a certificate of one side does not fit: see "
                "posenc.TLS(ca=..., server_name=...)")
    elif any(words in told for words in _CLOSED):
        hint = "a server listens there: do both sides or none use TLS, and are there too many connections?"
    elif "DNS resolution failed" in told:
        hint = "an address is HOST:PORT or unix:PATH, such as localhost:50051"
    else:
        hint = f"is posenc-server running there? Start it with `posenc-server --listen {address}`"
    if variable := _proxy_variable(address):
        hint = (f"gRPC connects by the proxy of ${variable}, not directly: is that meant? The variable no_proxy names hosts "
                "without a proxy")
    return f"no answer from {address} ({told}); {hint}"


def _proxy_variable(address: str) -> str | None:
    """Returns the variable of the proxy that gRPC uses for an address, or None. A variable that is set to nothing counts."""
    proxy = _first_set("grpc_proxy", "https_proxy", "http_proxy")
    if proxy is None or not os.environ[proxy] or address.startswith(("unix:", "unix-abstract:")):
        return None
    host = address.rpartition("/")[2].rpartition(":")[0].strip("[]")
    without = _first_set("no_grpc_proxy", "no_proxy")
    names = [name.strip() for name in os.environ[without].split(",")] if without else []
    return None if any(name and host.endswith(name) for name in names) else proxy


def _first_set(*names: str) -> str | None:
    return next((name for name in names if name in os.environ), None)
