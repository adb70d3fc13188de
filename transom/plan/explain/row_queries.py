"""EXPLAIN of row queries: the index that finds their rows, as records and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from transom.kernel.row_matches import RowMatcher
from transom.plan.compiled_query import CompiledQuery
from transom.plan.explain.text_parts import Detail, counted, first, indented, name_list, queries_text
from transom.plan.predicate_text import predicate_text


@dataclass(frozen=True)
class RowIndexPlan:
    """The conditions over one scalar that are found by one search of its value: the constants, and the conditions."""

    scalar: str
    constants: int
    conditions: int


@dataclass(frozen=True)
class RowQueryPlan:
    """A row query: what it selects, the conditions that the index finds, and those that are evaluated afterwards."""

    name: str
    select: tuple[str, ...]
    indexed: tuple[str, ...]
    evaluated: tuple[str, ...]
    alike: tuple[str, ...]  # other queries with the same conditions
    pending: bool


@dataclass(frozen=True)
class RowQueriesPlan:
    """All row queries of a stream, and what they share."""

    selections: int
    indexes: tuple[RowIndexPlan, ...]
    queries: tuple[RowQueryPlan, ...]


def row_queries_plan(
    queries: Sequence[CompiledQuery], is_pending: Callable[[str], bool]
) -> RowQueriesPlan | None:
    """The plan of a stream's row queries; None if there are none."""
    if not queries:
        return None
    matcher = RowMatcher.of(queries)
    conditions: dict[str, int] = {}
    for runs in matcher.runs:
        for sql, _, _ in runs:
            conditions[sql] = conditions.get(sql, 0) + 1
    indexes = tuple(
        RowIndexPlan(sql, len(axis.thresholds), conditions[sql]) for sql, axis in matcher.axes.items()
    )
    plans: dict[int, RowQueryPlan] = {}
    for selection in matcher.selections:
        names = [queries[place].name for place in selection.queries]
        for place in selection.queries:
            query = queries[place]
            plans[place] = RowQueryPlan(
                query.name,
                tuple(item.name for item in query.query.items),
                tuple(map(predicate_text, selection.searched)),
                tuple(map(predicate_text, selection.others)),
                tuple(name for name in names if name != query.name),
                is_pending(query.name),
            )
    return RowQueriesPlan(
        len(matcher.selections), indexes, tuple(plans[place] for place in range(len(queries)))
    )


def row_queries_text(plan: RowQueriesPlan, detail: Detail) -> Iterator[str]:
    """The row queries of a stream."""
    selections = counted(plan.selections, "different condition list")
    queries = f"{queries_text(len(plan.queries))} without a window"
    yield f"rows: {queries}, {selections}; a row that satisfies one is a result"
    for index in plan.indexes:
        constants, conditions = counted(index.constants, "constant"), counted(index.conditions, "condition")
        yield f"  index over {detail.short(index.scalar)}: {constants} of {conditions}, searched once for each row"
    yield from indented(
        first(
            plan.queries,
            detail.queries,
            lambda query: _query_lines(query, detail),
            "queries without a window",
        )
    )


def row_query_text(stream: str, query: RowQueryPlan, detail: Detail) -> Iterator[str]:
    """One row query."""
    joins_later = " (joins with the next batch)" if query.pending else ""
    yield f"query {query.name} over {stream}{joins_later}"
    yield "  no window: each row that satisfies it is a result, with the batch that brings the row"
    yield from list(_query_lines(query, detail))[1:]
    others = (
        f"shared with {name_list(query.alike, detail.names)}" if query.alike else "shared with no other query"
    )
    yield f"  its conditions are {others}"


def _query_lines(query: RowQueryPlan, detail: Detail) -> Iterator[str]:
    waits = ", joins with the next batch" if query.pending and detail.waiting else ""
    yield f"query {query.name}{waits}"
    yield f"  select {detail.short(', '.join(query.select))}"
    if query.indexed:
        yield f"  where {detail.short(' AND '.join(query.indexed))}: found by the index"
    if query.evaluated:
        yield f"  where {detail.short(' AND '.join(query.evaluated))}: evaluated for the rows that are left"
    if not query.indexed and not query.evaluated:
        yield "  every row"
