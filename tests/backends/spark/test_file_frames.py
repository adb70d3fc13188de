"""Files that tasks read with Arrow: the rows are those that Spark reads, whatever the types and the files are."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import on_spark
from transom.backends.base import Backend
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.task_frame import TaskFrame
from transom.plan.limits import Limits

pytestmark = [on_spark("tasks of Spark read files with Arrow"), pytest.mark.comparison]


@pytest.fixture(scope="module")
def backend(spark: Any) -> Backend:
    """A backend whose tasks read files however small they are."""
    return SparkBackend(spark, Limits(pushed_rows=0))


MICROS = [0, -1, 1_500_000_000_123_456, -2_208_988_800_000_001, 253_402_300_799_999_999, None]
NANOS = [0, -1, -1001, 1_500_000_000_123_456_789, None, 999]
BYTES = [
    b"plain",
    "\u00e9\U0001f600".encode(),
    b"\xff",
    b"a\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80x\xf0\x9f",
    None,
]


def stamps(values: list[int | None], unit: str, tz: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, tz=tz))


# The stream's type in SQL, the column of a file, and how the file is written.
COLUMNS: dict[str, tuple[str, pa.Array, Mapping[str, Any]]] = {
    "boolean": ("boolean", pa.array([True, None, False]), {}),
    "tinyint": ("tinyint", pa.array([-128, None, 127], pa.int8()), {}),
    "smallint": ("smallint", pa.array([-(2**15), None, 2**15 - 1], pa.int16()), {}),
    "int": ("int", pa.array([-(2**31), None, 2**31 - 1], pa.int32()), {}),
    "bigint": ("bigint", pa.array([-(2**63), None, 2**63 - 1], pa.int64()), {}),
    "int as bigint": ("bigint", pa.array([-(2**31), None, 2**31 - 1], pa.int32()), {}),
    "bigint as int": ("int", pa.array([-5, None, 2**31 - 1], pa.int64()), {}),
    "unsigned byte": ("smallint", pa.array([0, 255, None], pa.uint8()), {}),
    "unsigned int as bigint": ("bigint", pa.array([0, 2**32 - 1, None], pa.uint32()), {}),
    "unsigned long": ("decimal(20,0)", pa.array([0, 2**64 - 1, None], pa.uint64()), {}),
    "float": ("float", pa.array([1.5, float("nan"), float("-inf"), -0.0, None], pa.float32()), {}),
    "double": ("double", pa.array([1e308, float("nan"), float("inf"), -0.0, None]), {}),
    "float as double": ("double", pa.array([0.1, float("nan"), None], pa.float32()), {}),
    "int as double": ("double", pa.array([2**31 - 1, None], pa.int32()), {}),
    "decimal": ("decimal(12,2)", pa.array([Decimal("-1.25"), None], pa.decimal128(12, 2)), {}),
    "small decimal": ("decimal(12,2)", pa.array([Decimal("-1.2"), None], pa.decimal128(5, 1)), {}),
    "decimal as integer": (
        "decimal(9,2)",
        pa.array([Decimal("-1.25"), None], pa.decimal128(9, 2)),
        {"store_decimal_as_integer": True},
    ),
    "int as decimal": ("decimal(12,2)", pa.array([7, None], pa.int32()), {}),
    "text": ("string", pa.array(["", "a\u0000b", "\U0001f600", None]), {}),
    "large text": ("string", pa.array(["a", None], pa.large_string()), {}),
    "dictionary": ("string", pa.array(["a", "b", "a", None]).dictionary_encode(), {}),
    "bytes as text": ("string", pa.array(BYTES, pa.binary()), {}),
    "bytes": ("binary", pa.array(BYTES, pa.binary()), {}),
    "date": ("date", pa.array([0, -719_162, 2_932_896, None], pa.int32()).cast(pa.date32()), {}),
    "micros": ("timestamp", stamps(MICROS, "us", "UTC"), {}),
    "micros of a zone": ("timestamp", stamps(MICROS, "us", "Asia/Tokyo"), {}),
    "micros without a zone": ("timestamp_ntz", stamps(MICROS, "us"), {}),
    "micros without a zone as an instant": ("timestamp", stamps(MICROS, "us"), {}),
    "micros of a zone without one": ("timestamp_ntz", stamps(MICROS, "us", "UTC"), {}),
    "millis": ("timestamp", stamps([0, -1, 1_500_000_000_123, None], "ms", "UTC"), {}),
    "millis without a zone": ("timestamp_ntz", stamps([0, -1, None], "ms"), {}),
    "nanos": ("timestamp", stamps(NANOS, "ns", "UTC"), {"version": "2.6"}),
    "nanos without a zone": ("timestamp_ntz", stamps(NANOS, "ns"), {"version": "2.6"}),
    "int96": (
        "timestamp",
        stamps([0, -1, 1_500_000_000_123_456, None], "us"),
        {"use_deprecated_int96_timestamps": True},
    ),
    "nothing": ("int", pa.nulls(3), {}),
    "list": ("array<int>", pa.array([[1, None], None], pa.list_(pa.int32())), {}),
    "struct": ("struct<a: int>", pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])), {}),
    "map": ("map<string, int>", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), {}),
}
LEFT_TO_SPARK = {"list", "struct", "map"}


def both(backend: Backend, path: Path, schema: str) -> tuple[TaskFrame, pa.Table, pa.Table]:
    """A frame over files, its rows as tasks read them, and as Spark reads them."""
    files = backend.open_files(str(path), "parquet", schema, files_per_batch=100)
    names = [file for batch in files.pending() for file in batch]
    files.check(names)
    frame = files.read(names)
    assert isinstance(frame, TaskFrame)
    return frame, frame.to_table(), SparkFrame(frame.df).to_table()


def unlike(left: pa.Table, right: pa.Table) -> list[str]:
    """The columns in which two tables differ; NaN equals itself."""
    return [
        name
        for name in right.column_names
        if left[name].type != right[name].type or str(left[name].to_pylist()) != str(right[name].to_pylist())
    ]


def test_columns_of_every_type_are_read_as_spark_reads_them(backend: Backend, tmp_path: Path) -> None:
    for place, (name, (sql, column, options)) in enumerate(COLUMNS.items()):
        directory = tmp_path / str(place)
        directory.mkdir()
        pq.write_table(pa.table({"x": column}), directory / "a.parquet", **options)
        frame, by_tasks, by_spark = both(backend, directory, f"x {sql}")
        assert frame.is_read_by_tasks is (name not in LEFT_TO_SPARK), name
        assert unlike(by_tasks, by_spark) == [], name
        assert by_tasks.num_rows == by_spark.num_rows == len(column), name


def test_columns_are_found_by_name_and_missing_ones_are_null(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(pa.table({"B": [1, 2], "a": ["x", "y"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": [1.5], "A": ["z"], "new": [1]}), tmp_path / "b.parquet")
    frame, by_tasks, by_spark = both(backend, tmp_path, "a string, b bigint, c double")
    assert frame.is_read_by_tasks and by_tasks.sort_by("a").equals(by_spark.sort_by("a"))
    assert by_tasks.sort_by("a").to_pydict() == {
        "a": ["x", "y", "z"],
        "b": [1, 2, None],
        "c": [None, None, 1.5],
    }


@pytest.mark.parametrize("names", [["a.b", "a"], ["a", "A"]], ids=str)
def test_names_that_spark_and_arrow_may_read_in_different_ways_are_left_to_spark(
    backend: Backend, tmp_path: Path, names: list[str]
) -> None:
    pq.write_table(pa.table([[1], [2]], names=names), tmp_path / "a.parquet")
    files = backend.open_files(str(tmp_path), "parquet", "a bigint")
    assert not isinstance(files.read(files.pending()[0]), TaskFrame)


@pytest.mark.parametrize(
    "key, value",
    [
        ("org.apache.spark.legacyDateTime", ""),
        ("org.apache.spark.legacyINT96", ""),
        ("org.apache.spark.version", "2.4.8"),
        ("org.apache.spark.version", "?"),
    ],
)
def test_times_of_the_old_calendar_are_left_to_spark(
    backend: Backend, tmp_path: Path, key: str, value: str
) -> None:
    table = pa.table({"t": stamps([-62_135_596_800_000_000], "us", "UTC"), "n": [1]})
    pq.write_table(table.replace_schema_metadata({key: value}), tmp_path / "a.parquet")
    files = backend.open_files(str(tmp_path), "parquet", "t timestamp, n bigint")
    frame = files.read(files.pending()[0])
    assert isinstance(frame, TaskFrame) and not frame.is_read_by_tasks
    numbers = frame.project({"n": "`n`"})
    assert isinstance(numbers, TaskFrame) and numbers.is_read_by_tasks


@pytest.mark.parametrize("row_groups", [[1], [7], [200_000], [50_000, 1, 30_000, 60_000]], ids=str)
def test_each_row_is_in_one_part(backend: Backend, tmp_path: Path, row_groups: list[int]) -> None:
    first = 0
    for name in ("a", "b"):
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", pa.schema([("n", pa.int64())])) as writer:
            for rows in row_groups:
                writer.write_table(pa.table({"n": range(first, first + rows)}), row_group_size=rows)
                first += rows
    files = backend.open_files(str(tmp_path), "parquet", "n bigint", files_per_batch=2)
    assert sorted(files.read(files.pending()[0]).to_table()["n"].to_pylist()) == list(range(first))


def test_random_bytes_become_the_same_text(backend: Backend, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    near = [0xC2, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xFF, 0x41, 0x00]
    texts = [bytes(chance.choices(near, k=chance.randrange(9))) for _ in range(2_000)]
    pq.write_table(pa.table({"x": pa.array(texts, pa.binary())}), tmp_path / "a.parquet")
    frame, by_tasks, by_spark = both(backend, tmp_path, "x string")
    assert frame.is_read_by_tasks and by_tasks.equals(by_spark), f"seed {seed}"


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """A file with some bytes changed, or its end cut off."""
    if chance.random() < 0.2:
        return whole[: chance.randrange(len(whole))]
    content = bytearray(whole)
    for _ in range(chance.choice([1, 1, 4, 40])):
        content[chance.randrange(4, len(whole))] = chance.randrange(256)
    return bytes(content)


@pytest.mark.parametrize(
    "drawn_by", [None, 1536111388], ids=["any damage", "a damage that Spark does not name"]
)
def test_damaged_files_are_found_as_before(
    backend: Backend, tmp_path: Path, seed: int, drawn_by: int | None
) -> None:
    """What Arrow refuses, Spark reads or names; no damage ends a worker process."""
    seed = seed if drawn_by is None else drawn_by
    chance = random.Random(seed)
    rows = 500
    table = pa.table({"n": range(rows), "s": [f"text {i % 7}" for i in range(rows)]})
    good = tmp_path / "good.parquet"
    pq.write_table(table, good, compression="zstd")
    whole = good.read_bytes()
    for number in range(12):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "a.parquet").write_bytes(damaged(whole, chance))
        (directory / "b.parquet").write_bytes(whole)
        files = backend.open_files(str(directory), "parquet", "n bigint, s string", files_per_batch=2)
        names = [
            name
            for name in files.pending()[0]
            if not any(problem.problem == "unreadable" for problem in files.check([name]))
        ]
        frame = files.read(names)
        try:
            count = frame.project({"n": "`n`"}).to_table().num_rows
        except Exception as error:
            left_out = {problem.file for problem in files.unreadable_of(names, error)}
            assert left_out and not any(name.endswith("b.parquet") for name in left_out), f"seed {seed}"
        else:
            assert count >= rows, f"seed {seed}"


def test_a_file_that_vanishes_or_changes_is_named(backend: Backend, tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / f"{name}.parquet")
    files = backend.open_files(str(tmp_path), "parquet", "n bigint", files_per_batch=2)
    names = files.pending()[0]
    files.check(names)
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "b.parquet")
    assert files.read(names).to_table().num_rows == 5  # Spark reads the file as it is now
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(Exception) as failure:
        files.read(names).to_table()
    assert [problem.file for problem in files.unreadable_of(names, failure.value)] == names[:1]


# --- what is computed ---


def test_steps_are_computed_as_spark_does(backend: Backend, tmp_path: Path) -> None:
    table = pa.table(
        {"n": [1, 2, 3, None], "s": ["a", "b", None, "d"], "t": stamps([0, 1, 2, 3], "us", "UTC")}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    frame, _, _ = both(backend, tmp_path, "n bigint, s string, t timestamp")
    chain = (
        frame.extend({"twice": "`n` * 2", "n": "`n` + 1"})
        .filter("`twice` > 2")
        .project({"sum": "`n` + `twice`"}, ["s", "t"])
    )
    assert isinstance(chain, TaskFrame) and chain.is_read_by_tasks
    by_spark = SparkFrame(chain.df).to_table()
    assert chain.columns == {name: by_spark[name].type for name in by_spark.column_names}
    assert chain.to_table().equals(by_spark)
    assert chain.to_table()["sum"].to_pylist() == [7, 10]


def test_an_expression_without_a_vector_form_is_left_to_spark(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": ["a,b"]}), tmp_path / "a.parquet")
    frame, _, _ = both(backend, tmp_path, "s string")
    chosen = frame.project({"x": "xpath_string(concat('<a>', `s`, '</a>'), 'a')"})
    assert not isinstance(chosen, TaskFrame)
    assert chosen.to_table().to_pydict() == {"x": ["a,b"]}


def test_a_session_in_another_zone_reads_by_spark(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    zone = "spark.sql.session.timeZone"
    before = backend.session.conf.get(zone)
    backend.session.conf.set(zone, "Asia/Tokyo")
    try:
        files = backend.open_files(str(tmp_path), "parquet", "n bigint")
        assert not isinstance(files.read(files.pending()[0]), TaskFrame)
    finally:
        backend.session.conf.set(zone, before)
