"""Fixtures: the build under test, messages generated from the proto files, and servers that end with their test.

POSENC_BUILD_DIR is the directory of the build, by default build/release. POSENC_SERVER_COMMAND and POSENC_COMMAND
replace its programs, e.g. by programs for another processor in an emulator.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("POSENC_BUILD_DIR", ROOT / "build" / "release")).resolve()


def generate_messages(out):
    """Compiles the proto files to Python, as any user would, and makes them importable."""
    out.mkdir(parents=True, exist_ok=True)
    standard, peers = ROOT / "server" / "proto", pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=out) as new:
        for folder, pattern in ((ROOT / "proto", "posenc/v1/*.proto"), (standard, "inference/*.proto"),
                                (standard, "opentelemetry/**/*.proto"), (standard, "xds/**/*.proto"),
                                (peers, "grpc_peers.proto")):
            files = map(str, sorted(folder.glob(pattern)))
            subprocess.run(["protoc", f"--proto_path={folder}", f"--python_out={new}", *files], check=True)
        for file in pathlib.Path(new).rglob("*.py"):
            to = out / file.relative_to(new)
            to.parent.mkdir(parents=True, exist_ok=True)
            file.replace(to)  # other test programs may read it now
    sys.path.insert(0, str(out))


def hide_settings_of_the_user():
    """Keeps the command from the user's own file of variables, in this process and all that it starts. Other programs keep
    their settings: Go and pip have theirs beside it. Returns the folder, which must not be lost."""
    given = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config")
    folder = tempfile.TemporaryDirectory(prefix="posenc-settings-")
    for path in given.iterdir() if given.is_dir() else ():
        if path.name != "posenc":
            (pathlib.Path(folder.name) / path.name).symlink_to(path)
    os.environ["XDG_CONFIG_HOME"] = folder.name
    return folder


# This must run before the test modules are imported, because they import the messages.
generate_messages(BUILD / "python")
SETTINGS = hide_settings_of_the_user()

from client import SECONDS, Client  # noqa: E402
from server_process import ServerProcess  # noqa: E402


@pytest.fixture(scope="session")
def build():
    return BUILD


@pytest.fixture(scope="session")
def server_program(build):
    """The server under test, as the first words of its command line."""
    return shlex.split(os.environ.get("POSENC_SERVER_COMMAND", str(build / "bin" / "posenc-server")))


@pytest.fixture(scope="session")
def command_program(build):
    """The posenc command under test."""
    return shlex.split(os.environ.get("POSENC_COMMAND", str(build / "bin" / "posenc")))


@pytest.fixture
def posenc(command_program, tmp_path):
    """A function that runs the command in an empty directory. `exit_code`: one, or several that are right."""
    program = [shutil.which(command_program[0]), *command_program[1:]]  # tests may change PATH
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSENC_")}

    def run(*arguments, exit_code=0, stdin=None, **more):
        ended = subprocess.run([*program, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS,
                               cwd=tmp_path, env={**environment, **more}, input=stdin or "")
        assert ended.returncode in (exit_code if isinstance(exit_code, tuple) else (exit_code,)), ended
        return ended

    return run


@pytest.fixture(scope="session")
def configs():
    """The directory of config.json files of real models."""
    return ROOT / "tests" / "golden" / "configs"


@pytest.fixture(scope="session")
def shared_server(server_program, tmp_path_factory):
    """One server with default settings, shared by all tests that do not change its state."""
    with ServerProcess(server_program, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def client(shared_server):
    with Client(shared_server.port) as client:
        yield client


@pytest.fixture
def address(shared_server):
    return f"127.0.0.1:{shared_server.port}"


@pytest.fixture
def start_server(server_program, tmp_path):
    """A function that starts a server with the flags given, and stops it after the test."""
    servers = []

    def start(*flags, **environment):
        directory = tmp_path / f"server-{len(servers)}"
        directory.mkdir()
        servers.append(ServerProcess(server_program, directory, *flags, **environment))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
