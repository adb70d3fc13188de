"""Tuples of outer joins that have no partner: they wait until their window has passed, and are then returned alone.

    a LEFT JOIN b, WINDOW 2        a1 k 7    a5 k 7    b2 k 7      a5 waits until no b up to 7 can arrive any more

Which tuples have a partner is counted when tuples arrive, whatever pairs a budget produces. Only tuples without one
are remembered. So what this costs grows with the arriving tuples and with those that wait, and not with the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Keys, Mask
from transom.promising.batch_tuples import BatchArrival
from transom.promising.found_tuples import (
    RETURNING_BATCH,
    FoundTuples,
    TupleReading,
    chosen_rows,
    do_collide,
    equal_values,
    truth_of,
)
from transom.promising.key_matches import Lines, TupleRows, join_matches, partner_counts
from transom.promising.key_planner import KeyPlanner
from transom.sql.catalog import Scalars
from transom.sql.preference_query import OuterJoin, PreferenceQuery
from transom.state.promising import UnmatchedTuples

REMEMBERED = ("key", "time", "batch")  # the columns of kept tuples that every query remembers


def summaries_of_outer_joins(queries: Mapping[str, PreferenceQuery]) -> set[str]:
    """The summaries whose tuples stay on the driver, because an outer join counts their partners there."""
    return {side.summary for query in queries.values() if query.outer is not None for side in query.sides}


@dataclass(frozen=True)
class AfterBatch:
    """What an outer join remembers after a batch, and the tuples that it returns without a partner, as pairs."""

    unmatched: UnmatchedTuples
    table: pa.Table | None


@dataclass(frozen=True)
class _SideAfter:
    """What is remembered of a side after a batch, and its tuples that are returned without a partner, as pairs."""

    waiting: pa.Table | None = None
    returned: pa.Table | None = None
    table: pa.Table | None = None


class OuterBatch:
    """An outer join in a batch: its arriving tuples, and the partners that they have."""

    def __init__(
        self,
        query: PreferenceQuery,
        readings: tuple[TupleReading, TupleReading],
        arrivals: Mapping[str, BatchArrival],
        by_key: KeyPlanner,
        scalars: Scalars,
    ):
        assert query.outer is not None
        self.query, self.readings, self.by_key, self.scalars = query, readings, by_key, scalars
        self.outer: OuterJoin = query.outer
        self.arrivals = [arrivals.get(side.summary) for side in query.sides]

    def after(
        self,
        before: UnmatchedTuples,
        newest: tuple[int | None, int | None],
        late_before: Mapping[str, int | None],
        has_ended: bool,
    ) -> AfterBatch:
        """The tuples that wait after the batch, and those that are returned.

        `newest` are the newest times of the streams before the batch, `late_before` the times before which tuples of
        the summaries are late after it. At the end of both streams, nothing waits.
        """
        unseen = newest if before.unseen is None else before.unseen
        first, second = (
            self._after(side, before, unseen, late_before, has_ended)
            if self.outer.preserved[side]
            else _SideAfter()
            for side in range(2)
        )
        tables = [one.table for one in (first, second) if one.table is not None]
        table = pa.concat_tables(tables, promote_options="default")
        unmatched = UnmatchedTuples(
            (first.waiting, second.waiting), (first.returned, second.returned), unseen
        )
        return AfterBatch(unmatched, self._meeting_where(table))

    def _after(
        self,
        side: int,
        before: UnmatchedTuples,
        unseen: tuple[int | None, int | None],
        late_before: Mapping[str, int | None],
        has_ended: bool,
    ) -> _SideAfter:
        own, other = (self.query.sides[number].summary for number in (side, 1 - side))
        decided = self.query.decided_before(side, late_before[other])
        floor = self.by_key.state.summaries[own].representation.floor  # tuples are evicted before it
        returned = _since(before.returned[side], floor)
        never, new = self._arrived(side, unseen[1 - side])
        parts = [part for part in (before.waiting[side], new) if part is not None and part.num_rows]
        if not parts:
            return _SideAfter(None, returned, self._alone(side, never))
        waiting = pa.concat_tables(parts, promote_options="default")
        waiting = waiting.filter(pa.array(~self._have_arriving_partner(side, waiting)))
        is_decided = np.zeros(waiting.num_rows, bool)
        if decided is not None:
            is_decided = waiting["time"].to_numpy() < decided
        alone = [
            self._alone(side, never),
            self._alone(side, waiting.filter(pa.array(is_decided | has_ended))),
        ]
        rest = waiting.filter(pa.array(~is_decided)).combine_chunks()
        if has_ended:
            ended = pa.array(np.full(rest.num_rows, self.by_key.batch_id, np.int64))
            left = [rest.append_column(RETURNING_BATCH, ended), *([] if returned is None else [returned])]
            rest, returned = rest.slice(0, 0), _some(pa.concat_tables(left, promote_options="default"))
        was = before.waiting[side]
        if was is not None and len(parts) == 1 and rest.num_rows == was.num_rows:
            rest = was  # the same object, which a checkpoint packs once
        return _SideAfter(_some(rest), returned, pa.concat_tables(alone, promote_options="default"))

    def _arrived(self, side: int, unseen: int | None) -> tuple[pa.Table | None, pa.Table | None]:
        """The tuples of a side that can never have a partner, and those that have none among the tuples at hand.

        Those whose partner may be among the tuples up to `unseen`, which the query did not see, are neither.
        """
        arrival = self.arrivals[side]
        if arrival is None or arrival.run is None or not arrival.rows:
            return None, None
        tuples, reading = arrival.run.tuples, self.readings[side]
        wanted = np.zeros(len(tuples), bool)
        wanted[chosen_rows(tuples, self.outer.keeps[side], None, reading.since)] = True
        joined = np.zeros(len(tuples), bool)
        joined[chosen_rows(tuples, self.query.sides[side].where, reading.keys[side], reading.since)] = True
        never = wanted & ~joined
        alone = wanted & joined
        alone[self._matched(self.by_key.found_pairs(reading), reading)] = False
        if unseen is not None and self.query.preference.window is not None:
            alone &= tuples.time - self.query.preference.window > unseen
        return self._remembered(side, tuples.table, never), self._remembered(side, tuples.table, alone)

    def _have_arriving_partner(self, side: int, tuples: pa.Table) -> Mask:
        """Which tuples have a partner among the tuples of the other side that arrived with the batch."""
        has_partner = np.zeros(tuples.num_rows, bool)
        arrival, reading = self.arrivals[1 - side], self.readings[side]
        if arrival is None or arrival.run is None or not arrival.rows:
            return has_partner
        others, window = arrival.run.tuples, self.query.preference.window
        rows = chosen_rows(others, self.query.sides[1 - side].where, reading.keys[1 - side], reading.since)
        key, time = tuples["key"].to_numpy(), tuples["time"].to_numpy()
        near = _with_partner(key, time, others.key[rows], others.time[rows], window)
        if not len(near):
            return has_partner
        mine = TupleRows(near, key[near], time[near])
        columns = tuples[f".{reading.keys[side]}"], others.table[f".{reading.keys[1 - side]}"]
        collide = do_collide(columns, (near, rows), (key, others.key))
        if self.outer.on is None and not collide:
            has_partner[near] = True
            return has_partner
        theirs = TupleRows(rows, others.key[rows], others.time[rows])
        lines = Lines.of_keys(np.unique(mine.key))
        found = FoundTuples(lines, join_matches(lines, mine, theirs, window), (tuples, others.table), collide)
        has_partner[self._matched(found, reading)] = True
        return has_partner

    def _matched(self, found: FoundTuples | None, reading: TupleReading) -> Ints:
        """The rows of the first table of matches that have a partner which meets ON."""
        if found is None:
            return np.zeros(0, np.int64)
        matches = found.matches
        if self.outer.on is None and not found.collide:
            return matches.mine[matches.stop > matches.start]
        mine, theirs = found.rows()
        holds = np.ones(len(mine), bool)
        if found.collide:
            names = reading.keys[reading.side], reading.keys[reading.other]
            columns = (
                table[f".{name}"].take(pa.array(rows))
                for table, name, rows in zip(found.tables, names, (mine, theirs), strict=True)
            )
            holds = equal_values(*columns)
        if self.outer.on is not None and len(mine):
            table = replace(found, collide=False).table(reading, (mine, theirs))
            holds &= truth_of(self.scalars.project(table, {"holds": self.outer.on})["holds"].cast(pa.bool_()))
        return mine[holds]

    def _remembered(self, side: int, table: pa.Table, mask: Mask) -> pa.Table:
        """The columns of some tuples that the query reads."""
        columns = (f".{name}" for name in self.query.sides[side].columns)
        key = f".{self.readings[side].keys[side]}"
        return table.select(list(dict.fromkeys([*REMEMBERED, key, *columns]))).filter(pa.array(mask))

    def _alone(self, side: int, tuples: pa.Table | None) -> pa.Table:
        """Tuples without a partner as pairs: the columns of the other side are null."""
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        size = 0 if tuples is None else tuples.num_rows
        for number, own in enumerate(self.query.sides):
            of = tuples if number == side else None
            columns[f"{number}time"] = pa.nulls(size, pa.int64()) if of is None else of["time"]
            for name, kind in zip(own.columns, self.outer.types[number], strict=True):
                columns[f"{number}.{name}"] = pa.nulls(size, kind) if of is None else of[f".{name}"]
        return pa.table(columns)

    def _meeting_where(self, table: pa.Table) -> pa.Table | None:
        """The tuples without a partner that meet WHERE."""
        if not table.num_rows:
            return None
        if self.outer.after is not None:
            keep = self.scalars.project(table, {"keep": self.outer.after})["keep"]
            table = table.filter(keep.cast(pa.bool_()).fill_null(False))
        return table if table.num_rows else None


def _with_partner(key: Keys, time: Ints, others_key: Keys, others_time: Ints, window: int | None) -> Ints:
    """The places of the tuples that have a partner of the same key, at most a window apart.

    >>> keys = np.array([7, 7, 8], np.uint64), np.array([7, 9], np.uint64)
    >>> _with_partner(keys[0], np.array([10, 20, 10]), keys[1], np.array([12, 12]), 5).tolist()
    [0]
    """
    if not len(others_key):
        return np.zeros(0, np.int64)
    keys, numbers = np.unique(others_key, return_inverse=True)
    number = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    near = np.flatnonzero(keys[number] == key)
    counts = partner_counts((number[near], time[near]), (numbers, others_time), window)
    return near[counts > 0]


def _since(table: pa.Table | None, time: int | None) -> pa.Table | None:
    """The tuples from a time on."""
    if table is None or time is None:
        return table
    is_kept = table["time"].to_numpy() >= time
    return table if is_kept.all() else _some(table.filter(pa.array(is_kept)))


def _some(table: pa.Table) -> pa.Table | None:
    return table if table.num_rows else None
