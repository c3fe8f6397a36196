"""A collector of OpenTelemetry's traces: the server's end of OTLP over gRPC."""

import threading
import time
from concurrent import futures

import grpc
from client import SECONDS
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def attributes(having):
    """The attributes of a span or a resource as a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in having.attributes}


class Collector(grpc.GenericRpcHandler):
    """Keeps the spans that it gets, and the headers of each export. `behave` is called with each request and gRPC's context,
    and may return other bytes than an answer that takes all spans."""

    def __init__(self, credentials=None, behave=None):
        self.spans, self.resources, self.headers, self.exports = [], [], [], 0
        self._behave = behave
        self._changed = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(self,))
        self.port = (self._server.add_secure_port("localhost:0", credentials) if credentials else
                     self._server.add_insecure_port("127.0.0.1:0"))
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._export) if details.method == EXPORT else None

    def _export(self, request, context):
        with self._changed:
            self.exports += 1
            self._changed.notify_all()
        if self._behave is not None and (answer := self._behave(request, context)) is not None:
            return answer
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(request)
        with self._changed:
            self.headers.append(dict(context.invocation_metadata()))
            for of_resource in message.resource_spans:
                self.resources.append(attributes(of_resource.resource))
                for scope in of_resource.scope_spans:
                    self.spans.extend(scope.spans)
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse().SerializeToString()

    def _wait_for(self, found):
        with self._changed:
            assert self._changed.wait_for(found, SECONDS), f"the collector has {len(self.spans)} spans"

    def wait_for_exports(self, number):
        self._wait_for(lambda: self.exports >= number)

    def calls(self, number=1):
        """Waits until there are so many spans of calls. Returns them, the first first."""
        def found():
            return [span for span in self.spans if span.kind == span.SPAN_KIND_SERVER]
        self._wait_for(lambda: len(found()) >= number)
        return sorted(found(), key=lambda span: span.start_time_unix_nano)

    def children(self, span):
        return sorted((other for other in self.spans if other.parent_span_id == span.span_id and other.trace_id == span.trace_id),
                      key=lambda child: child.start_time_unix_nano)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(0)
        time.sleep(0)
