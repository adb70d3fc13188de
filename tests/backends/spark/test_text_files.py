"""CSV and JSON files that tasks read with Arrow: the rows are those that Spark reads, or Spark reads them."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import on_spark
from transom.backends import text_parts
from transom.backends.base import Backend
from transom.backends.file_parts import PartUnreadable
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.driver_frame import DriverFrame
from transom.backends.spark.files import SparkFiles
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.task_frame import TaskFrame
from transom.backends.text_parts import TextForm, TextLayout
from transom.plan.limits import Limits

pytestmark = [on_spark("tasks of Spark read files with Arrow"), pytest.mark.comparison]

TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "decimal(9,3)": pa.decimal128(9, 3), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(),
}  # fmt: skip
TEXTS = [
    "0", "-0", "00", "007", "7", "-7", "+7", "127", "128", "-128", "32767", "2147483647", "2147483648",
    "999999999999999999", "9223372036854775807", "1.0", "1.5", "-0.0", ".5", "5.", "1e5", "1E-5", "1e400",
    "1e-400", "0.1", "0.30000000000000004", "123456.123", "123456.1234", "1234567.1", "NaN", "Infinity",
    "-Infinity", "inf", "1d", "1f", "0x10", "1_000", "true", "FALSE", "True", "t", "yes", "1", "2024-02-29",
    "2023-02-29", "2024-2-9", "0999-01-01", "1582-10-10", "9999-12-31", "2024-02-29T12:00:00",
    "2024-02-29 12:00:00.5", "2024-02-29 12:00:00.123456", "2024-02-29 12:00:00.1234567",
    "2024-02-29T12:00:00Z", "2024-02-29T12:00:00+02:00", "2024-02-29T12:00:00-17:59",
    "2024-02-29T12:00:00+18:00", "2024-02-29T12:00:00+0200", "2024-02-29T12:00:00 UTC",
    "2024-02-29T24:00:00", "2024-02-29T23:59:60", "2024-02-29T12:00", "2024-02-29T12", "12:00:00", "2024",
    "2024-02", "1000-01-01T00:00:00", "JFK", "Caf\u00e9", "a b", " a", "a ", " 7", "7 ", "\U0001f600",
    "null", "NULL", "\\N", "-", "--", "a'b", "#x", "\u00a0", "\x0b", "\x01x",
]  # fmt: skip


@pytest.fixture(scope="module")
def backend(spark: Any) -> Backend:
    """A backend whose tasks read files however small they are."""
    return SparkBackend(spark, Limits(pushed_rows=0))


def both(files: SparkFiles) -> tuple[SparkFrame, pa.Table, pa.Table]:
    """A frame over files, its rows as it reads them, and as Spark reads them."""
    names = [file for batch in files.pending() for file in batch]
    frame = files.read(names)
    assert isinstance(frame, SparkFrame)
    return frame, frame.to_table(), files._read_by_spark(names).to_table()


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def check(backend: Backend, path: Path, format: str, schema: str, **options: str) -> SparkFrame:
    """A frame over files whose rows are the same as by Spark."""
    opened = backend.open_files(str(path), format, schema, options, files_per_batch=100)
    assert isinstance(opened, SparkFiles)
    frame, by_tasks, by_spark = both(opened)
    assert by_tasks.schema.names == by_spark.schema.names and by_tasks.schema.types == by_spark.schema.types
    assert rows_of(by_tasks) == rows_of(by_spark)
    return frame


def is_plain(line: str, form: TextForm, names: Iterable[str] = ()) -> bool:
    layout = TextLayout("x", form, 0, tuple(names))
    try:
        return layout.table(line.encode("utf-8", "surrogatepass"), {})[0] is not None
    except PartUnreadable:
        return False


def generated_texts(chance: random.Random, count: int) -> list[str]:
    parts = [
        "1",
        "20",
        "2024",
        "-",
        ":",
        ".",
        "T",
        "Z",
        " ",
        "+",
        "e",
        "a",
        "true",
        "NaN",
        "\u00e9",
        "02",
        "/",
        "0",
    ]
    texts = ["".join(chance.choices(parts, k=chance.randint(1, 6))) for _ in range(count)]
    days = [
        f"{chance.randint(1, 9999):04}-{chance.randint(0, 13):02}-{chance.randint(0, 32):02}"
        for _ in range(count)
    ]
    times = [
        f"{day}T{chance.randint(0, 24):02}:{chance.randint(0, 60):02}:{chance.randint(0, 60):02}"
        for day in days
    ]
    zoned = [f"{time}{chance.choice(['Z', '+05:30', '-17:45', '.5', '.000001Z'])}" for time in times]
    numbers = [f"{chance.choice(['', '-'])}{chance.getrandbits(chance.randint(1, 64))}" for _ in range(count)]
    floats = [repr(chance.uniform(-1, 1) * 10.0 ** chance.randint(-30, 30)) for _ in range(count)]
    return [*texts, *days, *times, *zoned, *numbers, *floats]


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_plain_texts_of_csv_are_read_as_spark_reads_them(
    backend: Backend, tmp_path: Path, seed: int, separator: str
) -> None:
    texts = [text for text in (*TEXTS, *generated_texts(random.Random(seed), 300)) if separator not in text]
    for sql, kind in TYPES.items():
        form = TextForm("csv", {"n": pa.int64(), "x": kind}, separator)
        kept = [text for text in texts if is_plain(f"1{separator}{text}\n", form, ("n", "x"))]
        assert len(kept) > 3, sql
        lines = [f"{number}{separator}{text}" for number, text in enumerate(kept)]
        directory = tmp_path / sql.partition("(")[0]
        directory.mkdir()
        (directory / "a.csv").write_text("\n".join([f"n{separator}x", *lines, f"0{separator}", ""]))
        frame = check(backend, directory, "csv", f"n bigint, x {sql}", sep=separator)
        assert isinstance(frame, TaskFrame), f"{sql}, seed {seed}"


def test_plain_values_of_json_are_read_as_spark_reads_them(
    backend: Backend, tmp_path: Path, seed: int
) -> None:
    texts = [*TEXTS, *generated_texts(random.Random(seed), 300)]
    numbers = [text for text in texts if set(text) <= set("-.0123456789eE")]
    values = [
        *map(json.dumps, texts),
        *numbers,
        "true",
        "false",
        "null",
        "[]",
        "{}",
        '"\\u0041\\n\\/"',
        '"\\ud83d\\ude00"',
    ]
    nested = [
        '{"a": 1, "b": [1, 2]}',
        '{"b": [null, 1.5], "c": {}}',
        '{"a": null}',
        '{"a": "x"}',
        '{"b": 1}',
        '{"A": 1}',
    ]
    schemas = {**TYPES, "struct<a: int, b: array<double>>": None, "array<string>": None}
    for place, sql in enumerate(schemas):
        files = backend.open_files(_written(tmp_path / str(place), "a.json", "{}\n"), "json", f"x {sql}")
        form = TextForm("json", files.columns)
        kept = [value for value in (*values, *nested, '["a", null]') if is_plain(f'{{"x": {value}}}\n', form)]
        if not form.is_plain:
            assert sql in ("float", "decimal(9,3)") and not kept
            continue
        assert len(kept) > 2, sql
        lines = [f'{{"x": {value}, "other": [1, {{"x": 2}}]}}\n' for value in kept]
        _written(tmp_path / str(place), "a.json", "".join([*lines, "{}\n\n", "{ }"]))
        frame = check(backend, tmp_path / str(place), "json", f"x {sql}")
        assert isinstance(frame, TaskFrame), f"{sql}, seed {seed}"


def _written(directory: Path, name: str, text: str | bytes) -> str:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return str(directory)


def _mutated(line: str, chance: random.Random) -> str:
    characters = list(line)
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        place = chance.randrange(len(characters))
        inserted = chance.choice(
            ['"', ",", "{", "}", " ", "\\", "'", ":", "1", "\t", "\u00e9", "[", "]", "-", "a", "N"]
        )
        if chance.random() < 0.5:
            characters[place] = inserted
        else:
            characters.insert(place, inserted)
    return "".join(characters)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_mutated_lines_that_are_plain_are_read_as_spark_reads_them(
    backend: Backend, tmp_path: Path, seed: int, format: str
) -> None:
    chance = random.Random(seed)
    columns = {"n": pa.int64(), "d": pa.float64(), "s": pa.string(), "t": TYPES["timestamp"]}
    form = TextForm(format, columns)
    lines = []
    for number in range(3000):
        values = [number, 1.5, "x y", "2024-02-29T12:00:00Z"]
        if format == "csv":
            line = _mutated(
                ",".join(chance.choice(["{}", '"{}"', ""]).format(value) for value in values), chance
            )
        else:
            line = _mutated(json.dumps(dict(zip(columns, values, strict=True))), chance)
        if is_plain(line + "\n", form, columns):
            lines.append(line)
    assert len(lines) > 500
    text = "\r\n".join([*(["n,d,s,t"] if format == "csv" else []), *lines])
    path = Path(_written(tmp_path / "files", f"a.{format}", text))
    frame = check(backend, path, format, "n bigint, d double, s string, t timestamp")
    assert isinstance(frame, TaskFrame), f"seed {seed}"


WHOLE_FILES: dict[str, tuple[str, str | bytes, bool]] = {
    "header in quotes": ("a.csv", '"n","s"\n1,x\n', True),
    "columns in another order and case": ("a.csv", "S,N\nx,1\n", True),
    "a missing and a new column": ("a.csv", "s,new\nx,1\n", True),
    "only a header": ("a.csv", "n,s\n", True),
    "no line end": ("a.csv", "n,s\n1,x", True),
    "line ends of two bytes": ("a.csv", "n,s\r\n1,x\r\n\r\n2,y\r\n", True),
    "quoted values": ("a.csv", 'n,s\n1,"x, y"\n"2",z\n', True),
    "gzip": ("a.csv.gz", gzip.compress(b"n,s\n1,x\n") + gzip.compress(b"2,y\n"), True),
    "bzip2": ("a.csv.bz2", bz2.compress(b"n,s\n1,x\n"), True),
    "a quote that spans lines": ("a.csv", 'n,s\n1,"x\ny"\n2,z\n', False),
    "doubled quotes": ("a.csv", 'n,s\n1,"x ""y"""\n', False),
    "quotes around nothing": ("a.csv", 'n,s\n1,""\n', False),
    "a backslash": ("a.csv", "n,s\n1,x\\,y\n", False),
    "a short line": ("a.csv", "n,s\n1\n2,y\n", False),
    "a long line": ("a.csv", "n,s\n1,x,y\n", False),
    "a number that is none": ("a.csv", "n,s\nx,y\n", False),
    "bytes that are no text": ("a.csv", b"n,s\n1,\xff\n", False),
    "a byte order mark": ("a.csv", b"\xef\xbb\xbfn,s\n1,x\n", False),
    "lines that end with a return": ("a.csv", "n,s\r1,x\r", False),
    "blank lines of spaces": ("a.csv", "n,s\n  \n1,x\n", False),
    "a name twice": ("a.csv", "s,S\n1,x\n", False),
    "objects": ("a.json", '{"n": 1, "s": "x"}\r\n\n{"s": "y", "new": {"n": 3}}', True),
    "json of gzip": ("a.json.gz", gzip.compress(b'{"n": 1}\n'), True),
    "a broken object": ("a.json", '{"n": 1}\n{"n": 2\n{"n": 3}\n', False),
    "two objects a line": ("a.json", '{"n": 1} {"n": 2}\n', False),
    "an object on two lines, and two on one": ("a.json", '{"n":\n1}\n{"n": 2} {"n": 3}\n', False),
    "an array": ("a.json", '[{"n": 1}, {"n": 2}]\n', False),
    "a name that differs in case": ("a.json", '{"N": 1}\n', False),
    "a name of json twice": ("a.json", '{"n": 1, "n": 2}\n', False),
    "single quotes": ("a.json", "{'n': 1}\n", False),
    "a number for a text": ("a.json", '{"s": 1.50}\n', False),
    "json that is no text": ("a.json", b'{"s": "\xff"}\n', False),
    "half a surrogate": ("a.json", '{"s": "\\ud800"}\n', False),
    "deeply nested": ("a.json", '{"new": ' + "[" * 1200 + "]" * 1200 + "}\n", False),
    "text after an object": ("a.json", '{"n": 1} }\n', False),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE_FILES)
def test_whole_files_are_read_as_spark_reads_them(backend: Backend, tmp_path: Path, case: str) -> None:
    name, content, is_read_by_tasks = WHOLE_FILES[case]
    format = "csv" if ".csv" in name else "json"
    path = Path(_written(tmp_path / "files", name, content))
    assert isinstance(check(backend, path, format, "n bigint, s string"), TaskFrame) is is_read_by_tasks


def test_an_unusual_line_behind_the_first_ones_is_left_to_spark(backend: Backend, tmp_path: Path) -> None:
    lines = [f"{n},{'x' * 50}" for n in range(3000)]
    path = Path(_written(tmp_path / "files", "a.csv", "\n".join(["n,s", *lines, "y,z"])))
    frame = check(backend, path, "csv", "n bigint, s string")
    assert isinstance(frame, TaskFrame)
    assert frame.filter("`_corrupt_record` IS NOT NULL").to_table()["s"].to_pylist() == ["z"]


@pytest.mark.parametrize(
    "options",
    [{"multiLine": "true"}, {"timestampFormat": "dd.MM.yyyy"}, {"encoding": "UTF-16"}, {"quote": "'"}],
)
def test_options_are_left_to_spark(backend: Backend, tmp_path: Path, options: dict[str, str]) -> None:
    path = _written(tmp_path / "files", "a.csv", "n,s\n1,x\n")
    files = backend.open_files(path, "csv", "n bigint, s string", options)
    assert not isinstance(files.read(files.pending()[0]), TaskFrame)


def test_a_file_without_a_header_is_read_by_position(backend: Backend, tmp_path: Path) -> None:
    path = Path(_written(tmp_path / "files", "a.csv", "1,x\n2,\n"))
    assert isinstance(check(backend, path, "csv", "n bigint, s string", header="false"), TaskFrame)


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_each_line_is_in_one_part(
    backend: Backend, tmp_path: Path, format: str, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_parts, "LEAST_TASK_BYTES", 10)
    monkeypatch.setattr(text_parts, "READ_BYTES", 64)  # of this process; workers read larger blocks
    count, names = 0, ["a", "b", "c"]
    for name in names:
        lines = ["n,s"] if format == "csv" else []
        for _ in range(40):
            text = "x" * (count % 13)
            lines.append(f"{count},{text}" if format == "csv" else json.dumps({"n": count, "s": text}))
            count += 1
        data = ("\n".join(lines) + "\n" * (name != "b")).encode()
        file = f"{name}.{format}" + ".gz" * compressed
        _written(tmp_path / "files", file, gzip.compress(data) if compressed else data)
    files = backend.open_files(str(tmp_path / "files"), format, "n bigint, s string", files_per_batch=3)
    assert isinstance(files, SparkFiles)
    frame = files.read(files.pending()[0])
    assert isinstance(frame, TaskFrame)
    assert sorted(frame.to_table()["n"].to_pylist()) == list(range(count))
    parted = files._parted(files.pending()[0])
    assert parted is not None
    columns = {"n": pa.int64(), "s": pa.string()}
    for tasks in (1, 2, 3, 7, 50):
        tables = [part.tables(columns) for parts in parted.parts(tasks) for part in parts]
        rows = [pair for pairs in tables for pair in pairs]
        assert [n for table, _ in rows for n in table["n"].to_pylist()] == list(range(count))
        positions = np.concatenate([places for _, places in rows])
        chosen = np.random.default_rng(tasks).permutation(count)[:30]
        assert parted.rows_at(positions[chosen], columns)["n"].to_pylist() == chosen.tolist()


def test_small_files_are_read_on_the_driver(spark: Any, tmp_path: Path) -> None:
    backend = SparkBackend(spark)
    for name, text in (("a.csv", "n,s\n1,x\n"), ("a.json", '{"n": 1, "s": "x"}\n')):
        path = _written(tmp_path / name[2:], name, text)
        files = backend.open_files(path, name[2:], "n bigint, s string")
        frame = files.read(files.pending()[0])
        assert isinstance(frame, DriverFrame)
        assert frame.to_table().to_pylist() == [{"n": 1, "s": "x", "_corrupt_record": None}]


def test_a_file_that_changes_is_read_as_it_is_now(backend: Backend, tmp_path: Path) -> None:
    path = _written(tmp_path / "files", "a.csv", "n,s\n1,x\n")
    files = backend.open_files(path, "csv", "n bigint, s string")
    frame = files.read(files.pending()[0])
    _written(tmp_path / "files", "a.csv", "n,s\n1,x\n2,y\n")
    assert frame.to_table()["n"].to_pylist() == [1, 2]
