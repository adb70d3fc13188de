"""From a window's aggregates to the rows that a user sees: SELECT items, HAVING, and what is said about them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.algorithms.intervals import IntervalSet
from transom.elements import Kind
from transom.plan.compiled import CompiledQuery
from transom.sql.catalog import Scalars
from transom.sql.query import Query

_REFERENCE = re.compile(r"`(k\d+|a\d+|window_start|window_end)`")


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

    Expressions over aggregates are evaluated once for all queries that write them alike.
    """
    alike: dict[tuple[object, ...], list[Lowered]] = defaultdict(list)
    for one in closed:
        bound = one.query.query
        texts = tuple(item.sql for item in bound.items if not _REFERENCE.fullmatch(item.sql))
        alike[(texts, bound.having, one.table.schema if texts or bound.having else None)].append(one)
    results = {}
    for (texts, having, _), members in alike.items():
        computed = _computed(members, texts, having, scalars)
        for one, columns in zip(members, computed, strict=True):
            table = _presented(one, columns, page, kind)
            if table.num_rows:
                results[one.query.name] = table
    return results


def _computed(
    members: Sequence[Lowered], texts: tuple[str, ...], having: str | None, scalars: Scalars
) -> list[dict[str, pa.ChunkedArray]]:
    """For each member the columns that need computing, by their text."""
    wanted = dict.fromkeys((*texts, *((having,) if having is not None else ())))
    if not wanted:
        return [{} for _ in members]
    every = pa.concat_tables([one.table for one in members])
    names = {f"x{i}": text for i, text in enumerate(wanted)}
    table = scalars.project(every, names)
    found, start = [], 0
    for one in members:
        part = table.slice(start, one.table.num_rows)
        start += one.table.num_rows
        found.append({text: part[name] for name, text in names.items()})
    return found


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
