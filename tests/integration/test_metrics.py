"""/metrics, /livez and /readyz of a real server, and what a caller's trace becomes."""

import contextlib
import gzip
import http.client
import re
import shutil
import socket
import subprocess
import threading
import time

import grpc
import numpy
import pytest
import samples
from client import SECONDS, Client
from posenc.v1 import rotary_pb2, service_pb2
from tensors import BF16
from test_lifecycle import wait_until

SERVICE = "posenc.v1.PositionalEncodingService"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SAMPLE = re.compile(r"^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def port_of(server, name):
    return int(re.search(rf"\b{name}=(\d+)", server.log_with("serving"))[1])


def get(port, path, method="GET", source="127.0.0.1"):
    """Returns (status, headers, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


class Scrape:
    """The samples of one scrape."""

    def __init__(self, port):
        status, headers, self.text = get(port, "/metrics")
        assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        self._samples = {}
        for line in self.text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = SAMPLE.match(line).groups()
            key = (name, frozenset(LABEL.findall(labels or "")))
            assert key not in self._samples, f"twice: {line}"
            self._samples[key] = float(value)

    def of(self, name, **labels):
        """The sum of the samples with at least these labels; 0 if there is none."""
        wanted = set(labels.items())
        return sum(value for (found, has), value in self._samples.items() if found == name and wanted <= has)

    def names(self):
        return {name for name, _ in self._samples}

    def labels(self, name, label):
        return {dict(has)[label] for found, has in self._samples if found == name and label in dict(has)}


@pytest.fixture
def observed(start_server):
    return start_server("--metrics-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0")


def test_methods_that_were_never_called_have_no_histograms(observed):
    """With their buckets, an idle server would have thousands of samples."""
    port = port_of(observed, "metrics_port")
    before = Scrape(port)
    assert len(before.text.splitlines()) < 500
    assert "grpc_server_started_total" in before.names() and "posenc_compute_seconds_bucket" not in before.names()
    with Client(observed.port) as client:
        client.call("GenerateTable", samples.table(count=10))
        client.when_idle()
    assert "GenerateTable" in Scrape(port).labels("posenc_compute_seconds_bucket", "grpc_method")


def test_a_port_alone_means_all_addresses(start_server):
    port = port_of(start_server("--listen", ":0", "--health-listen", ":0"), "health_port")
    assert get(port, "/livez")[0] == 200 and get(port, "/livez", source="127.0.0.2")[0] == 200


def test_calls_are_counted(observed):
    port = port_of(observed, "metrics_port")
    with Client(observed.port) as client:
        q = numpy.ones((1, 16, 4, 8))
        for _ in range(3):
            client.call("ApplyRotary", samples.rotary(q=q, dtype=BF16))
        client.call("GenerateTable", samples.table(count=10))
        client.call("StreamTable", samples.stream(rows_per_tile=5, count=10))
        client.refusal("ApplyRotary", service_pb2.ApplyRotaryRequest())
        client.refusal("ApplyRotary", b"\xff")
        with pytest.raises(grpc.RpcError):
            client.channel.unary_unary(f"/{SERVICE}/NoSuch")(b"", timeout=SECONDS)
        with pytest.raises(grpc.RpcError):
            client.channel.unary_unary("/a.B/C")(b"", timeout=SECONDS)
        client.when_idle()
        scrape = Scrape(port)

    apply = {"grpc_service": SERVICE, "grpc_method": "ApplyRotary", "grpc_type": "unary"}
    assert scrape.of("grpc_server_started_total", **apply) == 5
    assert scrape.of("grpc_server_handled_total", **apply, grpc_code="OK") == 3
    assert scrape.of("grpc_server_handled_total", **apply, grpc_code="InvalidArgument") == 2
    assert scrape.of("grpc_server_handling_seconds_count", **apply) == 5
    assert scrape.of("grpc_server_handling_seconds_bucket", **apply, le="+Inf") == 5
    assert 0 < scrape.of("grpc_server_handling_seconds_sum", **apply) < SECONDS
    assert scrape.of("posenc_compute_seconds_count", **apply) == scrape.of("posenc_queue_seconds_count", **apply) == 5
    assert scrape.of("posenc_errors_total", **apply) == 2
    assert scrape.of("posenc_errors_total", reason="MISSING") == scrape.of("posenc_errors_total", reason="MALFORMED") == 1
    assert scrape.of("posenc_tensor_bytes_total", **apply, dtype="BF16", device="cpu") == 3 * q.size * 2
    assert scrape.of("posenc_received_bytes_total", **apply) > 3 * q.size * 2
    assert scrape.of("posenc_sent_bytes_total", **apply) > 3 * q.size * 2
    # A table has cosines and sines; half of 8 elements a row.
    assert scrape.of("posenc_tensor_bytes_total", grpc_method="GenerateTable", dtype="FP32") == 10 * 4 * 2 * 4
    stream = {"grpc_method": "StreamTable", "grpc_type": "server_stream"}
    assert scrape.of("grpc_server_handled_total", **stream, grpc_code="OK") == 1
    assert scrape.of("posenc_tensor_bytes_total", **stream, dtype="FP32") == 10 * 4 * 2 * 4
    assert scrape.of("grpc_server_started_total", grpc_type="bidi_stream") == 0
    # A caller's method names make no labels.
    assert scrape.of("grpc_server_handled_total", grpc_method="other", grpc_code="Unimplemented") == 2
    assert "NoSuch" not in scrape.text and "a.B" not in scrape.text


def test_a_chunked_rotation_counts_its_tensors(observed):
    with Client(observed.port) as client:
        header = samples.rotary(q=numpy.ones((1, 2, 1, 8)))
        header.q.tensor.ClearField("data")
        parts = [service_pb2.StreamApplyRotaryRequest(header=header)]
        for begin in (0, 32):
            chunk = service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_QUERY)
            chunk.rows.byte_offset, chunk.rows.data = begin, bytes(32)
            parts.append(service_pb2.StreamApplyRotaryRequest(chunk=chunk))
        client.call("StreamApplyRotary", iter(parts))
        client.when_idle()
    scrape = Scrape(port_of(observed, "metrics_port"))
    of_stream = {"grpc_method": "StreamApplyRotary", "grpc_type": "bidi_stream"}
    assert scrape.of("posenc_tensor_bytes_total", **of_stream, dtype="FP32", device="cpu") == 64
    assert scrape.of("grpc_server_handled_total", **of_stream, grpc_code="OK") == 1


def test_the_state_agrees_with_server_info(observed):
    with Client(observed.port) as client:
        client.call("ApplyRotary", samples.rotary())
        info = client.info()
    scrape = Scrape(port_of(observed, "metrics_port"))
    assert scrape.of("posenc_build_info", version=info.version, cpu_target=info.cpu_target) == 1
    assert scrape.of("posenc_max_in_flight_bytes") == info.limits.max_in_flight_bytes
    assert scrape.of("posenc_max_in_flight_requests") == info.limits.max_in_flight_requests
    assert scrape.of("posenc_cache_misses_total", cache="plan") == info.counters.plan_cache.misses > 0
    assert scrape.of("posenc_serving") == 1 and scrape.of("posenc_stuck_threads") == 0
    assert 0 < scrape.of("process_open_fds") < scrape.of("process_max_fds")
    assert abs(scrape.of("process_start_time_seconds") - time.time()) < 3600
    assert scrape.of("process_resident_memory_bytes") == pytest.approx(observed.resident_memory(), rel=0.5)
    assert scrape.of("process_cpu_seconds_total") > 0
    assert scrape.of("posenc_device_withdrawn", device="cpu") == 0


def test_paths_and_methods(observed):
    port, probes = port_of(observed, "metrics_port"), port_of(observed, "health_port")
    for at in (port, probes):
        assert get(at, "/livez")[::2] == get(at, "/readyz")[::2] == (200, "ok\n")
    status, _, body = get(probes, "/metrics")
    assert status == 404 and "/livez" in body and "/metrics" not in body
    assert get(port, "/")[0] == 404
    status, headers, _ = get(port, "/metrics", "POST")
    assert status == 405 and headers["Allow"] == "GET, HEAD"
    assert get(port, "/metrics", "HEAD")[2] == ""


def test_scrapes_are_compressed_for_those_who_take_it(observed):
    port = port_of(observed, "metrics_port")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:  # which stays open
        def scrape(encoding, path="/metrics"):
            connection.request("GET", path, headers={"Accept-Encoding": encoding} if encoding else {})
            answer = connection.getresponse()
            return answer.getheader("Content-Encoding"), answer.read()
        for taken in ("gzip", "deflate, gzip;q=0.5", "GZIP ; q=1", "br,gzip"):
            encoding, body = scrape(taken)
            assert encoding == "gzip" and b"grpc_server_started_total" in gzip.decompress(body), taken
        for refused in (None, "", "br", "gzip;q=0", "gzip; Q=0.000", "identity", "xgzip"):
            encoding, body = scrape(refused)
            assert encoding is None and b"grpc_server_started_total" in body, refused
        assert scrape("gzip", "/livez") == (None, b"ok\n")


def test_a_draining_server_is_alive_and_not_ready(start_server):
    server = start_server("--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--drain-notice", "5")
    probes, port = port_of(server, "health_port"), port_of(server, "metrics_port")
    server.signal(15)
    server.log_with("draining")
    deadline = time.monotonic() + SECONDS
    while get(probes, "/readyz")[0] != 503:
        assert time.monotonic() < deadline
    assert get(probes, "/readyz")[::2] == (503, "draining\n")
    assert get(probes, "/livez")[0] == 200
    assert Scrape(port).of("posenc_serving") == 0
    assert server.wait() == 0


def test_slow_idle_and_strange_scrapers_keep_no_one_out(observed):
    port = port_of(observed, "metrics_port")
    with contextlib.ExitStack() as stack:
        for number in range(64):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
            with contextlib.suppress(OSError):  # beyond its share, the server closes at once
                if number % 4 == 0:
                    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a ClientHello of TLS
                elif number % 4 == 1:
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: ")
                elif number % 4 == 2:
                    connection.sendall(b"GET /" + b"a" * 65536)
        # A scraper with another address is served meanwhile.
        assert get(port, "/metrics", source="127.0.0.2")[0] == 200
        with Client(observed.port) as client:
            client.call("ApplyRotary", samples.rotary())

    def is_served():  # perhaps not at once: the server may not have noticed yet that the others are closed
        with contextlib.suppress(ConnectionResetError):
            return get(port, "/metrics")[0] == 200
    wait_until(is_served, "closed connections are counted")


def test_many_slow_scrapers_keep_no_one_out(observed):
    """From many addresses, with headers that do not end and are never idle."""
    port = port_of(observed, "health_port")
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        slow = []
        for number in range(288):
            slow.append(stack.enter_context(socket.socket()))
            slow[-1].bind((f"127.0.0.{2 + number // 16}", 0))
            slow[-1].connect(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                slow[-1].sendall(b"GET /livez HTTP/1.1\r\nX-Slow: ")

        def go_on():
            while not stop.wait(0.5):
                for connection in slow:
                    with contextlib.suppress(OSError):  # those that were ended
                        connection.sendall(b"a")
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for _ in range(3):
                assert get(port, "/livez")[0] == 200
        finally:
            stop.set()
            thread.join()


def test_unread_scrapes_count_as_connections(observed):
    """The kernel would take the whole answer of a client that does not read, and the server would forget the client."""
    port = port_of(observed, "metrics_port")
    with Client(observed.port) as client:  # methods that were called have histograms
        for method in service_pb2.DESCRIPTOR.services_by_name["PositionalEncodingService"].methods:
            with contextlib.suppress(grpc.RpcError):
                client.channel.unary_unary(f"/{SERVICE}/{method.name}")(b"\xff", timeout=SECONDS)
    assert len(get(port, "/metrics")[2]) > 128 << 10, "more than the kernel's buffers take"
    with contextlib.ExitStack() as stack:
        def ask():
            connection = stack.enter_context(socket.socket())
            connection.settimeout(SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.bind(("127.0.0.3", 0))
            connection.connect(("127.0.0.1", port))
            with contextlib.suppress(OSError):  # it was closed at once
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
            return connection

        for connection in [ask() for _ in range(16)]:  # one address may have so many
            assert connection.recv(1) == b"H"
        with contextlib.suppress(ConnectionResetError):
            assert ask().recv(1) == b""


def test_scrapes_beside_calls(observed):
    port = port_of(observed, "metrics_port")
    stop = threading.Event()
    seen = []

    def scrape():
        while not stop.is_set():
            seen.append(Scrape(port).of("grpc_server_handled_total", grpc_method="Explain", grpc_code="OK"))

    threads = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in threads:
        thread.start()
    with Client(observed.port) as client:
        for _ in range(200):
            client.call("Explain", samples.explain())
        client.when_idle()
    stop.set()
    for thread in threads:
        thread.join()
    assert Scrape(port).of("grpc_server_handled_total", grpc_method="Explain", grpc_code="OK") == 200
    assert max(seen) <= 200


@pytest.mark.parametrize("flag", ["--metrics-listen", "--health-listen"])
def test_an_address_that_is_taken(server_program, flag, observed):
    taken = port_of(observed, "metrics_port")
    for address, message in [(f"127.0.0.1:{taken}", "cannot listen there"), ("127.0.0.1", "must be ADDRESS:PORT")]:
        ended = subprocess.run([*server_program, "--listen", "127.0.0.1:0", flag, address], capture_output=True, text=True,
                               timeout=SECONDS)
        assert ended.returncode == 1
        assert flag in ended.stderr and message in ended.stderr, ended


def test_a_trace_comes_back_and_is_logged(start_server):
    server = start_server("--log-level", "debug")
    request = samples.rotary()
    request.hints.request_id = "layer 7"
    with Client(server.port) as client:
        _, call = client.method("ApplyRotary").with_call(request, metadata=[("traceparent", TRACE)], timeout=SECONDS)
        trailers = dict(call.trailing_metadata())
        assert trailers["traceparent"] == TRACE and trailers["x-request-id"] == "layer 7"
        refusal = client.refusal("ApplyRotary", b"", metadata=[("traceparent", TRACE)])
        assert refusal.trailers["traceparent"] == TRACE
        for wrong in ("00-xyz", TRACE.upper(), TRACE + "-more", "ff" + TRACE[2:]):
            _, call = client.method("ApplyRotary").with_call(request, metadata=[("traceparent", wrong)], timeout=SECONDS)
            assert "traceparent" not in dict(call.trailing_metadata())
        request.hints.request_id = "é" * 10
        _, call = client.method("ApplyRotary").with_call(request, timeout=SECONDS)
        assert "x-request-id" not in dict(call.trailing_metadata())
    log = server.log_with("trace_id=4bf92f3577b34da6a3ce929d0e0e4736")
    [line] = [line for line in log.splitlines() if "trace_id=" in line and "status=OK" in line]
    assert re.search(r"peer=\S*127\.0\.0\.1:\d+", line) and "layer 7" in line


def test_promtool_finds_no_fault(observed):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (scripts/install-dependencies metrics)")
    with Client(observed.port) as client:
        client.call("ApplyRotary", samples.rotary())
        client.refusal("ApplyRotary", b"")
        client.when_idle()
    text = Scrape(port_of(observed, "metrics_port")).text
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=SECONDS)
    assert checked.returncode == 0 and not checked.stderr and not checked.stdout, checked
