"""`transom doctor` names what is wrong, says what to do, starts nothing and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import transom
from tests.runtime.engine_helpers import BIDS, PER_SITE, bids
from transom.cli.doctor import installation, servers
from transom.cli.doctor.finding import Severity
from transom.cli.main import app
from transom.state import checkpoint_format

PIPELINE = """
engine: {backend: BACKEND, checkpoint: checkpoint}
server: {port: PORT}
streams: {bids: {push: true, schema: "site int, price double, ts timestamp", time: ts}}
queries: {per_site: "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"}
"""
KAFKA = """
engine: {spark: {"spark.jars.packages": "PACKAGES"}}
streams:
  bids:
    format: kafka
    options: {"kafka.bootstrap.servers": "127.0.0.1:PORT", "subscribe": "${env:TOPIC}"}
    decode: {format: avro, schema_file: bids.avsc}
    time: ts
queries: {n: "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]"}
"""
KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
Findings = dict[str, dict[str, Any]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def doctor(*arguments: str) -> tuple[int, Findings]:
    """The exit code, and the findings by their checks; of several findings of a check, the worst."""
    done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    answer = json.loads(done.stdout)
    order = list(Severity)
    findings: Findings = {}
    for finding in sorted(answer["findings"], key=lambda each: order.index(Severity(each["severity"]))):
        assert finding["severity"] == "ok" or finding["advice"], finding
        findings[finding["check"]] = finding
    assert answer["fine"] == (done.exit_code == 0)
    return done.exit_code, findings


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace("BACKEND", "local").replace("PORT", str(free_port())))
    return file


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with results, late rows and rejected rows, which no engine uses."""
    place = tmp_path / "checkpoint"
    with transom.Engine(backend="local", checkpoint=place) as engine:
        feed = engine.feed("bids", BIDS, time="ts")
        engine.register(PER_SITE, "per_site")
        feed.push(bids((1, 1.0, "12:00"), (2, 1.0, None)))
        engine.step()
        feed.push(bids((1, 1.0, "12:10")))
        engine.step()
        feed.push(bids((1, 1.0, "12:01")))
        engine.step()
    return place


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- the installation ---


def test_a_whole_installation_has_no_problem(pipeline: Path) -> None:
    code, findings = doctor(str(pipeline))
    assert code == 0
    assert {each["severity"] for each in findings.values()} == {"ok"}
    assert findings["python"]["message"].startswith(f"Python {sys.version_info.major}.")
    assert findings["java"]["message"] == "not needed: the pipeline runs on the local backend"


def test_text_has_a_line_for_each_finding_and_the_advice_below(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor", "--port", str(free_port())])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("problem  java"))
    assert "there is no bin/java in it" in lines[at] and "-> Spark runs on Java" in lines[at + 1]
    assert lines[-1].startswith("1 problems, ")


def test_a_java_that_is_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, findings = doctor()
    assert code == 1 and "too old" in findings["java"]["message"]
    assert "apt install openjdk-17" in findings["java"]["advice"]


@pytest.mark.parametrize(("backend", "severity"), [("spark", "problem"), ("local", "warning")])
def test_missing_packages_are_a_problem_if_the_pipeline_needs_them(
    backend: str, severity: str, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.write_text(pipeline.read_text().replace("local", backend))
    real = installation.importlib.util.find_spec
    monkeypatch.setattr(
        installation.importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name)
    )
    code, findings = doctor(str(pipeline))
    assert findings["extra spark"]["severity"] == severity
    assert findings["extra spark"]["advice"] == "pip install 'transom[spark]'"
    assert code == (severity == "problem")


def test_another_version_of_spark_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.metadata, "version", lambda name: "3.5.1")
    monkeypatch.setattr(installation, "_needed_spark", lambda: "4.3")
    code, findings = doctor()
    assert code == 1 and findings["spark"]["message"] == "Spark 3.5.1 is installed, and Transom needs 4.3"


WORKERS = [
    ("missing", "which does not run"),
    ("#!/bin/sh\necho 3.8\n", "is Python 3.8, and this is Python"),
]


@pytest.mark.parametrize(("script", "message"), WORKERS, ids=["no program", "another version"])
def test_an_unfit_python_of_workers_is_a_problem(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    if script != "missing":
        python.write_text(script)
        python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    code, findings = doctor()
    assert code == 1 and message in findings["python workers"]["message"]


def test_a_spark_home_of_another_version_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "missing"))
    code, findings = doctor()
    assert (code, findings["spark home"]["severity"]) == (0, "warning")
    assert "not a directory" in findings["spark configuration"]["message"]


# --- the pipeline file and its server ---


def test_a_file_with_a_mistake_is_a_problem(pipeline: Path) -> None:
    pipeline.write_text(pipeline.read_text().replace("time: ts", "tiem: ts"))
    code, findings = doctor(str(pipeline))
    assert code == 1 and "tiem" in findings["pipeline"]["message"]


def test_a_query_with_a_mistake_is_a_problem(pipeline: Path) -> None:
    pipeline.write_text(pipeline.read_text().replace("GROUP BY site", "GROUP BY sight"))
    code, findings = doctor(str(pipeline))
    assert code == 1 and "sight" in findings["pipeline"]["message"]


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    code, findings = doctor(str(tmp_path / "missing.yaml"))
    assert code == 1 and "No such file" in findings["pipeline"]["message"]


def test_a_port_in_use_is_a_warning(pipeline: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, findings = doctor(str(pipeline), "--port", str(port))
    assert (code, findings["port"]["severity"]) == (0, "warning")
    assert f"127.0.0.1:{port}" in findings["port"]["message"]


def test_an_open_address_without_a_token_is_a_problem(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSOM_TOKEN", raising=False)
    pipeline.write_text(pipeline.read_text().replace("server: {", "server: {host: 0.0.0.0, "))
    code, findings = doctor(str(pipeline))
    assert code == 1 and "needs a token" in findings["server"]["message"]


# --- connectors ---


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Findings]]:
    """Checks a pipeline with a topic, and nothing downloaded."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "bids.avsc").write_text("{}")

    def check(packages: str = "", port: int | None = None, **settings: str) -> tuple[int, Findings]:
        file = tmp_path / "kafka.yaml"
        text = KAFKA.replace("PACKAGES", packages).replace("PORT", str(port or free_port()))
        for name, value in settings.items():
            text = text.replace("{spark: {", f'{{spark: {{"{name.replace("_", ".")}": "{value}", ')
        file.write_text(text)
        return doctor(str(file))

    return check


def test_missing_connectors_are_problems_that_name_the_package(
    kafka: Callable[..., tuple[int, Findings]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "bids")
    code, findings = kafka()
    finding = findings["connector spark-sql-kafka-0-10_2.13"]
    assert code == 1 and finding["severity"] == "problem"
    assert f"set spark.jars.packages to {KAFKA_PACKAGE}:4." in finding["advice"]
    assert findings["connector spark-avro_2.13"]["severity"] == "problem"


def test_a_package_to_be_downloaded_is_a_warning_until_it_is_there(
    kafka: Callable[..., tuple[int, Findings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "bids")
    packages = f"{KAFKA_PACKAGE}:4.2.0, org.apache.spark:spark-avro_2.13:4.2.0"
    code, findings = kafka(packages)
    assert (code, findings["connector spark-sql-kafka-0-10_2.13"]["severity"]) == (0, "warning")
    jar = tmp_path / "home/.ivy2.5.2/jars/org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    _, findings = kafka(packages)
    assert findings["connector spark-sql-kafka-0-10_2.13"]["severity"] == "ok"
    assert findings["connector spark-avro_2.13"]["severity"] == "warning"


def test_a_jar_on_the_path_is_fine_and_one_that_is_gone_is_a_problem(
    kafka: Callable[..., tuple[int, Findings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "bids")
    jars = [tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar", tmp_path / "spark-avro_2.13-4.2.0.jar"]
    jars[0].touch()
    _, findings = kafka(spark_jars=",".join(map(str, jars)))
    assert findings["connector spark-sql-kafka-0-10_2.13"]["severity"] == "ok"
    assert "does not exist" in findings["connector spark-avro_2.13"]["message"]


JARS = [
    ("an address of a store", "s3a://jars/spark-avro_2.13-4.2.0.jar", "ok"),
    ("an address of a file", "file://PLACE/spark-avro_2.13-4.2.0.jar", "ok"),
    ("a file that is not there", "file://PLACE/missing/spark-avro_2.13-4.2.0.jar", "problem"),
]


@pytest.mark.parametrize(("jar", "severity"), [c[1:] for c in JARS], ids=[c[0] for c in JARS])
def test_jars_can_be_addresses(
    jar: str,
    severity: str,
    kafka: Callable[..., tuple[int, Findings]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPIC", "bids")
    (tmp_path / "spark-avro_2.13-4.2.0.jar").touch()
    _, findings = kafka(spark_jars=jar.replace("PLACE", str(tmp_path)))
    assert findings["connector spark-avro_2.13"]["severity"] == severity


def test_settings_of_spark_defaults_count(
    kafka: Callable[..., tuple[int, Findings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "bids")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    jar = tmp_path / "spark-avro_2.13-4.2.0.jar"
    jar.touch()
    (tmp_path / "spark-defaults.conf").write_text(f"# jars\nspark.jars   {jar}\n")
    _, findings = kafka()
    assert findings["connector spark-avro_2.13"]["severity"] == "ok"


SERVERS = """
streams:
  bids:
    {format: kafka, options: {"kafka.bootstrap.servers": "127.0.0.1:PORT", "subscribe": "${env:TOPIC}"},
     schema: "ts timestamp", time: ts}
tables:
  sites: {format: jdbc, options: {url: "jdbc:postgresql://127.0.0.1:PORT/shop", password: "${env:DB}", dbtable: t}}
queries: {}
engine: {spark: {spark.hadoop.key: "${env:STORE}"}}
alert_sinks:
  events: {topic: alerts, options: {"kafka.bootstrap.servers": "${env:EVENTS}"}}
  pager: {webhook: "http://127.0.0.1:PORT/${env:HOOK}", headers: {Authorization: "Bearer ${env:BEARER}"}}
"""
SECRETS = {
    "TOPIC": "streams.bids",
    "DB": "tables.sites",
    "STORE": "engine.spark",
    "HOOK": "alert_sinks.pager",
    "BEARER": "alert_sinks.pager",
    "EVENTS": "alert_sinks.events",
}


@pytest.mark.parametrize("missing", SECRETS)
def test_a_secret_that_is_not_there_is_a_problem(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "value")
    monkeypatch.delenv(missing)
    file = tmp_path / "pipeline.yaml"
    file.write_text(SERVERS.replace("PORT", str(free_port())))
    code, findings = doctor(str(file))
    assert code == 1
    assert [name for name in findings if name.startswith("secrets")] == [f"secrets of {SECRETS[missing]}"]
    assert f"{missing} is not set" in findings[f"secrets of {SECRETS[missing]}"]["message"]


def test_brokers_databases_and_webhooks_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "a-secret")
    file = tmp_path / "pipeline.yaml"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        file.write_text(SERVERS.replace("PORT", str(port)))
        monkeypatch.setenv("EVENTS", f"127.0.0.1:{port}")
        _, up = doctor(str(file))
    _, down = doctor(str(file))
    for kind in ("broker", "database", "webhook"):
        check = f"{kind} 127.0.0.1:{port}"
        assert (up[check]["severity"], down[check]["severity"]) == ("ok", "warning")
        assert f"start the {kind}" in down[check]["advice"]
    assert "a-secret" not in str(down)


def test_drivers_of_databases_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jdbc.yaml"
    table = 'tables: {t: {format: jdbc, options: {url: "jdbc:postgresql://127.0.0.1/shop", dbtable: t}}}\n'
    file.write_text(PIPELINE.replace("BACKEND", "spark").replace("PORT", str(free_port())) + table)
    _, findings = doctor(str(file))
    assert "org.postgresql:postgresql" in findings["connector postgresql"]["advice"]


# --- the checkpoint ---


def test_a_whole_checkpoint_is_fine_and_stays_as_it_is(checkpoint: Path) -> None:
    before = content(checkpoint)
    code, findings = doctor("--checkpoint", str(checkpoint))
    assert code == 0
    assert "batch 3 is committed, 1 query" in findings["checkpoint"]["message"]
    assert findings["files of the checkpoint"]["severity"] == "ok"
    assert content(checkpoint) == before


def test_every_damaged_file_is_named(checkpoint: Path) -> None:
    """Flip a bit of each file in turn; the lease's is not read by the next engine."""
    files = [path for path in content(checkpoint) if path.stat().st_size and path.parent.name != "lease"]
    assert {path.relative_to(checkpoint).parts[0] for path in files} >= {
        "log",
        "state",
        "results",
        "late",
        "feeds",
    }
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        _, findings = doctor("--checkpoint", str(checkpoint))
        finding = findings["files of the checkpoint"]
        assert finding["severity"] != "ok" and path.parent.name in finding["message"], path
        path.write_bytes(whole)


def test_results_that_are_missing_are_named(checkpoint: Path) -> None:
    batch = min((checkpoint / "results").iterdir())
    shutil.rmtree(batch)
    _, findings = doctor("--checkpoint", str(checkpoint))
    assert f"results/{batch.name}" in findings["files of the checkpoint"]["message"]


def test_a_damaged_last_state_is_a_warning_and_two_are_a_problem(checkpoint: Path) -> None:
    states = sorted((checkpoint / "state").iterdir())
    states[-1].write_bytes(states[-1].read_bytes()[:-1])
    code, findings = doctor("--checkpoint", str(checkpoint))
    assert (code, findings["files of the checkpoint"]["severity"]) == (0, "warning")
    assert "batch 2 is committed, batch 3 is begun" in findings["checkpoint"]["message"]
    states[-2].write_bytes(states[-2].read_bytes()[:-1])
    code, findings = doctor("--checkpoint", str(checkpoint))
    assert (code, findings["checkpoint"]["severity"]) == (1, "problem")
    assert "restore the file from a backup" in findings["checkpoint"]["advice"]


def test_another_format_is_a_problem(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_format, "FORMAT_VERSION", 99)
    code, findings = doctor("--checkpoint", str(checkpoint))
    assert code == 1 and "this version of transom reads format 99" in findings["checkpoint"]["message"]


def test_a_checkpoint_in_use_is_a_warning(tmp_path: Path) -> None:
    with transom.Engine(backend="local", checkpoint=tmp_path / "used") as engine:
        feed = engine.feed("bids", BIDS, time="ts")
        feed.push(bids((1, 1.0, "12:00")))
        engine.step()
        code, findings = doctor("--checkpoint", str(tmp_path / "used"))
        assert (code, findings["lease"]["severity"]) == (0, "warning")
        assert f"process {os.getpid()}" in findings["lease"]["message"]
        feed.push(bids((1, 1.0, "12:01")))
        engine.step()  # the engine still has its lease


def test_a_new_checkpoint_is_fine_where_it_can_be_created(tmp_path: Path) -> None:
    code, findings = doctor("--checkpoint", str(tmp_path / "a" / "b"))
    assert (code, "is new" in findings["checkpoint"]["message"]) == (0, True)
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    code, findings = doctor("--checkpoint", str(tmp_path / "file" / "b"))
    assert code == 1 and "can't be created" in findings["checkpoint"]["message"]


def test_little_space_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "LEAST_FREE", 1 << 62)
    assert doctor()[1]["disk"]["severity"] == "warning"


def test_no_check_starts_spark(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transom.backends.spark import session

    def started(*args: object, **options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start_session", started)
    pipeline.write_text(pipeline.read_text().replace("local", "spark"))
    doctor(str(pipeline))
    assert servers.CONNECT_SECONDS < 10
