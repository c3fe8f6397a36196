"""deploy/: the chart, the compose file and the Dockerfile agree with the server. deploy/check-chart checks the templates."""

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
from test_dashboard import check, tool

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "posenc"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
GOLDEN = sorted((ROOT / "tests" / "chart" / "golden").glob("*.yaml"))
# Flags that follow from other values of the chart.
OF_THE_CHART = {
    "listen", "port-file", "metrics-listen", "health-listen", "tls-cert", "tls-key", "tls-client-ca", "tls-client-auth",
    "reflection", "shared-memory-socket", "shared-memory-prefix", "max-region-bytes", "drain-notice", "drain-timeout",
}
SIZE = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ ?(KiB|MiB|GiB)?$"}
TYPES = {"TEXT": {"type": "string"}, "BYTES": SIZE}


def run(program, *arguments, **options):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=SECONDS, **options).stdout


def flags(build):
    """Flag: its schema, from `posenc-server --help`."""
    found = re.findall(r"^  --([a-z-]+) (\S+) \[[^\]]*\]\s+(.+)$", run(build / "bin" / "posenc-server", "--help"), re.MULTILINE)
    return {flag: {"description": text, **({"enum": unit.split("|")} if "|" in unit else
                                           TYPES.get(unit, {"type": "integer", "minimum": 0}))}
            for flag, unit, text in found}


def server_of(golden):
    """The pod's specification and the server's variables."""
    objects = [made for made in yaml.safe_load_all(golden.read_text()) if made]
    pod, = (made["spec"]["template"]["spec"] for made in objects if made["kind"] == "Deployment")
    return pod, {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}


def test_settings_of_the_chart_are_the_flags(build):
    real = flags(build)
    assert OF_THE_CHART < real.keys()
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
def test_a_server_starts_with_the_variables_of_the_chart(golden, build, start_server, tmp_path):
    pod, variables = server_of(golden)
    assert {"POSENC_SERVER_" + flag.upper().replace("-", "_") for flag in flags(build)} >= variables.keys()
    assert pod["terminationGracePeriodSeconds"] > 5 + sum(
        int(variables[f"POSENC_SERVER_DRAIN_{part}"]) for part in ["NOTICE", "TIMEOUT"])

    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    here = {**variables, "POSENC_SERVER_HEALTH_LISTEN": "127.0.0.1:0", "POSENC_SERVER_DRAIN_NOTICE": "0"}
    for name, path in {"METRICS_LISTEN": "127.0.0.1:0", "TLS_CERT": certificate, "TLS_KEY": key,
                       "TLS_CLIENT_CA": authority.certificate, "SHARED_MEMORY_SOCKET": tmp_path / "memory.sock"}.items():
        if f"POSENC_SERVER_{name}" in here:
            here[f"POSENC_SERVER_{name}"] = str(path)
    log = start_server(**here).log_with("serving")
    assert "no such setting" not in log


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
    for service in services.values():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            assert rest.startswith("/") and (not source.startswith("/") or source.endswith("/tls") or
                                             os.path.exists(source)), volume


def test_prometheus_of_the_compose_file_scrapes_its_servers():
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "compose.yml").read_text())
    job, = configuration["scrape_configs"]
    assert job["job_name"] == "posenc"
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in [*(target.partition(":")[0] for target in job["static_configs"][0]["targets"]), *job["dns_sd_configs"][0]["names"]]:
        assert services[name]["environment"]["POSENC_SERVER_METRICS_LISTEN"].endswith(f":{job['dns_sd_configs'][0]['port']}")
    check(tool("promtool"), "check", "config", "compose.yml", cwd=DEPLOY / "prometheus")
