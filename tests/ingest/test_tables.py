"""Static tables and their versions."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, STREAMING, EngineFactory, on_spark
from transom.backends.spark.driver_frame import DriverFrame
from transom.backends.spark.frame import SparkFrame
from transom.errors import SettingError, StateError
from transom.ingest.tables import StaticTables
from transom.storage.file_store import Store

SITES = pa.table({"id": pa.array([1, 2], pa.int32()), "fee": [Decimal("1.50"), None]})


def sources(make_engine: EngineFactory, directory: Path) -> dict[str, Any]:
    json, csv = directory / "sites.json", directory / "sites.csv"
    json.write_text('{"id": 1, "fee": "1.50"}\n{"id": 2}\n')
    csv.write_text("id,fee\n1,1.50\n2,\n")
    return {
        "frame": make_engine.rows(SITES),
        "arrow": SITES,
        "rows": [{"id": 1, "fee": "1.50"}, {"id": 2}],
        "json": str(json),
        "csv": str(csv),
    }


@ON_BOTH
@pytest.mark.parametrize("kind", ["frame", "arrow", "rows", "json", "csv"])
def test_a_table_comes_from_many_sources(make_engine: EngineFactory, tmp_path: Path, kind: str) -> None:
    tables = StaticTables(Store(str(tmp_path / "checkpoint")), make_engine.backend)
    version = tables.snapshot("sites", sources(make_engine, tmp_path)[kind])
    found = tables.frame("sites", version).to_table().sort_by("id").to_pydict()
    assert found["id"] == [1, 2]
    assert [fee if fee is None else float(fee) for fee in found["fee"]] == [1.5, None]


@ON_BOTH
def test_versions_stay_as_they_were_and_survive_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    tables = StaticTables(Store(str(tmp_path)), make_engine.backend)
    assert tables.latest("my sites/2") is None
    assert tables.snapshot("my sites/2", SITES) == 1
    assert tables.snapshot("my sites/2", [{"id": 7}]) == 2
    (tmp_path / "tables" / "my%20sites%2F2" / "v3").mkdir()  # a snapshot that was never finished
    again = StaticTables(Store(str(tmp_path)), make_engine.backend)
    assert again.versions("my sites/2") == [1, 2]
    assert again.columns("my sites/2") == {"id": pa.int64()}
    assert again.columns("my sites/2", 1) == {"id": pa.int32(), "fee": pa.decimal128(3, 2)}
    assert again.frame("my sites/2", 1).to_table().sort_by("id").equals(SITES)
    assert again.snapshot("my sites/2", SITES) == 3
    assert again.frame("my sites/2", 3).to_table().num_rows == 2


TYPES = pa.table(
    {
        "n": pa.array([1, None], pa.int8()),
        "x": [float("nan"), -0.0],
        "fee": [Decimal("1.50"), None],
        "at": pa.array([-(10**15), None], pa.timestamp("us", tz="UTC")),
        "local": pa.array([0, None], pa.timestamp("us")),
        "day": pa.array([-400_000, None], pa.date32()),
        "raw": [b"\x00", None],
        "tags": [["a", None], None],
        "spot": [{"lat": 1.5}, None],
        "extra": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
)


@on_spark("whether a frame is part of a query plan is seen in Spark's plan")
def test_a_small_table_is_part_of_the_plan_and_a_large_one_stays_in_its_files(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    tables = StaticTables(Store(str(tmp_path)), make_engine.backend, in_memory=2)
    tables.snapshot("small", TYPES)
    tables.snapshot("large", pa.concat_tables([TYPES, TYPES]))
    frames = tables.frame("small", 1), tables.frame("large", 1)
    assert isinstance(frames[0], DriverFrame) and isinstance(frames[1], SparkFrame)
    small, large = frames[0].df, frames[1].df
    assert (is_local(small), is_local(large)) == (True, False)
    assert small.schema == large.schema
    assert sorted(map(repr, small.collect() * 2)) == sorted(map(repr, large.collect()))


def is_local(frame: Any) -> bool:
    return "LocalRelation" in frame._jdf.queryExecution().optimizedPlan().toString()


@ON_BOTH
def test_keys_are_unique_or_not_and_nulls_do_not_count(make_engine: EngineFactory, tmp_path: Path) -> None:
    tables = StaticTables(Store(str(tmp_path)), make_engine.backend)
    table = pa.table({"a": [1, 1, 2, None, None], "b": ["x", "y", "x", "z", "z"]})
    version = tables.snapshot("t", table)
    cases = {("a",): False, ("b",): False, ("a", "b"): True, (): False}
    assert {keys: tables.is_unique("t", version, keys) for keys in cases} == cases
    assert tables.is_unique("t", tables.snapshot("t", table.slice(2)), ("a",))


def test_a_missing_table_is_reported(make_engine: EngineFactory, tmp_path: Path) -> None:
    tables = StaticTables(Store(str(tmp_path)), make_engine.backend)
    with pytest.raises(StateError, match="no table sites"):
        tables.columns("sites")
    with pytest.raises(StateError, match="no version 4 of table sites"):
        tables.frame("sites", 4)


def test_what_is_no_table_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    tables = StaticTables(Store(str(tmp_path / "checkpoint")), make_engine.backend)
    with pytest.raises(SettingError, match="no rows has no columns"):
        tables.snapshot("t", [])
    (tmp_path / "t.json").write_text('{"id": 1}\nnot json\n')
    with pytest.raises(SettingError, match="can't be parsed: not json"):
        tables.snapshot("t", str(tmp_path / "t.json"))


@STREAMING
def test_a_stream_is_no_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    tables = StaticTables(Store(str(tmp_path)), make_engine.backend)
    stream = make_engine.session.readStream.format("rate").load()
    with pytest.raises(SettingError, match="a streaming one is a stream"):
        tables.snapshot("t", stream)
