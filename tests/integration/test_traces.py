"""Traces: spans of real calls at a collector, and collectors that are slow, absent or wrong."""

import contextlib
import json
import os
import signal
import socket
import threading
import time

import grpc
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, framed
from certificates import Authority
from client import SECONDS, SERVICE, Client
from collector import Collector, attributes
from front import PROGRAM, Certificates, Front, ServerBehind
from google.protobuf import json_format
from inference import service_pb2
from inference_client import SERVICE as INFERENCE
from inference_client import InferenceClient
from mutations import rotary_stream
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from rest_client import Rest, given, http_port
from test_lifecycle import LONG_TABLE, wait_until
from test_metrics import Scrape, port_of

TRACE_ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE_ID}-{PARENT}-01", f"00-{TRACE_ID}-{PARENT}-00"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "10"}
PHASES = ["receive", "queue", "prepare", "compute", "send"]
QUANTITY = ("--metrics-listen", "127.0.0.1:0")


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


@pytest.fixture
def traced(start_server, collector):
    return start_server("--otlp-endpoint", collector.endpoint, *QUANTITY, "--http-listen", "127.0.0.1:0", **SOON)


def with_parent(traceparent, **more):
    return [("traceparent", traceparent), *more.items()]


def check_children(collector, span):
    """The phases follow each other without a gap, and add up to the call. Returns their names: none for a stream."""
    children = collector.children(span)
    if not children:
        return []
    assert children[0].start_time_unix_nano == span.start_time_unix_nano
    assert children[-1].end_time_unix_nano == span.end_time_unix_nano
    for one, following in zip(children, children[1:], strict=False):
        assert one.end_time_unix_nano == following.start_time_unix_nano
    assert len({child.span_id for child in (span, *children)}) == 1 + len(children)
    return [child.name for child in children]


def test_a_call(collector, traced):
    request = samples.rotary(q=numpy.ones((1, 4, 2, 8)))
    with Client(traced.port) as client:
        client.call("ApplyRotary", request, metadata=with_parent(UNSAMPLED))  # computes the plan
        began = time.time_ns()
        client.call("ApplyRotary", request, metadata=with_parent(SAMPLED, tracestate="vendor=1"))
        [span] = collector.calls()
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE_ID, PARENT, "vendor=1")
    assert span.name == "posenc.v1.PositionalEncodingService/ApplyRotary"
    assert began <= span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns()
    assert span.flags == 0x301 and span.status.code == 0  # 0x200: the parent is remote, 0x100: which is known
    has = attributes(span)
    port = has.pop("network.peer.port")
    assert has.pop("posenc.response.size") > 256 and 0 < port < 65536 and has.pop("posenc.cost", 0) >= 0
    assert has.pop("posenc.queue.microseconds") >= 0 and has.pop("posenc.compute.microseconds") >= 0
    assert has == {"rpc.system.name": "grpc", "rpc.method": span.name, "network.transport": "tcp", "network.peer.address": "127.0.0.1",
                   "posenc.request.size": request.ByteSize(), "posenc.dtype": "FP32", "posenc.device": "cpu",
                   "rpc.response.status_code": "OK"}
    assert check_children(collector, span) == PHASES
    [resource] = collector.resources
    assert resource["service.name"] == "posenc-server" and resource["host.name"] == socket.gethostname()


def test_a_large_call_waits_for_a_thread(collector, traced):
    with Client(traced.port) as client:
        client.call("ApplyRotary", samples.rotary(q=numpy.ones((1, 4096, 16, 64)), rotary_dim=64), metadata=with_parent(SAMPLED))
        [span] = collector.calls()
    names = check_children(collector, span)
    assert names[0] == "receive" and names[-2:] == ["compute", "send"] and names.count("queue") >= 1


def test_which_calls_are_sampled(collector, start_server):
    def count(calls, **environment):
        before = len(collector.spans)
        server = start_server(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, **environment)
        with Client(server.port) as client:
            for metadata in calls:
                client.call("ApplyRotary", samples.rotary(), metadata=metadata)
        server.signal(signal.SIGTERM)  # exports what is left
        assert server.wait() == 0
        return sum(span.kind == span.SPAN_KIND_SERVER for span in collector.spans[before:])
    ids = [f"00-{number << 60 | 1:032x}-{PARENT}-00" for number in range(16)]
    parents = [[("traceparent", SAMPLED)], [("traceparent", UNSAMPLED)], []]
    assert count(parents) == 2
    assert count(parents, OTEL_TRACES_SAMPLER="parentbased_always_off") == 1
    assert count(parents, OTEL_TRACES_SAMPLER="always_on") == 3
    assert count(parents, OTEL_TRACES_SAMPLER="always_off") == 0
    assert count(parents, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0") == 1
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert count([[("traceparent", one)] for one in ids], **ratio) == 4  # by the id's last eight bytes
    assert count(parents, OTEL_SDK_DISABLED="true") == count(parents, OTEL_TRACES_EXPORTER="none") == 0


@pytest.mark.parametrize("wrong", ["00-" + "0" * 32 + f"-{PARENT}-01", f"00-{TRACE_ID}-{'0' * 16}-01", SAMPLED.upper(),
                                   SAMPLED + "-more", "ff" + SAMPLED[2:], "x", "00-" + TRACE_ID])
def test_a_wrong_parent_is_none(collector, traced, wrong):
    with Client(traced.port) as client:
        client.call("ApplyRotary", samples.rotary(), metadata=with_parent(wrong))
        [span] = collector.calls()
    assert span.parent_span_id == b"" and span.trace_id.hex() not in (TRACE_ID, "0" * 32) and span.flags == 0x103


def test_a_later_version_of_the_header(collector, traced):
    with Client(traced.port) as client:
        client.call("ApplyRotary", samples.rotary(), metadata=with_parent("01" + SAMPLED[2:] + "-more"))
        assert collector.calls()[0].trace_id.hex() == TRACE_ID


def test_refusals(collector, start_server, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [{"name": "all", "anonymous": True, "allow": ["compute"], "requests_per_second": 1}]}))
    server = start_server("--policy", policy, "--otlp-endpoint", collector.endpoint, **SOON)
    with Client(server.port) as client:
        client.refusal("ApplyRotary", samples.rotary(rotary_dim=7))
        while client.refusal("ApplyRotary", samples.rotary(rotary_dim=7)).reason != "QUOTA":
            pass
        client.refusal("GetServerInfo", b"")
        assert grpc.StatusCode.UNIMPLEMENTED == client.channel.unary_unary("/a.B/C").future(b"", timeout=SECONDS).code()
        wait_until(lambda: {"NOT_ALLOWED", "QUOTA"} <= {attributes(span).get("posenc.error.reason") for span in collector.spans} and
                   "grpc" in {span.name for span in collector.spans}, "the refusals are not there")
        spans = {(attributes(span).get("posenc.error.reason"), span.name): span for span in collector.calls()}
    own = "posenc.v1.PositionalEncodingService/ApplyRotary"
    wrong, quota = spans["OUT_OF_RANGE", own], spans["QUOTA", own]
    assert wrong.status.code == 0 and attributes(wrong)["posenc.error.field"] == "rotary.settings.rotary_dim"
    assert attributes(wrong)["rpc.response.status_code"] == "INVALID_ARGUMENT" and "error.type" not in attributes(wrong)
    assert quota.status.code == quota.status.STATUS_CODE_ERROR and "calls a second" in quota.status.message
    assert attributes(quota)["error.type"] == "UNAVAILABLE"
    unknown = spans["UNKNOWN_VALUE", "grpc"]
    assert (attributes(unknown)["rpc.method"], attributes(unknown)["rpc.method_original"]) == ("_OTHER", "a.B/C")


def test_every_method_has_a_span(collector, traced):
    """Of both services and of health, with an empty message: some are errors."""
    methods = [f"{service.full_name}/{method.name}" for service in (SERVICE, INFERENCE) for method in service.methods]
    methods += ["grpc.health.v1.Health/Check"]
    with grpc.insecure_channel(f"127.0.0.1:{traced.port}") as channel:
        for method in methods:
            call = channel.stream_stream(f"/{method}")(iter([b""]), timeout=SECONDS, metadata=with_parent(SAMPLED))
            with contextlib.suppress(grpc.RpcError):
                list(call)
        spans = collector.calls(len(methods))
    assert [span.name for span in spans] == methods
    for span in spans:
        assert attributes(span)["rpc.response.status_code"]
        is_stream = "Stream" in span.name
        assert (check_children(collector, span) == []) == (is_stream or span.name.endswith("Health/Check")), span.name


def test_probes_begin_no_trace(collector, traced):
    with grpc.insecure_channel(f"127.0.0.1:{traced.port}") as channel, Rest(http_port(traced)) as rest:
        for method in ("grpc.health.v1.Health/Check", "inference.GRPCInferenceService/ServerReady"):
            channel.unary_unary(f"/{method}")(b"", timeout=SECONDS)
        rest.json("GET", "/v2/health/ready")
        channel.unary_unary(f"/{SERVICE.full_name}/GetServerInfo")(b"", timeout=SECONDS)
        [span] = collector.calls()
    assert span.name.endswith("/GetServerInfo")


def test_streams(collector, traced):
    with Client(traced.port) as client:
        client.call("StreamApplyRotary", iter(rotary_stream()), metadata=with_parent(SAMPLED))
        client.call("StreamTable", samples.stream(count=100_000, rows_per_tile=100), metadata=with_parent(SAMPLED))
    request = service_pb2.ModelInferRequest(model_name="nothing", id="7")
    with InferenceClient(traced.port) as client:
        answers = client.method("ModelStreamInfer")(iter([request] * 3), timeout=SECONDS, metadata=with_parent(SAMPLED))
        assert len(list(answers)) == 3
    rotation, table, inference = collector.calls(3)
    for span in (rotation, table, inference):
        assert span.trace_id.hex() == TRACE_ID and attributes(span)["rpc.response.status_code"] == "OK"
        assert check_children(collector, span) == [] and attributes(span)["posenc.compute.microseconds"] >= 0
    assert attributes(table)["posenc.response.size"] > 100_000 * 4 * 4 and attributes(rotation)["posenc.request.size"] > 0


def test_models(collector, traced):
    request = {"inputs": [given("q", numpy.ones((1, 2, 1, 8), "f4"))],
               "parameters": {"layout": "BSHD", "offset": 3, "settings": json_format.MessageToJson(samples.rope_settings())}}
    with Rest(http_port(traced)) as rest:
        for _ in range(2):
            rest.infer("posenc.rotary", request, traceparent=SAMPLED)
        rest.json("GET", "/v2/models/nothing", status=404, traceparent=SAMPLED)
        rest.infer("posenc.rotary", {"inputs": []}, status=400, traceparent=SAMPLED)
    first, again, missing, wrong = collector.calls(4)
    for span in (first, again):
        has = attributes(span)
        assert span.name == "POST /v2/models/{model}/infer" and has["http.response.status_code"] == 200
        assert has["posenc.model"] == "posenc.rotary" and has["url.path"] == "/v2/models/posenc.rotary/infer"
        assert (has["http.request.method"], has["url.scheme"], has["network.peer.address"]) == ("POST", "http", "127.0.0.1")
        assert check_children(collector, span)[-3:] == ["compute", "encode", "send"]
    assert attributes(missing)["http.response.status_code"] == 404 and attributes(missing)["posenc.error.reason"] == "NOT_FOUND"
    assert attributes(wrong)["http.response.status_code"] == 400 and wrong.status.code == 0


def test_json_has_phases_of_its_own(collector, traced):
    values = numpy.ones((1, 1 << 16, 1, 8), "f4")
    request = {"inputs": [given("q", values)],
               "parameters": {"layout": "BSHD", "offset": 3, "settings": json_format.MessageToJson(samples.rope_settings())}}
    with Rest(http_port(traced)) as rest:
        rest.infer("posenc.rotary", request, traceparent=SAMPLED)
        [span] = collector.calls()
    names = check_children(collector, span)
    assert names[:3] == ["receive", "queue", "prepare"] and names[-2:] == ["encode", "send"]


def test_a_cancelled_call_is_cancelled(collector, traced):
    """Also one whose message has not come, and one whose answer nobody takes."""
    with Client(traced.port) as client:
        call = client.method("GenerateTable").future(samples.table(**LONG_TABLE), timeout=SECONDS, metadata=with_parent(SAMPLED))
        time.sleep(0.1)
        call.cancel()
    with ShutWindow(traced.port) as unread:
        call = unread.begin("GenerateTable", ("traceparent", SAMPLED))
        unread.http.send_data(call, framed(samples.table(count=1 << 16, rotary_dim=256)), end_stream=True)
        unread.flush()
        upload = unread.begin("ApplyRotary", ("traceparent", SAMPLED))
        unread.http.send_data(upload, b"\0\0\0\1\0" + bytes(100))
        unread.flush()
        time.sleep(0.2)
        unread.http.reset_stream(upload)
        unread.flush()
        time.sleep(0.1)
    spans = collector.calls(3)
    assert {attributes(span)["rpc.response.status_code"] for span in spans} == {"CANCELLED"}
    assert not any("posenc.error.field" in attributes(span) for span in spans)


def test_a_request_that_goes_away_over_http_has_a_span(collector, traced):
    half = (b"POST /v2/models/posenc.rotary/infer HTTP/1.1\r\nHost: a\r\ntraceparent: %s\r\nContent-Length: 1000\r\n\r\n{"
            % SAMPLED.encode())
    with socket.create_connection(("127.0.0.1", http_port(traced))) as connection:
        connection.sendall(half)
        time.sleep(0.1)
    [span] = collector.calls()
    assert "http.response.status_code" not in attributes(span) and span.trace_id.hex() == TRACE_ID


def test_long_texts_are_cut(collector, traced):
    with Client(traced.port) as client:
        client.channel.unary_unary("/" + "a" * 3000 + "/b").future(b"", metadata=with_parent(SAMPLED, tracestate="b" * 600)).code()
        [span] = collector.calls()
    assert len(attributes(span)["rpc.method_original"]) == 256 and span.trace_state == "" and span.name == "grpc"


def test_the_log_has_the_trace(collector, start_server):
    server = start_server("--otlp-endpoint", collector.endpoint, "--log-level", "debug", **SOON)
    with Client(server.port) as client:
        client.call("ApplyRotary", samples.rotary())
        [span] = collector.calls()
    server.log_with(f"trace_id={span.trace_id.hex()}")


def test_a_collector_that_does_not_answer_costs_nothing(start_server):
    """Nor does one that is not there, refuses, or says what makes no sense."""
    ended = threading.Event()

    def refuse(_, context):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
    liar = trace_service_pb2.ExportTraceServiceResponse()
    liar.partial_success.rejected_spans, liar.partial_success.error_message = -(1 << 63), "x" * 1000
    silent = socket.create_server(("127.0.0.1", 0))
    behaviours = {"unavailable": lambda *_: ended.wait(SECONDS) and b"", "refusing": refuse, "garbage": lambda *_: b"\xff\xff",
                  "huge": lambda *_: bytes(1 << 20), "liar": lambda *_: liar.SerializeToString()}
    for name, behave in (*behaviours.items(), ("absent", None), ("silent", None)):
        with Collector(behave=behave) as collector:
            port = {"absent": 1, "silent": silent.getsockname()[1]}.get(name, collector.port)
            server = start_server("--otlp-endpoint", f"127.0.0.1:{port}", *QUANTITY, **SOON, OTEL_EXPORTER_OTLP_INSECURE="true",
                                  OTEL_BSP_MAX_QUEUE_SIZE="600")
            before = server.anonymous_memory()
            with Client(server.port) as client:
                for _ in range(1000):
                    client.call("ApplyRotary", samples.rotary())
            scrape = Scrape(port_of(server, "metrics_port"))
            if name in ("unavailable", "absent", "silent"):
                assert scrape.of("posenc_spans_dropped_total", reason="queue_full") > 0, name
                assert scrape.of("posenc_spans_exported_total") == 0
            if name == "refusing":
                collector.wait_for_exports(1)
                wait_until(lambda at=port_of(server, "metrics_port"): Scrape(at).of("posenc_spans_dropped_total", reason="rejected") > 0,
                           "nothing is counted")
            assert server.anonymous_memory() < before + (32 << 20), name
            server.signal(signal.SIGTERM)
            assert server.wait() == 0, name
            ended.set()


def test_batches_are_tried_again(start_server):
    tries = []

    def behave(_, context):
        tries.append(time.monotonic())
        if len(tries) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "later")
    with Collector(behave=behave) as collector:
        server = start_server("--otlp-endpoint", collector.endpoint, *QUANTITY, **SOON)
        with Client(server.port) as client:
            client.call("ApplyRotary", samples.rotary(), metadata=with_parent(SAMPLED))
        [span] = collector.calls()
        assert span.trace_id.hex() == TRACE_ID and len(tries) == 3
        wait_until(lambda: Scrape(port_of(server, "metrics_port")).of("posenc_spans_exported_total") >= 6, "six spans are counted")


def test_tls_headers_and_compression(start_server, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("localhost")
    client_certificate, client_key = authority.issue("caller")
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())], authority.certificate.read_bytes(), True)
    with Collector(credentials) as collector:
        server = start_server("--otlp-endpoint", f"https://localhost:{collector.port}", **SOON,
                              OTEL_EXPORTER_OTLP_CERTIFICATE=str(authority.certificate),
                              OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=str(client_certificate),
                              OTEL_EXPORTER_OTLP_CLIENT_KEY=str(client_key), OTEL_EXPORTER_OTLP_HEADERS="Api-Key=a%2Cb, x-two = 2",
                              OTEL_EXPORTER_OTLP_COMPRESSION="gzip", OTEL_SERVICE_NAME="encodings",
                              OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test,service.name=other",
                              OTEL_PROPAGATORS="tracecontext")
        with Client(server.port) as client:
            client.call("ApplyRotary", samples.rotary())
        collector.calls()
        assert "a,b" not in server.log() and "name=OTEL_PROPAGATORS" in server.log_with("variable not used")
    assert collector.headers[0]["api-key"] == "a,b" and collector.headers[0]["x-two"] == "2"
    assert collector.resources[0]["service.name"] == "encodings"
    assert collector.resources[0]["deployment.environment.name"] == "test"


@pytest.mark.parametrize("variable, value, limit", [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost", "must be http://HOST:PORT"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/v1/traces", "must be http://HOST:PORT"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@localhost:4317", "must be http://HOST:PORT"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "::1", "must be http://HOST:PORT"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "must be one of grpc"),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "must be one of grpc"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nothing", "must be the path of a PEM file"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "must be an integer from 1"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "must be one of gzip, none"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "must be NAME=VALUE"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=%zz", "must be NAME=VALUE"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a", "must be KEY=VALUE"),
    ("OTEL_TRACES_SAMPLER", "jaeger_remote", "must be one of always_off"),
    ("OTEL_TRACES_SAMPLER_ARG", "2", "must be a number from 0 to 1"),
    ("OTEL_TRACES_SAMPLER_ARG", "nan", "must be a number from 0 to 1"),
    ("OTEL_TRACES_EXPORTER", "zipkin", "must be one of none, otlp"),
    ("OTEL_SDK_DISABLED", "maybe", "must be one of false, true"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "must be an integer from 1"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "must be an integer from 1 to 2048")])
def test_wrong_variables(start_server, variable, value, limit):
    """With the flag, the server does not start. Without it they may be meant for others: it serves without traces."""
    environment = {"OTEL_TRACES_SAMPLER": "traceidratio", variable: value}
    server = start_server(**{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317", **environment})
    assert variable in server.log_with("no traces") and limit in server.log() and "secret" not in server.log()
    with Client(server.port) as client:
        client.call("ApplyRotary", samples.rotary())
    if not variable.endswith("ENDPOINT"):
        with pytest.raises(AssertionError) as error:
            start_server("--otlp-endpoint", "localhost:4317", **environment)
        assert variable in str(error.value) and limit in str(error.value) and "secret" not in str(error.value)


def test_a_wrong_flag(start_server):
    with pytest.raises(AssertionError, match="--otlp-endpoint.*must be http://HOST:PORT"):
        start_server("--otlp-endpoint", "localhost")


@pytest.mark.skipif(PROGRAM is None, reason="no haproxy")
def test_a_trace_passes_the_proxy(server_program, collector, tmp_path):
    certificates = Certificates(tmp_path / "certificates")
    os.environ.update(SOON)
    try:
        with ServerBehind(server_program, tmp_path, tmp_path / "socket", "--otlp-endpoint", collector.endpoint) as behind, \
                Front(tmp_path, certificates, [behind]) as front, \
                Client(front.port, credentials=certificates.credentials()) as client:
            wait_until(lambda: client.method("ApplyRotary").future(samples.rotary(), timeout=SECONDS, metadata=with_parent(UNSAMPLED)).code()
                       == grpc.StatusCode.OK, "the front sends no calls")
            client.call("ApplyRotary", samples.rotary(), metadata=with_parent(SAMPLED))
            spans = collector.calls()
    finally:
        del os.environ["OTEL_BSP_SCHEDULE_DELAY"]
    [span] = [one for one in spans if one.trace_id.hex() == TRACE_ID]
    has = attributes(span)
    assert (has["client.address"], has["network.transport"]) == ("127.0.0.1", "unix") and check_children(collector, span) == PHASES
