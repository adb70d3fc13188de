"""Plain text files: the local backend infers and reads them as Spark does, and leaves all others to it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from transom.backends.local.backend import LocalBackend
from transom.backends.local.files import LocalFiles
from transom.backends.plain_values import column_type, csv_type, json_type
from transom.backends.spark.backend import SparkBackend

USUAL = [
    ["1", "2", ""],
    ["-5", "2147483648"],
    ["007", "12"],
    ["1", "2.5"],
    ["2.50", "-0.0"],
    ["true", "FALSE"],
    ["2024-02-29", "1999-12-31"],
    ["2024-02-29T12:00:00Z", "2024-02-29 12:00:01.123456+02:00"],
    ["2024-02-29T12:00:00", "2024-02-29 12:00:01.5"],
    ["JFK", "Café", "a b"],
    ["JFK", "5"],
    ["N12345", "true"],
    ["10.0.0.1", "fe80::1"],
    ["", ""],
    ["x", "2024-02-29"],
    ["10:30", "T100"],
    ["4A", "1d"],
    ["Infinity", "NaN"],
    ["1e5", "2E-3"],
    ["2024", "2024-1"],
    ["2024-1-1", "2024-01-01T"],
    ["2023-02-29", "2023-13-01"],
    [" 5", "5 "],
    ["+5", "-"],
    [".5", "5."],
    ["12345678901234567890", "1"],
    ["1", "true"],
    ["2024-02-29", "2024-02-29T12:00:00Z"],
    ["0001-01-01", "9999-12-31"],
    ["0999-01-01T00:00:00Z", "2024-01-01T00:00:00Z"],
    ["inf", "-inf"],
]


def generated(count: int, seed: int) -> list[list[str]]:
    """Columns of short texts that look like numbers, dates, times and words."""
    chooser = random.Random(seed)
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
        "é",
        "02",
        "/",
        "_",
    ]
    columns = []
    for _ in range(count):
        column = ["".join(chooser.choices(parts, k=chooser.randint(1, 6))) for _ in range(2)]
        columns.append([value for value in column if value.strip()] or ["x"])
    return columns


def certain(columns: list[list[Any]], is_csv: bool) -> list[list[Any]]:
    """The columns whose type is beyond doubt."""
    kept = []
    for column in columns:
        types = {csv_type(value) if is_csv else json_type(value) for value in column}
        if None not in types and column_type(types, is_csv) is not None:
            kept.append(column)
    return kept


def _files(backend: SparkBackend | LocalBackend, path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    files = backend.open_files(str(path))
    return dict(files.columns), files.read(files.pending()[0]).to_table().to_pylist()


@pytest.mark.comparison
@pytest.mark.spark
def test_plain_columns_of_csv_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    kept = certain([*USUAL, *generated(1500, seed=1)], is_csv=True)
    assert len(kept) > 300
    rows = max(map(len, kept))
    path, local = tmp_path / "all.csv", LocalBackend()
    lines = [",".join(f"c{i}" for i in range(len(kept)))]
    for row in range(rows):
        lines.append(",".join(column[row] if row < len(column) else "" for column in kept))
    path.write_text("\n".join(lines))
    assert _opened(local, path).unusual_file() is None
    (ours, our_rows), (theirs, their_rows) = _files(local, path), _files(SparkBackend(spark), path)
    different = {
        kept[int(name[1:])][0]: (str(ours[name]), str(theirs[name]))
        for name in ours
        if ours[name] != theirs[name]
    }
    assert different == {}
    assert our_rows == their_rows


@pytest.mark.comparison
@pytest.mark.spark
def test_plain_columns_of_json_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    values: list[list[Any]] = [
        *([*column] for column in (*USUAL, *generated(1500, seed=2))),
        [1, 2.5],
        [1, None],
        [1 << 62, -1],
        [True, None],
        [None, None],
        [1e300, 5e-324],
        ["", "x"],
    ]
    plain = certain(values, is_csv=False)
    assert len(plain) > 300
    rows = max(map(len, plain))
    path, local = tmp_path / "all.json", LocalBackend()
    with path.open("w") as file:
        for row in range(rows):
            pairs = {f"c{i}": column[row] if row < len(column) else None for i, column in enumerate(plain)}
            file.write(json.dumps(pairs) + "\n")
    assert _opened(local, path).unusual_file() is None
    (ours, our_rows), (theirs, their_rows) = _files(local, path), _files(SparkBackend(spark), path)
    different = {
        str(plain[int(name[1:])]): (str(ours[name]), str(theirs[name]))
        for name in ours
        if ours[name] != theirs[name]
    }
    assert different == {}
    assert our_rows == their_rows


@pytest.mark.parametrize(
    "name, text",
    [
        ("quote.csv", 'a,b\n"x ""y""",1\n'),
        ("empty_quotes.csv", 'a,b\n"",1\n'),
        ("broken_quote.csv", 'a,b\nx"y,1\n'),
        ("two_lines.csv", 'a,b\n"x\ny",1\n'),
        ("backslash.csv", "a,b\nx\\,1\n"),
        ("short.csv", "a,b\nx\n"),
        ("long.csv", "a,b\nx,1,2\n"),
        ("same.csv", "a,A\nx,1\n"),
        ("spaces.csv", "a, b\nx,1\n"),
        ("blank.csv", "a,b\n  \nx,1\n"),
        ("mark.csv", "\ufeffa,b\nx,1\n"),
        ("number.csv", "a,b\nx,1e5\n"),
        ("nested.json", '{"a": {"b": 1}}\n'),
        ("array.json", '[{"a": 1}]\n'),
        ("twice.json", '{"a": 1, "a": 2}\n'),
        ("case.json", '{"a": 1, "A": 2}\n'),
        ("quotes.json", "{'a': 1}\n"),
        ("mixed.json", '{"a": 1}\n{"a": "x"}\n'),
        ("large.json", '{"a": 12345678901234567890}\n'),
        ("nan.json", '{"a": NaN}\n'),
    ],
)
def test_an_unusual_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    schema = "a bigint" if name in ("array.json", "quotes.json") else None  # no columns can be inferred
    unusual = LocalBackend().open_files(str(path), schema=schema).unusual_file()
    assert unusual is not None and unusual.endswith(name)


def test_options_of_the_reader_make_a_file_unusual(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\nx;1\n")
    backend = LocalBackend()
    assert backend.open_files(str(path), options={"sep": ";"}).unusual_file() is None
    assert backend.open_files(str(path), options={"sep": ";", "quote": "'"}).unusual_file() is not None


def _opened(backend: LocalBackend, path: Path) -> LocalFiles:
    return backend.open_files(str(path))
