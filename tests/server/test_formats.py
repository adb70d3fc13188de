"""Tables as text: every kind of value as the command line writes it, however it is written."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from transom.api.formats import RowsFormat
from transom.api.records import ColumnInfo
from transom.api.value_text import value_to_json
from transom.server.formats import (
    RowsEncoding,
    arrow_stream,
    csv_text,
    encode_rows,
    json_rows,
    table_columns,
    unique_names,
    wanted_format,
    with_unique_names,
)

TIME = datetime(2013, 1, 1, 12, 0, 5, 250_000, UTC)
KINDS = [
    ("whole numbers", pa.array([1, None, -(2**63)])),
    ("small ones without a sign", pa.array([1, 255], pa.uint8())),
    ("floats that JSON has no number for", pa.array([1.5, float("nan"), float("inf"), -float("inf"), None])),
    ("decimals with all their digits", pa.array([Decimal("12345678901234567890.50"), None])),
    ("times with a zone", pa.array([TIME, None], pa.timestamp("us", tz="UTC"))),
    ("times of another zone", pa.array([TIME], pa.timestamp("us", tz="+02:00"))),
    ("times without one", pa.array([TIME.replace(tzinfo=None)], pa.timestamp("us"))),
    ("days", pa.array([date(2013, 1, 1), None])),
    ("durations", pa.array([timedelta(minutes=5), None])),
    ("text with signs", pa.array(['a "b"\n%s \\ – \u2028', "", None])),
    ("large text", pa.array(["x", None], pa.large_string())),
    ("truth", pa.array([True, False, None])),
    ("bytes", pa.array([b"\x00\xff", None])),
    ("lists", pa.array([[1, None], None])),
    ("structs", pa.array([{"a": 1, "b": float("nan")}, None])),
    ("nothing", pa.nulls(2)),
]


@pytest.mark.parametrize("column", [case[1] for case in KINDS], ids=[case[0] for case in KINDS])
def test_json_is_as_the_command_line_writes_it(column: pa.Array) -> None:
    table = pa.table({'100% "x"': column})
    written = json_rows(table)
    rows = [f'{{"100% \\"x\\"": {value_to_json(value)}}}' for value in column.to_pylist()]
    assert written == "[" + ", ".join(rows) + "]"
    json.loads(written)


def test_columns_of_one_name_are_told_apart_in_every_format() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["n", "n", "n_2"])
    assert unique_names(table.column_names) == ["n", "n_3", "n_2"]
    assert json_rows(table) == '[{"n": 1, "n_3": 2, "n_2": 3}]'
    assert csv_text(table) == "n,n_3,n_2\n1,2,3\n"
    assert pa.ipc.open_stream(arrow_stream(with_unique_names(table))).read_all().column_names == [
        "n",
        "n_3",
        "n_2",
    ]
    told = json.loads(encode_rows(table, [ColumnInfo("n", "bigint", "value")], RowsEncoding()))
    assert [column["name"] for column in told["columns"]] == list(told["rows"][0])


def test_no_rows_are_an_empty_list() -> None:
    assert json_rows(pa.table({"n": pa.array([], pa.int64())})) == "[]"


def test_a_column_that_is_not_known_is_as_arrow_says() -> None:
    table = pa.table({"n": [1], "reason": ["x"]})
    known = [ColumnInfo("n", "bigint", "key")]
    assert table_columns(table, known) == [known[0], ColumnInfo("reason", "string", "value")]


@pytest.mark.parametrize(
    ("asked", "accept", "form"),
    [
        (None, None, RowsFormat.JSON),
        (None, "*/*", RowsFormat.JSON),
        (None, "text/html,application/vnd.apache.arrow.stream;q=0.5", RowsFormat.ARROW),
        (RowsFormat.CSV, "application/json", RowsFormat.CSV),
    ],
)
def test_the_format_is_the_one_that_was_asked_for(
    asked: RowsFormat | None, accept: str | None, form: RowsFormat
) -> None:
    assert wanted_format(asked, accept) is form


FORMULAS = [
    ("a formula", "=1+1", "'=1+1"),
    ("a call", "=HYPERLINK(A1)", "'=HYPERLINK(A1)"),
    ("a plus", "+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
    ("a minus", "-2+3", "'-2+3"),
    ("an at sign", "@SUM(A1)", "'@SUM(A1)"),
    ("a tab", "\t=1", "'\t=1"),
    ("a carriage return", "\r=1", "'\r=1"),
    ("a line feed", "\n=1", "'\n=1"),
    ("a telephone number", "+41 44 123", "'+41 44 123"),
    ("a negative number in text", "-2.5e3", "-2.5e3"),
    ("a positive number in text", "+.5", "+.5"),
    ("a formula behind text", "a=1", "a=1"),
    ("an apostrophe", "'=1", "'=1"),
    ("a line that begins with a formula", "a\r=1\n=2\r\n=3", "a\r=1\n=2\r\n=3"),
    ("nothing", "", ""),
]


@pytest.mark.parametrize(
    ("text", "cell"), [case[1:] for case in FORMULAS], ids=[case[0] for case in FORMULAS]
)
def test_csv_holds_no_formulas_unless_they_are_wanted(text: str, cell: str) -> None:
    table = pa.table({"site": [text], "n": [-1], "x": [float("-inf")]})
    assert list(csv.reader(io.StringIO(csv_text(table), newline="")))[1] == [cell, "-1", "-Infinity"]
    raw = encode_rows(table, (), RowsEncoding(RowsFormat.CSV, escape=False)).decode()
    assert list(csv.reader(io.StringIO(raw, newline="")))[1][0] == text
    assert csv_text(pa.table({text: [1]})).startswith(f'"{cell}"' if set(cell) & set("\r\n") else cell)


def test_formulas_are_text_in_other_formats() -> None:
    table = pa.table({"site": ["=1+1"]})
    assert b'"=1+1"' in encode_rows(table, (), RowsEncoding())
    assert b"'=1+1" not in encode_rows(table, (), RowsEncoding(RowsFormat.ARROW))
