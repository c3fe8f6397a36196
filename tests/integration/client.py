"""A client made only from the proto files and gRPC."""

import contextlib
import dataclasses
import subprocess
import time

import grpc
import grpc_peers_pb2
from posenc.v1 import error_pb2, service_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["PositionalEncodingService"]
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
# A connection of its own: channels to one address share one otherwise.
APART = (*UNLIMITED, ("grpc.use_local_subchannel_pool", 1))
SECONDS = 60
# Where a built server was copied to, there may be no pkg-config.
GRPC = subprocess.run("pkg-config --modversion grpc++ || echo 1.51", shell=True, check=True, capture_output=True,
                      text=True).stdout.strip()
# The server is built with a newer release of gRPC than 1.51. While its quota is nearly used up, it refuses every call and
# connection, also an honest caller's.
NEWER_GRPC = tuple(map(int, GRPC.split(".")))[:2] > (1, 51)
# KiB that a call holds at most which waits, without its headers.
WAITING_CALL = 29 if NEWER_GRPC else 25
# Reasons of errors about a request, which always say field, value and limit (error.proto).
ABOUT_REQUESTS = {"MISSING", "OUT_OF_RANGE", "MISMATCH", "CONFLICT", "UNKNOWN_FIELD", "UNKNOWN_VALUE", "NOT_READ", "MALFORMED",
                  "UNSUPPORTED", "TOO_LARGE", "NOT_FOUND", "DAMAGED"}
KEYS = {"field", "value", "limit", "other_field", "line", "column", "started", "operand", "byte_offset"}


@dataclasses.dataclass
class Refusal:
    """The details of a call's error."""
    code: grpc.StatusCode
    message: str
    reason: str
    field: str
    value: str
    limit: str
    other_field: str
    line: str
    column: str
    started: str
    resume: tuple  # only for a stream: operand and first byte that was not answered
    trailers: dict

    @staticmethod
    def of(error):
        """Makes a Refusal from a grpc.RpcError; checks what all our errors have in common."""
        trailers = {key: value for key, value in error.trailing_metadata() or ()}
        status = error_pb2.RichStatus()
        assert "grpc-status-details-bin" in trailers, f"no details: {error}"
        status.ParseFromString(trailers["grpc-status-details-bin"])
        assert status.code == error.code().value[0]
        assert status.message == error.details()
        assert 0 < len(status.message) <= 1024
        info = error_pb2.ErrorInfo.FromString(status.details[0].value)
        types = ["ErrorInfo", "BadRequest"] if "field" in info.metadata else ["ErrorInfo"]
        assert [detail.type_url for detail in status.details] == [f"type.googleapis.com/google.rpc.{name}" for name in types]
        for detail in status.details[1:]:
            [violation] = grpc_peers_pb2.BadRequest.FromString(detail.value).field_violations
            assert violation.field == info.metadata["field"] and violation.description
            assert status.message == f"{violation.field}: {violation.description}"
        assert info.domain == "posenc"
        assert set(info.metadata) <= KEYS
        check_promise(info)
        assert info.metadata["started"] in ("true", "false")
        said = {key: info.metadata.get(key, "") for key in KEYS - {"operand", "byte_offset"}}
        resume = (info.metadata["operand"], int(info.metadata["byte_offset"])) if "operand" in info.metadata else None
        return Refusal(error.code(), status.message, info.reason, **said, resume=resume, trailers=trailers)


def check_promise(info):
    """Checks what error.proto promises of every error about a request."""
    if info.reason not in ABOUT_REQUESTS:
        return
    assert all(info.metadata.get(key) for key in ("field", "value", "limit")), info
    assert info.metadata["limit"].startswith("must "), info
    assert (info.metadata["value"] == "absent") == (info.reason == "MISSING") or info.reason == "MALFORMED", info
    assert len(info.metadata["value"]) <= 64, info
    assert ("line" in info.metadata) == ("column" in info.metadata), info


def serialize(request):
    return request if isinstance(request, bytes) else request.SerializeToString()


class Client:
    def __init__(self, port, options=UNLIMITED, credentials=None):
        """Connects to a port of this machine, or to the address that is given instead."""
        address = f"127.0.0.1:{port}" if isinstance(port, int) else port
        self.channel = (grpc.secure_channel(address, credentials, options=options) if credentials else
                        grpc.insecure_channel(address, options=options))
        self._methods = {}
        for method in SERVICE.methods:
            response = getattr(service_pb2, method.output_type.name)
            make = (self.channel.stream_stream if method.name == "StreamApplyRotary" else
                    self.channel.unary_stream if method.name.startswith("Stream") else self.channel.unary_unary)
            self._methods[method.name] = make(f"/{SERVICE.full_name}/{method.name}", serialize, response.FromString)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def method(self, name):
        """Returns gRPC's own callable, which takes a message or its bytes and returns the answer."""
        return self._methods[name]

    def call(self, name, request, timeout=SECONDS, **options):
        """Returns the answer, or the list of all answers of a stream."""
        answer = self._methods[name](request, timeout=timeout, **options)
        return list(answer) if name.startswith("Stream") else answer

    def refusal(self, name, request, timeout=SECONDS, **options):
        """Returns the error of a call that must fail."""
        try:
            answer = self.call(name, request, timeout, **options)
        except grpc.RpcError as error:
            return Refusal.of(error)
        raise AssertionError(f"{name} was not refused: {answer}")

    def when_idle(self):
        """Returns the counters once no call is in flight: a call ends a little after its answer has arrived."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(grpc.RpcError) if NEWER_GRPC else contextlib.nullcontext():
                counters = self.info().counters
                if counters.in_flight_requests == counters.in_flight_bytes == 0:
                    return counters
            time.sleep(0.005)
        raise AssertionError("calls are still in flight")

    def info(self):
        return self.call("GetServerInfo", service_pb2.GetServerInfoRequest())
