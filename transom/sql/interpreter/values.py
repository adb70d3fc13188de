"""Values as Spark SQL sees them: one order, one equality, integers that wrap.

A timestamp or an interval is an integer of microseconds, a date a `datetime.date`, a decimal a `Decimal`, a struct
a dict, a map a list of pairs; every other value has its usual Python type.
"""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Callable, Hashable, Mapping

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EXACT = Context(prec=120, rounding=ROUND_HALF_UP)  # more digits than any Spark decimal needs on the way
FIRST_DATE, LAST_DATE = -719_162, 2_932_896  # the years 1 to 9999, which Python's dates have
PER_UNIT = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}

ORDER_TESTS: dict[str, Callable[[int], bool]] = {  # what an operator asks of the order of its two sides
    "=": lambda o: o == 0, "!=": lambda o: o != 0, "<": lambda o: o < 0,
    "<=": lambda o: o <= 0, ">": lambda o: o > 0, ">=": lambda o: o >= 0,
}  # fmt: skip


def column_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of an Arrow column: timestamps and intervals as microseconds, structs as dicts.

    >>> column_values(pa.array([1, None], pa.timestamp("ms")))
    [1000, None]
    """
    type = column.type
    if pa.types.is_timestamp(type) or pa.types.is_duration(type):
        times, over = PER_UNIT[type.unit]
        return [
            None if value is None else value * times // over for value in column.cast(pa.int64()).to_pylist()
        ]
    if type == pa.date32():
        return _dates(column)
    if not pa.types.is_nested(type):
        return list(column.to_pylist())
    return [plain_value(scalar) for scalar in column]


def _dates(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The dates of a column; null where Python has none, after the year 9999."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        days = column.cast(pa.int32()).to_pylist()
        return [
            None if day is None or not FIRST_DATE <= day <= LAST_DATE else EPOCH.date() + timedelta(days=day)
            for day in days
        ]


def plain_value(scalar: pa.Scalar) -> Any:
    """The Python value of an Arrow scalar, with timestamps and intervals as microseconds."""
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type) or pa.types.is_duration(scalar.type):
        times, over = PER_UNIT[scalar.type.unit]
        return scalar.value * times // over
    if pa.types.is_struct(scalar.type):
        return {field.name: plain_value(scalar[i]) for i, field in enumerate(scalar.type)}
    if pa.types.is_map(scalar.type):
        return [(plain_value(pair[0]), plain_value(pair[1])) for pair in scalar.values]
    if pa.types.is_list(scalar.type):
        return [plain_value(element) for element in scalar]
    return scalar.as_py()


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, as dicts of plain values."""
    names = table.column_names
    if not names:
        return [{} for _ in range(table.num_rows)]
    columns = [column_values(column) for column in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def table_of(rows: list[dict[str, Any]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows as a table with these columns and no others."""
    arrays = [pa.array([row.get(name) for row in rows], type) for name, type in types.items()]
    fields = [pa.field(name, type) for name, type in types.items()]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def microseconds(value: Any) -> Any:
    """A datetime as microseconds since 1970 (one without a zone is UTC); anything else as it is."""
    if not isinstance(value, datetime):
        return value
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def is_nan(value: Any) -> bool:
    """Whether this is a floating-point NaN."""
    return isinstance(value, float) and math.isnan(value)


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1 as left is below, equal to or above right: NaN equals NaN and is above all else.

    >>> order(float("nan"), float("inf")), order(0.0, -0.0), order(1, 2.5)
    (1, 0, -1)
    """
    if is_nan(left) or is_nan(right):
        return is_nan(left) - is_nan(right)
    if isinstance(left, dict):
        parts = zip(left.values(), right.values(), strict=True)
        return next((found for a, b in parts if (found := order_nulls(a, b))), 0)
    if isinstance(left, list):
        unequal = (found for a, b in zip(left, right, strict=False) if (found := order_nulls(a, b)))
        return next(unequal, int(len(left) > len(right)) - int(len(left) < len(right)))
    return int(left > right) - int(left < right)


def order_nulls(left: Any, right: Any) -> int:
    """The same order with null equal to null and below all else."""
    if left is None or right is None:
        return (right is None) - (left is None)
    return order(left, right)


def sameness(value: Any) -> Hashable:
    """Equal exactly for values that GROUP BY puts together: NaN with NaN, -0.0 with 0.0, null with null."""
    if is_nan(value):
        return "NaN", float
    if isinstance(value, dict):
        return tuple((name, sameness(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(sameness(part) for part in value)
    return value


def grouped(value: Any) -> Any:
    """How a value shows as a group: -0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def wrap(value: int, bits: int) -> int:
    """An integer wrapped to two's complement with this number of bits.

    >>> wrap(2**63, 64) == -2**63
    True
    """
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def single(value: float) -> float:
    """A double rounded to a float of 32 bits."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def fit(value: Decimal, type: pa.DataType) -> Decimal | None:
    """A decimal rounded half up to the type's scale, or None where it has too many digits."""
    rounded = value.quantize(Decimal(1).scaleb(-type.scale), context=EXACT)
    return rounded if rounded.copy_abs() < Decimal(10) ** (type.precision - type.scale) else None
