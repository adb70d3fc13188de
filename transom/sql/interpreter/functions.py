"""Operators and functions of Spark SQL on typed expressions, one Python function each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.interpreter import types
from transom.sql.interpreter.casts import cast
from transom.sql.interpreter.types import BOOL, DOUBLE, INT, LONG, NULL, STRING, is_decimal, is_float, is_int
from transom.sql.interpreter.values import EXACT, TESTS, fit, order, order_nulls, single, wrap

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Typed:
    """An expression with its type: `of` computes it from a row. `constant` is a literal's value."""

    type: pa.DataType
    of: Callable[[Row], Any]
    constant: Any = None


def literal(value: Any, type: pa.DataType) -> Typed:
    """A constant."""
    return Typed(type, lambda row: value, value)


def strict(type: pa.DataType, function: Callable[..., Any], *args: Typed) -> Typed:
    """A function of values, null as soon as one of them is null."""

    def of(row: Row) -> Any:
        values = [arg.of(row) for arg in args]
        return None if any(value is None for value in values) else function(*values)

    return Typed(type, of)


def converted(arg: Typed, type: pa.DataType) -> Typed:
    """An expression cast to a type."""
    if arg.type == type:
        return arg
    return Typed(type, lambda row: cast(arg.of(row), arg.type, type))


# --- arithmetic ------------------------------------------------------------------------------


def remainder(left: Any, right: Any) -> Any:
    """With the sign of the dividend, as in Java."""
    if isinstance(left, float):
        return math.fmod(left, right) if math.isfinite(left) else math.nan
    if isinstance(left, Decimal):
        return EXACT.remainder(left, right)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def divided(left: Any, right: Any) -> Any:
    """The quotient, of decimals with many more digits than the result keeps."""
    return EXACT.divide(left, right) if isinstance(left, Decimal) else left / right


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: EXACT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": divided,
    "%": remainder,
}


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """`left operator right`: integers wrap, decimals too large and division by zero are null."""
    narrow_left, narrow_right = as_literal_decimal(left, right), as_literal_decimal(right, left)
    type = types.arithmetic(operator, narrow_left, narrow_right)
    compute = OPERATORS[operator]

    def function(a: Any, b: Any) -> Any:
        if operator in "/%" and b == 0:
            return None
        return settled(compute(a, b), type)

    if is_decimal(type):
        left, right = (converted(arg, types.as_decimal(narrow)) for arg, narrow in
                       ((left, narrow_left), (right, narrow_right)))  # fmt: skip
        return strict(type, function, left, right)
    return strict(type, function, converted(left, type), converted(right, type))


def as_literal_decimal(arg: Typed, other: Typed) -> pa.DataType:
    """Beside a decimal, an integer literal is a decimal of just its digits, and NULL one like it."""
    if is_decimal(other.type) and arg.type == NULL:
        return other.type
    if is_decimal(other.type) and is_int(arg.type) and arg.constant is not None:
        return pa.decimal128(len(str(abs(arg.constant))), 0)
    return arg.type


def settled(value: Any, type: pa.DataType) -> Any:
    """A computed number brought into its type."""
    if is_int(type):
        return wrap(value, type.bit_width)
    if is_decimal(type):
        return fit(value, type)
    return single(value) if type == types.FLOAT else value


def whole_quotient(left: Typed, right: Typed) -> Typed:
    """`left div right`, towards zero."""

    def function(a: Any, b: Any) -> int | None:
        if b == 0:
            return None
        return wrap(int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1), 64)

    if not all(is_int(arg.type) or is_decimal(arg.type) for arg in (left, right)):
        raise SQLError(f"the oracle does not compute {left.type} div {right.type}")
    return strict(LONG, function, left, right)


def negative(arg: Typed) -> Typed:
    """`-x`."""
    arg = converted(arg, DOUBLE) if types.is_text(arg.type) or arg.type == NULL else numeric(arg)
    return strict(arg.type, lambda value: settled(-value, arg.type), arg)


def absolute(arg: Typed) -> Typed:
    """`abs(x)`, which wraps for the least integer."""
    arg = converted(arg, DOUBLE) if types.is_text(arg.type) or arg.type == NULL else numeric(arg)
    return strict(arg.type, lambda value: settled(abs(value), arg.type), arg)


def numeric(arg: Typed) -> Typed:
    """The argument itself, if it is a number."""
    if not types.is_number(arg.type):
        raise SQLError(f"a number was expected, not {arg.type}")
    return arg


def stepped(towards: Callable[[Any], int], arg: Typed) -> Typed:
    """`floor(x)` and `ceil(x)`: a long, or for decimals a decimal without fraction."""
    if is_decimal(arg.type):
        scale = arg.type.scale
        type = types.bounded(arg.type.precision - scale + 1, 0) if scale else arg.type
        return strict(type, lambda value: Decimal(towards(value)), arg)
    if is_int(arg.type):
        return converted(arg, LONG)
    arg = converted(arg, DOUBLE)
    return strict(LONG, lambda v: cast(float(towards(v)) if math.isfinite(v) else v, DOUBLE, LONG), arg)


def rounded(arg: Typed, digits: Typed | None) -> Typed:
    """`round(x, d)`, half up, of a double by way of its shortest decimal text."""
    places = 0 if digits is None else digits.constant
    if not isinstance(places, int):
        raise SQLError("round takes a constant number of digits")
    if types.is_text(arg.type) or arg.type == NULL:
        arg = converted(arg, DOUBLE)
    type = rounded_type(numeric(arg).type, places)

    def function(value: Any) -> Any:
        if isinstance(value, float):
            if not math.isfinite(value):
                return value
            return settled(float(half_up(Decimal(repr(value)), places)), type)
        if is_int(type):
            return value if places >= 0 else settled(int(half_up(Decimal(value), places)), type)
        return fit(half_up(value, places), type)

    return strict(type, function, arg)


def half_up(value: Decimal, places: int) -> Decimal:
    """Rounded half away from zero to so many decimal places, which may be negative."""
    return value.quantize(Decimal(1).scaleb(-places), context=EXACT)


def rounded_type(type: pa.DataType, places: int) -> pa.DataType:
    """A decimal keeps at most its scale and gains a digit before the point."""
    if not is_decimal(type):
        return type
    whole = type.precision - type.scale + 1
    if places < 0:
        return types.bounded(max(whole, 1 - places), 0)
    return types.bounded(whole + min(type.scale, places), min(type.scale, places))


def of_doubles(function: Callable[..., float | None], *args: Typed) -> Typed:
    """A function that reads its arguments as doubles."""
    return strict(DOUBLE, function, *(converted(arg, DOUBLE) for arg in args))


def square_root(value: float) -> float:
    """NaN below zero."""
    return math.sqrt(value) if value >= 0 else math.nan


def natural_logarithm(value: float) -> float | None:
    """Null at and below zero, as Spark has it."""
    return math.log(value) if not value <= 0 else None


def exponential(value: float) -> float:
    """Infinite where it overflows."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def power(base: float, exponent: float) -> float:
    """NaN where there is no real result, infinite where it overflows."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        odd = exponent % 2 == 1
        return math.copysign(math.inf, base if odd else 1.0) if base == 0 else math.nan


# --- comparisons and truth -------------------------------------------------------------------


def comparison(operator: str, left: Typed, right: Typed) -> Typed:
    """`left operator right` for = != < <= > >= and the null-safe <=>."""
    type = types.compared(left.type, right.type)
    left, right = converted(left, type), converted(right, type)
    if operator == "<=>":
        return Typed(BOOL, lambda row: order_nulls(left.of(row), right.of(row)) == 0)
    return strict(BOOL, lambda a, b: TESTS[operator](order(a, b)), left, right)


def boolean(arg: Typed) -> Typed:
    """The argument itself, if it is a truth value."""
    if arg.type not in (BOOL, NULL):
        raise SQLError(f"a condition was expected, not {arg.type}")
    return arg


def all_of(*parts: Typed) -> Typed:
    """Kleene's AND."""

    def of(row: Row) -> bool | None:
        values = [part.of(row) for part in parts]
        return False if False in values else None if None in values else True

    return Typed(BOOL, of)


def inverse(part: Typed) -> Typed:
    """Kleene's NOT."""
    return strict(BOOL, lambda value: not value, boolean(part))


def any_of(*parts: Typed) -> Typed:
    """Kleene's OR."""
    return inverse(all_of(*map(inverse, parts)))


def member(arg: Typed, values: Sequence[Typed]) -> Typed:
    """`arg IN (values)`: an OR of equalities, over one common type."""
    type = types.common([arg.type, *(value.type for value in values)], text=True)
    arg = converted(arg, type)
    return any_of(*(comparison("=", arg, converted(value, type)) for value in values))


def like(arg: Typed, pattern: Typed) -> Typed:
    """`arg LIKE pattern`, with a backslash before a % or _ that is meant."""

    def function(value: str, wanted: str) -> bool:
        parts = re.findall(r"\\.|.", wanted, re.DOTALL)
        wild = {"%": ".*", "_": "."}
        regex = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
        return re.fullmatch(regex, value, re.DOTALL) is not None

    return strict(BOOL, function, converted(arg, STRING), converted(pattern, STRING))


# --- choices ---------------------------------------------------------------------------------


def case(branches: Sequence[tuple[Typed, Typed]], otherwise: Typed) -> Typed:
    """The value of the first branch whose condition is true."""
    type = types.common([*(value.type for _, value in branches), otherwise.type], text=True)
    chosen = [(boolean(condition), converted(value, type)) for condition, value in branches]
    last = converted(otherwise, type)
    return Typed(type, lambda row: next((v for c, v in chosen if c.of(row) is True), last).of(row))


def coalesce(args: Sequence[Typed]) -> Typed:
    """The first that is not null."""
    type = types.common([arg.type for arg in args], text=True)
    casts = [converted(arg, type) for arg in args]
    return Typed(type, lambda row: next((v for arg in casts if (v := arg.of(row)) is not None), None))


def extreme(sign: int, args: Sequence[Typed]) -> Typed:
    """`greatest` (sign 1) and `least` (sign -1), which skip nulls."""
    type = types.common([arg.type for arg in args])
    casts = [converted(arg, type) for arg in args]

    def of(row: Row) -> Any:
        best = None
        for value in (arg.of(row) for arg in casts):
            if value is not None and (best is None or sign * order(value, best) > 0):
                best = value
        return best

    return Typed(type, of)


# --- text and structs ------------------------------------------------------------------------


def concatenated(args: Sequence[Typed]) -> Typed:
    """All as text, one after the other."""
    return strict(STRING, lambda *values: "".join(values), *(converted(arg, STRING) for arg in args))


def length(arg: Typed) -> Typed:
    """The number of characters."""
    return strict(INT, len, converted(arg, STRING))


def substring(arg: Typed, start: Typed, size: Typed | None) -> Typed:
    """From a place counted from 1, or back from the end when negative."""

    def function(value: str, place: int, count: int = 1 << 31) -> str:
        begin = place - 1 if place > 0 else len(value) + place if place < 0 else 0
        return value[max(begin, 0) : max(begin + count, 0)]

    numbers = [converted(number, INT) for number in (start, size) if number is not None]
    return strict(STRING, function, converted(arg, STRING), *numbers)


def structure(names: Sequence[str], parts: Sequence[Typed]) -> Typed:
    """`named_struct(name, part, ...)`."""
    type = pa.struct([pa.field(name, part.type) for name, part in zip(names, parts, strict=True)])
    return Typed(type, lambda row: {name: part.of(row) for name, part in zip(names, parts, strict=True)})


def field_of(arg: Typed, name: str) -> Typed:
    """`struct.name`, whatever the case of the name."""
    for field in arg.type if types.is_struct(arg.type) else ():
        if field.name.casefold() == name.casefold():
            return strict(field.type, lambda value, key=field.name: value[key], arg)
    raise SQLError(f"{arg.type} has no field {name}")


def is_nan(arg: Typed) -> Typed:
    """`isnan(x)`, false for null."""
    arg = converted(arg, DOUBLE) if not is_float(arg.type) else arg
    return Typed(BOOL, lambda row: (value := arg.of(row)) is not None and math.isnan(value))
