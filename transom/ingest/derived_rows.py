"""The rows of a derived stream: those of its branches, computed where the rows of the declared streams are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.backends.base import Frame, RecordBatches, Task
from transom.backends.expressions import at_clock, quoted
from transom.elements import Clock
from transom.sql.derived_stream import ELEMENT, ELEMENT_POSITION, KEY, VALUE, Branch, DerivedStream
from transom.sql.query import Query

_UNNESTED = "__unnested__"  # the array or map whose elements become rows


def derived_rows(
    derived: DerivedStream,
    stream: str,
    frame: Frame,
    columns: Mapping[str, pa.DataType],
    clock: int,
    texts: Sequence[str] | None = None,
) -> Frame:
    """The rows of a derived stream that the accepted rows of a declared stream yield.

    Columns of an exploded stream that none of the `texts` reads are null: copied for each element, the array itself
    would take memory by the square of its length.
    """
    branches = [branch for branch in derived.branches if branch.stream == stream]
    parts = [_branch_rows(derived, branch, frame, columns, clock, texts) for branch in branches]
    return reduce(lambda one, other: one.union(other), parts)


def row_texts(queries: Sequence[Query], clock: Clock) -> list[str] | None:
    """The expressions that queries read of a row; None if rows are ordered by all of their columns."""
    if any(query.clock != clock for query in queries):
        return None
    texts = [scalar.sql for query in queries for scalar in query.scalars()]
    for join in (join for query in queries for join in query.joins):
        texts += [join.on, *(bound.sql for bound in join.bounds), *(join.apart or ())]
    return [*texts, quoted(clock.attribute)]


def columns_read(columns: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The columns whose names are in some of the canonical texts; perhaps some more."""
    folded = [text.casefold() for text in texts]
    return [name for name in columns if any(quoted(name).casefold() in text for text in folded)]


def _branch_rows(
    derived: DerivedStream,
    branch: Branch,
    frame: Frame,
    columns: Mapping[str, pa.DataType],
    clock: int,
    texts: Sequence[str] | None,
) -> Frame:
    if branch.unnest is not None:
        if not derived.is_exploded:
            texts = [*(sql for _, sql in branch.columns), *([] if branch.where is None else [branch.where])]
        copied = list(columns) if texts is None else columns_read(columns, texts)
        with_array = frame.project({_UNNESTED: at_clock(branch.unnest, clock)}, copied)
        kind = with_array.columns[_UNNESTED]
        element_columns = (
            {KEY: kind.key_type, VALUE: kind.item_type}
            if pa.types.is_map(kind)
            else {ELEMENT: kind.value_type}
        )
        schema = pa.schema([*columns.items(), (ELEMENT_POSITION, pa.int32()), *element_columns.items()])
        frame = with_array.map(unnest_task(schema), schema, few=True)
        if derived.is_exploded:
            return frame
    if branch.where is not None:
        frame = frame.filter(at_clock(branch.where, clock))
    return frame.project({name: at_clock(sql, clock) for name, sql in branch.columns})


def unnest_task(schema: pa.Schema) -> Task:
    """A task that returns a row for each element; a row whose array is empty or null stays one row."""

    def task(batches: RecordBatches) -> RecordBatches:
        for batch in batches:
            yield unnested(batch, schema)

    return task


def unnested(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the elements of their array, each with its position from 0; columns that they lack are null."""
    arrays = batch.column(_UNNESTED)
    is_map = pa.types.is_map(arrays.type)
    # Slices and nulls may have elements in the buffers; a list of what counts has none.
    lists = arrays.cast(_entries(arrays.type)) if is_map else arrays
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    repeats = np.maximum(lengths, 1)
    rows = np.repeat(np.arange(len(lengths)), repeats)
    starts = np.cumsum(repeats) - repeats
    position = np.arange(len(rows)) - starts[rows]
    is_element = (lengths > 0)[rows]
    elements = pc.list_flatten(lists)
    places = pa.array(np.where(is_element, np.cumsum(is_element) - 1, 0), mask=~is_element)
    taken = pc.take(elements, places)
    made = {ELEMENT_POSITION: pa.array(position.astype(np.int32), mask=~is_element)}
    if is_map:
        made |= {KEY: pc.struct_field(taken, 0), VALUE: pc.struct_field(taken, 1)}
    else:
        made[ELEMENT] = taken
    for name in set(batch.schema.names) - {_UNNESTED}:
        made[name] = batch.column(name).take(pa.array(rows))
    values = [made[field.name] if field.name in made else pa.nulls(len(rows), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(values, schema.names)


def _entries(kind: pa.MapType) -> pa.DataType:
    """A map's type as a list of its entries."""
    return pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)]))
