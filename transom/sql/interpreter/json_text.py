"""`to_json(struct)`: a struct as JSON text in Spark's spelling."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.interpreter.casts import spark_text
from transom.sql.interpreter.typed_expression import TypedExpression, strict
from transom.sql.interpreter.types import STRING, is_decimal, is_float, is_struct, is_text, is_timestamp


def json_function(arg: TypedExpression) -> TypedExpression:
    """`to_json(x)` of a struct, an array or a map."""
    if not (is_struct(arg.type) or pa.types.is_list(arg.type) or pa.types.is_map(arg.type)):
        raise SQLError(f"to_json() takes a struct, an array or a map, not {arg.type}")
    return strict(STRING, lambda value: spark_json(value, arg.type), arg)


def spark_json(value: Any, type: pa.DataType) -> str:
    """A value as JSON: fields that are null are left out, numbers that JSON does not have are texts."""
    if value is None:
        return "null"
    if is_struct(type):
        return _object([(f.name, value[f.name], f.type) for f in type if value[f.name] is not None])
    if pa.types.is_map(type):
        return _object([(_key(key, type.key_type), item, type.item_type) for key, item in value])
    if pa.types.is_list(type):
        return f"[{','.join(spark_json(element, type.value_type) for element in value)}]"
    if is_timestamp(type):
        return json.dumps(_timestamp(value, type))
    if (is_float(type) and math.isfinite(value)) or is_decimal(type):
        return spark_text(value, type)
    if isinstance(value, bool | int):
        return json.dumps(value)
    return json.dumps(value if is_text(type) else spark_text(value, type), ensure_ascii=False)


def _object(fields: list[tuple[str, Any, pa.DataType]]) -> str:
    parts = (
        f"{json.dumps(name, ensure_ascii=False)}:{spark_json(value, type)}" for name, value, type in fields
    )
    return "{" + ",".join(parts) + "}"


def _key(value: Any, type: pa.DataType) -> str:
    return value if is_text(type) else spark_text(value, type)


def _timestamp(micros: int, type: pa.DataType) -> str:
    """A timestamp to the millisecond, and with its zone if it has one."""
    day, _, clock = spark_text(micros // 1000 * 1000, type).partition(" ")
    clock, _, fraction = clock.partition(".")
    return f"{day}T{clock}.{fraction.ljust(3, '0')}{'Z' if type.tz else ''}"
