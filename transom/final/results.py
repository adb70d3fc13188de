"""From a window's aggregates to the rows that a user sees: SELECT items, HAVING, system columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transom.algorithms.intervals import IntervalSet
from transom.elements import Kind
from transom.plan.compiled import CompiledQuery
from transom.sql.catalog import Scalars
from transom.sql.query import Query

_REFERENCE = re.compile(r"`(k\d+|a\d+|window_start|window_end)`")
_IN_TEXT = re.compile(rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|{_REFERENCE.pattern}""", re.DOTALL)
FEW_CELLS = 200_000  # up to here it is cheaper to evaluate all shapes in one table, though mostly null


@dataclass(frozen=True)
class Shape:
    """Queries that write the same expressions over the same types, and their windows."""

    texts: tuple[str, ...]
    places: list[int] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True)
class Lowered:
    """A query's windows before its SELECT list is applied."""

    query: CompiledQuery
    table: pa.Table
    unseen: IntervalSet
    partial: bool  # whether windows seen only in part are asked for


def result_schema(query: Query) -> pa.Schema:
    """The columns of a query's results; a system column steps aside for a user's column of its name."""
    fields = [("window_start", query.clock_type), ("window_end", query.clock_type)]
    taken = {item.name for item in query.items}
    fields = [(_free(name, taken), kind) for name, kind in fields]
    fields += [(item.name, item.type) for item in query.items]
    system = [("kind", pa.string()), ("complete", pa.bool_()), ("rows", pa.int64()), ("page", pa.int64())]
    return pa.schema(fields + [(_free(name, taken), kind) for name, kind in system])


def _free(name: str, taken: set[str]) -> str:
    return f"transom_{name}" if name in taken else name


def finish(closed: Sequence[Lowered], page: int, kind: Kind, scalars: Scalars) -> dict[str, pa.Table]:
    """The results of a page's closed windows, by query.

    Expressions over aggregates are evaluated once for all queries that write them alike, and while
    there are few results, together with those of all others.
    """
    results = {}
    for one, columns in zip(closed, _computed(closed, scalars), strict=True):
        table = _presented(one, columns, page, kind)
        if table.num_rows:
            results[one.query.name] = table
    return results


def _computed(closed: Sequence[Lowered], scalars: Scalars) -> list[dict[str, pa.ChunkedArray]]:
    """For each query the columns that need computing, by their text."""
    shapes: dict[tuple[object, ...], Shape] = {}
    found: list[dict[str, pa.ChunkedArray]] = [{} for _ in closed]
    for place, one in enumerate(closed):
        bound = one.query.query
        wanted = [item.sql for item in bound.items if not _REFERENCE.fullmatch(item.sql)]
        texts = tuple(dict.fromkeys([*wanted, *([] if bound.having is None else [bound.having])]))
        if texts:
            shape = shapes.setdefault((texts, one.table.schema), Shape(texts))
            shape.places.append(place)
            shape.tables.append(one.table)
    for shape, columns in evaluated(list(shapes.values()), scalars):
        start = 0
        for place, table in zip(shape.places, shape.tables, strict=True):
            found[place] = {text: column.slice(start, table.num_rows) for text, column in columns.items()}
            start += table.num_rows
    return found


def evaluated(
    shapes: Sequence[Shape], scalars: Scalars
) -> Iterator[tuple[Shape, dict[str, pa.ChunkedArray]]]:
    """The expressions of each shape over its windows, by their text."""
    tables = [pa.concat_tables(shape.tables) for shape in shapes]
    rows = sum(table.num_rows for table in tables)
    if len(shapes) > 1 and rows * sum(table.num_columns for table in tables) <= FEW_CELLS:
        yield from _evaluated_together(shapes, tables, scalars)
        return
    for shape, table in zip(shapes, tables, strict=True):
        found = scalars.project(table, {f"x{i}": text for i, text in enumerate(shape.texts)})
        yield shape, {text: found[f"x{i}"] for i, text in enumerate(shape.texts)}


def _evaluated_together(
    shapes: Sequence[Shape], tables: Sequence[pa.Table], scalars: Scalars
) -> Iterator[tuple[Shape, dict[str, pa.ChunkedArray]]]:
    """One evaluation for all shapes: their tables below and beside each other, null elsewhere.

    What an evaluation costs is starting it: a page of thirty shapes would pay that thirty times.
    """
    beside = [
        table.rename_columns([f"{name} of {i}" for name in table.column_names])
        for i, table in enumerate(tables)
    ]
    together = pa.concat_tables(beside, promote_options="default")
    texts = {
        f"x{i}_{j}": _over(i, text) for i, shape in enumerate(shapes) for j, text in enumerate(shape.texts)
    }
    found, start = scalars.project(together, texts), 0
    for i, (shape, table) in enumerate(zip(shapes, tables, strict=True)):
        part = found.slice(start, table.num_rows)
        start += table.num_rows
        yield shape, {text: part[f"x{i}_{j}"] for j, text in enumerate(shape.texts)}


def _over(shape: int, text: str) -> str:
    """An expression over the columns of one of the shapes in a table of all."""
    return _IN_TEXT.sub(lambda found: f"`{found[1]} of {shape}`" if found[1] else found[0], text)


def _presented(one: Lowered, computed: dict[str, pa.ChunkedArray], page: int, kind: Kind) -> pa.Table:
    bound, table = one.query.query, one.table
    ends = table["window_end"].cast(pa.int64()).to_numpy()
    complete = ~one.unseen.meets(ends - bound.window.range, ends)
    columns = [table["window_start"], table["window_end"]]
    for item in bound.items:
        reference = _REFERENCE.fullmatch(item.sql)
        column = table[reference.group(1)] if reference else computed[item.sql]
        columns.append(column.cast(item.type))
    rows = table.num_rows
    columns += [
        pa.repeat(pa.scalar(kind.value), rows),
        pa.array(complete),
        table["rows"],
        pa.array(np.full(rows, page, np.int64)),
    ]
    result = pa.Table.from_arrays(columns, schema=result_schema(bound))
    keep = np.ones(rows, bool) if one.partial else complete
    if bound.having is not None:
        keep = keep & computed[bound.having].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
    return result if keep.all() else result.filter(pa.array(keep))
