"""A query that takes the place of another: what both have in common, and what of the state holds for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from transom.plan.compiled_query import CompiledQuery
from transom.plan.predicate_text import predicate_text
from transom.plan.slot_sources import is_answered
from transom.sql.query import Query
from transom.state.state import QueryState, State


@dataclass(frozen=True)
class Replacement:
    """A standing query, and the one of the same name that takes its place.

    If it `continues`, both have the same rows, windows and result columns: the account and the results go on.
    """

    before: CompiledQuery
    after: CompiledQuery
    continues: bool

    @property
    def renamed(self) -> CompiledQuery:
        """The query that leaves, under a name that no query has: names are printable."""
        return replace(self.before, name=f"{self.before.name}\0replaced")

    def takes_over(self, state: State, own: QueryState) -> bool:
        """Whether the slices of the query that leaves are all that the other one needs.

        A longer time for corrections needs slices of closed windows, which may be evicted.
        """
        if self.after.query.retention > self.before.query.retention:
            return False
        return has_same_windows(self.before, self.after) and all(
            is_answered(self.after, state.selections[home].slots) for home in own.homes
        )

    @property
    def keeps_past(self) -> bool:
        """Whether what is remembered of past windows (LAG, EMIT EMPTY) holds for the other one too."""
        old, new = self.before.query, self.after.query
        return self.continues and (old.calls, old.lags, old.empty) == (new.calls, new.lags, new.empty)

    @property
    def keeps_reported(self) -> bool:
        """Whether the results that late rows can correct are those of the other one too."""
        return self.continues and self.before.query.corrections == self.after.query.corrections

    @property
    def keeps_prodder(self) -> bool:
        """Whether early results go on as they were."""
        return self.continues and self.before.query.emit == self.after.query.emit

    @property
    def keeps_estimator(self) -> bool:
        """Whether what was learned about the final values holds for the other one too."""
        old, new = self.before.query, self.after.query
        return self.keeps_prodder and _estimated(old) == _estimated(new)


def _estimated(query: Query) -> tuple[object, ...]:
    """What is learned about final values, and about the decisions that they confirm, depends on this."""
    return query.calls, query.items, query.top, query.early_decision


def has_same_windows(before: CompiledQuery, after: CompiledQuery) -> bool:
    """Whether two queries have the same rows, groups and windows."""
    return _rows_and_windows(before) == _rows_and_windows(after)


def _rows_and_windows(query: CompiledQuery) -> tuple[object, ...]:
    return query.selection, _conditions(query), query.clock, query.query.window, query.naive


def _conditions(query: CompiledQuery) -> frozenset[str]:
    """The conditions of WHERE, which are no part of a selection with windows of keys."""
    where = query.query.where
    if query.is_keyed:
        return frozenset() if where is None else frozenset([predicate_text(where)])
    return frozenset(query.conjunct_texts)


def changed_clauses(before: CompiledQuery, after: CompiledQuery) -> Iterator[str]:
    """The clauses that decide about slices and differ between two queries, in the order of a text."""
    old, new = before.query, after.query
    if {slot.id for slot in after.slots} - {slot.id for slot in before.slots}:
        yield "the aggregates"
    if (old.stream, old.joins) != (new.stream, new.joins):
        yield "FROM"
    if (old.window, old.clock.attribute) != (new.window, new.clock.attribute):
        yield "the window"
    if _conditions(before) != _conditions(after):
        yield "WHERE"
    if [key.scalar.sql for key in old.keys] != [key.scalar.sql for key in new.keys]:
        yield "GROUP BY"
