"""Schemas and types as texts, as in `site int, price decimal(10, 2), ts timestamp`."""

from __future__ import annotations

import pyarrow as pa
import sqlglot
from sqlglot import exp

from transom.errors import BackendLimitError, SettingError

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": _INSTANT,
    "TIMESTAMPTZ": _INSTANT,
    "TIMESTAMPLTZ": _INSTANT,
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


def parse_schema(text: str) -> dict[str, pa.DataType]:
    """The columns that a text describes.

    >>> parse_schema("site int, ts timestamp")
    {'site': DataType(int32), 'ts': TimestampType(timestamp[us, tz=UTC])}
    """
    try:
        if text.rstrip().endswith(","):
            raise sqlglot.errors.ParseError("a column is missing after the last comma")
        table = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
        columns = list(table.this.expressions)
        schema = {column.name: parsed_type(column.args["kind"]) for column in columns}
    except (sqlglot.errors.SqlglotError, AttributeError, KeyError) as error:
        raise BackendLimitError(
            f"not a schema: {text!r}; expected one like 'site int, ts timestamp'"
        ) from error
    if not schema:
        raise BackendLimitError(f"not a schema: {text!r}; expected one like 'site int, ts timestamp'")
    return schema


def parse_type(text: str) -> pa.DataType:
    """The type that a text describes."""
    try:
        return parsed_type(exp.DataType.build(text, dialect="spark"))
    except (sqlglot.errors.SqlglotError, SettingError) as error:
        raise SettingError(f"not a type: {text!r}; expected one like 'double'") from error


def parsed_type(node: exp.DataType) -> pa.DataType:
    """The Arrow type of a parsed one."""
    name = node.this.name
    parts = node.expressions
    if name == "DECIMAL":
        precision, scale = [*(int(part.name) for part in parts), *(10, 0)[len(parts) :]]
        return pa.decimal128(precision, scale)
    if name in ("ARRAY", "LIST"):
        return pa.list_(parsed_type(parts[0]))
    if name == "MAP":
        return pa.map_(parsed_type(parts[0]), parsed_type(parts[1]))
    if name == "STRUCT":
        return pa.struct([pa.field(part.name, parsed_type(part.args["kind"])) for part in parts])
    if name not in _TYPES:
        raise BackendLimitError(f"the local backend has no type {node.sql('spark')}")
    return _TYPES[name]
