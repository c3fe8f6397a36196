"""Servers, data and expected answers for the tests of clients, and the tally of all tests.

The packages' own tests are written in their languages. They find what they need by these variables:

  POSENC_TEST_DATA      the directory that `data` below makes, with certificates
  POSENC_TEST_ADDRESS   a server with default settings
  POSENC_TEST_BUSY      a server that takes one call at a time
  POSENC_TEST_REFUSING  a proxy that refuses calls first (refusing_proxy.py)
  POSENC_TEST_TLS       a server that requires certificates of its clients
  POSENC_TEST_RESTARTING, POSENC_TEST_RESTART   a server, and the port that restarts it (restarting_server.py)
"""

import os
import shutil
import struct
import subprocess

import numpy
import pytest
import samples
from certificates import Authority
from languages import CONFIG, PASSED, Page, Suite
from posenc.v1 import rotary_pb2
from refusing_proxy import RefusingProxy
from restarting_server import RestartingServer
from rich_requests import rich_requests
from server_process import ServerProcess
from tensors import array

SHAPE = (1, 3, 32, 128)  # of the rotated query


def bf16_bits(value):
    """The nearest bfloat16 of a float32, ties to even, by comparison of its two neighbours as real numbers."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    below = bits >> 16
    if numpy.isinf(value):
        return below

    def real(upper):  # the value, with 2^128 in place of infinity
        if upper & 0x7FFF == 0x7F80:
            return (-1 if upper >> 15 else 1) * 2.0**128
        return struct.unpack("<f", struct.pack("<I", upper << 16))[0]

    errors = [abs(float(value) - real(upper)) for upper in (below, below + 1)]
    return below if errors[0] < errors[1] or (errors[0] == errors[1] and below % 2 == 0) else below + 1


def rounding_cases():
    """Records of a float32's bits, its nearest float16's and its nearest bfloat16's. float16 is NumPy's."""
    random = numpy.random.default_rng(20261124)
    bits = random.integers(0, 2**32, 3000, dtype="u8")
    halves = numpy.arange(0, 2**16, 37, dtype="u8") << 16  # bfloat16 values, and the ties between them
    sixteen = numpy.arange(0, 2**16, 41, dtype="u2").view("f2").astype("f4")  # float16 values
    with numpy.errstate(over="ignore", invalid="ignore"):
        ties = numpy.concatenate([sixteen, (sixteen[:-1] + sixteen[1:]) / 2,
                                  [65519.996, 65520, -65520, 2.0**-25, 3 * 2.0**-25]])
        values = numpy.concatenate([bits.astype("<u4").view("<f4"), halves.astype("<u4").view("<f4"),
                                    (halves + 0x8000).astype("<u4").view("<f4"), ties.astype("<f4")])
        values = values[~numpy.isnan(values)]
        return b"".join(struct.pack("<fHH", value, value.astype("<f2").view("<u2"), bf16_bits(value))
                        for value in values)


@pytest.fixture(scope="session")
def data(tmp_path_factory, command_program, configs, client):
    """The directory POSENC_TEST_DATA.

    config.json          Llama 3.1 8B's
    rotated.fp32, .bf16  the query x[i] = ((37 i + 11) mod 257 - 128) / 64 of shape SHAPE, exact in both types, as
                         `posenc rope` rotates it in its own process from position 100,000
    rounding             records of rounding_cases()
    calls/N-METHOD       a request, and answer-0, answer-1, ... as Python's gRPC received and serialized them
    """
    directory = tmp_path_factory.mktemp("data")
    shutil.copy(configs / "llama-3.1-8b.json", directory / "config.json")
    (directory / "rounding").write_bytes(rounding_cases())

    values = ((37 * numpy.arange(numpy.prod(SHAPE)) + 11) % 257 - 128) / 64
    fp32 = values.astype("<f4")
    bf16 = (fp32.view("<u4") >> 16).astype("<u2")
    for name, kind, stored in (("fp32", "F32", fp32), ("bf16", "BF16", bf16)):
        write_safetensors(directory / f"q.{name}.safetensors", kind, stored)
        subprocess.run([*command_program, "rope", "--model", directory / "config.json", "--layout", "bshd",
                        "--offset", "100000", "--q", directory / f"q.{name}.safetensors",
                        "--q-out", directory / "out.safetensors"], check=True)
        (directory / f"rotated.{name}").write_bytes((directory / "out.safetensors").read_bytes()[-stored.nbytes:])

    for number, (method, request) in enumerate(rich_requests()):
        call = directory / "calls" / f"{number:02}-{method}"
        call.mkdir(parents=True)
        (call / "request").write_bytes(request.SerializeToString())
        answers = client.call(method, request)
        answers = answers if isinstance(answers, list) else [answers]
        for position, answer in enumerate(answers):
            (call / f"answer-{position}").write_bytes(answer.SerializeToString())
    return directory


def write_safetensors(path, kind, stored):
    shape = list(SHAPE)
    header = f'{{"q":{{"dtype":"{kind}","shape":{shape},"data_offsets":[0,{stored.nbytes}]}}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + stored.tobytes())


@pytest.fixture(scope="session")
def peers(data, shared_server, server_program, tmp_path_factory):
    """The environment of the packages' tests."""
    authority = Authority(data, "authority")
    server, own = authority.issue("server.example"), authority.issue("client.example")
    for source, name in ((authority.certificate, "ca.pem"), (own[0], "client.pem"), (own[1], "client.key")):
        shutil.copy(source, data / name)
    address = f"127.0.0.1:{shared_server.port}"
    proxy = RefusingProxy(address)
    restarting = RestartingServer(server_program, tmp_path_factory.mktemp("restarting"))
    tls = ("--tls-cert", server[0], "--tls-key", server[1], "--tls-client-ca", authority.certificate,
           "--tls-client-auth", "required")
    with ServerProcess(server_program, tmp_path_factory.mktemp("busy"), "--max-in-flight-requests", "1") as busy, \
            ServerProcess(server_program, tmp_path_factory.mktemp("tls"), *tls) as encrypted:
        yield {**os.environ, "POSENC_TEST_DATA": str(data), "POSENC_TEST_ADDRESS": address,
               "POSENC_TEST_BUSY": f"127.0.0.1:{busy.port}", "POSENC_TEST_REFUSING": f"127.0.0.1:{proxy.port}",
               "POSENC_TEST_TLS": f"127.0.0.1:{encrypted.port}", "POSENC_TEST_RESTARTING": restarting.address,
               "POSENC_TEST_RESTART": restarting.trigger}
    proxy.stop()
    restarting.stop()


@pytest.fixture
def page(request, tmp_path, address):
    """The page of the language that the test file is about."""
    return Page(request.path.stem.removeprefix("test_"), tmp_path, address)


@pytest.fixture(scope="session")
def expected(client):
    """The first elements of the rotated query, which the examples print."""
    request = samples.rotary(numpy.ones(SHAPE), offset=100_000)
    request.rotary.CopyFrom(rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(config_json=CONFIG.read_bytes())))
    return array(client.call("ApplyRotary", request).q).flatten()[:4]


@pytest.fixture
def suite(request, peers):
    return Suite(request.node.nodeid, peers)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Ends with one line that counts the packages' own tests instead of the tests that ran them."""
    passed = failed = 0
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            cases = Suite.counted.get(report.nodeid, [(outcome.replace("passed", "pass"), report.nodeid)])
            passed += sum(outcome in PASSED for outcome, _ in cases)
            failed += max(sum(outcome not in PASSED for outcome, _ in cases), outcome != "passed")
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])]
    why = f" ({', '.join(sorted(set(reasons)))})" if reasons else ""
    terminalreporter.write_line(f"{passed} passed, {failed} failed, {len(reasons)} skipped{why}")
