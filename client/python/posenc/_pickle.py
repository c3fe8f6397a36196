"""Clients and answers that travel to other processes.

A client is pickled as what made it. The process that unpickles it makes one client of that, whatever number of copies
arrive: each task of Ray or Spark brings a copy.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from posenc._tls import TLS
from posenc._token import Secret

if TYPE_CHECKING:
    from typing import Self

_MADE: dict[Any, Any] = {}  # this process's clients, by class and arguments
_MOST_MADE = 64


class Travelling:
    """A client that can be pickled."""

    _arguments: tuple[Any, ...]
    _of_process = False  # copies that arrive later share this client
    _FOR_ONE_LOOP = False  # of asyncio: each copy is a client of its own

    def __reduce__(self) -> tuple[Any, ...]:
        for argument in self._arguments:
            _check(argument)
        return unpickled, (type(self), *self._arguments)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        return self


def unpickled(kind: type[Any], *arguments: Any) -> Any:
    """Returns this process's client of these arguments. It is connected, or its threads start, when it is first used."""
    if kind._FOR_ONE_LOOP:
        return kind(*arguments)
    key = (kind, *arguments)
    found = _MADE.get(key)
    if found is None:
        made = kind(*arguments)
        made._of_process = True
        if len(_MADE) >= _MOST_MADE:
            _MADE.clear()
        found = _MADE.setdefault(key, made)  # another thread may have made it
    return found


def _check(argument: Any) -> None:
    """Raises an error for a secret: a pickle may be stored or sent anywhere."""
    if isinstance(argument, TLS):
        for name in ("ca", "certificate", "key"):
            if isinstance(getattr(argument, name), bytes):
                raise pickle.PicklingError(f"tls.{name}: is bytes, which are not pickled with a client; give the path of a file "
                                           "that the worker can read, or connect in the worker")
    elif isinstance(argument, Secret):
        raise pickle.PicklingError("token: is a string, which is not pickled with a client; give posenc.Token(file=...) or "
                                   "posenc.Token(variable=...), which the worker reads, or connect in the worker")
