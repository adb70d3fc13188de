"""Pipeline files with tables of Delta Lake: run, checked and diagnosed as a user does it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from tests.lake.conftest import append, bids, table_rows
from transom.cli.main import app

PIPELINE = """
engine: {backend: local, checkpoint: checkpoint}
tables:
  sites: {format: delta, path: sites, refresh: 1 minute}
streams:
  bids:
    format: delta
    path: bids
    options: {startingVersion: 0, maxFilesPerTrigger: 100}
    select: SELECT site, price / 100 AS price, ts FROM bids WHERE price > 0
    time: ts
queries:
  by_city:
    sql: >
      SELECT city, count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute], sites
      WHERE bids.site = sites.site GROUP BY city
    sinks:
      - {format: delta, path: out/by_city, options: {mode: upsert, partition_by: day, delta.appendOnly: false}}
sinks:
  - {format: delta, path: out/all}
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    append(tmp_path / "bids", bids((1, "12:00:01"), (1, "12:00:02"), (2, "12:01:02"), price=250.0))
    append(tmp_path / "bids", bids((1, "12:02:03"), price=-1.0))
    cities = pa.table({"site": pa.array([1, 2], pa.int32()), "city": ["Oslo", "Rome"]})
    write_deltalake(str(tmp_path / "sites"), cities)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


def findings(file: Path) -> dict[str, dict[str, Any]]:
    done = run("doctor", "--json", str(file))
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_a_pipeline_reads_and_writes_tables(pipeline: Path) -> None:
    """The paths are relative to the file. A second run finds nothing to do, and a third one a new version."""
    for _ in range(2):
        done = run("run", str(pipeline), "--drain")
        assert done.exit_code == 0, done.output
        rows = table_rows(pipeline.parent / "out/by_city", ["query", "city", "n", "total"])
        found = sorted(tuple(row.values()) for row in rows)
        assert found == [("by_city", "Oslo", 2, 5.0), ("by_city", "Rome", 1, 2.5)]
    append(pipeline.parent / "bids", bids((2, "12:05:01"), price=100.0))
    assert run("run", str(pipeline), "--drain").exit_code == 0
    assert (
        len(table_rows(pipeline.parent / "out/by_city")) == len(table_rows(pipeline.parent / "out/all")) == 3
    )


def test_a_pipeline_is_checked_without_running_it(pipeline: Path) -> None:
    assert run("check", str(pipeline)).exit_code == 0
    assert not (pipeline.parent / "out").exists() and not (pipeline.parent / "checkpoint/sink").exists()
    pipeline.write_text(PIPELINE.replace("mode: upsert", "mode: merge"))
    done = run("check", str(pipeline))
    assert done.exit_code != 0 and "mode: expected append or upsert, not merge" in done.output


def test_a_plan_on_spark_needs_no_jvm(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*given: Any, **more: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("transom.backends.spark.session.start_session", start)
    pipeline.write_text(PIPELINE.replace("backend: local, ", ""))
    done = run("explain", str(pipeline))
    assert done.exit_code == 0 and "by_city" in done.output, done.output


def test_the_doctor_opens_every_table(pipeline: Path) -> None:
    found = findings(pipeline)
    assert (
        found["connector deltalake"]["message"] == f"deltalake {metadata.version('deltalake')} is installed"
    )
    assert found["table of streams.bids"]["message"].endswith("bids is at version 1")
    assert found["table of tables.sites"]["message"].endswith("sites is at version 0")
    assert "is made when the first results" in found["table of queries.by_city.sinks[0]"]["message"]
    pipeline.write_text(PIPELINE.replace("path: sites", "path: cities"))
    assert "there is no table of Delta Lake at" in findings(pipeline)["table of tables.sites"]["message"]


def test_the_doctor_says_what_to_install(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def without(package: str) -> str:
        if package == "deltalake":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", without)
    finding = findings(pipeline)["connector deltalake"]
    assert finding["severity"] == "problem" and finding["advice"] == "pip install 'transom[delta]'"


def test_secrets_are_nowhere(pipeline: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Neither in messages nor in the log nor in the checkpoint."""
    monkeypatch.setenv("TRANSOM_LAKE_KEY", "quite-secret-key")
    store = (
        "{aws_access_key_id: me, aws_secret_access_key: '${env:TRANSOM_LAKE_KEY}', aws_region: eu-central-1, "
        "endpoint: 'http://127.0.0.1:1/${env:TRANSOM_LAKE_KEY}', allow_http: true, max_retries: 0}"
    )
    text = PIPELINE.replace("path: out/all", f"path: 's3://bucket/all', options: {store}")
    pipeline.write_text(text)
    done = run("run", str(pipeline), "--drain")
    assert done.exit_code == 1 and "s3://bucket/all can't be read" in done.output
    doctor = run("doctor", str(pipeline)).output
    stored = b"".join(
        file.read_bytes() for file in (pipeline.parent / "checkpoint").rglob("*") if file.is_file()
    )
    assert "quite-secret-key" not in done.output + doctor + caplog.text and b"quite-secret" not in stored
