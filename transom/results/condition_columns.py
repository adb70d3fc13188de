"""The columns that results of a query WITH CONFIDENCE have until they are decided: what HAVING reads, and its truth.

Such results are not filtered by HAVING: early decisions are made about windows for which it is still false.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from transom.sql.early_decision import is_estimated
from transom.sql.query import Comparison, Item, Query, free_name

DECISION = "decision"  # the column of results with what became of the early decision


def condition_items(query: Query) -> tuple[Item, ...]:
    """What HAVING reads and SELECT does not have, as further items."""
    if query.early_decision is None:
        return ()
    items = query.__dict__.get("_condition_items")  # every batch asks for them
    if items is None:
        selected = {item.sql for item in query.items}
        taken = {item.name for item in query.items}
        missing = [scalar for scalar in query.early_decision.scalars if scalar.sql not in selected]
        items = tuple(
            Item(free_name(f"condition {i}", taken), scalar.sql, scalar.type)
            for i, scalar in enumerate(missing)
        )
        query.__dict__["_condition_items"] = items
    return items


def estimated_items(query: Query) -> tuple[Item, ...]:
    """Those of these items whose finals are estimated."""
    if query.early_decision is None:
        return ()
    leaves = [leaf for leaf in query.early_decision.leaves if is_estimated(leaf)]
    wanted = {leaf.scalar.sql for leaf in leaves if isinstance(leaf, Comparison)}
    return tuple(item for item in condition_items(query) if item.sql in wanted)


def condition_columns(query: Query) -> list[tuple[str, pa.DataType]]:
    """The names and types of the columns: they follow those of the result."""
    if query.early_decision is None:
        return []
    return [*((item.name, item.type) for item in condition_items(query)), (_truth_name(query), pa.bool_())]


def with_condition(
    result: pa.Table, query: Query, values: Callable[[str], pa.ChunkedArray], truth: pa.Array
) -> pa.Table:
    """Results with these columns; `values` are those of an expression."""
    for item in condition_items(query):
        column = values(item.sql)
        result = result.append_column(
            item.name, column if column.type == item.type else column.cast(item.type)
        )
    return result.append_column(_truth_name(query), truth)


def having_truth(query: Query, table: pa.Table) -> pa.ChunkedArray:
    """Whether HAVING is true of results that have these columns."""
    return table[_truth_name(query)]


def without_condition(query: Query, table: pa.Table) -> pa.Table:
    """The results that satisfy HAVING, as results of the query."""
    if query.early_decision is None:
        return table
    return table.filter(having_truth(query, table)).drop_columns(
        [name for name, _ in condition_columns(query)]
    )


def _truth_name(query: Query) -> str:
    return free_name("having", {item.name for item in query.items})
