"""The chart, the compose file and the Dockerfile agree with the server. deploy/check-chart checks the chart's templates."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from certificates import Authority
from client import SECONDS
from conftest import ROOT
from inference_client import InferenceClient
from test_dashboard import check, tool

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "posenc"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
GOLDEN = sorted((ROOT / "tests" / "chart" / "golden").glob("*.yaml"))
# Flags that follow from other values of the chart.
OF_THE_CHART = {
    "listen", "policy", "token-file", "trusted-proxy", "http-trusted-proxy", "otlp-endpoint", "port-file", "http-listen", "metrics-listen", "health-listen", "tls-cert", "tls-key", "tls-client-ca", "tls-client-auth",
    "reflection", "shared-memory-socket", "shared-memory-prefix", "max-region-bytes", "drain-notice", "drain-timeout",
}
SIZE = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ ?(KiB|MiB|GiB)?$"}
TYPES = {"TEXT": {"type": "string"}, "BYTES": SIZE}


def run(program, *arguments, **options):
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=SECONDS, **options)
    assert ended.returncode == 0, ended
    return ended.stdout


def flags(build):
    """Flag: its schema, from `posenc-server --help`."""
    text = re.sub(r"\n {30}", " ", run(build / "bin" / "posenc-server", "--help"))  # one line a flag
    found = re.findall(r"^  --([a-z-]+) (\S+) \[[^\]]*\]\s+(.+)$", text, re.MULTILINE)
    number = {"type": "integer", "minimum": 0}
    return {flag: {"description": about, **({"enum": unit.split("|")} if "|" in unit else TYPES.get(unit, number))}
            for flag, unit, about in found}


def objects_of(golden):
    """Kind: the object of that kind. Services are left out, because there are two."""
    return {made["kind"]: made for made in yaml.safe_load_all(golden.read_text()) if made and made["kind"] != "Service"}


def test_settings_of_the_chart_are_the_flags(build):
    real = flags(build)
    assert OF_THE_CHART < real.keys()
    # A new flag goes into values.schema.json, or into OF_THE_CHART if it follows from other values.
    assert SCHEMA["properties"]["settings"]["properties"] == \
        {flag: schema for flag, schema in real.items() if flag not in OF_THE_CHART}


def leaves(schema, path=()):
    """The paths of a schema's values. A value without fields of its own is a leaf."""
    assert schema.get("description") or not path, f"{'.'.join(path)} has no description"
    if not schema.get("properties") or path in [("settings",), ("resources",)]:
        yield path
        return
    assert schema["additionalProperties"] is False, path
    for name, part in schema["properties"].items():
        yield from leaves(part, (*path, name))


def test_every_value_is_described_and_has_a_default():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in leaves(SCHEMA):
        if path == ("global",):
            continue
        part = values
        for name in path:
            assert name in part, f"values.yaml lacks {'.'.join(path)}"
            part = part[name]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_a_server_as_in_the_chart_passes_the_test_of_the_chart(golden, build, start_server, posenc, tmp_path):
    objects = objects_of(golden)
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    of_traces = {"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_RESOURCE_ATTRIBUTES"}
    assert variables.keys() - of_traces <= {"POSENC_SERVER_" + flag.upper().replace("-", "_") for flag in flags(build)}
    drain = [int(variables[f"POSENC_SERVER_DRAIN_{part}"]) for part in ("NOTICE", "TIMEOUT")]
    assert pod["terminationGracePeriodSeconds"] > sum(drain) + 5

    # The arguments of `posenc health`; none if there is no test.
    test = objects["Pod"]["spec"]["containers"][0]["args"] if "Pod" in objects else []
    arguments = dict(argument.split("=", 1) for argument in test[1:])
    authority = Authority(tmp_path)
    certificate, key = authority.issue(arguments.get("--tls-server-name", "server"))
    policy, tokens = tmp_path / "policy.json", tmp_path / "tokens"
    policy.write_text('{"identities": [{"name": "a", "allow": ["compute"]}]}')
    tokens.write_text(f"a {'0' * 64}")
    repository, files = tmp_path / "models", objects.get("ConfigMap", {"data": {}})["data"]
    repository.mkdir()
    for item in [item for volume in pod.get("volumes", []) for item in volume.get("configMap", {}).get("items", [])]:
        if item["key"] in files:
            (repository / item["path"]).parent.mkdir()
            (repository / item["path"]).write_text(files[item["key"]])
    # Ports and files of this machine in place of the pod's.
    own = {"METRICS_LISTEN": "127.0.0.1:0", "HEALTH_LISTEN": "127.0.0.1:0", "TLS_CERT": certificate, "TLS_KEY": key,
           "POLICY": policy, "TOKEN_FILE": tokens, "MODEL_REPOSITORY": repository,
           "TLS_CLIENT_CA": authority.certificate, "SHARED_MEMORY_SOCKET": tmp_path / "memory.sock", "DRAIN_NOTICE": 0}
    own = {f"POSENC_SERVER_{name}": str(value) for name, value in own.items()}
    server = start_server(**{name: own.get(name, value) for name, value in variables.items()})
    assert "no such setting" not in server.log_with("serving")
    own = {"--server": f"127.0.0.1:{server.port}", "--tls-ca": authority.certificate, "--tls-cert": certificate,
           "--tls-key": key}
    if files:
        with InferenceClient(server.port) as client:
            models = {model.name: model.state for model in client.call("RepositoryIndex").models}
        assert all(models[name.removesuffix(".json")] == "READY" for name in files), models
    if test:
        posenc(test[0], *(f"{flag}={own.get(flag, value)}" for flag, value in arguments.items()))


def test_alerts_of_the_chart_are_those_of_prometheus():
    assert (CHART / "files" / "alerts.yml").read_text() == (DEPLOY / "prometheus" / "alerts.yml").read_text(), \
        "deploy/check-chart --update copies them"


def test_versions_agree(build):
    version = run(build / "bin" / "posenc-server", "--version").split()[-1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()


def compose(*profiles):
    """The compose file as docker-compose understands it."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("no docker-compose (scripts/install-dependencies image)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSENC_")}
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    return yaml.safe_load(run(program, "--file", DEPLOY / "compose.yaml", *chosen, "config", env=environment))


def test_docker_compose_accepts_every_profile():
    services = compose("tls", "grafana")["services"]
    assert {name: service.get("profiles", []) for name, service in services.items()} == {
        "posenc-server": [], "posenc-server-tls": ["tls"], "prometheus": ["prometheus", "grafana"], "grafana": ["grafana"]}
    mounted = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    # A volume of Docker's, and the directory that the user makes. The others are files of this project.
    assert {path for path in mounted if not (path.startswith("/") and os.path.exists(path))} == {"prometheus", str(DEPLOY / "tls")}


def test_prometheus_of_the_compose_file_scrapes_its_servers():
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "compose.yml").read_text())
    job, = configuration["scrape_configs"]
    assert job["job_name"] == "posenc"
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    found, = job["dns_sd_configs"]
    targets = [*job["static_configs"][0]["targets"], *(f"{name}:{found['port']}" for name in found["names"])]
    assert {target.partition(":")[0] for target in targets} == {name for name in services if name.startswith("posenc-server")}
    for target in targets:
        name, _, port = target.partition(":")
        assert services[name]["environment"]["POSENC_SERVER_METRICS_LISTEN"].endswith(f":{port}")
    check(tool("promtool"), "check", "config", "compose.yml", cwd=DEPLOY / "prometheus")
