"""A gRPC server that refuses calls before it passes them on to a posenc-server: tests of clients' retries.

A call says in CallHints.request_id what it wants, e.g. "refuse 2 pushback 1 name rust-a": its first two attempts get
UNAVAILABLE with a push-back of one millisecond. Calls of another request_id are counted apart. A stream is refused
after its second chunk was answered; its next attempt must begin with the chunk after that.
"""

import collections
import concurrent.futures
import re

import grpc
from google.protobuf import any_pb2
from posenc.v1 import error_pb2, service_pb2

from client import UNLIMITED

SERVICE = "/posenc.v1.PositionalEncodingService/"
CHUNKS = 2  # answered before a stream is refused


class RefusingProxy(grpc.GenericRpcHandler):
    def __init__(self, address):
        """`address`: that of the posenc-server."""
        self._channel = grpc.insecure_channel(address, UNLIMITED)
        self._attempts = collections.Counter()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=UNLIMITED)
        self._server.add_generic_rpc_handlers([self])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self):
        self._server.stop(None).wait()
        self._channel.close()

    def service(self, call):
        if call.method == SERVICE + "StreamApplyRotary":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if call.method == SERVICE + "ApplyRotary":
            return grpc.unary_unary_rpc_method_handler(self._unary)
        return None

    def _attempt(self, request):
        """Returns how many refusals the call wants after this attempt, and its push-back."""
        wish = re.match(r"refuse (\d+) pushback (\S+) ", request.hints.request_id)
        self._attempts[request.hints.request_id] += 1
        return int(wish[1]) - self._attempts[request.hints.request_id], wish[2]

    def _refuse(self, context, pushback):
        info = error_pb2.ErrorInfo(reason="OVERLOADED", domain="posenc", metadata={"started": "false"})
        detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        status = error_pb2.RichStatus(code=14, message="refused by a test", details=[detail])
        context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),
                                       ("grpc-status-details-bin", status.SerializeToString())))
        context.abort(grpc.StatusCode.UNAVAILABLE, status.message)

    def _unary(self, data, context):
        left, pushback = self._attempt(service_pb2.ApplyRotaryRequest.FromString(data))
        if left >= 0:
            self._refuse(context, pushback)
        return self._channel.unary_unary(SERVICE + "ApplyRotary")(data)

    def _stream(self, parts, context):
        first = next(parts)
        left, pushback = self._attempt(service_pb2.StreamApplyRotaryRequest.FromString(first).header)
        expected = None

        def forwarded():
            nonlocal expected
            yield first
            for part in parts:
                if expected is None:
                    expected = service_pb2.StreamApplyRotaryRequest.FromString(part).chunk.rows.byte_offset
                yield part

        answered = 0
        for answer in self._channel.stream_stream(SERVICE + "StreamApplyRotary")(forwarded()):
            yield answer
            answered += 1
            if left >= 0 and answered == 1 + CHUNKS:  # the first one answers the header
                self._refuse(context, pushback)
        if left < 0 and expected == 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream was sent again from its beginning")
