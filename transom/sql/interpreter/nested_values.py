"""Arrays, maps and structs of Spark SQL on typed expressions. A map is a list of pairs, as in Arrow."""

from __future__ import annotations

from typing import Any, Sequence

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.interpreter import types
from transom.sql.interpreter.nested_vectors import (
    array_vector,
    element_vector,
    field_vector,
    map_value_vector,
    sizes,
    struct_vector,
)
from transom.sql.interpreter.typed_expression import (
    Row,
    TypedExpression,
    combined,
    converted,
    literal,
    strict,
)
from transom.sql.interpreter.types import BOOL, INT, is_int, unsupported
from transom.sql.interpreter.values import order
from transom.sql.interpreter.vectors import constant_vector

is_array, is_map = pa.types.is_list, pa.types.is_map


def array(args: Sequence[TypedExpression]) -> TypedExpression:
    """`array(x, ...)`, of one common type."""
    type = types.common_type([arg.type for arg in args], text=True) if args else types.NULL
    elements = [converted(arg, type) for arg in args]
    list_type = pa.list_(type)

    def of(row: Row) -> list[Any]:
        return [element.of(row) for element in elements]

    return combined(list_type, of, elements, lambda table: array_vector(table, list_type, elements))


def mapping(args: Sequence[TypedExpression]) -> TypedExpression:
    """`map(key, value, ...)`; a later pair replaces an earlier one with the same key."""
    if len(args) % 2:
        raise SQLError("map() takes pairs: a key and a value, a key and a value, ...")
    key_type = types.common_type([arg.type for arg in args[::2]], text=True) if args else types.STRING
    value_type = types.common_type([arg.type for arg in args[1::2]], text=True) if args else types.STRING
    pairs = [(converted(key, key_type), converted(value, value_type))
             for key, value in zip(args[::2], args[1::2], strict=True)]  # fmt: skip

    def of(row: Row) -> list[tuple[Any, Any]]:
        return list({key.of(row): value.of(row) for key, value in pairs}.items())

    return TypedExpression(pa.map_(key_type, value_type), of)


def map_parts(place: int, arg: TypedExpression) -> TypedExpression:
    """`map_keys` (place 0) and `map_values` (place 1)."""
    if not is_map(arg.type):
        raise SQLError(f"a map was expected, not {arg.type}")
    type = arg.type.key_type if place == 0 else arg.type.item_type
    return strict(pa.list_(type), lambda pairs: [pair[place] for pair in pairs], arg)


def subscript(arg: TypedExpression, index: TypedExpression) -> TypedExpression:
    """`a[i]`, counted from 0, and `m[key]`; null where there is no such element."""
    if is_map(arg.type):
        return map_value(arg, index)
    if not is_array(arg.type):
        raise SQLError(f"{arg.type} has no elements: only an array or a map takes an index in brackets")
    function = lambda values, at: values[at] if 0 <= at < len(values) else None  # noqa: E731
    return strict(arg.type.value_type, function, arg, integer(index), vector=element_vector(from_one=False))


def element_at(arg: TypedExpression, index: TypedExpression) -> TypedExpression:
    """`element_at(a, i)`, counted from 1 or back from the end, and `element_at(m, key)`."""
    if is_map(arg.type):
        return map_value(arg, index)
    if not is_array(arg.type):
        raise SQLError(f"element_at() takes an array or a map, not {arg.type}")

    def function(values: list[Any], place: int) -> Any:
        at = place - 1 if place > 0 else len(values) + place if place < 0 else -1
        return values[at] if 0 <= at < len(values) else None

    return strict(arg.type.value_type, function, arg, integer(index), vector=element_vector(from_one=True))


def integer(index: TypedExpression) -> TypedExpression:
    """The argument itself, if it is an integer."""
    if not is_int(index.type):
        raise SQLError(f"an integer was expected as the place in an array, not {index.type}")
    return index


def map_value(arg: TypedExpression, key: TypedExpression) -> TypedExpression:
    """The value that a map has for a key, or null."""
    key = converted(key, arg.type.key_type)

    def function(pairs: list[tuple[Any, Any]], wanted: Any) -> Any:
        return next((value for each, value in pairs if order(each, wanted) == 0), None)

    vector = None
    if key.constant is not None:
        vector = map_value_vector(arg.type, constant_vector(key.constant, key.type))
    return strict(arg.type.item_type, function, arg, key, vector=vector)


def size(null: int | None, arg: TypedExpression) -> TypedExpression:
    """The number of elements: `size` is -1 of null, `array_size` is null."""
    if not (is_array(arg.type) or is_map(arg.type)):
        raise SQLError(f"an array or a map was expected, not {arg.type}")
    return combined(
        INT,
        lambda row: null if (value := arg.of(row)) is None else len(value),
        [arg],
        lambda table: sizes(null, table.value(arg)),
    )


def array_contains(arg: TypedExpression, value: TypedExpression) -> TypedExpression:
    """`array_contains(a, x)`: null where x is not found and an element is null."""
    if not is_array(arg.type):
        raise SQLError(f"array_contains() takes an array, not {arg.type}")
    type = types.wider(arg.type.value_type, value.type)
    if type != arg.type.value_type:
        raise unsupported(f"array_contains() of {arg.type} and {value.type}")

    def function(elements: list[Any], wanted: Any) -> bool | None:
        if any(element is not None and order(element, wanted) == 0 for element in elements):
            return True
        return None if None in elements else False

    return strict(BOOL, function, arg, converted(value, type))


def structure(names: Sequence[str], parts: Sequence[TypedExpression]) -> TypedExpression:
    """`named_struct(name, part, ...)` and `struct(part, ...)`."""
    type = pa.struct([pa.field(name, part.type) for name, part in zip(names, parts, strict=True)])
    return combined(
        type,
        lambda row: {name: part.of(row) for name, part in zip(names, parts, strict=True)},
        parts,
        lambda table: struct_vector(table, type, parts),
    )


def named_structure(args: Sequence[TypedExpression]) -> TypedExpression:
    """`named_struct('a', x, ...)`."""
    names = [arg.constant for arg in args[::2]]
    if len(args) % 2 or not all(isinstance(name, str) for name in names):
        raise SQLError("named_struct() takes pairs: a constant name and a value")
    return structure(names, args[1::2])


def field_of(arg: TypedExpression, name: str) -> TypedExpression:
    """`struct.name`, in any case of the name; `map.name` is the map's value for that key."""
    if is_map(arg.type):
        return map_value(arg, literal(name, types.STRING))
    if is_array(arg.type) and types.is_struct(arg.type.value_type):
        return fields_of(arg, name)
    for field in arg.type if types.is_struct(arg.type) else ():
        if field.name.casefold() == name.casefold():
            vector = field_vector(field.name, arg.type)
            return strict(field.type, lambda value, key=field.name: value[key], arg, vector=vector)
    raise SQLError(f"{arg.type} has no field {name}")


def fields_of(arg: TypedExpression, name: str) -> TypedExpression:
    """`array_of_structs.name`: the field of each element."""
    for field in arg.type.value_type:
        if field.name.casefold() == name.casefold():
            function = lambda values, key=field.name: [each and each[key] for each in values]  # noqa: E731
            return strict(pa.list_(field.type), function, arg)
    raise SQLError(f"{arg.type} has no field {name}")
