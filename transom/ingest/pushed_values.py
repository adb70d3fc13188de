"""Values that a program pushes into a feed, as columns of the feed's types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from transom.durations import parse_instant

_DECIMALS = Context(prec=76, rounding=ROUND_HALF_UP)  # more digits than a decimal has; rounds as Spark does
UNFIT = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    ValueError,
    OverflowError,  # of integers beyond 64 bits
)


def pushed_column(values: list[Any], field: pa.Field, zone: str) -> pa.Array:
    """Python values as a column; ValueError, with the name of the column, if they do not fit its type.

    Times may also be text or microseconds; without an offset, they are in the zone.

    >>> pushed_column([1, 2.0, None], pa.field("n", pa.int32()), "UTC").to_pylist()
    [1, 2, None]
    """
    kind = field.type
    try:
        if pa.types.is_timestamp(kind):
            own = zone if kind.tz is not None else "UTC"
            times = [None if value is None else parse_instant(value, own) for value in values]
            return pa.array(times, pa.int64()).cast(kind)
        for value in values:
            _check(value, kind)
        if pa.types.is_date(kind):  # dates and decimals may also be text, as in JSON
            values = [date.fromisoformat(value) if isinstance(value, str) else value for value in values]
        elif pa.types.is_decimal(kind):
            values = [_decimal(value, kind) for value in values]
        return pa.array(values, kind, from_pandas=False)
    except OverflowError:
        raise ValueError(f"column {field.name}: a number is beyond 64 bits") from None
    except UNFIT as error:
        raise ValueError(f"column {field.name}: {error}") from error


def _decimal(value: Any, kind: pa.DataType) -> Any:
    """A number of a decimal column; text and floating point numbers are read as they are written."""
    if isinstance(value, str | float) and not isinstance(value, bool):
        try:
            return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
        except InvalidOperation:
            raise ValueError(f"{value!r} is no {kind}") from None
    return value


def _check(value: Any, kind: pa.DataType) -> None:
    """Refuse what Arrow would drop: digits after the point of integers and dates, and unknown fields of structs."""
    if value is None:
        return
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        if isinstance(value, float | Decimal) and not _is_whole(value):
            raise ValueError(f"{value!r} is not a whole number")
    elif pa.types.is_struct(kind) and isinstance(value, Mapping):
        names = {field.name for field in kind}
        if unknown := [name for name in value if name not in names]:
            raise ValueError(f"it has no field {unknown[0]}; its fields are {', '.join(sorted(names))}")
        for field in kind:
            _check(value.get(field.name), field.type)
    elif pa.types.is_map(kind) and isinstance(value, Mapping):
        for each in value.values():
            _check(each, kind.item_type)
    elif pa.types.is_list(kind) and isinstance(value, list | tuple):
        for each in value:
            _check(each, kind.value_type)


def _is_whole(value: float | Decimal) -> bool:
    return bool(value == value // 1) if isinstance(value, float) else value == value.to_integral_value()
