"""Access to structs, arrays and maps on Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.interpreter.condition_vectors import vector_comparison
from transom.sql.interpreter.vectors import (
    Vector,
    VectorNode,
    VectorTable,
    any_mask,
    array_of,
    full,
    vector_of,
)


def field_vector(name: str, type: pa.DataType) -> Callable[[pa.StructArray], Vector]:
    """A field of structs."""
    place = type.get_field_index(name)
    return lambda structs: vector_of(pc.struct_field(structs, [place]))


def bounds(lists: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where the elements of each array or map begin and end among the elements of all."""
    if not len(lists):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(lists.buffers()[1], np.int32, len(lists) + 1, lists.offset * 4).astype(np.int64)
    return offsets[:-1], offsets[1:]


def element_vector(from_one: bool) -> Callable[[pa.Array, np.ndarray], Vector]:
    """`a[i]`, counted from 0, or `element_at(a, i)`, counted from 1 or back from the end; null beyond the ends."""

    def compute(lists: pa.Array, places: np.ndarray) -> Vector:
        size = len(places) if len(lists) == 1 else len(lists)
        begins, ends = (full(each, size) for each in bounds(lists))
        at = full(places.astype(np.int64), size)
        if from_one:
            at = np.where(at > 0, at - 1, np.where(at < 0, ends - begins + at, -1))
        missing = (at < 0) | (at >= ends - begins)
        spots = pa.array(np.where(missing, 0, begins + at), mask=missing)
        return vector_of(lists.values.take(spots))

    return compute


def map_value_vector(type: pa.DataType, key: Vector) -> Callable[[pa.Array, Any], Vector] | None:
    """`m[key]` with a constant key: the first value with this key."""
    equal = vector_comparison("=", type.key_type)
    if equal is None:
        return None

    def compute(maps: pa.Array, _: Any) -> Vector:
        begins, ends = bounds(maps)
        hits = np.flatnonzero(equal(vector_of(maps.keys).values, key.values))
        if not len(hits):
            return vector_of(pa.nulls(len(maps), type.item_type))
        place = np.searchsorted(hits, begins)
        spots = hits[np.minimum(place, len(hits) - 1)]
        missing = (place >= len(hits)) | (spots >= ends)
        return vector_of(maps.items.take(pa.array(np.where(missing, 0, spots), mask=missing)))

    return compute


def sizes(null: int | None, lists: Vector) -> Vector:
    """The number of elements; of null a number or null."""
    begins, ends = bounds(lists.values)
    counts = (ends - begins).astype(np.int32)
    if lists.nulls is None or null is None:
        return Vector(counts, lists.nulls, lists.by_row)
    return Vector(np.where(lists.nulls, np.int32(null), counts), None, lists.by_row)


def struct_vector(table: VectorTable, type: pa.DataType, parts: Sequence[VectorNode]) -> Vector:
    """Structs of several columns."""
    vectors = [table.value(part) for part in parts]
    arrays = [array_of(each, part.type, table.num_rows) for each, part in zip(vectors, parts, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(type))
    return Vector(structs, None, any_mask(each.by_row for each in vectors))


def array_vector(table: VectorTable, type: pa.DataType, parts: Sequence[VectorNode]) -> Vector:
    """Arrays of several columns of one type."""
    vectors = [table.value(part) for part in parts]
    size, count = table.num_rows, len(parts)
    arrays = [array_of(each, type.value_type, size) for each in vectors]
    values = pa.concat_arrays(arrays) if arrays else pa.nulls(0, type.value_type)
    places = np.arange(size * count).reshape(count, size).T.ravel() if count else np.zeros(0, np.int64)
    offsets = pa.array(
        np.arange(0, (size + 1) * max(count, 1), max(count, 1))[: size + 1] * bool(count), pa.int32()
    )
    lists = pa.ListArray.from_arrays(offsets, values.take(pa.array(places)), type=type)
    return Vector(lists, None, any_mask(each.by_row for each in vectors))
