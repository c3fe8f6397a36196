"""Reports of the server's load, as ORCA has them: in a call's trailers, and as a stream."""

import base64
import json

import grpc
import h2.events
import numpy
import pytest
import samples
from bare_http2 import ShutWindow, framed
from client import SECONDS, Client
from google.protobuf import duration_pb2
from rest_client import Rest, http_port
from server_process import ServerProcess
from xds.data.orca.v3 import orca_load_report_pb2
from xds.service.orca.v3 import orca_pb2

STREAM = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"


@pytest.fixture(scope="module")
def loaded(server_program, tmp_path_factory):
    server = ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--http-listen", "127.0.0.1:0")
    yield server
    server.stop()


def parse(text):
    return orca_load_report_pb2.OrcaLoadReport.FromString(base64.b64decode(text + b"=" * (-len(text) % 4)))


def report(port):
    """The report in the trailers of a call. gRPC's own client keeps it to itself."""
    with ShutWindow(port, window=1 << 20) as client:
        call = client.begin("ApplyRotary", ("endpoint-load-metrics-format", "BIN"))
        client.http.send_data(call, framed(samples.rotary()), end_stream=True)
        client.flush()
        trailers = client.wait_for(h2.events.TrailersReceived, call).headers
    return parse(next(value if isinstance(value, bytes) else value.encode() for name, value in trailers
                      if name in (b"endpoint-load-metrics-bin", "endpoint-load-metrics-bin")))


def stream(channel, **fields):
    call = channel.unary_stream(STREAM, orca_pb2.OrcaLoadReportRequest.SerializeToString,
                                orca_load_report_pb2.OrcaLoadReport.FromString)
    return call(orca_pb2.OrcaLoadReportRequest(**fields), timeout=SECONDS)


def check(said):
    assert said.cpu_utilization >= 0 and 0 < said.mem_utilization <= 1 and said.rps_fractional >= 0 and said.eps >= 0
    assert set(said.utilization) == {"in_flight_requests", "in_flight_bytes"} and set(said.named_metrics) == {"waiting_tasks"}
    assert said.application_utilization == max(said.cpu_utilization, *said.utilization.values())


def test_a_call_has_a_report_if_it_asks(loaded):
    with Client(loaded.port) as client:
        def trailers(form):
            metadata = [("endpoint-load-metrics-format", form)] if form else []
            _, call = client.method("ApplyRotary").with_call(samples.rotary(), metadata=metadata, timeout=SECONDS)
            return dict(call.trailing_metadata())
        check(report(loaded.port))
        said = trailers("json")["endpoint-load-metrics"]
        assert said.startswith("JSON ") and json.loads(said[5:])["named_metrics"]["waiting_tasks"] >= 0
        said = trailers("TEXT")["endpoint-load-metrics"]
        assert said.startswith("TEXT cpu_utilization=") and "named_metrics.waiting_tasks=" in said
        for none in ("", "XML"):
            assert not [name for name in trailers(none) if name.startswith("endpoint-load")]


def test_also_over_http(loaded):
    with Rest(http_port(loaded)) as rest:
        answer = rest.send("GET", "/v2", Endpoint_Load_Metrics_Format="BIN")
        check(parse(answer.headers["endpoint-load-metrics-bin"].encode()))
        assert rest.send("GET", "/v2", Endpoint_Load_Metrics_Format="TEXT").headers["endpoint-load-metrics"].startswith("TEXT ")
        assert "endpoint-load-metrics" not in rest.send("GET", "/v2").headers


def test_load_shows(loaded):
    """Calls that fail by their callers' fault are no errors of the server."""
    request = samples.rotary(q=numpy.ones((1, 8192, 16, 64)), rotary_dim=64)
    with Client(loaded.port) as client:
        reports = stream(client.channel, report_interval=duration_pb2.Duration(seconds=1))
        check(next(reports))
        busy = []
        while not busy or busy[-1].cpu_utilization < 0.05 or busy[-1].rps_fractional < 4:
            for _ in range(4):
                client.call("ApplyRotary", request)
                client.refusal("ApplyRotary", b"\xff")
            busy.append(next(reports))
            assert busy[-1].eps == 0
            assert len(busy) < SECONDS
        reports.cancel()


def test_work_in_flight_shows(loaded):
    table = samples.table(count=1 << 16, rotary_dim=256)
    with Client(loaded.port) as client:
        while True:
            calls = [client.method("GenerateTable").future(table, timeout=SECONDS) for _ in range(8)]
            said = report(loaded.port)
            check(said)
            for call in calls:
                call.result()
            if said.utilization["in_flight_bytes"] > 0.01 and said.utilization["in_flight_requests"] > 1 / 1024:
                return


def test_streams_end(loaded):
    with Client(loaded.port) as client:
        streams = [stream(client.channel) for _ in range(20)]
        for one in streams:
            check(next(one))
        for one in streams:
            one.cancel()
        client.when_idle()
        for wrong in (b"\xff", bytes(5000)):
            call = client.channel.unary_stream(STREAM)(wrong, timeout=SECONDS)
            assert call.code() == grpc.StatusCode.INVALID_ARGUMENT
        for strange in (duration_pb2.Duration(seconds=-5), duration_pb2.Duration(seconds=1 << 62), duration_pb2.Duration(nanos=-1)):
            one = stream(client.channel, report_interval=strange)
            check(next(one))
            one.cancel()


def test_a_server_with_streams_drains(start_server):
    server = start_server()
    with Client(server.port) as client:
        reports = stream(client.channel)
        next(reports)
        server.signal(15)
        assert server.wait() == 0


def test_a_policy_asks_for_a_right(start_server, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"identities": [{"name": "all", "anonymous": True, "allow": ["compute"]}]}))
    server = start_server("--policy", policy)
    with Client(server.port) as client:
        assert stream(client.channel).code() == grpc.StatusCode.PERMISSION_DENIED
