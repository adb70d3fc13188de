"""Sinks: a batch's files exactly once, other writers appended."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from tests.runtime.engine_helpers import written
from transom.backends.base import Backend
from transom.errors import SettingError

pytestmark = ON_BOTH

TABLE = pa.table(
    {
        "ts": pa.array([0, None], pa.timestamp("us", tz="UTC")),
        "fee": pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)),
        "day": pa.array([date(2013, 1, 1), None], pa.date32()),
        "n": pa.array([1, 2], pa.int64()),
    }
)


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_replayed_batch_replaces_its_files(backend: Backend, tmp_path: Path, format: str) -> None:
    sink = backend.sink(format.upper(), {"path": f"{tmp_path}/out", "header": "true"})
    assert sink.exactly_once
    for batch_id in (1, 2, 2):
        sink.write(backend.frame(TABLE), batch_id)
    found = written(tmp_path / "out", format)
    assert sorted((row["batch"], int(row["n"])) for row in found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    schema = "ts timestamp, fee decimal(12, 2), day date, n bigint"
    files = backend.open_files(f"{tmp_path}/out/batch=1", format, schema, files_per_batch=9)
    back = files.read(files.pending()[0]).to_table()
    assert back.select(TABLE.column_names).sort_by("n").equals(TABLE)


@on_spark("the local backend writes no ORC")
def test_a_replayed_batch_replaces_its_orc_files(make_engine: EngineFactory, tmp_path: Path) -> None:
    sink, reader = make_engine.backend.sink("orc", {"path": f"{tmp_path}/out"}), make_engine.session.read
    for batch_id in (1, 2, 2):
        sink.write(make_engine.backend.frame(TABLE), batch_id)
    assert {row.batch for row in reader.orc(f"{tmp_path}/out").collect()} == {1, 2}
    assert reader.orc(f"{tmp_path}/out").count() == 4


def test_options_reach_the_writer(backend: Backend, tmp_path: Path) -> None:
    sink = backend.sink("csv", {"path": str(tmp_path), "header": "true", "sep": ";"})
    sink.write(backend.frame(TABLE.select(["n", "fee"])), 1)
    (file, *_) = sorted((tmp_path / "batch=1").glob("*.csv"))
    assert file.read_text().splitlines()[0] == "n;fee"


def test_the_batch_is_told_by_the_directory_and_not_by_a_column(backend: Backend, tmp_path: Path) -> None:
    table = TABLE.append_column("batch", pa.array([3, 3], pa.int64()))
    backend.sink("json", {"path": f"{tmp_path}/out/"}).write(backend.frame(table), 3)
    assert {line.count("batch") for line in json_lines(tmp_path / "out" / "batch=3")} == {0}
    assert {row["batch"] for row in written(tmp_path / "out", "json")} == {3}


def json_lines(directory: Path) -> list[str]:
    return [line for file in directory.glob("*.json") for line in file.read_text().splitlines()]


@on_spark("JDBC is Spark's")
def test_other_writers_append(make_engine: EngineFactory) -> None:
    options = {
        "url": "jdbc:derby:memory:sinks;create=true",
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "dbtable": "results",
    }
    backend = make_engine.backend
    sink = backend.sink("jdbc", options)
    assert not sink.exactly_once
    sink.write(backend.frame(TABLE), 1)
    sink.write(backend.frame(TABLE), 1)
    back = make_engine.session.read.format("jdbc").options(**options).load().toArrow()
    assert sorted(back["n"].to_pylist()) == [1, 1, 2, 2]
    assert back["fee"].type == pa.decimal128(12, 2)


def test_the_console_shows_the_rows(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    sink = backend.sink("console", {})
    assert not sink.exactly_once
    sink.write(backend.frame(TABLE), 1)
    shown = capsys.readouterr().out
    assert "1970-01-01 00:00:00" in shown and "1.50" in shown


def test_files_need_a_path(backend: Backend) -> None:
    with pytest.raises(SettingError, match="a sink of csv files needs a path"):
        backend.sink("csv", {})


def test_an_unknown_format_is_refused_at_once(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no writer for parqet; did you mean parquet"):
        backend.sink("parqet", {"path": str(tmp_path)})
