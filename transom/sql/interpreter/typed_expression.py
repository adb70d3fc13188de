"""An expression with its type, and the two ways to make one from others: a null-strict call and a cast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa

from transom.sql.interpreter.cast_vectors import vector_cast
from transom.sql.interpreter.casts import cast, check_cast
from transom.sql.interpreter.distinct_values import by_distinct
from transom.sql.interpreter.types import DOUBLE, FLOAT, is_decimal, is_float, is_int, is_text
from transom.sql.interpreter.vectors import Vector, VectorTable, constant_vector, either, has_vectors

Row = Mapping[str, Any]
VectorForm = Callable[[VectorTable], Vector]


@dataclass(eq=False)
class TypedExpression:
    """An expression with its type: `of` computes it from a row, `vector` from a table. `constant` is a literal's value.

    The row form is the reference: both give the same values. An expression without a vector form is evaluated row
    by row as a whole. It is vectorized if its time per row is small whatever the values are; otherwise the vector
    form calls the row function once for every distinct value.
    """

    type: pa.DataType
    of: Callable[[Row], Any]
    constant: Any = None
    vector: VectorForm | None = None
    is_vectorized: bool = False
    is_exact: bool = True  # its values are Spark's to the last digit
    is_shared: bool = False  # it occurs more than once, and its values in a table are worth keeping
    casts: dict[pa.DataType, TypedExpression] = field(default_factory=dict, repr=False)  # by `converted`


def column_expression(name: str, type: pa.DataType) -> TypedExpression:
    """A column of the table."""
    vector = (lambda table: table.column(name)) if has_vectors(type) else None
    return TypedExpression(type, itemgetter(name), None, vector, vector is not None)


def literal(value: Any, type: pa.DataType) -> TypedExpression:
    """A constant."""
    vector = constant_vector(value, type)
    return TypedExpression(type, lambda row: value, value, lambda table: vector, True)


def combined(
    type: pa.DataType,
    of: Callable[[Row], Any],
    args: Sequence[TypedExpression],
    vector: VectorForm,
    is_native: bool = True,
    is_exact: bool = True,
) -> TypedExpression:
    """An expression of others; it has a vector form if all of them have one."""
    return TypedExpression(
        type,
        of,
        None,
        vector if all(arg.vector is not None for arg in args) else None,
        is_native and all(arg.is_vectorized for arg in args),
        is_exact and all(arg.is_exact for arg in args),
    )


def strict(
    type: pa.DataType,
    function: Callable[..., Any],
    *args: TypedExpression,
    vector: Callable[..., Any] | None = None,
    is_exact: bool = True,
) -> TypedExpression:
    """A function of values that is null when any argument is null.

    `vector` is the same function of NumPy or Arrow arrays: it returns an array, or a `Vector` with further nulls and
    rows that are left to the row form. Without it, the function is called once for every distinct value.
    """
    compute = vector or by_distinct(type, function, [arg.type for arg in args])

    def of_table(table: VectorTable) -> Vector:
        arrays, nulls, by_row = table.values(args)
        if vector is None:
            return compute(arrays, nulls, by_row)
        found = compute(*arrays)
        if not isinstance(found, Vector):
            return Vector(found, nulls, by_row)
        return Vector(found.values, either(nulls, found.nulls), either(by_row, found.by_row))

    return combined(type, strict_row_form(function, args), args, of_table, vector is not None, is_exact)


def strict_row_form(function: Callable[..., Any], args: Sequence[TypedExpression]) -> Callable[[Row], Any]:
    """The row form of a null-strict function."""
    if len(args) == 1:
        only = args[0].of
        return lambda row: None if (value := only(row)) is None else function(value)

    if len(args) == 2:
        left, right = args[0].of, args[1].of

        def of_two(row: Row) -> Any:
            if (first := left(row)) is None or (second := right(row)) is None:
                return None
            return function(first, second)

        return of_two

    def of(row: Row) -> Any:
        values = [arg.of(row) for arg in args]
        return None if any(value is None for value in values) else function(*values)

    return of


def converted(arg: TypedExpression, type: pa.DataType) -> TypedExpression:
    """An expression cast to a type."""
    if arg.type == type:
        return arg
    known = arg.casts.get(type)
    if known is None:
        known = arg.casts[type] = new_cast(arg, type)
    else:
        known.is_shared = True
    return known


def new_cast(arg: TypedExpression, type: pa.DataType) -> TypedExpression:
    """An expression that casts another."""
    check_cast(arg.type, type)
    if arg.constant is not None:
        return literal(cast(arg.constant, arg.type, type), type)
    vector = vector_cast(arg.type, type)
    if is_int(arg.type) and type == DOUBLE:  # the most frequent cast, without the dispatch of the others
        return strict(type, float, arg, vector=vector)
    source = arg.type
    # Java before 19 prints other digits, and rounds to a float once.
    prints_float = is_float(source) and (is_text(type) or is_decimal(type))
    is_exact = not (prints_float or (type == FLOAT and (is_text(source) or is_decimal(source))))
    return strict(type, lambda value: cast(value, source, type), arg, vector=vector, is_exact=is_exact)
