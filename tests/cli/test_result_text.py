"""Results as tables, JSON lines and CSV."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC as ZONE
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from transom.cli.result_text import (
    Format,
    in_window_order,
    shorten_lookup,
    without_system_columns,
    write_results,
)

UTC = pa.timestamp("us", tz="UTC")


def moment(minute: int, microsecond: int = 0) -> datetime:
    return datetime(2013, 1, 1, 12, minute, 0, microsecond, tzinfo=ZONE)


RESULTS = pa.table(
    {
        "window_start": pa.array([moment(1), moment(0, 500_000)], UTC),
        "window_end": pa.array([moment(2), moment(1)], UTC),
        "site": pa.array(["café, x", None]),
        "mean": pa.array([0.1, float("nan")]),
        "total": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
        "kind": ["final", "final"],
        "complete": [True, True],
        "rows": pa.array([3, 4]),
        "late": pa.array([0, 1]),
        "batch": pa.array([1, 0]),
        "made": pa.array([moment(3), moment(3)], UTC),
        "latency": pa.array([1.5, None]),
    }
)


def written(results: dict[str, pa.Table], form: Format) -> str:
    out = io.StringIO()
    write_results(results, form, out)
    return out.getvalue()


def test_results_are_in_window_order_without_the_system_columns() -> None:
    shown = in_window_order(without_system_columns(RESULTS))
    assert shown.column_names == ["window_start", "window_end", "site", "mean", "total"]
    assert shown["mean"].to_pylist()[1] == 0.1
    assert in_window_order(RESULTS).column_names == RESULTS.column_names


@pytest.mark.parametrize("items", [1, 2, 6])
def test_rows_are_shown_with_all_items(items: int) -> None:
    names = [f"item{number}" for number in range(items)]
    rows = {"event_time": pa.array([moment(1), moment(0)], UTC), **{name: [2, 1] for name in names}}
    system = {"kind": ["row"] * 2, "batch": [1, 1], "made": pa.array([moment(3)] * 2, UTC)}
    shown = in_window_order(without_system_columns(pa.table({**rows, **system})))
    assert shown.column_names == ["event_time", *names]
    assert shown["item0"].to_pylist() == [1, 2]


def test_a_table_is_aligned_and_ends_without_blanks() -> None:
    assert written({"q": in_window_order(without_system_columns(RESULTS))}, Format.TABLE) == (
        "window_start                window_end           site     mean  total\n"
        "--------------------------  -------------------  -------  ----  -----\n"
        "2013-01-01 12:00:00.500000  2013-01-01 12:01:00  null      NaN   null\n"
        "2013-01-01 12:01:00         2013-01-01 12:02:00  café, x   0.1  12.50\n"
    )


def test_json_lines_are_typed_and_keep_every_digit() -> None:
    lines = written({"q": in_window_order(without_system_columns(RESULTS))}, Format.JSON).splitlines()
    assert lines[1] == (
        '{"window_start": "2013-01-01T12:01:00Z", "window_end": "2013-01-01T12:02:00Z", '
        '"site": "café, x", "mean": 0.1, "total": 12.50}'
    )
    assert json.loads(lines[0])["mean"] == "NaN"
    assert json.loads(lines[0])["site"] is None


def test_csv_holds_no_formulas_and_raw_csv_does() -> None:
    table = pa.table({"=site": ["@SUM(A1)", "-1"], "n": [-1, None]})
    assert written({"q": table}, Format.CSV) == "'=site,n\n'@SUM(A1),-1\n-1,\n"
    assert written({"q": table}, Format.RAW_CSV) == "=site,n\n@SUM(A1),-1\n-1,\n"


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(written({"q": in_window_order(RESULTS)}, Format.CSV))))
    assert rows[1]["site"] == "café, x"
    assert rows[1]["complete"] == "true"
    assert rows[0]["total"] == ""


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Format.TABLE, "a\nn\n-\n1\n\nb\n(no results)\n"),
        (Format.JSON, '{"query": "a", "n": 1}\n'),
        (Format.CSV, "query,n\na,1\n\nquery,n\n"),
    ],
)
def test_with_several_queries_each_result_names_its_query(form: Format, expected: str) -> None:
    one = pa.table({"n": pa.array([1])})
    assert written({"a": one, "b": one.slice(0, 0)}, form) == expected


def test_lists_and_plain_numbers() -> None:
    table = pa.table({"p": pa.array([[1.5, None]]), "window_end": pa.array([7])})
    assert written({"q": table}, Format.JSON) == '{"p": [1.5, null], "window_end": 7}\n'
    assert written({"q": table}, Format.CSV) == 'p,window_end\n"[1.5, null]",7\n'


@pytest.mark.parametrize(
    ("complete", "form", "when", "shown"),
    [
        (True, Format.TABLE, False, []),
        (False, Format.TABLE, False, ["complete"]),
        (True, Format.JSON, False, ["complete"]),
        (True, Format.CSV, False, ["complete"]),
        (True, Format.TABLE, True, ["made"]),
        (False, Format.TABLE, True, ["complete", "made"]),
        (True, Format.JSON, True, ["complete", "made"]),
    ],
)
def test_a_lookup_shows_whether_it_is_complete_and_on_request_when_it_was_made(
    complete: bool, form: Format, when: bool, shown: list[str]
) -> None:
    found = pa.table({"n": [1, 2], "complete": [True, complete], "batch": [3, 3], "made": [5, 5]})
    assert shorten_lookup(found, form, when).column_names == ["n", *shown]
    assert shorten_lookup(found.slice(0, 0), Format.TABLE).column_names == ["n"], "nothing to warn of"


def test_a_lookup_may_have_an_item_called_complete() -> None:
    found = pa.table({"complete": [False], "transom_complete": [True], "batch": [3], "made": [5]})
    assert shorten_lookup(found, Format.TABLE).column_names == ["complete"]
    assert shorten_lookup(found, Format.JSON).column_names == ["complete", "transom_complete"]
