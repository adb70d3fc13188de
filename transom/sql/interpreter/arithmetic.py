"""Arithmetic, rounding, bits and mathematical functions of Spark SQL on typed expressions, with ANSI mode off."""

from __future__ import annotations

import math
from decimal import Decimal
from operator import add, mul, sub
from typing import Any, Callable

import numpy as np
import pyarrow as pa

from transom.columns.types import is_number
from transom.errors import SQLError
from transom.sql.interpreter import types
from transom.sql.interpreter.cast_vectors import float_to_int
from transom.sql.interpreter.casts import cast
from transom.sql.interpreter.condition_vectors import chosen
from transom.sql.interpreter.decimal_vectors import roomy, stepped_decimals
from transom.sql.interpreter.decimals import Decimals
from transom.sql.interpreter.number_vectors import (
    each_double,
    positive_remainders,
    vector_arithmetic,
    vector_rounding,
    whole_quotients,
)
from transom.sql.interpreter.typed_expression import TypedExpression, combined, converted, strict
from transom.sql.interpreter.types import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    is_decimal,
    is_float,
    is_int,
    unsupported,
)
from transom.sql.interpreter.values import EXACT, fit, single, wrap
from transom.sql.interpreter.vectors import Vector, VectorTable


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


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: EXACT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": divided,
    "%": remainder,
}


PLAIN = {"+": add, "-": sub, "*": mul}  # of doubles, which need no correction of the result


def arithmetic(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`left operator right`: integers wrap, decimals too large and division by zero are null."""
    narrow_left, narrow_right = as_literal_decimal(left, right), as_literal_decimal(right, left)
    type = types.arithmetic_type(operator, narrow_left, narrow_right)
    compute, vector = OPERATIONS[operator], vector_arithmetic(operator, type)

    def function(a: Any, b: Any) -> Any:
        if operator in "/%" and b == 0:
            return None
        return settled(compute(a, b), type)

    if type == DOUBLE and operator in PLAIN:
        return strict(type, PLAIN[operator], converted(left, type), converted(right, type), vector=vector)
    if is_decimal(type):
        left, right = (converted(arg, types.as_decimal(narrow)) for arg, narrow in
                       ((left, narrow_left), (right, narrow_right)))  # fmt: skip
        return strict(type, function, left, right, vector=vector)
    return strict(type, function, converted(left, type), converted(right, type), vector=vector)


def as_literal_decimal(arg: TypedExpression, other: TypedExpression) -> pa.DataType:
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


def whole_quotient(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`left div right`, towards zero."""

    def function(a: Any, b: Any) -> int | None:
        if b == 0:
            return None
        return wrap(int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1), 64)

    if not all(is_int(arg.type) or is_decimal(arg.type) for arg in (left, right)):
        raise unsupported(f"{left.type} div {right.type}")
    vector = whole_quotients if is_int(left.type) and is_int(right.type) else None
    return strict(LONG, function, left, right, vector=vector)


def negative(arg: TypedExpression) -> TypedExpression:
    """`-x`."""
    arg = converted(arg, DOUBLE) if types.is_text(arg.type) or arg.type == NULL else numeric(arg)
    vector = sign_vector(np.negative, arg.type)
    return strict(arg.type, lambda value: settled(negated(value), arg.type), arg, vector=vector)


def absolute(arg: TypedExpression) -> TypedExpression:
    """`abs(x)`, which wraps for the least integer."""
    arg = converted(arg, DOUBLE) if types.is_text(arg.type) or arg.type == NULL else numeric(arg)
    vector = sign_vector(np.abs, arg.type)
    return strict(arg.type, lambda value: settled(magnitude(value), arg.type), arg, vector=vector)


def negated(value: Any) -> Any:
    """Minus a number; Python's operator would round a decimal to 28 digits."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def magnitude(value: Any) -> Any:
    """A number without its sign; Python's function would round a decimal to 28 digits."""
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def sign_vector(function: Callable[[Any], Any], type: pa.DataType) -> Callable[[Any], Any]:
    """`-x` and `abs(x)` of arrays: integers wrap."""
    if is_decimal(type):
        return lambda values: Decimals(function(roomy(values.integers)), values.exponent)
    return function


def numeric(arg: TypedExpression) -> TypedExpression:
    """The argument itself, if it is a number."""
    if not is_number(arg.type):
        raise SQLError(f"a number was expected, not {arg.type}")
    return arg


def stepped(towards: Callable[[Any], int], arg: TypedExpression) -> TypedExpression:
    """`floor(x)` and `ceil(x)`: a long, or for decimals a decimal without fraction."""
    if is_decimal(arg.type):
        scale = arg.type.scale
        type = types.bounded(arg.type.precision - scale + 1, 0) if scale else arg.type
        vector = stepped_decimals(towards is math.ceil)
        return strict(type, lambda value: Decimal(towards(value)), arg, vector=vector)
    if is_int(arg.type):
        return converted(arg, LONG)
    arg = converted(arg, DOUBLE)
    step = np.ceil if towards is math.ceil else np.floor
    return strict(
        LONG,
        lambda v: cast(float(towards(v)) if math.isfinite(v) else v, DOUBLE, LONG),
        arg,
        vector=lambda values: float_to_int(step(values), 64),
    )


def rounded(arg: TypedExpression, digits: TypedExpression | None) -> TypedExpression:
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
            return settled(float(half_up(Decimal(repr(value)), places)) + 0.0, type)  # 0.0, not -0.0
        if is_int(type):
            return value if places >= 0 else settled(int(half_up(Decimal(value), places)), type)
        return fit(half_up(value, places), type)

    return strict(type, function, arg, vector=vector_rounding(type, places, function))


def half_up(value: Decimal, places: int) -> Decimal:
    """A number rounded half away from zero to a number of decimal places, which may be negative."""
    exponent = value.as_tuple().exponent
    if (
        isinstance(exponent, int) and exponent >= -places
    ):  # nothing to round, and perhaps too large to write out
        return value
    return value.quantize(Decimal(1).scaleb(-places), context=EXACT)


def rounded_type(type: pa.DataType, places: int) -> pa.DataType:
    """A decimal keeps at most its scale and gains a digit before the point."""
    if not is_decimal(type):
        return type
    whole = type.precision - type.scale + 1
    if places < 0:
        return types.bounded(max(whole, 1 - places), 0)
    return types.bounded(whole + min(type.scale, places), min(type.scale, places))


def of_doubles(
    function: Callable[..., float | None],
    *args: TypedExpression,
    vector: Callable[..., Any] | None = None,
) -> TypedExpression:
    """A function that reads its arguments as doubles."""
    doubles = [converted(arg, DOUBLE) for arg in args]
    is_exact = vector is not None  # the others are C's functions, whose last digit may differ from Java's
    return strict(DOUBLE, function, *doubles, vector=vector or each_double(function), is_exact=is_exact)


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
    """NaN where there is no real result, infinite where it overflows; 1 to an infinite power is NaN, as in Java."""
    if math.isnan(exponent) or (math.isinf(exponent) and abs(base) == 1):
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        odd = exponent % 2 == 1
        return math.copysign(math.inf, base if odd else 1.0) if base == 0 else math.nan


def nan_test(arg: TypedExpression) -> TypedExpression:
    """`isnan(x)`, false for null."""
    arg = converted(arg, DOUBLE) if not is_float(arg.type) else arg

    def of_table(table: VectorTable) -> Vector:
        vector = table.value(arg)
        found = np.isnan(vector.values)
        return Vector(found if vector.nulls is None else found & ~vector.nulls, None, vector.by_row)

    return combined(
        BOOL, lambda row: (value := arg.of(row)) is not None and math.isnan(value), [arg], of_table
    )


def nan_value(arg: TypedExpression, instead: TypedExpression) -> TypedExpression:
    """`nanvl(x, y)`: y where x is NaN, else x."""
    type = FLOAT if arg.type == instead.type == FLOAT else DOUBLE
    left, right = converted(arg, type), converted(instead, type)

    def of(row: Any) -> float | None:
        value = left.of(row)
        return right.of(row) if value is not None and math.isnan(value) else value

    def of_table(table: VectorTable) -> Vector:
        value = table.value(left)
        is_number = ~np.isnan(value.values) if value.nulls is None else ~np.isnan(value.values) | value.nulls
        return chosen(type, table, [is_number], [value, table.value(right)])

    return combined(type, of, [left, right], of_table)


def sign(value: float) -> float:
    """-1.0, 0.0 or 1.0; NaN of NaN."""
    return value if math.isnan(value) or value == 0 else math.copysign(1.0, value)


def nearest_whole(value: float) -> float:
    """`rint(x)`: the nearest whole number, the even one of two."""
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def logarithm(base: float, value: float) -> float | None:
    """Null where the base or the value is not positive; exact for the bases 2 and 10."""
    if value <= 0 or base <= 0:
        return None
    if base in (2.0, 10.0):
        return math.log2(value) if base == 2.0 else math.log10(value)
    divisor = math.log(base)
    if divisor:
        return math.log(value) / divisor
    return math.nan if value == 1 or math.isnan(value) else math.copysign(math.inf, value - 1)


def hyperbolic_cosine(value: float) -> float:
    """Infinite where it overflows."""
    try:
        return math.cosh(value)
    except OverflowError:
        return math.inf


def angle(y: float, x: float) -> float:
    """`atan2(y, x)`, for which -0.0 is 0.0."""
    return math.atan2(y + 0.0, x + 0.0)


def real(function: Callable[..., float]) -> Callable[..., float]:
    """A function of doubles that gives NaN where it has no real result and infinity where it overflows."""

    def of(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.copysign(math.inf, values[0])

    return of


def positive_remainder(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`pmod(x, y)`: the remainder that is never negative for a positive divisor."""
    type = arithmetic("%", left, right).type
    if is_decimal(type):
        raise unsupported("pmod() of decimals")

    def function(a: Any, b: Any) -> Any:
        if b == 0:
            return None
        rest = remainder(a, b)
        return settled(remainder(total(rest, b), b) if rest < 0 else rest, type)

    def total(rest: Any, b: Any) -> Any:  # bytes and shorts are ints on the way, as in Java
        return wrap(rest + b, max(type.bit_width, 32)) if is_int(type) else settled(rest + b, type)

    return strict(type, function, converted(left, type), converted(right, type), vector=positive_remainders)


def bitwise(
    compute: Callable[[int, int], int], left: TypedExpression, right: TypedExpression
) -> TypedExpression:
    """`&`, `|` and `^` of two integers."""
    type = types.wider(left.type, right.type)
    if not is_int(type):
        raise SQLError(f"bit operations need integers, not {type}")
    return strict(
        type,
        lambda a, b: wrap(compute(a, b), type.bit_width),
        converted(left, type),
        converted(right, type),
        vector=compute,
    )


def bit_complement(arg: TypedExpression) -> TypedExpression:
    """`~x`."""
    if not is_int(arg.type):
        raise SQLError(f"bit operations need integers, not {arg.type}")
    return strict(arg.type, lambda value: ~value, arg, vector=np.invert)


def shifted(
    compute: Callable[[int, int, int], int],
    vector: Callable[[np.ndarray, np.ndarray], np.ndarray],
    arg: TypedExpression,
    distance: TypedExpression,
) -> TypedExpression:
    """`shiftleft`, `shiftright` and `shiftrightunsigned`: the distance counts modulo the number of bits."""
    type = LONG if arg.type == LONG else INT
    bits = type.bit_width

    def function(value: int, places: int) -> int:
        return wrap(compute(value, places % bits, bits), bits)

    def of_arrays(values: np.ndarray, places: np.ndarray) -> np.ndarray:
        return vector(values, (places % bits).astype(values.dtype))

    return strict(type, function, converted(arg, type), converted(distance, INT), vector=of_arrays)


def right_unsigned(value: int, places: int, bits: int) -> int:
    """The bits moved to the right, with zeros coming in from the left."""
    return (value % (1 << bits)) >> places
