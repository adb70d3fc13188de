"""Rows of JSON as Arrow again, by the types of their columns in SQL's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.durations import parse_duration

SIMPLE: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def table_of(columns: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; numbers that JSON has no words for, times and binaries are read back from text.

    >>> columns = [{"name": "day", "type": "date"}, {"name": "top", "type": "double"}]
    >>> table_of(columns, [{"day": "2013-01-02", "top": "NaN"}]).to_pylist()
    [{'day': datetime.date(2013, 1, 2), 'top': nan}]
    """
    schema = pa.schema([(column["name"], arrow_type(column["type"])) for column in columns])
    arrays = [
        pa.array([value_of(row.get(field.name), field.type) for row in rows], field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def arrow_type(text: str) -> pa.DataType:
    """The type that SQL calls so; text for one that is not known here.

    >>> arrow_type("array<struct<site:int,price:decimal(10,2)>>")
    ListType(list<element: struct<site: int32, price: decimal128(10, 2)>>)
    """
    word, _, inner = text.strip().partition("<")
    inner = inner.strip().removesuffix(">")
    if word.lower() == "array":
        return pa.list_(pa.field("element", arrow_type(inner)))
    if word.lower() == "map":
        key, item = _split(inner)
        return pa.map_(arrow_type(key), arrow_type(item))
    if word.lower() == "struct":
        pairs = (part.partition(":") for part in _split(inner))
        return pa.struct([(name.strip().strip("`"), arrow_type(kind)) for name, _, kind in pairs])
    if digits := re.fullmatch(r"decimal\((\d+), ?(\d+)\)", word, re.IGNORECASE):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if word.lower().startswith("interval"):
        return pa.duration("us")
    return SIMPLE.get(word.lower(), pa.string())


def _split(text: str) -> Iterator[str]:
    """The parts of a list at its commas, but not those within brackets of their own."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def value_of(told: Any, kind: pa.DataType) -> Any:
    """A value of a type from what JSON has of it."""
    if told is None:
        return None
    if kinds.is_list(kind):
        return [value_of(each, kind.value_type) for each in told]
    if kinds.is_map(kind):
        return [
            (_key(key, kind.key_type), value_of(each, kind.item_type)) for key, each in dict(told).items()
        ]
    if kinds.is_struct(kind):
        return {field.name: value_of(told.get(field.name), field.type) for field in kind}
    return next((read(told) for fits, read in READERS if fits(kind)), told)


def _key(text: str, kind: pa.DataType) -> Any:
    """A key of a map: in JSON it is text whatever it was."""
    return int(text) if kinds.is_integer(kind) else value_of(text, kind)


READERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (kinds.is_floating, float),
    (kinds.is_decimal, lambda told: Decimal(str(told))),
    (kinds.is_timestamp, datetime.fromisoformat),
    (kinds.is_date, date.fromisoformat),
    (kinds.is_binary, bytes.fromhex),
    (kinds.is_duration, parse_duration),
    (kinds.is_string, str),
)
