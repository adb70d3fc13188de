"""What is the local backend's own: what it refuses, what it infers, and that it needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from transom.backends.local.backend import LocalBackend
from transom.errors import SettingError, SQLError

ENGINE_WITHOUT_SPARK = """
import sys, transom
engine = transom.Engine(backend="local")
feed = engine.feed("s", "x int, ts timestamp", time="ts")
query = engine.register("SELECT sum(x) AS x FROM s [RANGE 1 minute SLIDE 1 minute]")
feed.push([(1, "2013-01-01 12:00:00"), (2, "2013-01-01 12:00:30")])
engine.drain()
print(query.results()["x"].to_pylist(), [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")])
"""


def test_an_engine_imports_no_spark() -> None:
    done = subprocess.run([sys.executable, "-c", ENGINE_WITHOUT_SPARK], capture_output=True, text=True)
    assert done.stdout.strip() == "[3] []", done.stderr


@pytest.mark.parametrize(
    ("path", "format", "says"),
    [
        ("s3://bucket/in", None, "reads files of this machine, not s3://bucket/in"),
        ("in", "orc", "reads json, csv and parquet files, not orc"),
    ],
)
def test_what_it_does_not_read_is_refused(tmp_path: Path, path: str, format: str | None, says: str) -> None:
    (tmp_path / "in").mkdir()
    place = path if "://" in path else str(tmp_path / path)
    with pytest.raises(SettingError, match=says):
        LocalBackend().open_files(place, format, "x int")


def test_types_of_csv_columns_are_the_narrowest_that_hold_all_values(tmp_path: Path) -> None:
    lines = [
        "whole,number,flag,day,at,mixed,empty",
        "1,1,true,2013-01-01,2013-01-01 12:00:00,1,",
        "2,2.5,FALSE,2013-01-02,2013-01-02,x,",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    files = LocalBackend().open_files(str(tmp_path))
    assert files.columns == {
        "whole": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "mixed": pa.string(),
        "empty": pa.string(),
    }
    first, second = files.read(files.pending()[0]).to_table().to_pylist()
    assert (first["day"], first["at"]) == (date(2013, 1, 1), datetime(2013, 1, 1, 12, tzinfo=UTC))
    assert (second["flag"], second["at"]) == (False, datetime(2013, 1, 2, tzinfo=UTC))


def test_an_expression_that_only_spark_has_is_refused_by_name() -> None:
    (error,) = LocalBackend().scalars.types({"x": pa.int64()}, ["from_avro(`x`)"])
    assert isinstance(error, SQLError) and "from_avro" in str(error)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("now()", pa.timestamp("us", tz="UTC")),
        ("current_date()", pa.date32()),
        ("unix_timestamp()", pa.int64()),
    ],
)
def test_the_current_time_has_a_type_and_a_value(text: str, kind: pa.DataType) -> None:
    scalars = LocalBackend().scalars
    assert scalars.types({}, [text]) == [kind]
    table = scalars.project(pa.table({"x": [1]}), {"now": text})
    assert table["now"].type == kind and table["now"].null_count == 0
