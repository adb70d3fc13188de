"""What the server writes as JSON is read back as the Arrow that it was."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from transom.api.value_text import value_to_json
from transom.client.arrow_rows import table_from_rows

VALUES: list[tuple[str, list[Any]]] = [
    ("tinyint", [1, None]),
    ("bigint", [2**62, -1]),
    ("double", [0.1, float("inf"), float("-inf"), 1e300]),
    ("float", [0.5]),
    ("decimal(38,18)", [Decimal("12345678901234567890.123456789012345678"), None]),
    ("boolean", [True, False, None]),
    ("string", ["ä", "", None]),
    ("binary", [b"\x00\xff"]),
    ("date", [date(2013, 1, 31)]),
    ("timestamp", [datetime(2013, 1, 1, 12, 0, 0, 5, tzinfo=UTC), None]),
    ("timestamp_ntz", [datetime(2013, 1, 1, 12)]),
    ("interval day to second", [timedelta(days=1, milliseconds=5)]),
    ("array<double>", [[1.5, None], [], None]),
    ("array<decimal(10,2)>", [[Decimal("1.10")]]),
    ("struct<a:int,b:array<string>,c:decimal(4,1)>", [{"a": 1, "b": ["x"], "c": Decimal("2.5")}]),
    ("something of a newer server", ["as it is"]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[kind for kind, _ in VALUES])
def test_values_come_back(kind: str, values: list[Any]) -> None:
    rows = json.loads(
        "[" + ", ".join(f'{{"x": {value_to_json(value)}}}' for value in values) + "]", parse_float=Decimal
    )
    assert table_from_rows([{"name": "x", "type": kind}], rows)["x"].to_pylist() == values


def test_maps_have_their_keys_back() -> None:
    rows = [{"x": {"1": "a", "2": None}}]
    assert table_from_rows([{"name": "x", "type": "map<int,string>"}], rows)["x"].to_pylist() == [
        [(1, "a"), (2, None)]
    ]


def test_no_rows_have_types_too() -> None:
    table = table_from_rows([{"name": "n", "type": "bigint"}, {"name": "at", "type": "timestamp"}], [])
    assert table.schema.types == [pa.int64(), pa.timestamp("us", "UTC")]
