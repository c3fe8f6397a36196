"""posenc: positional encodings for attention, exact and reproducible.

    import posenc
    client = posenc.connect("localhost:50051")  # or posenc.local(), in this process
    q, k = client.rope(q, k, model="config.json", positions=0, layout="BSHD")

posenc.aio has the same methods as coroutines, posenc.torch the rotary modules of transformers' models.
"""

import pkgutil

from posenc._model import Model
from posenc._retry import RetryPolicy
from posenc._streams import RotatedRows
from posenc._tls import TLS
from posenc._token import Token
from posenc._wire import Message
from posenc.client import Client, connect, local
from posenc.errors import DeadlineExceeded, Error, Internal, InvalidArgument, NotAllowed, NotFound, TooLarge, Unavailable

# Stubs that protoc makes of the protos are the package posenc.v1 in a folder of their own.
__path__ = pkgutil.extend_path(__path__, __name__)

__all__ = ["Client", "DeadlineExceeded", "Error", "Internal", "InvalidArgument", "Message", "Model", "NotAllowed",
           "NotFound", "RetryPolicy", "RotatedRows", "TLS", "Token", "TooLarge", "Unavailable", "connect", "local"]
