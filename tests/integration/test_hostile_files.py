"""Files that are no files, have no end, or are nested, sparse or looped: whoever is told to read one says so and ends.

The flags and arguments that take a path are those of which the help says so.
"""

import contextlib
import json
import os
import re
import struct
import subprocess
import threading

import pytest
from client import SECONDS
from server_process import limited

SPARSE = 64 << 30  # bytes
MEBIBYTES = 4096  # of virtual memory that a program may have
NESTED = "[" * 300_000 + "]" * 300_000


def safetensors(header):
    return struct.pack("<Q", len(header)) + header.encode()


def gguf_of_strings():
    """The beginning of a GGUF whose list of tokens fills the rest of the file with empty strings."""
    text = lambda word: struct.pack("<Q", len(word)) + word.encode()
    return (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("tokenizer.ggml.tokens") +
            struct.pack("<IIQ", 9, 8, (SPARSE >> 3) - 100))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Returns the paths of hostile files whose names end in this; the first one is a pipe without a writer."""
    def make(ending):
        folder = tmp_path_factory.mktemp("hostile")
        path = lambda name: folder / f"{name}{ending}"
        os.mkfifo(path("pipe"))
        path("zero").symlink_to("/dev/zero")
        path("loop").symlink_to(path("loop"))
        path("folder").mkdir()
        deep = f'{{"model_type": "llama", "head_dim": {NESTED}, "x": {NESTED}}}'
        path("deep").write_bytes(safetensors(deep) if ending == ".safetensors" else deep.encode())
        path("sparse").write_bytes(gguf_of_strings() if ending == ".gguf" else b"")
        os.truncate(path("sparse"), SPARSE)
        return sorted(folder.iterdir(), key=lambda file: file.stem != "pipe")
    return make


def flags_of(text, types):
    """Returns the flags whose values have one of these types, and a place in the help's list of arguments."""
    return re.findall(rf"^  (?:-\w,)?(--[\w-]+) (?:{types})\b", text, re.MULTILINE)


# A right call of each command, to which a flag is added. Other flags that it must not have are left out.
Q = ("--q", "q.npy", "--layout", "bshd", "--offset", 0, "--q-out", "out.npy")
ROTARY = ("--rope-type", "default", "--rotary-dim", 64, "--input-pairing", "half-split")
BIAS = ("--nope", "--query-length", 4, "--key-length", 4, "--dtype", "fp32", "-o", "out.npy")
CALLS = {
    "rope": (*Q, *ROTARY),
    "table": (*ROTARY, "--offset", 0, "--count", 4, "--dtype", "fp32", "-o", "out.npy"),
    "bias": BIAS,
    "embedding": ("--offset", 0, "--count", 4, "--sinusoidal-dimension", 8, "--dtype", "fp32", "-o", "out.npy"),
    "scores": ("--q", "q.npy", "-o", "out.npy"),
    "values": ("--probabilities", "q.npy", "-o", "out.npy"),
    "diagnose": ("--before", "q.npy", "--after", "q.npy", *ROTARY),
    "diagnose-bias": ("q.npy",),
    "diagnose-table": ("q.npy", "--learned-table", "q.npy"),
    "explain": (),
    "compare": ("a.json", "a.json"),
    "vectors": ("-o", "out.safetensors"),
    "load": ("--server", "unix:nobody", "--rate", 1),
    "info": ("--server", "localhost:1"),
}
OUTPUTS = {"--out", "--output", "--q-out", "--k-out", "--record", "--html", "--picture", "--shared-memory-socket"}


def commands(posenc):
    """Returns (command, flag, ending) of each flag that takes a file."""
    found = set()
    for command in CALLS:
        text = posenc("help", command).stdout
        for flag in flags_of(text, r"FILE|FILE\|N,N,\.\.\.|FILE\.json|PATH|OTHER"):
            if flag in OUTPUTS:
                continue
            is_tensor = re.search(rf"{flag} (FILE\||FILE\b(?!\.json))", text) and not flag.startswith(("--tls", "--token"))
            found |= {(command, flag, ending) for ending in ((".npy", ".safetensors") if is_tensor else (".json", ".gguf"))}
    found |= {("info", flag, ".pem") for flag in flags_of(posenc("--help").stdout, "FILE")}
    return sorted(found)


def write_into(pipe):
    """Gives the pipe a writer, which writes what is no file and ends."""
    def write():
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as file:
            file.write(b"x" * 1000)
    threading.Thread(target=write, daemon=True).start()


def test_every_flag_of_the_command(posenc, command_program, hostile, tmp_path):
    numpy_file = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 1, 64), }".ljust(117) + "\n"
    (tmp_path / "q.npy").write_bytes(numpy_file + text.encode() + bytes(4 * 256))
    (tmp_path / "a.json").write_text(json.dumps({"model_type": "llama", "head_dim": 64}))
    flags, files = commands(posenc), {}
    assert len(flags) > 100, "the help was not understood"
    read = set()
    for n, (command, flag, ending) in enumerate(flags):
        kinds = files.setdefault(ending, hostile(ending))
        # One kind, the next one for the next flag: all flags are read by the same few functions.
        path = kinds[n % len(kinds)]
        call = [str(word) for word in CALLS[command]]
        if flag in call:
            call[call.index(flag) + 1] = str(path)
        else:
            call += [flag, str(path)]
        if path.stem == "pipe":
            write_into(path)
        ended = subprocess.run([*limited(command_program, MEBIBYTES), command, *call], cwd=tmp_path, capture_output=True, text=True,
                               timeout=SECONDS, stdin=subprocess.DEVNULL)
        assert ended.returncode in (2, 3), (command, flag, path, ended)
        # gRPC may print a line of its own before, where memory is limited.
        assert "posenc: " in ended.stderr and len(ended.stderr) < 10000, (command, flag, path, ended)
        if path.name in ended.stderr:
            read.add(f"{command} {flag}")
        if path.stem == "pipe":
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # lets a writer go that nobody read from
    # A flag that is refused before its file is read, because it needs others, is read in the same way as these.
    assert len(read) > 40, sorted(read)


def test_arguments_of_the_command(posenc, command_program, hostile, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"model_type": "llama", "head_dim": 64}))
    for call in (("explain",), ("compare", "a.json"), ("diagnose-bias",), ("load", "merge")):
        for ending in (".npy", ".safetensors") if call == ("diagnose-bias",) else (".json", ".gguf"):
            for path in hostile(ending):
                if path.stem == "pipe":
                    write_into(path)
                ended = subprocess.run([*limited(command_program, MEBIBYTES), *call, str(path)], cwd=tmp_path, capture_output=True,
                                       text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
                assert ended.returncode in (2, 3) and ended.stderr.startswith("posenc: "), (call, path, ended)


def test_every_file_of_the_server(server_program, start_server, hostile, tmp_path):
    """The server reads nothing but regular files, so that a pipe needs no writer."""
    text = subprocess.run([*server_program, "--help"], capture_output=True, text=True, timeout=SECONDS).stdout
    says = re.findall(r"^  (--[\w-]+) TEXT \[\]\s+(.*)", text, re.MULTILINE)
    flags = [flag for flag, what in says if re.match(r"PEM file|JSON file|file of|path of a plugin", what)]
    assert {"--policy", "--token-file", "--tls-key", "--device-plugin"} <= set(flags), flags
    policy, certificate = tmp_path / "policy.json", tmp_path / "certificate"
    policy.write_text('{"identities": []}')
    certificate.write_text("")
    needed = {"--token-file": ["--policy", policy], "--tls-cert": ["--tls-key", certificate],
              "--tls-key": ["--tls-cert", certificate],
              "--tls-client-ca": ["--tls-cert", certificate, "--tls-key", certificate]}
    for flag in flags:
        for path in hostile(".file"):
            if flag == "--device-plugin":  # the server goes on without
                assert "no device but the CPU" in start_server(flag, str(path)).log(), path
                continue
            ended = subprocess.run([*limited(server_program, MEBIBYTES), "--listen", "127.0.0.1:0", *map(str, needed.get(flag, [])), flag,
                                    str(path)], capture_output=True, text=True, timeout=SECONDS)
            assert ended.returncode in (1, 2) and flag in ended.stderr, (flag, path, ended)


def add(repository, name, file):
    (repository / name).mkdir(parents=True)
    (repository / name / file.name).unlink(missing_ok=True)
    os.symlink(file, repository / name / ("config.json" if file.suffix == ".json" else "model.gguf"))


def test_models_of_a_repository(start_server, posenc, hostile, configs, tmp_path):
    repository = tmp_path / "models"
    for ending in (".json", ".gguf"):
        for path in hostile(ending):
            add(repository, f"{path.stem}{ending[1:]}", path)
            # The Hugging Face cache's form, in which a file names the snapshot.
            cache = repository / f"cache-{path.stem}{ending[1:]}"
            (cache / "refs").mkdir(parents=True)
            (cache / "snapshots" / "0123").mkdir(parents=True)
            (cache / "snapshots" / "0123" / "config.json").write_bytes((configs / "llama-3.1-8b.json").read_bytes())
            (cache / "refs" / "main").symlink_to(path)
    (repository / "good").mkdir()
    (repository / "good" / "config.json").write_bytes((configs / "llama-3.1-8b.json").read_bytes())
    server = start_server("--model-repository", str(repository))
    log = server.log()
    for folder in repository.iterdir():
        assert (f'"{folder.name}"' in log or f"model={folder.name} " in log) == (folder.name != "good"), (folder.name, log)
    for folder in repository.iterdir():
        if folder.name.startswith("cache-"):
            said = posenc("explain", folder, exit_code=3).stderr
            assert "main" in said, said
