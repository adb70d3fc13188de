"""The functions that the interpreter evaluates, by the name that Spark gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Sequence

import numpy as np
import pyarrow.compute as pc

from transom.durations import SECOND
from transom.errors import SQLError
from transom.sql.interpreter import arithmetic as numbers
from transom.sql.interpreter import conditions, hashes, nested_values
from transom.sql.interpreter import text_functions as texts
from transom.sql.interpreter import time_functions as times
from transom.sql.interpreter.json_paths import json_object
from transom.sql.interpreter.json_text import json_function
from transom.sql.interpreter.number_vectors import right_unsigned_arrays, signs
from transom.sql.interpreter.text_vectors import (
    location_vector,
    of_arrow,
    of_ascii,
    padding_vector,
    replacement_vector,
    right_vector,
    sliced,
)
from transom.sql.interpreter.typed_expression import TypedExpression, converted, literal
from transom.sql.interpreter.types import (
    BOOL,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TINY,
    decimal,
)  # fmt: skip
from transom.sql.interpreter.vectors import vector_of

Build = Callable[[Sequence[TypedExpression]], TypedExpression]
ANY_NUMBER = 1 << 30


@dataclass(frozen=True)
class Function:
    """A function: how its expression is built from its arguments, and how many it takes."""

    build: Build
    least: int
    most: int

    def call(self, name: str, args: Sequence[TypedExpression]) -> TypedExpression:
        """The expression of a call, or an error if the number of arguments is wrong."""
        if self.least <= len(args) <= self.most:
            return self.build(args)
        most = "or more" if self.most == ANY_NUMBER else f"to {self.most}"
        wanted = f"{self.least}" if self.least == self.most else f"{self.least} {most}"
        raise SQLError(f"{name}() takes {wanted} arguments, not {len(args)}")


def _one(build: Callable[[TypedExpression], TypedExpression]) -> Function:
    return Function(lambda args: build(args[0]), 1, 1)


def _two(build: Callable[[TypedExpression, TypedExpression], TypedExpression]) -> Function:
    return Function(lambda args: build(args[0], args[1]), 2, 2)


def _some(build: Build, least: int, most: int = ANY_NUMBER) -> Function:
    return Function(build, least, most)


def _if(args: Sequence[TypedExpression]) -> TypedExpression:
    condition, value, otherwise = args
    return conditions.case([(condition, value)], otherwise)


def _if_not_null(args: Sequence[TypedExpression]) -> TypedExpression:
    arg, value, otherwise = args
    return conditions.case([(conditions.inverse(conditions.is_null(arg)), value)], otherwise)


def _logarithm(args: Sequence[TypedExpression]) -> TypedExpression:
    if len(args) == 1:
        return numbers.of_doubles(numbers.natural_logarithm, args[0])
    return numbers.of_doubles(numbers.logarithm, *args)


def _trim(position: str) -> Function:
    return _one(lambda arg: texts.trimmed(position, arg, None))


def _test(native: Callable[[Any, str], Any]) -> texts.NativeForm:
    return lambda part: lambda values: vector_of(native(values, part))


def _located(search: str) -> Callable[[Any], Any]:
    return location_vector(search, lambda value: texts.located(value, search))


def _padding(side: str) -> texts.NativeForm:
    return lambda length, padding=" ": padding_vector(side, length, padding, texts.LONGEST_PADDING)


def _round(args: Sequence[TypedExpression]) -> TypedExpression:
    return numbers.rounded(args[0], args[1] if len(args) > 1 else None)


def _null_safe_equal(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    return conditions.comparison("<=>", left, right)


_DOUBLES: dict[str, Callable[..., float | None]] = {
    "exp": numbers.exponential, "ln": numbers.natural_logarithm,
    "log10": partial(numbers.logarithm, 10.0), "log2": partial(numbers.logarithm, 2.0),
    "cbrt": math.cbrt,
    "sin": numbers.real(math.sin), "cos": numbers.real(math.cos), "tan": numbers.real(math.tan),
    "asin": numbers.real(math.asin), "acos": numbers.real(math.acos), "atan": math.atan,
    "sinh": numbers.real(math.sinh), "cosh": numbers.hyperbolic_cosine, "tanh": math.tanh,
    "expm1": numbers.real(math.expm1),
}  # fmt: skip
_NATIVE_DOUBLES: dict[str, tuple[Callable[..., float | None], Callable[..., Any]]] = {
    "sqrt": (numbers.square_root, np.sqrt), "rint": (numbers.nearest_whole, np.rint),
    "sign": (numbers.sign, signs), "signum": (numbers.sign, signs),
    "degrees": (math.degrees, np.degrees), "radians": (math.radians, np.radians),
}  # fmt: skip
_UPPER = of_ascii(STRING, pc.ascii_upper, str.upper)
_LOWER = of_ascii(STRING, pc.ascii_lower, str.lower)
_TEXTS: dict[str, tuple[Callable[[str], str], Callable[..., Any] | None]] = {
    "upper": (str.upper, _UPPER), "ucase": (str.upper, _UPPER),
    "lower": (str.lower, _LOWER), "lcase": (str.lower, _LOWER),
    "reverse": (lambda value: value[::-1], of_arrow(pc.utf8_reverse)), "initcap": (texts.capitalized, None),
}  # fmt: skip
_CASTS = {
    "boolean": BOOL, "tinyint": TINY, "smallint": SHORT, "int": INT, "bigint": LONG, "float": FLOAT,
    "double": DOUBLE, "decimal": decimal(10, 0), "string": STRING, "date": DATE, "timestamp": TIMESTAMP,
    "to_timestamp_ltz": TIMESTAMP, "to_date": DATE, "to_timestamp": TIMESTAMP,
}  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    # numbers
    **{name: _one(partial(numbers.of_doubles, function)) for name, function in _DOUBLES.items()},
    "abs": _one(numbers.absolute),
    **{
        name: _one(partial(numbers.of_doubles, function, vector=vector))
        for name, (function, vector) in _NATIVE_DOUBLES.items()
    },
    "atan2": _two(partial(numbers.of_doubles, numbers.angle)),
    "ceil": _one(partial(numbers.stepped, math.ceil)),
    "ceiling": _one(partial(numbers.stepped, math.ceil)),
    "e": _some(lambda args: literal(math.e, DOUBLE), 0, 0),
    "floor": _one(partial(numbers.stepped, math.floor)),
    "greatest": _some(partial(conditions.extreme, 1), 2),
    "hypot": _two(partial(numbers.of_doubles, math.hypot)),
    "isnan": _one(numbers.nan_test),
    "least": _some(partial(conditions.extreme, -1), 2),
    "log": _some(_logarithm, 1, 2),
    "mod": _two(partial(numbers.arithmetic, "%")),
    "nanvl": _two(numbers.nan_value),
    "negative": _one(numbers.negative),
    "pi": _some(lambda args: literal(math.pi, DOUBLE), 0, 0),
    "pmod": _two(numbers.positive_remainder),
    "pow": _two(partial(numbers.of_doubles, numbers.power)),
    "power": _two(partial(numbers.of_doubles, numbers.power)),
    "round": _some(_round, 1, 2),
    "shiftleft": _two(partial(numbers.shifted, lambda value, places, bits: value << places, np.left_shift)),
    "shiftright": _two(partial(numbers.shifted, lambda value, places, bits: value >> places, np.right_shift)),
    "shiftrightunsigned": _two(partial(numbers.shifted, numbers.right_unsigned, right_unsigned_arrays)),
    # conditions
    "coalesce": _some(conditions.coalesce, 1),
    "equal_null": _two(_null_safe_equal),
    "if": _some(_if, 3, 3),
    "ifnull": _some(conditions.coalesce, 2, 2),
    "isnotnull": _one(lambda arg: conditions.inverse(conditions.is_null(arg))),
    "isnull": _one(conditions.is_null),
    "nullif": _two(conditions.null_if),
    "nvl": _some(conditions.coalesce, 2, 2),
    "nvl2": _some(_if_not_null, 3, 3),
    # text
    **{
        name: _some(texts.of_text(STRING, function, lambda vector=vector: vector), 1, 1)
        for name, (function, vector) in _TEXTS.items()
    },
    **{
        name: _some(texts.of_text(INT, len, lambda: of_arrow(pc.utf8_length)), 1, 1)
        for name in ("length", "len", "char_length", "character_length")
    },
    "ascii": _some(texts.of_text(INT, lambda value: ord(value[0]) if value else 0), 1, 1),
    "concat": _some(texts.concatenated, 0),
    "concat_ws": _some(texts.joined, 1),
    "contains": _some(
        texts.of_text(BOOL, lambda value, part: part in value, _test(pc.match_substring)), 2, 2
    ),
    "endswith": _some(texts.of_text(BOOL, str.endswith, _test(pc.ends_with)), 2, 2),
    "instr": _some(texts.of_text(INT, texts.located, _located), 2, 2),
    "left": _some(texts.of_text_and_numbers(texts.left, [1], lambda count: sliced(0, max(count, 0))), 2, 2),
    "locate": _some(texts.located_from, 2, 3),
    "lpad": _some(texts.of_text_and_numbers(texts.padded("left"), [1], _padding("left")), 2, 3),
    "ltrim": _trim("LEADING"),
    "position": _some(texts.located_from, 2, 3),
    "regexp_like": _two(texts.matches),
    "repeat": _some(texts.of_text_and_numbers(texts.repeated, [1]), 2, 2),
    "replace": _some(texts.of_text(STRING, texts.replaced, replacement_vector), 2, 3),
    "right": _some(texts.of_text_and_numbers(texts.right, [1], right_vector), 2, 2),
    "rlike": _two(texts.matches),
    "rpad": _some(texts.of_text_and_numbers(texts.padded("right"), [1], _padding("right")), 2, 3),
    "rtrim": _trim("TRAILING"),
    "split_part": _some(texts.of_text_and_numbers(texts.split_part, [2]), 3, 3),
    "startswith": _some(texts.of_text(BOOL, str.startswith, _test(pc.starts_with)), 2, 2),
    "substr": _some(texts.substring, 2, 3),
    "substring": _some(texts.substring, 2, 3),
    "substring_index": _some(texts.of_text_and_numbers(texts.substring_index, [2]), 3, 3),
    "translate": _some(texts.of_text(STRING, texts.translated), 3, 3),
    # times
    **{name: _one(partial(times.part, name)) for name in (*times.DATE_PARTS, *times.CLOCK_PARTS)},
    "add_months": _two(times.add_months),
    "date_add": _two(partial(times.date_plus, 1)),
    "date_diff": _two(times.date_difference),
    "date_from_unix_date": _one(times.date_from_days),
    "date_part": _some(times.part_by_name, 2, 2),
    "date_sub": _two(partial(times.date_plus, -1)),
    "date_trunc": _two(times.date_trunc),
    "datediff": _two(times.date_difference),
    "datepart": _some(times.part_by_name, 2, 2),
    "from_unixtime": _one(times.seconds_as_text),
    "last_day": _one(times.last_day_of),
    "timestamp_micros": _one(partial(times.timestamp_from, 1)),
    "timestamp_millis": _one(partial(times.timestamp_from, 1000)),
    "timestamp_seconds": _one(partial(times.timestamp_from, SECOND)),
    "to_timestamp_ntz": _one(times.local_timestamp),
    "to_unix_timestamp": _some(times.unix_timestamp, 1, 1),
    "trunc": _two(times.trunc),
    "unix_date": _one(times.unix_date),
    "unix_micros": _one(partial(times.since_1970, 1)),
    "unix_millis": _one(partial(times.since_1970, 1000)),
    "unix_seconds": _one(partial(times.since_1970, SECOND)),
    "unix_timestamp": _some(times.unix_timestamp, 1, 1),
    # casts that are written as functions
    **{name: _one(partial(converted, type=type)) for name, type in _CASTS.items()},
    # arrays, maps, structs
    "array": _some(nested_values.array, 0),
    "array_contains": _two(nested_values.array_contains),
    "array_size": _one(partial(nested_values.size, None)),
    "cardinality": _one(partial(nested_values.size, -1)),
    "element_at": _two(nested_values.element_at),
    "get": _two(nested_values.subscript),
    "map": _some(nested_values.mapping, 0),
    "map_keys": _one(partial(nested_values.map_parts, 0)),
    "map_values": _one(partial(nested_values.map_parts, 1)),
    "named_struct": _some(nested_values.named_structure, 2),
    "size": _one(partial(nested_values.size, -1)),
    # JSON
    "get_json_object": _some(json_object, 2, 2),
    "to_json": _one(json_function),
    # hashes
    "hash": _some(hashes.hash32, 1),
    "xxhash64": _some(hashes.xxhash64, 1),
    "hll_sketch_estimate": _one(hashes.sketch_estimate),
}
