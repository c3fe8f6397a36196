"""Clients of the Open Inference Protocol, unmodified, over gRPC and HTTP: Triton's and KServe's for Python,
perf_analyzer, curl, and code that protoc generates for Go. They come from PyPI into an environment of their own, kept in POSENC_OIP_ENVIRONMENT, by default
~/.cache/posenc/oip."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from inference_client import InferenceClient
from languages import ROOT, Suite, needs, run
from rest_client import http_port
from server_process import ServerProcess

HERE = pathlib.Path(__file__).parent / "oip"
CASE = r"^(?P<outcome>pass|fail) (?P<name>.+)$"
PACKAGES = ("tritonclient[grpc,http]==2.73.0", "ml_dtypes==0.5.4", "kserve==0.21.0")
# The last wheel of Triton's client that has perf_analyzer, and the library that it needs of CUDA.
PERF_ANALYZER = ("tritonclient==2.51.0", "nvidia-cuda-runtime-cu12==12.9.79")


def environment(name, packages, *options):
    """A virtual environment with these packages."""
    home = pathlib.Path(os.environ.get("POSENC_OIP_ENVIRONMENT", pathlib.Path.home() / ".cache" / "posenc" / "oip"))
    directory, wanted = home / name, "\n".join(packages)
    made = directory / "made-with"
    if not made.exists() or made.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([shutil.which("python3"), "-m", "venv", directory], check=True)
        pip = [directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *options, *packages]
        installed = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if installed.returncode != 0:
            pytest.skip(f"pip cannot install {packages[0]}: {installed.stderr[-200:]}")
        made.write_text(wanted)
    return directory


@pytest.fixture(scope="module")
def server(data, server_program, tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for name, config in (("llama", data / "config.json"), ("bloom", ROOT / "tests/golden/configs/bloom-560m.json")):
        (repository / name).mkdir()
        shutil.copy(config, repository / name / "config.json")
    with ServerProcess(server_program, tmp_path_factory.mktemp("server"), "--model-repository", repository,
                       "--inference-memory-prefix", "/", "--http-listen", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def suite(request, data, server):
    return Suite(request.node.nodeid, {**os.environ, "POSENC_TEST_DATA": str(data),
                                       "POSENC_TEST_ADDRESS": f"127.0.0.1:{server.port}",
                                       "POSENC_TEST_HTTP_ADDRESS": f"127.0.0.1:{http_port(server)}"})


@pytest.mark.parametrize("program", ["triton", "kserve_client", "triton_http", "kserve_rest", "ensemble"])
def test_python(suite, program):
    python = environment("python", PACKAGES) / "bin" / "python"
    suite(f"{python} {HERE / program}.py", ".", CASE)


@pytest.mark.parametrize("module", ["tritonclient.grpc.service_pb2", "kserve.protocol.grpc.grpc_predict_v2_pb2"])
def test_go(suite, tmp_path, module):
    needs("go", "protoc")
    python = environment("python", PACKAGES) / "bin" / "python"
    run(f"GOBIN={ROOT}/build/clients/bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10\n"
        f"GOBIN={ROOT}/build/clients/bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1", ROOT)
    files = run(f"{python} {HERE}/descriptors.py {module} descriptors", tmp_path).split()
    places = " ".join(f"--go_opt=M{file}=oip/inference --go-grpc_opt=M{file}=oip/inference" for file in files)
    run(f"PATH={ROOT}/build/clients/bin:$PATH protoc --descriptor_set_in=descriptors --go_out=. --go-grpc_out=. "
        f"--go_opt=module=oip --go-grpc_opt=module=oip {places} {' '.join(files)}", tmp_path)
    shutil.copy(HERE / "main.go", tmp_path)
    package = ROOT / "client" / "go"  # its dependencies are the same
    (tmp_path / "go.mod").write_text((package / "go.mod").read_text().replace("module posenc.dev", "module oip"))
    shutil.copy(package / "go.sum", tmp_path)
    suite(f"cd {tmp_path} && go run .", ".", CASE)


@pytest.fixture(scope="module")
def perf_analyzer():
    directory = environment("perf_analyzer", PERF_ANALYZER, "--no-deps")
    program = directory / "bin" / "perf_analyzer"
    [libraries] = directory.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")
    variables = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    linked = subprocess.run(["ldd", program], env=variables, capture_output=True, text=True).stdout
    missing = re.findall(r"(\S+) => not found", linked)
    if missing:
        pytest.skip(f"perf_analyzer needs {missing[0]}")
    return program, variables


def q(**more):
    """A file of data for --input-data."""
    return {"data": [{"q": {"content": [0.5] * 4096, "shape": [1, 1, 32, 128]}, **more}]}


POSITIONS = {"position_ids": {"content": [7], "shape": [1, 1]}}
K = {"k": {"content": [0.5] * 1024, "shape": [1, 1, 8, 128]}}
OFFSET = ("--request-parameter", "offset:7:int")
SHAPES = ("--shape", "q:1,1,32,128", "--shape", "k:1,1,8,128", "--shape", "position_ids:1,1")
IN_MEMORY = ("--shared-memory", "system", "--output-shared-memory-size", "16384", *SHAPES)
LOADS = {
    "closed loop": (q(), *OFFSET),
    "closed loop of four": (q(), *OFFSET, "--concurrency-range", "4"),
    "asynchronous": (q(), *OFFSET, "--async", "--concurrency-range", "4"),
    "stream": (q(), *OFFSET, "--streaming"),
    "open loop": (q(), *OFFSET, "--request-rate-range", "200"),
    "position_ids": (q(**POSITIONS),),
    "zeros": ("zero", *SHAPES),
    "shared memory": (q(**K, **POSITIONS), *IN_MEMORY),
    "shared memory, open loop": (q(**K, **POSITIONS), *IN_MEMORY, "--request-rate-range", "200"),
    "shared memory of four": (q(**K, **POSITIONS), *IN_MEMORY, "--concurrency-range", "4"),
}


@pytest.mark.parametrize("load, flags", [(load[0], load[1:]) for load in LOADS.values()], ids=LOADS)
def test_perf_analyzer(perf_analyzer, server, tmp_path, load, flags):
    flags = ("-u", f"127.0.0.1:{server.port}", "-i", "grpc", "--request-parameter", "layout:BSHD:string", *flags)
    measure(perf_analyzer, server, tmp_path, "llama", load, flags)


# Over HTTP, perf_analyzer sends no parameters, without which a rotation says neither its layout nor its positions.
SCORES = {"data": [{"scores": {"content": [0.5] * 4096, "shape": [1, 16, 16, 16]}}]}
OVER_HTTP = {
    "closed loop": (), "closed loop of four": ("--concurrency-range", "4"),
    "asynchronous": ("--async", "--concurrency-range", "4"), "open loop": ("--request-rate-range", "200"),
    "JSON": ("--input-tensor-format", "json", "--output-tensor-format", "json"),
}


@pytest.mark.parametrize("flags", OVER_HTTP.values(), ids=OVER_HTTP)
def test_perf_analyzer_over_http(perf_analyzer, server, tmp_path, flags):
    measure(perf_analyzer, server, tmp_path, "bloom.add_bias", SCORES, ("-u", f"127.0.0.1:{http_port(server)}", "-i", "http", *flags))


def measure(perf_analyzer, server, tmp_path, model, load, flags):
    program, variables = perf_analyzer
    if load != "zero":
        (tmp_path / "data.json").write_text(json.dumps(load))
        load = "data.json"
    with InferenceClient(server.port) as client:
        def count():
            return client.call("ModelStatistics", name=model).model_stats[0].inference_stats.success.count
        before = count()
        ended = subprocess.run(
            [program, "-m", model, "--input-data", load, "--measurement-interval", "300", "--stability-percentage", "999", *flags], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        counted = {name: int(number) for name, number in re.findall(r"^\s+(\S.*): (\d+)$", ended.stdout, re.MULTILINE)}
        assert 0 < counted["Request count"] <= count() - before, ended.stdout
        assert 0 < counted["Successful request count"] <= count() - before, ended.stdout
        assert not client.call("SystemSharedMemoryStatus").regions


def test_the_page(server, tmp_path):
    """The program on docs/oip.md prints what the page says."""
    python = environment("python", PACKAGES) / "bin" / "python"
    page = (ROOT / "docs" / "oip.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = run(f"{python} - <<'END'\n{program.replace('localhost:50051', f'127.0.0.1:{server.port}')}\nEND", tmp_path)
    assert f"It prints `{printed.strip()}`" in page


def test_curl(server, tmp_path):
    """The command on docs/oip.md."""
    needs("curl")
    page = (ROOT / "docs" / "oip.md").read_text()
    [command] = re.findall(r"^(curl .*?)^```$", page, re.MULTILINE | re.DOTALL)
    said = json.loads(run(command.replace("curl localhost:8000", f"curl -s 127.0.0.1:{http_port(server)}"), tmp_path))
    assert [(output["name"], output["shape"]) for output in said["outputs"]] == [("cos", [2, 64]), ("sin", [2, 64])]
    assert said["outputs"][0]["data"][:64] == [1] * 64
