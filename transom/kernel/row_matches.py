"""Row queries: which rows satisfy which queries without a window, found with one index over all their conditions.

The conditions that compare a scalar with constants share an axis for each scalar. The rows are sorted by their code on
the axis once. The rows that satisfy a condition are then runs of this order, so that each query looks only at the rows
of its most selective condition, and evaluates its other conditions on those. Queries with equal conditions are
one selection. So the cost of a further query is the number of rows that it looks at, not the number of all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask
from transom.kernel.rows import Rows
from transom.plan.axis import Axis, is_searchable
from transom.plan.compiled_query import CompiledQuery
from transom.sql.query import Predicate, scalars_of

MATCH_TIME = "__time__"  # the column of matched rows with the event time


@dataclass(frozen=True)
class RowSelection:
    """The queries with the same conditions, and the conditions: those that an axis evaluates, and the others."""

    queries: tuple[int, ...]
    searched: tuple[Predicate, ...]
    others: tuple[Predicate, ...]


@dataclass(frozen=True)
class RowMatcher:
    """The row queries that read a stream, by name, and the expressions of their results."""

    names: tuple[str, ...] = ()
    selections: tuple[RowSelection, ...] = ()
    scalars: tuple[str, ...] = ()  # that results consist of

    @classmethod
    def of(cls, queries: Sequence[CompiledQuery]) -> RowMatcher:
        """The matcher of some row queries."""
        members: dict[tuple[str, ...], list[int]] = {}
        for place, query in enumerate(queries):
            members.setdefault(tuple(sorted(query.conjunct_texts)), []).append(place)
        selections = []
        for places in members.values():
            conjuncts = queries[places[0]].conjuncts
            searched = tuple(part for part in conjuncts if is_searchable(part))
            others = tuple(part for part in conjuncts if not is_searchable(part))
            selections.append(RowSelection(tuple(places), searched, others))
        scalars = dict.fromkeys(key.scalar.sql for query in queries for key in query.query.keys)
        return cls(tuple(query.name for query in queries), tuple(selections), tuple(scalars))

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """For each scalar that is compared with constants, one axis with the constants of all queries."""
        parts: dict[str, list[Predicate]] = {}
        for selection in self.selections:
            for part in selection.searched:
                parts.setdefault(_scalar(part), []).append(part)
        return {sql: Axis.of(next(scalars_of(found[0])), found) for sql, found in parts.items()}

    @cached_property
    def runs(self) -> list[list[tuple[str, Ints, Ints]]]:
        """For each selection and each of its searched conditions, the scalar and the runs of codes that satisfy it."""
        return [
            [(_scalar(part), *_runs(self.axes[_scalar(part)], part)) for part in selection.searched]
            for selection in self.selections
        ]

    def __getstate__(self) -> dict[str, object]:
        # The axes and runs are computed once, on the driver, and sent to all tasks.
        return {**self.__dict__, "axes": self.axes, "runs": self.runs}

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def conditions(self) -> int:
        """The number of different conditions that the index evaluates."""
        return len({id(part) for selection in self.selections for part in selection.searched})


@dataclass(frozen=True)
class RowMatches:
    """Rows that satisfy row queries: `rows` has each once, with the expressions of results and its time.

    The rows of the query `names[i]` are those at `at[bounds[i] : bounds[i + 1]]`. `considered` is the number of rows
    that were looked at for them.
    """

    names: tuple[str, ...]
    bounds: Ints
    at: Ints
    rows: pa.Table
    considered: int = 0

    def of(self, place: int) -> Ints:
        """The places in `rows` of the rows of a query."""
        return self.at[int(self.bounds[place]) : int(self.bounds[place + 1])]

    def without(self, names: Collection[str]) -> RowMatches:
        """The matches without those of some queries."""
        kept = [place for place, name in enumerate(self.names) if name not in names]
        parts = [self.of(place) for place in kept]
        return RowMatches(
            tuple(self.names[place] for place in kept),
            np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
            np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64),
            self.rows,
            self.considered,
        )


def count_matches(matches: Sequence[RowMatches]) -> dict[str, int]:
    """The number of rows that satisfy each query, without queries that no row satisfies."""
    counts: dict[str, int] = {}
    for part in matches:
        for name, rows in zip(part.names, np.diff(part.bounds).tolist(), strict=True):
            counts[name] = counts.get(name, 0) + rows
    return counts


@dataclass
class _SortedCodes:
    """The accepted rows in the order of their codes on an axis, and where each code begins."""

    order: Ints
    offsets: Ints

    @classmethod
    def of(cls, codes: Ints, size: int, accepted: Ints) -> _SortedCodes:
        own = codes if len(accepted) == len(codes) else codes[accepted]
        order = np.argsort(own, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=size))])
        return cls(accepted[order], offsets)

    def count(self, starts: Ints, stops: Ints) -> int:
        """The number of rows with a code in one of some runs."""
        return int((self.offsets[stops] - self.offsets[starts]).sum())

    def rows(self, starts: Ints, stops: Ints) -> Ints:
        """The rows with a code in one of some runs, in their own order."""
        if len(starts) == 1:
            found = self.order[self.offsets[starts[0]] : self.offsets[stops[0]]]
        else:
            found = self.order[expand_runs(self.offsets[starts], self.offsets[stops])[0]]
        return np.sort(found)


@dataclass
class _Search:
    """The search of one batch of rows."""

    rows: Rows
    matcher: RowMatcher
    accepted: Ints
    sorted: dict[str, _SortedCodes] = field(default_factory=dict)

    def codes(self, sql: str) -> _SortedCodes:
        if sql not in self.sorted:
            axis = self.matcher.axes[sql]
            codes = self.rows.placed(axis, self.rows.every)
            self.sorted[sql] = _SortedCodes.of(codes, axis.size, self.accepted)
        return self.sorted[sql]

    def matching(self, place: int) -> tuple[Ints, int]:
        """The rows that satisfy a selection, and the number of rows that were looked at for it."""
        selection, runs = self.matcher.selections[place], self.matcher.runs[place]
        if not runs:
            found, best = self.accepted, -1
        else:
            counts = [self.codes(sql).count(starts, stops) for sql, starts, stops in runs]
            best = int(np.argmin(counts))
            sql, starts, stops = runs[best]
            found = self.codes(sql).rows(starts, stops)
        considered = len(found)
        for number, (sql, starts, stops) in enumerate(runs):
            if number != best and len(found):
                axis = self.matcher.axes[sql]
                found = found[_in_runs(self.rows.placed(axis, found), starts, stops)]
        for part in selection.others:
            if len(found):
                found = found[self.rows.truth(part)[found]]
        return found, considered


def match_rows(
    rows: Rows, matcher: RowMatcher, columns: Mapping[str, str], time: str, accepted: Mask
) -> tuple[RowMatches, Mask]:
    """The rows that satisfy each query, and which rows satisfy any of them."""
    search = _Search(rows, matcher, np.flatnonzero(accepted))
    names: list[str] = []
    parts: list[Ints] = []
    considered = 0
    is_wanted = np.zeros(len(accepted), bool)
    for place, selection in enumerate(matcher.selections):
        found, looked_at = search.matching(place)
        considered += looked_at
        if len(found):
            is_wanted[found] = True
            for query in selection.queries:
                names.append(matcher.names[query])
                parts.append(found)
    wanted = np.flatnonzero(is_wanted)
    chosen = pa.array(wanted)
    table = pa.table(
        [
            *(rows.table[columns[sql]].combine_chunks().take(chosen) for sql in matcher.scalars),
            rows.table[time].combine_chunks().take(chosen),
        ],
        names=[*matcher.scalars, MATCH_TIME],
    )
    at = np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return RowMatches(tuple(names), bounds, np.searchsorted(wanted, at), table, considered), is_wanted


def _scalar(part: Predicate) -> str:
    return next(scalars_of(part)).sql


def _runs(axis: Axis, part: Predicate) -> tuple[Ints, Ints]:
    pairs = np.array(list(axis.true(part)), np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _in_runs(codes: Ints, starts: Ints, stops: Ints) -> Mask:
    """Which codes lie in one of some disjoint runs in order."""
    run = np.searchsorted(starts, codes, side="right") - 1
    return (run >= 0) & (codes < stops[np.maximum(run, 0)]) if len(starts) else np.zeros(len(codes), bool)
