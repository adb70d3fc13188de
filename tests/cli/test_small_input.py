"""`transom query` without Spark: which input it reads itself, and that the answers are those of Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from transom.cli import small_input
from transom.cli.adhoc_options import read_adhoc
from transom.cli.backend_choice import BackendChoice
from transom.cli.main import OK, USAGE, app

ROWS: list[dict[str, Any]] = [
    {"site": 1, "name": "a b", "price": 2.5, "ts": "2024-01-01T00:00:01Z"},
    {"site": 2, "name": "JFK", "price": 3.0, "ts": "2024-01-01T00:00:31Z"},
    {"site": 1, "name": None, "price": None, "ts": "2024-01-01T00:01:31Z"},
]
COUNT = (
    "SELECT upper(name) AS name, count(*) AS n, sum(price * site) AS total, max(site) AS site "
    "FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY upper(name)"
)


def _written(directory: Path, format: str) -> str:
    table, path = pa.Table.from_pylist(ROWS), directory / f"bids.{format}"
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "csv":
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in ROWS]
        path.write_text("\n".join(["site,name,price,ts", *lines]))
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS))
    return str(path)


def _choice(path: str, sql: str = COUNT, **options: list[str]) -> str:
    """The backend that `transom query` chooses."""
    pipeline = read_adhoc([sql], [], [f"bids={path}"], [], {"time": ["ts"], **options})
    engine = small_input.local_engine(pipeline)
    if engine is None:
        return "spark"
    engine.stop()
    return "local"


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_small_plain_files_need_no_spark(tmp_path: Path, format: str) -> None:
    assert _choice(_written(tmp_path, format)) == "local"


def test_a_function_that_only_spark_has_needs_spark(tmp_path: Path) -> None:
    path = _written(tmp_path, "json")
    assert _choice(path, COUNT.replace("upper", "soundex")) == "spark"


def test_unusual_files_and_options_need_spark(tmp_path: Path) -> None:
    path = tmp_path / "bids.csv"
    path.write_text('ts,name\n2024-01-01T00:00:01Z,"a ""b"""\n')
    assert _choice(str(path), "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]") == "spark"


def test_large_files_are_for_spark(tmp_path: Path) -> None:
    path = tmp_path / "bids.json"
    with path.open("w") as file:
        file.truncate(small_input.MAX_TEXT_BYTES + 1)  # a sparse file: its content is not read
    assert _choice(str(path)) == "spark"


def test_errors_are_reported_without_starting_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path, "json")
    bids = ["--from", f"bids={path}"]
    monkeypatch.setitem(sys.modules, "pyspark", None)  # importing it fails
    cases = {
        "no column tss": ["query", COUNT, *bids, "--time", "tss"],
        "did you mean price": ["query", COUNT.replace("price *", "pricee *"), *bids, "--time", "ts"],
        "no such file": ["query", COUNT, "--from", f"bids={tmp_path}/none.json", "--time", "ts"],
    }
    for message, arguments in cases.items():
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == USAGE
        assert message in done.stderr


def test_a_master_is_for_spark(tmp_path: Path) -> None:
    bids = ["--from", f"bids={_written(tmp_path, 'json')}", "--time", "ts"]
    done = CliRunner().invoke(app, ["query", COUNT, *bids, "--master", "local[1]", "--backend", "local"])
    assert done.exit_code == USAGE
    assert "a Spark master is for the Spark backend" in done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_both_backends_print_the_same(tmp_path: Path, format: str) -> None:
    bids = ["--from", f"bids={_written(tmp_path, format)}", "--time", "ts", "--full"]
    printed = []
    for choice in (BackendChoice.AUTO, BackendChoice.SPARK):
        done = CliRunner().invoke(app, ["query", COUNT, *bids, "--backend", choice.value, "--format", "csv"])
        assert done.exit_code == OK, done.stderr
        without_clock = [line.split(",")[:-2] for line in done.stdout.splitlines()]  # made, latency
        printed.append(without_clock)
    assert len(printed[0]) == 4
    assert printed[0] == printed[1]
