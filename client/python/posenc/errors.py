"""Errors of calls, the same on a server and in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(eq=False)
class Error(Exception):
    """A call failed. Subclasses say what a caller can do about it; proto/posenc/v1/error.proto has the details."""
    message: str
    code: str = "UNKNOWN"  # gRPC's name of the code
    reason: str = ""  # "OUT_OF_RANGE", "MISSING", ...; empty if the error did not come from posenc
    field: str = ""  # path of the request's field at fault, e.g. "q.tensor.shape[3]"
    value: str = ""  # its value
    limit: str = ""  # what it must be
    other_field: str = ""  # the second field, where two contradict each other
    line: str = ""  # place in a config.json at which its parser stopped, from 1
    column: str = ""

    def __str__(self) -> str:
        return self.message


class InvalidArgument(Error, ValueError):
    """The request is wrong and will stay wrong: `field` is `value`, and `limit` says what it must be."""


class TooLarge(Error):
    """RESOURCE_EXHAUSTED: this request can never fit here, or costs too much."""


class Unavailable(Error):
    """No server answers, or it is overloaded or stopping. The retries are used up; later, the call may succeed."""


class DeadlineExceeded(Error, TimeoutError):
    """The time limit of the call has passed."""


class NotFound(Error):
    """A region's memory is not registered, or no longer registered."""


class NotAllowed(Error):
    """UNAUTHENTICATED or PERMISSION_DENIED: the server's policy does not let this caller make the call."""


class Internal(Error):
    """A fault of posenc; please report it."""


_CLASSES: Mapping[str, type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgument, "RESOURCE_EXHAUSTED": TooLarge, "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded, "NOT_FOUND": NotFound, "UNAUTHENTICATED": NotAllowed,
    "PERMISSION_DENIED": NotAllowed, "INTERNAL": Internal}
CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
         "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
         "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED")
DETAILS = ("reason", "field", "value", "limit", "other_field", "line", "column")


def make_error(code: str, message: str, details: Mapping[str, str]) -> Error:
    """Returns an error of the code's class."""
    if details.get("value") == "FP64" and details.get("field", "").endswith(".dtype"):
        message += "; NumPy's arrays are float64 unless they are told otherwise: use array.astype('float32')"
    return _CLASSES.get(code, Error)(message, code, **{key: details[key] for key in DETAILS if key in details})


def invalid(field: str, value: object, limit: str, reason: str = "UNSUPPORTED") -> InvalidArgument:
    """Returns the error for an argument that this package cannot send."""
    text = str(value)[:256]
    return InvalidArgument(f"{field}: is {text}; {limit}", "INVALID_ARGUMENT", reason, field, text, limit)
