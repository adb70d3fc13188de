"""Arrow tables from JSON rows and SQL types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.durations import parse_duration

SIMPLE_TYPES: Mapping[str, pa.DataType] = {
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


def table_from_rows(columns: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table from JSON rows; NaN, infinities, times and binary values are parsed from text.

    >>> columns = [{"name": "day", "type": "date"}, {"name": "top", "type": "double"}]
    >>> table_from_rows(columns, [{"day": "2013-01-02", "top": "NaN"}]).to_pylist()
    [{'day': datetime.date(2013, 1, 2), 'top': nan}]
    """
    schema = pa.schema([(column["name"], arrow_type_of(column["type"])) for column in columns])
    arrays = [
        pa.array([parse_value(row.get(field.name), field.type) for row in rows], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def arrow_type_of(text: str) -> pa.DataType:
    """The Arrow type of an SQL type; string for an unknown type.

    >>> arrow_type_of("array<struct<site:int,price:decimal(10,2)>>")
    ListType(list<element: struct<site: int32, price: decimal128(10, 2)>>)
    """
    word, _, inner = text.strip().partition("<")
    inner = inner.strip().removesuffix(">")
    if word.lower() == "array":
        return pa.list_(pa.field("element", arrow_type_of(inner)))
    if word.lower() == "map":
        key, item = _split(inner)
        return pa.map_(arrow_type_of(key), arrow_type_of(item))
    if word.lower() == "struct":
        pairs = (part.partition(":") for part in _split(inner))
        return pa.struct([(name.strip().strip("`"), arrow_type_of(kind)) for name, _, kind in pairs])
    if digits := re.fullmatch(r"decimal\((\d+), ?(\d+)\)", word, re.IGNORECASE):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if word.lower().startswith("interval"):
        return pa.duration("us")
    return SIMPLE_TYPES.get(word.lower(), pa.string())


def _split(text: str) -> Iterator[str]:
    """The parts of a list, split at commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def parse_value(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type from decoded JSON."""
    if value is None:
        return None
    if kinds.is_list(kind):
        return [parse_value(each, kind.value_type) for each in value]
    if kinds.is_map(kind):
        return [
            (_parse_key(key, kind.key_type), parse_value(each, kind.item_type))
            for key, each in dict(value).items()
        ]
    if kinds.is_struct(kind):
        return {field.name: parse_value(value.get(field.name), field.type) for field in kind}
    return next((parse(value) for matches, parse in PARSERS if matches(kind)), value)


def _parse_key(text: str, kind: pa.DataType) -> Any:
    """A key of a map; JSON keys are always text."""
    return int(text) if kinds.is_integer(kind) else parse_value(text, kind)


PARSERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (kinds.is_floating, float),
    (kinds.is_decimal, lambda value: Decimal(str(value))),
    (kinds.is_timestamp, datetime.fromisoformat),
    (kinds.is_date, date.fromisoformat),
    (kinds.is_binary, bytes.fromhex),
    (kinds.is_duration, parse_duration),
    (kinds.is_string, str),
)
