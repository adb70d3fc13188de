"""The interested queries of a stream, and the index of its queries: what the kernel knows of them besides families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transom.elements import WindowSpec
from transom.kernel.aggregate import Interest
from transom.kernel.query_counts import QueryIndex
from transom.plan.compiled_query import CompiledQuery
from transom.sql.query import Predicate
from transom.state.state import QueryState, State
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import LOWEST

NO_COLUMNS: dict[str, Any] = {}

_Forced = tuple[int | None, ...]
_InterestKey = tuple[object, ...]


@dataclass
class InterestMemory:
    """The interests of the last plan of a stream: those whose queries are the same are used again."""

    conjuncts: dict[str, Predicate] = field(default_factory=dict)  # by text: equal conditions are one object
    interests: dict[_InterestKey, tuple[list[CompiledQuery], _Forced, Interest]] = field(default_factory=dict)

    def copy(self) -> InterestMemory:
        """An independent copy."""
        return InterestMemory(dict(self.conjuncts), dict(self.interests))

    def forget_departed(self) -> None:
        """Clear the memory when most of its conditions belong to queries that left."""
        if len(self.conjuncts) > 8 * len(self.interests) + 1024:
            self.conjuncts, self.interests = {}, {}


def interests_of(
    state: State, queries: Sequence[CompiledQuery], memory: InterestMemory | None = None
) -> tuple[Interest, ...]:
    """The interested queries, once for each selection of rows; equal conditions are one object."""
    memory = InterestMemory() if memory is None else memory
    memory.forget_departed()
    alike: dict[_InterestKey, list[CompiledQuery]] = {}
    forced: dict[str, int] = {}
    for query in queries:
        own = state.queries[query.name]
        if (until := _forced(query, own)) is not None:
            forced[query.name] = until
        # Which rows are late for sessions depends on the sessions that are open.
        key = query.interest_key if query.gap is None else (*query.interest_key, own.homes[0])
        alike.setdefault(key, []).append(query)
    before, memory.interests = memory.interests, {}
    for key, members in alike.items():
        known = before.get(key)
        forced_here = tuple([forced.get(query.name) for query in members]) if forced else ()
        if known is None or known[0] != members or known[1] != forced_here:
            known = members, forced_here, _interest(state, members, memory.conjuncts)
        memory.interests[key] = known
    return tuple([interest for _, _, interest in memory.interests.values()])


def _interest(state: State, members: Sequence[CompiledQuery], conjuncts: dict[str, Predicate]) -> Interest:
    """The interest of queries that want the same rows."""
    first = members[0]
    windows: dict[tuple[WindowSpec, int | None], list[str]] = {}
    for query in members:
        window = query.query.window, _forced(query, state.queries[query.name])
        windows.setdefault(window, []).append(query.name)
    return Interest(
        first.query.clock,
        tuple(map(conjuncts.setdefault, first.conjunct_texts, first.conjuncts)),
        tuple(key.scalar for key in first.query.keys),
        first.closing_columns or NO_COLUMNS,
        first.pinned or NO_COLUMNS,
        tuple(windows),
        tuple(map(tuple, windows.values())),
        first.reads_earlier_windows,
        first.query.retention,
    )


def _forced(query: CompiledQuery, own: QueryState) -> int | None:
    """Below which window id rows are late because the stream ended or fell idle: none is for a query that corrects."""
    return None if query.query.retention else own.forced


def query_index(state: State, queries: Sequence[CompiledQuery], interests: Sequence[Interest]) -> QueryIndex:
    """The queries of a stream as arrays; `interests` are those of the same queries."""
    groups = [members for interest in interests for members in interest.members]
    group_of = {name: place for place, members in enumerate(groups) for name in members}
    names = [query.name for query in queries]
    own = [state.queries[name] for name in names]
    return QueryIndex(
        tuple(names),
        np.array([one.homes[0] for one in own], np.int64),
        WindowSpecs.of([query.query.window for query in queries]),
        np.array(
            [
                LOWEST if (until := _forced(query, one)) is None else until
                for query, one in zip(queries, own, strict=True)
            ],
            np.int64,
        ),
        np.array([group_of[name] for name in names], np.int64),
        tuple([query.clock for query in queries]),
        tuple([query.closing_columns or NO_COLUMNS for query in queries]),
        tuple([query.pinned or NO_COLUMNS for query in queries]),
        np.array([query.reads_earlier_windows for query in queries], bool),
        np.array([place for place, query in enumerate(queries) if query.gap is not None], np.int64),
        tuple([query.query.retention for query in queries]),
    )
