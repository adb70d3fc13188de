"""Static tables, joined by trying every pair of rows."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa

from transom.columns.types import Columns
from transom.oracle.batches import OracleRow
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import table_of, table_rows
from transom.sql.query import Join, Query

Pairs = list[tuple[int, OracleRow]]  # the number of a row in the batch, and the joined row
Joined = Callable[[Query, Sequence[OracleRow], Columns], tuple[Pairs, Columns]]


def without_joins(query: Query, rows: Sequence[OracleRow], columns: Columns) -> tuple[Pairs, Columns]:
    """The rows as they are."""
    return list(enumerate(rows)), columns


def join_tables(tables: Mapping[str, pa.Table | list[dict[str, Any]]], scalars: Scalars) -> Joined:
    """A function that joins a query's tables to the rows of a batch.

    A stream's row that matches several rows of a table becomes several rows of that query.
    """
    loaded = {
        name: table if isinstance(table, pa.Table) else pa.Table.from_pylist(table)
        for name, table in tables.items()
    }

    def joined(query: Query, rows: Sequence[OracleRow], columns: Columns) -> tuple[Pairs, Columns]:
        pairs, columns = without_joins(query, rows, columns)
        for join in query.joins:
            pairs, columns = naive_left_join(pairs, columns, loaded[join.table], join, scalars)
        return pairs, columns

    return joined


def naive_left_join(
    pairs: Pairs, columns: Columns, table: pa.Table, join: Join, scalars: Scalars
) -> tuple[Pairs, Columns]:
    """Each row with each table row that meets the condition, or with nulls if none does."""
    types = zip(table.column_names, table.schema.types, strict=True)
    added = {f"{join.id}.{name}": type for name, type in types}
    wider = {**columns, **added, join.id: pa.bool_()}
    others = [
        {**{f"{join.id}.{name}": value for name, value in other.items()}, join.id: True}
        for other in table_rows(table)
    ]
    candidates = [(place, number, {**row, **other})
             for place, (number, row) in enumerate(pairs) for other in others]  # fmt: skip
    verdicts = scalars.project(table_of([row for _, _, row in candidates], wider), {"meets": join.on})
    matching = [
        each
        for each, verdict in zip(candidates, table_rows(verdicts), strict=True)
        if verdict["meets"] is True
    ]
    without_match = set(range(len(pairs))) - {place for place, _, _ in matching}
    nulls = {name: None for name in (*added, join.id)}
    unmatched = [(place, pairs[place][0], {**pairs[place][1], **nulls}) for place in without_match]
    if join.is_membership:
        members = {place for place, _, _ in matching}
        flagged = [(number, {**row, join.id: place in members}) for place, (number, row) in enumerate(pairs)]
        return flagged, {**columns, join.id: pa.bool_()}
    ordered = sorted(matching + unmatched, key=lambda each: each[0])
    return [(number, row) for _, number, row in ordered], wider
