"""A server of the installed package, and a client of it beside one that computes in this process."""

import importlib.resources
import json
import os
import pathlib
import shlex
import sys

import pytest

import posenc

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
from certificates import Authority  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# The package's own server, or the words of another one's command line: not every wheel has one.
SERVER = shlex.split(os.environ.get("POSENC_TEST_SERVER", str(importlib.resources.files("posenc") / "programs/posenc-server")))
LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 500000.0,
         "max_position_embeddings": 8192}


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    process = ServerProcess(SERVER, tmp_path_factory.mktemp("server"))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def remote(server):
    with posenc.connect(f"127.0.0.1:{server.port}") as client:
        yield client


LIBRARY = os.environ.get("POSENC_LIBRARY") or pathlib.Path(posenc.__file__).parent / "libposenc.so"
IS_PURE = "POSENC_TEST_SERVER" in os.environ and not os.path.exists(LIBRARY)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """With the pure wheel, a test that computes in this process is skipped where the package refuses that."""
    outcome = yield
    if IS_PURE and outcome.excinfo and issubclass(outcome.excinfo[0], ImportError) and "servers only" in str(outcome.excinfo[1]):
        outcome.force_exception(pytest.skip.Exception("this wheel calls servers only"))


@pytest.fixture(scope="session")
def local():
    if IS_PURE:
        pytest.skip("this wheel calls servers only")
    with posenc.local() as client:
        yield client


@pytest.fixture(params=["remote", "local"])
def client(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def llama(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


@pytest.fixture(scope="session")
def tls(tmp_path_factory):
    """A server that asks for certificates, its authority, and a client's certificate with its key."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    certificate, key = authority.issue("localhost")
    process = ServerProcess(SERVER, tmp_path_factory.mktemp("tls"), "--tls-cert", certificate, "--tls-key", key,
                            "--tls-client-ca", authority.certificate, "--tls-client-auth", "required")
    yield process, authority, authority.issue("caller")
    process.stop()
