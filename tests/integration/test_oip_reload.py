"""Models that are read again while their file system hangs, or while descriptors are lacking."""

import concurrent.futures
import contextlib
import resource
import shutil
import signal

import grpc
import pytest
from server_process import SANITIZER_BYTES
from test_hung_files import Lease
from test_lifecycle import wait_until
from test_oip_repository import LLAMA, add, repository, rotates, serve, states, until  # noqa: F401: fixtures


class Hung:
    """A model in the form of the Hugging Face cache, whose refs/main has a lease: who reads it waits, as on a file system
    that hangs."""

    def __init__(self, repository, name, configs):
        self.snapshot, self.main = repository / name / "snapshots" / "0123", repository / name / "refs" / "main"
        self.snapshot.mkdir(parents=True)
        self.main.parent.mkdir()
        shutil.copy(configs / LLAMA, self.snapshot / "config.json")
        self.lease = None
        self.hang()

    def hang(self):
        self.heal()
        self.lease = Lease(self.main)

    def heal(self):
        """Whoever reads from now on need not wait; whoever waits still does."""
        self.main.unlink(missing_ok=True)
        self.main.write_text("0123")

    def wait_for_reader(self):
        """Returns when the server has begun to read."""
        wait_until(self.lease.is_awaited, "nobody reads")

    def let_go(self):
        self.lease.end()
        self.lease = None


@pytest.fixture
def hung(repository, configs):  # noqa: F811
    """A function that adds a model whose file system hangs until the test ends."""
    made = []

    def make(name):
        made.append(Hung(repository, name, configs))
        return made[-1]
    yield make
    for one in made:
        if one.lease is not None:
            one.let_go()


def test_a_reload_that_hangs_holds_up_nothing(serve, repository, configs, hung, tmp_path):  # noqa: F811
    add(repository, "m0", configs)
    policy = tmp_path / "policy.json"
    rights = '{"identities": [{"name": "%s", "anonymous": true, "allow": ["compute", "info", "models"]}]}'
    policy.write_text(rights % "me")
    server, client = serve("--model-repository", repository, "--model-control", "on", "--threads", "2", "--policy", policy)
    model = hung("h")
    add(repository, "m1", configs)
    server.signal(signal.SIGHUP)
    model.wait_for_reader()
    for _ in range(4):
        client.call("RepositoryModelLoad", model_name="m1")
        client.call("RepositoryModelUnload", model_name="m0")
    assert rotates(client, "m1") is True and rotates(client, "m0") == "UNAVAILABLE"
    (tmp_path / "new").write_text(rights % "another")
    (tmp_path / "new").rename(policy)
    server.log_with("policy reloaded")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()
    assert "files are still read or closed" in server.log() and "stopped all_answered=true" in server.log()


def test_changes_during_a_reload_stay(serve, repository, configs, hung):  # noqa: F811
    for name in ("goes", "m0", "m1"):
        add(repository, name, configs)
    server, client = serve("--model-repository", repository, "--model-control", "on")
    model = hung("h")
    (repository / "m0" / "config.json").write_text("{")
    shutil.rmtree(repository / "goes")
    server.signal(signal.SIGHUP)
    model.wait_for_reader()
    add(repository, "m2", configs)
    client.call("RepositoryModelLoad", model_name="m2")
    client.call("RepositoryModelUnload", model_name="m1")
    model.let_go()
    until(client, "h", True)
    found = {name: state for name, (state, _) in states(client).items()}
    assert found == {"h": "READY", "m0": "READY", "m1": "UNAVAILABLE", "m2": "READY"}
    assert states(client)["m0"][1].startswith("serves its earlier file") and states(client)["m1"][1] == "unloaded"


def test_a_load_that_hangs_holds_up_no_other_call(serve, repository, configs, hung):  # noqa: F811
    add(repository, "m0", configs)
    server, client = serve("--model-repository", repository, "--model-control", "on", "--threads", "2")
    model = hung("h")
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        load = thread.submit(client.call, "RepositoryModelLoad", model_name="h")
        model.wait_for_reader()
        for _ in range(4):
            client.call("RepositoryModelLoad", model_name="m0")
            client.call("SystemSharedMemoryUnregister")
        assert rotates(client, "h") == "NOT_FOUND"
        # The file system is well again, and a later call reads the model before the first one does.
        model.heal()
        client.call("RepositoryModelLoad", model_name="h")
        assert rotates(client, "h") is True
        client.call("RepositoryModelUnload", model_name="h")
        model.let_go()
        load.result()
    assert states(client)["h"] == ("UNAVAILABLE", "unloaded"), "the call that began first is not the last"


@contextlib.contextmanager
def no_descriptors(server):
    """Meanwhile the server can open nothing."""
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(SANITIZER_BYTES > 0, reason="without a descriptor UndefinedBehaviorSanitizer cannot check an object")
def test_a_lack_of_descriptors_keeps_the_models(serve, repository, configs, hung):  # noqa: F811
    add(repository, "m0", configs)
    snapshot = repository / "m1" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    shutil.copy(configs / LLAMA, snapshot / "config.json")
    server, client = serve("--model-repository", repository, "--model-control", "on")
    ready = ("READY", "")
    assert states(client) == {"m0": ready, "m1": ready}
    model = hung("h")
    server.signal(signal.SIGHUP)
    model.wait_for_reader()  # the repository is listed by then; h comes first
    with no_descriptors(server):
        model.let_go()
        server.log_with("models read status=")
    assert "models read status=OK" not in server.log() and "stay as they were" in server.log()
    found = states(client)
    assert found.pop("h")[0] == "UNAVAILABLE"
    assert all(state == "READY" and "Too many open files" in reason for state, reason in found.values()), found
    assert rotates(client, "m0.rotary") is True and rotates(client, "m1.rotary") is True
    model.heal()
    server.signal(signal.SIGHUP)
    until(client, "h", True)
    server.log_with("models read status=OK")
    model.hang()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        load = thread.submit(client.refusal, "RepositoryModelLoad", model_name="h")
        model.wait_for_reader()
        with no_descriptors(server):
            model.let_go()
            refusal = load.result()
    assert (refusal.code, refusal.field) == (grpc.StatusCode.UNAVAILABLE, "model_name")
    assert "Too many open files" in refusal.message and states(client)["h"][0] == "READY"
