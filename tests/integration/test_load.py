"""Tests `posenc load`: it offers the requested load, reports all delays and failures, and finds wrong answers."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import grpc
import pytest
from client import SECONDS, Client
from posenc.v1 import rotary_pb2, service_pb2
from test_lifecycle import wait_until

SMALL = ("--heads", 4, "--key-heads", 2, "--head-dim", 64)
SERVICE = "posenc.v1.PositionalEncodingService"


@pytest.fixture
def load(posenc):
    """A function that runs `posenc load` and returns what --json prints."""
    def run(*arguments, exit_code=0):
        ended = posenc("load", "--json", "--quiet", *arguments, exit_code=exit_code)
        return json.loads(ended.stdout)
    return run


@pytest.fixture
def started(command_program, tmp_path):
    """A function that starts `posenc load` and returns the process, which is killed after the test."""
    processes = []

    def start(*arguments, **options):
        command = [*command_program, "load", *map(str, arguments)]
        processes.append(subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, text=True,
                                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finished(process):
    """Waits for the process and returns what --json printed."""
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return json.loads(out)


def when_called(port, calls):
    """Waits until `calls` calls of other clients have ended on the server."""
    own = itertools.count(1)
    with Client(port) as client:
        def enough():
            counters = client.info().counters
            return counters.requests_started - counters.in_flight_requests - next(own) >= calls
        wait_until(enough, "nobody calls the server")


def assert_adds_up(measured):
    assert measured["intended"] == measured["skipped"] + measured["succeeded"] + measured["failed"]
    assert sum(measured["errors"].values()) == measured["skipped"] + measured["failed"]
    for histogram in "latency_us", "service_us":
        assert measured[histogram]["count"] == measured["succeeded"]


@contextlib.contextmanager
def proxy(port, change):
    """Runs a server that forwards ApplyRotary to the one at `port` and modifies each answer by change(answer).

    Its StreamTable ends without a tile.
    """
    with Client(port) as client:
        def apply_rotary(request, context):
            answer = client.call("ApplyRotary", request)
            change(answer)
            return answer

        handlers = {
            "ApplyRotary": grpc.unary_unary_rpc_method_handler(
                apply_rotary, service_pb2.ApplyRotaryRequest.FromString,
                service_pb2.ApplyRotaryResponse.SerializeToString),
            "StreamTable": grpc.unary_stream_rpc_method_handler(lambda request, context: iter(()))}
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        own = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{own}"
        finally:
            server.stop(None).wait()


def test_an_open_loop_intends_exactly_what_it_was_asked_for(load, address):
    results = load("--server", address, *SMALL, "--rate", 200, "--duration", "3s")
    total = results["total"]
    assert total["intended"] == 600
    assert_adds_up(total)
    assert total["succeeded"] == 600
    assert [second["measured"]["intended"] for second in results["timeline"]] == [200, 200, 200]
    assert results["steps"][0]["rate"] == 200
    assert results["seconds"] >= 3
    # q of 4 heads and k of 2, 64 elements of two bytes.
    assert total["request_bytes"] == total["answer_bytes"] == 600 * 6 * 64 * 2
    for times in "server_queue_us", "server_compute_us":
        assert total[times]["count"] == 600
    # The times that the server measures are parts of the call's time.
    assert total["server_compute_us"]["mean"] <= total["service_us"]["mean"]
    assert total["service_us"]["mean"] <= total["latency_us"]["mean"]


def test_a_closed_loop_makes_so_many_calls_and_no_more(load, address):
    results = load("--server", address, *SMALL, "--concurrency", "1,4", "--count", 500, "--connections", 2)
    assert [step["concurrency"] for step in results["steps"]] == [1, 4]
    assert [step["measured"]["succeeded"] for step in results["steps"]] == [500, 500]
    for step in results["steps"]:
        assert_adds_up(step["measured"])
    assert "total" not in results and "figures" not in results  # the steps have different loads


def test_steps_ramps_poisson_arrivals_and_the_warm_up(load, address):
    results = load("--server", address, *SMALL, "--rate", "50,100..200", "--duration", "1s", "--warm-up", "1s")
    assert [step["measured"]["intended"] for step in results["steps"]] == [50, 150]
    assert [second["warm_up"] for second in results["timeline"]] == [True, False, False]
    assert [step["begin_second"] for step in results["steps"]] == [1, 2]

    poisson = ("--server", address, *SMALL, "--rate", 300, "--duration", "1s", "--arrivals", "poisson")
    once, again = load(*poisson), load(*poisson)
    assert once["total"]["intended"] == again["total"]["intended"] != 300
    assert load(*poisson, "--seed", 2)["total"]["intended"] != once["total"]["intended"]


def test_each_transport_and_method_is_verified(load, start_server, tmp_path):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-"))  # short enough for a socket's path
    try:
        server = start_server("--shared-memory-socket", directory / "memory.sock")
        calls = [{"name": f"{method}-{transport}", "method": method, "transport": transport, "dtype": dtype,
                  "tokens": 300, "heads": 4, "key_heads": 2, "head_dim": 64, "offsets": [0, 7], **more}
                 for method, dtype, more, transports in (
                     ("ApplyRotary", "bf16", {}, ("unary", "stream", "shared-memory")),
                     ("ApplyRotary", "fp32", {"request": {"layout": "LAYOUT_BHSD"}}, ("unary", "stream")),
                     ("GenerateTable", "fp16", {"tokens": 20_000}, ("unary", "stream", "shared-memory")),
                     ("GenerateBias", "fp32", {"tokens": 600}, ("unary", "stream", "shared-memory")),
                     ("GenerateEmbedding", "fp64", {}, ("unary", "shared-memory")),
                     ("AddBias", "bf16", {"tokens": 64, "batch": 2}, ("unary", "shared-memory")),
                     ("RelativeScores", "fp32", {"tokens": 24}, ("unary", "shared-memory")),
                     ("RelativeScores", "bf16", {"tokens": 16, "request": {"content": True}}, ("unary",)),
                     ("RelativeValues", "fp16", {"tokens": 40}, ("unary", "shared-memory")))
                 for transport in transports]
        (tmp_path / "mix.json").write_text(json.dumps({"version": 1, "seed": 3, "calls": calls}))
        results = load("--server", f"127.0.0.1:{server.port}", "--mix", "mix.json", "--concurrency", 3, "--count", 500,
                       "--verify", "100%", "--shared-memory-socket", directory / "memory.sock")
    finally:
        shutil.rmtree(directory)
    assert results["total"]["succeeded"] == 500, results["total"]["errors"]
    assert results["mismatches"] == 0
    # Only a limited number of calls with shared memory are verified at a time.
    assert 250 < results["verified"] <= 500
    assert {call["name"] for call in results["mix"]["calls"]} == {call["name"] for call in calls}


def test_a_recorded_mix_makes_the_same_calls(load, start_server, configs, tmp_path):
    """A recorded mix sends as many bytes and reports the same mix."""
    flags = ("--concurrency", 1, "--count", 300)
    (tmp_path / "mix.json").write_text(json.dumps({"version": 1, "seed": 11, "calls": [
        {"name": "decode", "weight": 5, "offsets": [1, 2, 3], "model": str(configs / "llama-3.1-8b.json")},
        {"name": "prefill", "tokens": 64}]}))
    measured = []
    for source in "mix.json", "recorded.json":
        server = start_server()
        arguments = ("--record", "recorded.json") if source == "mix.json" else ()
        results = load("--server", f"127.0.0.1:{server.port}", "--mix", source, *flags, *arguments)
        measured.append((results["total"]["request_bytes"], results["mix"]))
    assert measured[0] == measured[1]
    recorded = json.loads((tmp_path / "recorded.json").read_text())
    assert recorded["calls"][0]["config_json"] == (configs / "llama-3.1-8b.json").read_text()


def test_a_wrong_server_is_found(posenc, shared_server):
    def change(answer):
        data = bytearray(answer.k.data)
        data[2 * 77] ^= 1  # the last bit of element 77
        answer.k.data = bytes(data)

    with proxy(shared_server.port, change) as address:
        arguments = ("load", "--server", address, *SMALL, "--concurrency", 2, "--count", 40)
        ended = posenc(*arguments, "--verify", "100%", "--json", "--quiet", exit_code=1)
        results = json.loads(ended.stdout)
        assert "40 of 40 verified answers were wrong" in ended.stderr
        assert results["total"]["errors"] == {"MISMATCH": 40}
        assert results["total"]["succeeded"] == 0
        mismatch = results["first_mismatch"]
        assert (mismatch["tensor"], mismatch["element"]) == ("k", 77)
        assert mismatch["expected"] != mismatch["got"]
        assert mismatch["expected"].startswith("0x")
        # Without --verify, wrong answers go unnoticed.
        posenc(*arguments, "--quiet")


def test_an_answer_of_another_shape_is_wrong(posenc, shared_server):
    with proxy(shared_server.port, lambda answer: answer.ClearField("k")) as address:
        ended = posenc("load", "--server", address, *SMALL, "--concurrency", 1, "--count", 5, "--verify", "1", "--json",
                       "--quiet", exit_code=1)
        results = json.loads(ended.stdout)
        assert results["first_mismatch"]["tensor"] == "k" and results["total"]["errors"] == {"MISMATCH": 5}


@pytest.mark.parametrize("call", [SMALL, ("--method", "GenerateTable", "--transport", "stream")])
def test_an_answer_without_its_tensors_is_a_failure(posenc, shared_server, call):
    with proxy(shared_server.port, lambda answer: answer.Clear()) as address:
        ended = posenc("load", "--server", address, *call, "--concurrency", 1, "--count", 40, "--json", "--quiet",
                       exit_code=3)
    total = json.loads(ended.stdout)["total"]
    assert total["errors"] == {"SHORT_ANSWER": 40} and total["answer_bytes"] == 0
    assert "no call succeeded" in ended.stderr


def test_a_stopped_server_shows_in_the_open_loop_and_hides_from_the_closed_one(started, start_server):
    """A stalled second adds latency to all calls that were due in it; a closed loop starts no calls in that second."""
    stall_seconds = 1.0

    def run(*schedule):
        server = start_server()
        process = started("--server", f"127.0.0.1:{server.port}", *SMALL, *schedule, "--duration", "4s", "--json",
                          "--quiet")
        when_called(server.port, 100)
        server.signal(signal.SIGSTOP)
        time.sleep(stall_seconds)
        server.signal(signal.SIGCONT)
        return finished(process)

    results = run("--rate", 500)
    # The stall has its time and length; completions cease in it and starts do not.
    [stall] = [stall for stall in results["steps"][0]["stalls"] if stall["seconds"] > 0.8 * stall_seconds]
    assert 0 < stall["begin"] < 4
    assert any(f"no answer for {stall['seconds']:.1f} s at {stall['begin']:.1f} s" in text for text in results["warnings"])
    completed = [second["completed"] for second in results["timeline"]]
    assert [second["measured"]["intended"] for second in results["timeline"]] == [500] * 4
    assert min(completed) < 450 and sum(completed) <= 2000
    opened, closed = results["total"], run("--concurrency", 1)["total"]
    assert opened["intended"] == opened["succeeded"] == 2000
    # A quarter of the calls were due in that second and waited for the rest of it.
    assert opened["latency_us"]["max"] >= 0.95e6 * stall_seconds
    assert opened["latency_us"]["p99.9"] >= 0.9e6 * stall_seconds
    assert opened["latency_us"]["p90"] >= 0.3e6 * stall_seconds
    # One call waited.
    assert closed["latency_us"]["max"] >= 0.95e6 * stall_seconds
    assert closed["latency_us"]["p90"] < 0.3e6 * stall_seconds
    assert closed["latency_us"]["count"] > 100


def test_calls_for_which_there_is_no_room_are_skipped_and_said(started, start_server):
    server = start_server()
    process = started("--server", f"127.0.0.1:{server.port}", *SMALL, "--rate", 200, "--duration", "3s",
                      "--max-in-flight", 5, "--deadline", "30s", "--json", "--quiet")
    when_called(server.port, 50)
    server.signal(signal.SIGSTOP)
    time.sleep(0.5)
    server.signal(signal.SIGCONT)
    results = finished(process)
    total = results["total"]
    assert total["intended"] == 600
    assert total["skipped"] == total["errors"]["SKIPPED"] >= 80
    assert_adds_up(total)
    assert results["figures"]["skipped_share"] > 0 == results["figures"]["failed_share"]


def test_the_wait_in_the_clients_own_grpc_is_measured_apart(started, start_server):
    """A server accepts one call at a time over a connection; in a stall the others wait in the client."""
    server = start_server("--max-concurrent-streams", 1)
    process = started("--server", f"127.0.0.1:{server.port}", *SMALL, "--rate", 300, "--duration", "3s", "--json",
                      "--quiet")
    when_called(server.port, 50)
    server.signal(signal.SIGSTOP)
    time.sleep(1)
    server.signal(signal.SIGCONT)
    total = finished(process)["total"]
    assert total["succeeded"] == 900
    # One call of 16 is measured; a third of them waited, for up to a second, and not in the server.
    assert 40 <= total["client_send_wait_us"]["count"] <= 60
    # One call may be in the queue of the server when that stops.
    assert total["client_send_wait_us"]["max"] > 0.8e6 > 0.2e6 > total["server_queue_us"]["p99"]
    assert total["client_late_us"]["count"] == 900


def test_goodput_under_overload_is_compared_with_the_peak(posenc, address, tmp_path):
    flags = ("load", "--server", address, *SMALL, "--duration", "500ms", "--quiet")
    said = posenc(*flags, "--overload", "0.2,0.5", "--concurrency", 2, "-o", "overload.json", "--html", "o.html").stdout
    results = json.loads((tmp_path / "overload.json").read_text())
    assert [step["name"] for step in results["steps"]] == ["peak: concurrency 2", "0.2x", "0.5x"]
    assert [step.get("overload") for step in results["steps"]] == [None, 0.2, 0.5]
    assert results["steps"][2]["rate"] == pytest.approx(0.5 * results["peak_per_second"])
    assert "goodput/s of the peak" in said and "Goodput under overload" in said
    assert 'id="overload"' in (tmp_path / "o.html").read_text()
    by_default = json.loads(posenc(*flags, "--overload", "--max-in-flight", 50, "--json").stdout)
    assert [step["name"] for step in by_default["steps"]] == ["peak: concurrency 16", "1x", "2x", "5x", "10x"]


def test_a_deadline_that_passes_is_a_failure(started, start_server):
    server = start_server()
    process = started("--server", f"127.0.0.1:{server.port}", *SMALL, "--rate", 100, "--duration", "2s",
                      "--deadline", "200ms", "--json", "--quiet")
    when_called(server.port, 30)
    server.signal(signal.SIGSTOP)
    time.sleep(0.6)
    server.signal(signal.SIGCONT)
    total = finished(process)["total"]
    assert total["errors"]["DEADLINE_EXCEEDED"] >= 10
    assert_adds_up(total)


@pytest.fixture
def calls_of_a_server_that_dies(started, start_server):
    """A function that returns what a test of two seconds counts in all, whose server dies on the way."""
    def run(*schedule):
        server = start_server()
        process = started("--server", f"127.0.0.1:{server.port}", *SMALL, *schedule, "--duration", "2s", "--json",
                          "--quiet")
        when_called(server.port, 30)
        server.kill()
        total = finished(process)["total"]
        assert_adds_up(total)
        return total
    return run


def test_a_server_that_dies_is_counted_and_reported(calls_of_a_server_that_dies):
    total = calls_of_a_server_that_dies("--rate", 100)
    assert total["intended"] == 200
    assert total["succeeded"] > 0 and total["errors"]["UNAVAILABLE"] > 0


def test_callers_of_a_dead_server_pause(calls_of_a_server_that_dies):
    total = calls_of_a_server_that_dies("--concurrency", 2)
    # Each of the two callers fails at once and then pauses for 10 ms of the two seconds; one call each was cut.
    assert 2 <= total["errors"]["UNAVAILABLE"] <= 2 * (2 / 0.01 + 2)


@pytest.mark.parametrize("schedule", [("--rate", 20), ("--concurrency", 4), ("--rate", 20, "--processes", 2)])
def test_calls_stuck_in_the_connection_to_a_stopped_server_are_counted(started, start_server, schedule):
    """gRPC does not end a call whose bytes are stuck in a Unix socket, not even at its deadline."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-"))  # short enough for a socket's path
    server = start_server("--listen", f"unix:{directory}/socket")
    try:
        process = started("--server", f"unix:{directory}/socket", "--tokens", 1024, *schedule, "--duration", "4s",
                          "--deadline", "2s", "--json", "--quiet")
        when_called(server.port, 30)
        server.signal(signal.SIGSTOP)
        results = finished(process)
    finally:
        server.signal(signal.SIGCONT)
        shutil.rmtree(directory)
    assert_adds_up(results["total"])
    assert results["total"]["errors"]["DEADLINE_EXCEEDED"] > 0
    assert any("did not end at the deadline" in warning for warning in results["warnings"])
    assert results["seconds"] >= 2  # the deadline of the calls that were stuck


def test_a_closed_loop_goes_on_when_the_server_does(started, start_server):
    server = start_server()
    process = started("--server", f"127.0.0.1:{server.port}", *SMALL, "--concurrency", 2, "--duration", "7s",
                      "--deadline", "500ms", "--json", "--quiet")
    when_called(server.port, 30)
    server.signal(signal.SIGSTOP)
    time.sleep(4.5)  # longer than a call may go on after its deadline
    server.signal(signal.SIGCONT)
    results = finished(process)
    assert_adds_up(results["total"])
    assert results["seconds"] >= 7


def test_calls_take_turns_over_several_servers(load, start_server):
    servers = [start_server(), start_server()]
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    for arguments in (("--server", ",".join(addresses)), ("--server", addresses[0], "--server", addresses[1])):
        load(*arguments, *SMALL, "--concurrency", 4, "--count", 200)
    for server in servers:
        with Client(server.port) as client:
            assert 200 <= client.info().counters.requests_started <= 220


def test_several_processes_are_one_client(load, address):
    results = load("--server", address, *SMALL, "--rate", "100,200", "--duration", "1s", "--processes", 3, "--verify",
                   "50%")
    assert results["clients"] == 3
    assert [step["measured"]["succeeded"] for step in results["steps"]] == [100, 200]
    assert [round(step["rate"]) for step in results["steps"]] == [100, 200]
    assert results["mismatches"] == 0 and results["verified"] > 80
    closed = load("--server", address, *SMALL, "--concurrency", 5, "--count", 301, "--processes", 2)
    assert closed["total"]["succeeded"] == 301
    assert closed["steps"][0]["concurrency"] == 5


def test_files_of_several_machines_are_merged(posenc, address, tmp_path):
    def begun(name, second):
        results = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(results | {"begin_time": f"2026-01-02T03:04:{second:02}Z"}))

    for name in "one.json", "two.json", "three.json":
        posenc("load", "--server", address, *SMALL, "--rate", 100, "--duration", "1s", "--quiet", "-o", name)
        begun(name, 5)
    merged = json.loads(posenc("load", "merge", "one.json", "two.json", "--json").stdout)
    assert merged["clients"] == 2
    assert merged["total"]["succeeded"] == 200
    assert merged["steps"][0]["rate"] == 200
    three = posenc("load", "merge", "one.json", "two.json", "three.json")
    assert "different" not in three.stdout and "300 succeeded" in three.stdout
    # Rates of different times, and the same calls twice, are not added.
    again = posenc("load", "merge", "one.json", "two.json", "one.json", exit_code=2)
    assert "one.json: holds the same run as an earlier file" in again.stderr
    begun("three.json", 19)
    late = posenc("load", "merge", "one.json", "three.json", exit_code=3)
    assert "three.json: began 14 s after" in late.stderr and late.stdout == ""
    (tmp_path / "broken.json").write_text("{}")
    assert "broken.json" in posenc("load", "merge", "one.json", "broken.json", exit_code=3).stderr


def test_the_search_finds_a_rate_that_holds(load, address):
    results = load("--server", address, *SMALL, "--slo", "p50=10s,max=60s", "--rate", 50, "--duration", "300ms",
                   "--max-in-flight", 20, "--tries", 2)
    tries = results["steps"]
    assert [step["rate"] for step in tries[:2]] == [50, 100]
    assert tries[0]["held"] is True
    held = [step["rate"] for step in tries if step.get("held")]
    missed = [step["rate"] for step in tries if step.get("held") is False]
    assert missed and results["lowest_missed_rate"] == min(missed)
    assert results["highest_rate"] == max(rate for rate in held if rate < min(missed))
    assert results["peak_per_second"] > 0 and 0 <= results["noise"]["share"] <= 1
    assert all(1 <= step["tries"] <= 2 for step in tries)
    # The total has the figures of the rate that was found.
    best = next(step for step in tries if step["rate"] == results["highest_rate"])
    assert results["total"]["latency_us"] == best["measured"]["latency_us"]


def test_a_regression_is_a_failure_that_names_the_figure(posenc, address, tmp_path):
    arguments = ("load", "--server", address, *SMALL, "--duration", "1s", "--quiet")
    posenc(*arguments, "--rate", 50, "-o", "measured.json", "--html", "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    posenc("load", "merge", "measured.json", "--baseline", "measured.json", "--max-regression", "0")
    before = json.loads((tmp_path / "measured.json").read_text())
    before.update(seconds=before["seconds"] / 10, drain_seconds=0)  # makes it ten times as fast
    (tmp_path / "before.json").write_text(json.dumps(before))
    baseline = ("--baseline", "before.json")
    worse = posenc(*arguments, "--rate", 50, *baseline, "--max-regression", "10%", "-o", "now.json", exit_code=1)
    assert "throughput, calls/s: was " in worse.stderr
    assert "Baseline before.json, " in worse.stdout and ": worse (tolerated: 10.0 %)" in worse.stdout
    verdict = json.loads((tmp_path / "now.json").read_text())["baseline"]
    assert verdict["verdict"] == "worse" and verdict["file"] == "before.json"
    assert [figure["figure"] for figure in verdict["figures"] if figure["worse"]][-1] == "throughput, calls/s"
    assert "p99" in worse.stdout and (tmp_path / "now.json").exists()  # the report is written nevertheless
    assert "nowhere.json" in posenc(*arguments, "--rate", 20, "--baseline", "nowhere.json", exit_code=3).stderr
    # A run that cannot be compared fails, and a baseline is not overwritten.
    for more, said in (("--rate", 20), "different steps"), (("--rate", 50, "--tokens", 2), "different mix of calls"):
        assert said in posenc(*arguments, *more, *baseline, exit_code=3).stderr
    kept = posenc(*arguments, "--rate", 50, *baseline, "-o", "./before.json", exit_code=2)
    assert "overwritten" in kept.stderr and json.loads((tmp_path / "before.json").read_text()) == before


def test_a_report_goes_to_standard_output(posenc, address):
    arguments = ("load", "--server", address, *SMALL, "--rate", 50, "--duration", "200ms", "--quiet")
    assert json.loads(posenc(*arguments, "-o", "-").stdout)["total"]["intended"] == 10
    assert posenc(*arguments, "--html", "-").stdout.startswith("<!DOCTYPE html>")
    assert "only one" in posenc(*arguments, "-o", "-", "--html", "-", exit_code=2).stderr


@pytest.mark.parametrize("output", [(), ("--json",), ("-o", "-")])
def test_a_report_that_cannot_be_written_is_a_failure_and_the_others_are_written(started, address, tmp_path, output):
    with open("/dev/full", "w") as full:
        process = started("--server", address, *SMALL, "--rate", 50, "--duration", "200ms", "--quiet", *output, "--html",
                          "page.html", stdout=full)
        errors = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 3 and "standard output: cannot write" in errors
    assert "<html" in (tmp_path / "page.html").read_text()


def test_a_ramp_that_falls_offers_what_it_intends(posenc, address, tmp_path):
    flags = ("load", "--server", address, *SMALL, "--rate", "400..1", "--duration", "1.2s", "--quiet")
    for more in (), ("--processes", 2):
        posenc(*flags, "-o", "ramp.json", *more)
        ramp = json.loads(posenc("load", "merge", "ramp.json", "--json").stdout)
        offered = [second["offered_per_second"] for second in ramp["timeline"]]
        assert min(offered) > 0 and abs(sum(offered) - ramp["total"]["intended"]) <= 1


def test_no_caller_is_lost_where_answers_are_in_shared_memory(started, start_server):
    """An answer that comes after its deadline, when another is expected in its memory, is not a mismatch."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="posenc-"))  # short enough for a socket's path
    try:
        server = start_server("--shared-memory-socket", directory / "memory.sock")
        process = started("--server", f"127.0.0.1:{server.port}", "--transport", "shared-memory",
                          "--shared-memory-socket", directory / "memory.sock", "--offsets", "0,1,2,3,4,5,6,7",
                          "--tokens", 20, "--concurrency", 4, "--verify", "60%", "--deadline", "200ms",
                          "--duration", "3s", "--json", "--quiet")
        when_called(server.port, 50)
        server.signal(signal.SIGSTOP)
        time.sleep(0.6)
        server.signal(signal.SIGCONT)
        results = finished(process)
    finally:
        shutil.rmtree(directory)
    total = results["total"]
    assert total["errors"]["DEADLINE_EXCEEDED"] >= 4 and total["skipped"] == results["mismatches"] == 0
    assert results["seconds"] >= 2.9 and results["verified"] > 20
    assert_adds_up(total)


def test_fewer_callers_than_processes_make_all_the_calls(load, address):
    closed = load("--server", address, *SMALL, "--concurrency", 1, "--count", 30, "--processes", 2)
    assert closed["total"]["succeeded"] == 30
    opened = load("--server", address, *SMALL, "--rate", 10, "--count", 1, "--duration", "10s", "--processes", 2)
    assert opened["total"]["succeeded"] == 1 and opened["seconds"] < 5
    assert all("this machine was not quiet" in warning for warning in opened["warnings"])


def test_a_verification_of_nothing_is_none(posenc, address):
    ended = posenc("load", "--server", address, *SMALL, "--concurrency", 1, "--count", 5, "--verify", "0.0001%",
                   "--quiet", exit_code=1)
    assert "no answer was verified" in ended.stderr and "0 answers compared" in ended.stdout


def test_a_search_in_vain_says_so(load, address):
    results = load("--server", address, *SMALL, "--slo", "max=1us", "--rate", 10, "--duration", "100ms", exit_code=1)
    assert "highest_rate" not in results
    assert not any(step.get("held") for step in results["steps"])


def test_an_interrupt_ends_it_with_a_report(started, start_server):
    for arguments in (("--rate", 100), ("--concurrency", 2), ("--rate", 100, "--processes", 2)):
        server = start_server()
        process = started("--server", f"127.0.0.1:{server.port}", *SMALL, *arguments, "--duration", "10m", "--json",
                          "--quiet")
        when_called(server.port, 50)
        process.send_signal(signal.SIGINT)
        results = finished(process)
        assert results["total"]["succeeded"] >= 30
        assert_adds_up(results["total"])
        assert any(warning.startswith("interrupted") for warning in results["warnings"])
        assert results["interrupted"] is True


def test_who_cannot_connect_is_told_and_nothing_is_measured(started):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        both = [started("--server", address, *SMALL, "--rate", 10, *more) for more in ((), ("--processes", 2))]
        for process in both:
            out, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 3 and address in errors and out == ""


@pytest.mark.parametrize("arguments, said", [
    (("--rate", "10"), "--server ADDRESS, or POSENC_SERVER"),
    (("--server", "x"), "missing: a schedule: --rate, --concurrency, --slo or --overload"),
    (("--server", "x", "--overload", "1,0"), "--overload: 0 must be a multiple of the peak"),
    (("--server", "x", "--overload", "2", "--concurrency", "1,2"), "with --overload give one number"),
    (("--server", "x", "--overload", "--rate", "5"), "excludes"),
    (("--server", "x", "--rate", "10", "--tries", "3"), "--slo"),
    (("--server", "x", "--rate", "0"), "--rate: is 0;"),
    (("--server", "x", "--rate", "10", "--concurrency", "2"), "excludes"),
    (("--server", "x", "--concurrency", "2", "--slo", "p99=1ms"), "excludes"),
    (("--server", "x", "--rate", "10", "--duration", "soon"), "--duration: is soon;"),
    (("--server", "x", "--rate", "10", "--verify", "200%"), "--verify: is 200%;"),
    (("--server", "x", "--rate", "10", "--arrivals", "uniform"), "--arrivals"),
    (("--server", "x", "--rate", "10", "--tokens", "0"), "tokens: is 0"),
    (("--server", "x", "--rate", "10", "--transport", "pigeon"), "transport: is pigeon;"),
    (("--server", "x", "--rate", "10", "--mix", "mix.json", "--tokens", "4"), "excludes"),
    (("--server", "x", "--slo", "p99"), "slo: is p99;"),
    (("--server", "x", "--slo", "p99=1ms", "--rate", "1,2"), "the first of the search"),
    (("--server", "x", "--rate", "10", "--max-failures", "1%"), "--slo"),
    (("--server", "x", "--rate", "10", "--max-regression", "1%"), "--baseline"),
    (("--server", "x", "--rate", "10", "--processes", "65"), "--processes"),
    (("--server", "x", "--rate", "10", "--processes", "8", "--max-in-flight", "7"), "--max-in-flight"),
    (("--server", "x", "--concurrency", "2", "--max-in-flight", "7"), "excludes"),
    (("--server", "x", "--concurrency", "2", "--arrivals", "poisson"), "excludes"),
    (("--server", "x", "--slo", "p99=1ms", "--rate", "2000000"), "a search tries 0.1 to 1e+06"),
    (("--server", "x", "--rate", "10", "--duration", "1e20s"), "at most 1000h"),
    (("--server", "x", "--rate", "10", "--request", "{layout: 'LAYOUT_BHSD'}"), "is not JSON"),
    (("--server", "x", "--rate", "10", "--request", "{"), "request"),
    (("merge",), "FILE"),
    (("--rate", "10", "merge", "one.json"), "not allowed with merge"),
])
def test_a_wrong_command_line_is_said(posenc, arguments, said):
    ended = posenc("load", *arguments, exit_code=2)
    assert said in ended.stderr
    assert "See `posenc load" in ended.stderr


@pytest.mark.parametrize("arguments, said", [
    (("--method", "Rotate"), "must be one of ApplyRotary"),
    (("--dtype", "fp8"), "dtype"),
    (("--head-dim", "7"), "rotary_dim"),
    (("--transport", "shared-memory"), "shared-memory-socket"),
    (("--request", '{"latout": 1}'), "request"),
    (("--model", "nowhere.json"), "nowhere.json"),
    (("--mix", "nowhere.json"), "nowhere.json"),
    (("-o", "nowhere/results.json"), "nowhere/results.json: cannot create"),
    (("--html", "nowhere/page.html"), "nowhere/page.html: cannot create"),
])
def test_wrong_work_is_said_before_anybody_is_called(posenc, arguments, said):
    assert said in posenc("load", "--server", "x", "--rate", "10", *arguments, exit_code=3).stderr


def test_what_is_shown_while_it_runs(posenc, command_program, address, tmp_path):
    arguments = ("load", "--server", address, *SMALL, "--rate", "100", "--duration", "2.2s")
    ended = posenc(*arguments)
    lines = ended.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("100/s  ") and "errors 0" in line for line in lines)
    assert "p99" in ended.stdout

    parent, child = pty.openpty()
    process = subprocess.Popen([*command_program, *map(str, arguments)], cwd=tmp_path, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while text := os.read(parent, 4096):
            shown += text
    os.close(parent)
    assert process.wait(SECONDS) == 0
    assert b"\r100/s  [" in shown and b"#" in shown and shown.endswith(b"\x1b[K")


def test_no_element_of_the_page_overflows(posenc, address, tmp_path):
    """The page in a real browser: nothing is wider than its container, at three widths, light and dark."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium, the browser in which the page is laid out; on Debian: apt install chromium")
    arguments = ("load", "--server", address, *SMALL, "--duration", "1s", "--quiet", "--html", "page.html", "--output")
    pages = {}
    for name, more in (("steps", ("--rate", "50,1500,50..100", "--warm-up", "1s")), ("overload", ("--overload", "0.1,0.2")),
                       ("search", ("--slo", "p50=1s,p99.9=2s", "--rate", 50, "--tries", 1, "--max-in-flight", 16))):
        posenc(*arguments, f"{name}.json", *more, exit_code=(0, 1))
        pages[name] = (tmp_path / "page.html").read_text()
    posenc("load", "merge", "steps.json", "--baseline", "steps.json", "--html", "page.html")
    pages["baseline"] = (tmp_path / "page.html").read_text()
    # The page measures itself in a frame, since windows have a least width, and the page around it shows the result.
    measure = """<script>addEventListener('load', () => {
      const wide = [...document.querySelectorAll('body *')].filter((element) => {
        const {left, right} = element.getBoundingClientRect();
        return right > innerWidth + 0.5 || left < -0.5 || element.scrollWidth > element.clientWidth + 1 &&
          getComputedStyle(element).display !== 'inline' && element.clientWidth > 0;
      });
      const names = wide.map(({tagName, className, textContent}) => `${tagName}.${className}: ${textContent.slice(0, 40)}`);
      parent.postMessage(`${innerWidth} ${document.querySelectorAll('canvas').length} [${names.join(', ')}]`, '*');
    });</script>"""
    around = """<title></title><script>addEventListener('message', ({data}) => { document.title = data; });</script>
      <iframe src="measured.html" style="border: 0" width="%d" height="900"></iframe>"""
    profile = tmp_path / "profile"
    for name, page in pages.items():
        for width in 375, 768, 1280:
            for dark in 0, 1:  # preferredColorScheme of Blink: dark, light
                (tmp_path / "measured.html").write_text(page.replace("</body>", measure + "</body>"))
                (tmp_path / "around.html").write_text(around % width)
                shown = subprocess.run(
                    [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                     "--window-size=1400,1000", f"--blink-settings=preferredColorScheme={dark}",
                     "--virtual-time-budget=3000", "--dump-dom", f"file://{tmp_path}/around.html"],
                    capture_output=True, text=True, timeout=SECONDS).stdout
                title = shown[shown.index("<title>") + 7:shown.index("</title>")]
                assert title.split()[0] == str(width) and int(title.split()[1]) >= 3, title
                assert title.endswith(" []"), (name, width, title)
