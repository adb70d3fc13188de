"""The plan of a batch whose tuples are at hand: matches by key, and promises for those beyond the budget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from transom.columns.arrays import Floats, Ints
from transom.promising.batch_tuples import BatchArrival
from transom.promising.found_tuples import (
    FoundTuples,
    TupleReading,
    all_selected,
    even_places,
    found_pairs,
    ranked_places,
    regions_by_key,
    selected_lines,
    selected_rows,
)
from transom.promising.joins import newest_window_start
from transom.promising.key_matches import EARLIEST, LATEST, Lines
from transom.promising.probes import TupleReader
from transom.promising.regions import WHOLE_BATCH, Regions
from transom.promising.representation import Representation
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.preference_query import PreferenceQuery
from transom.sql.promise import Column, EstimatedCount, promised
from transom.state.promising import BatchRanking, PromisingState


@dataclass(frozen=True)
class BatchOrder:
    """The order in which a budget takes the tuples of a batch: the place of each, and its promise."""

    place: Ints
    promise: Floats

    def promise_at(self, rows: Ints) -> Floats:
        """The promises of some tuples."""
        return self.promise[rows]


@dataclass(frozen=True)
class BatchMatches:
    """The matches of a batch's tuples: how many there are, and how to get them."""

    total: int
    whole: Callable[[], FoundTuples]
    lines: Callable[[], FoundTuples]


class KeyPlanner:
    """Looks up the matches of a batch by key; queries with the same conditions and window share them."""

    def __init__(
        self,
        state: PromisingState,
        arrivals: Mapping[str, BatchArrival],
        batch_id: int,
        read: TupleReader,
        selected: Callable[[str, str], Ints | None] | None = None,
    ):
        """`selected` knows the rows of a summary's new tuples that a selection selects, or None."""
        self.state, self.arrivals, self.batch_id, self.read = state, arrivals, batch_id, read
        self._selected = selected
        self.rankings: dict[str, dict[str, BatchRanking]] = {}  # of this batch, by summary and name
        self._orders: dict[Hashable, BatchOrder] = {}
        self._pairs: dict[Hashable, FoundTuples] = {}
        self._rows: dict[Hashable, Ints] = {}
        self._totals: dict[Hashable, Floats] = {}

    def matches(self, name: str, reading: TupleReading) -> BatchMatches | None:
        """The matches of the tuples that arrived on a side of a query; None if there are none."""
        query, side = reading.query, reading.query.sides[reading.side]
        arrival = self.arrivals.get(side.summary)
        if arrival is None or arrival.run is None:
            return None
        tuples = arrival.run.tuples
        if len(query.sides) == 1:
            rows = self._selected_rows(name, reading, tuples)

            def lines() -> FoundTuples:
                if not _has_order(query):
                    return selected_lines(reading, None, tuples, rows)
                return all_selected(tuples, rows, self.order(side.summary, query, query.ranking).place)

            return BatchMatches(len(rows), lambda: all_selected(tuples, rows), lines)
        found = self._found_pairs(reading, arrival)
        return BatchMatches(
            found.matches.total, lambda: found, found.as_one_line if query.samples else lambda: found
        )

    def _selected_rows(self, name: str, reading: TupleReading, tuples: KeptTuples) -> Ints:
        side = reading.query.sides[0]
        known = None if self._selected is None else self._selected(side.summary, name)
        if known is not None:
            return known
        shared = side.summary, side.where, reading.since
        if shared not in self._rows:
            self._rows[shared] = selected_rows(reading, tuples)
        return self._rows[shared]

    def order(self, summary: str, query: PreferenceQuery, ranking: str | None) -> BatchOrder:
        """The order in which a selection takes the batch's tuples; it is remembered if it has a ranking."""
        if (summary, ranking) not in self._orders:
            arrival = self.arrivals[summary]
            assert arrival.run is not None
            tuples = arrival.run.tuples
            if ranking is None:
                order = BatchOrder(even_places(tuples, self.batch_id), np.ones(len(tuples)))
            else:
                worth = self.value_promises(query, arrival)
                keys = arrival.values.key
                ranked = keys[np.lexsort((keys, -worth))]
                known = BatchRanking(self.batch_id, ranking, arrival.low, ranked)
                self.rankings.setdefault(summary, {})[ranking] = known
                order = BatchOrder(ranked_places(tuples, ranked), worth[np.searchsorted(keys, tuples.key)])
            self._orders[summary, ranking] = order
        return self._orders[summary, ranking]

    def batch_regions(
        self, summary: str, counts: Ints, promise: Floats, times: tuple[Ints, Ints] | None = None
    ) -> Regions:
        """A region with all selected tuples of the batch for each selection, or with all pairs and their `times`."""
        arrival, size = self.arrivals[summary], len(counts)
        whole = np.full(size, arrival.low), np.full(size, arrival.high + 1)
        return Regions.of_matches(
            np.zeros(size, np.uint64),
            np.full(size, WHOLE_BATCH),
            self.batch_id,
            times or whole,
            np.full(size, arrival.low),
            counts,
            promise,
        )

    def found_pairs(self, reading: TupleReading) -> FoundTuples | None:
        """The pairs of the tuples that arrived on a side of a join; None if there are no such tuples."""
        arrival = self.arrivals.get(reading.query.sides[reading.side].summary)
        return None if arrival is None or arrival.run is None else self._found_pairs(reading, arrival)

    def _found_pairs(self, reading: TupleReading, arrival: BatchArrival) -> FoundTuples:
        query, run = reading.query, arrival.run
        assert run is not None
        window, other = query.preference.window, query.sides[reading.other].summary
        sides = tuple((side.summary, side.where) for side in query.sides)
        left_out = tuple(map(id, reading.returned))
        shared = sides, reading.side, window, query.preference.fade == 1, reading.since, left_out
        if shared not in self._pairs:
            since = None if window is None else arrival.low - window
            until = None if window is None else arrival.high + window + 1
            others = self.read.between(other, since, until)
            probed = self.state.summaries[other].representation
            lines = None if query.preference.fade == 1 else _bands(probed, arrival)
            self._pairs[shared] = found_pairs(reading, lines, self.batch_id, run.tuples, others)
        return self._pairs[shared]

    def regions(self, reading: TupleReading, found: FoundTuples) -> Regions:
        """The lines of matches as regions, with their promises."""
        query = reading.query
        arrival = self.arrivals[query.sides[reading.side].summary]
        if _has_order(query):
            order = self.order(query.sides[0].summary, query, query.ranking)
            first = found.matches.order[:1]
            promise = order.promise_at(first) if len(first) else np.zeros(1)
            return self.batch_regions(query.sides[0].summary, found.matches.counts, promise)
        if query.samples:
            summary = query.sides[reading.side].summary
            counts = found.matches.counts
            return self.batch_regions(summary, counts, counts.astype(np.float64), found.times())
        values, key = arrival.values, found.lines.key
        value = np.searchsorted(values.key, key)
        number = None if values.number is None else values.number[value]
        probed = self.state.summaries[query.sides[reading.other].summary].representation
        bucket = values.bucket[value]
        low, times = values.low[value], (values.low[value], values.high[value] + 1)
        if len(query.sides) == 2:
            bucket, times = bucket_of(probed.shape, key, number), found.times()
        promise = self._promises(reading, found, arrival, value)
        return regions_by_key(found, self.batch_id, bucket, low, promise, times)

    def _promises(
        self, reading: TupleReading, found: FoundTuples, arrival: BatchArrival, value: Ints
    ) -> Floats:
        """The promise of each line.

        The tuples are at hand, so counting them costs less than summarizing them to estimate the counts.
        """
        query, matches = reading.query, found.matches.counts.astype(np.float64)
        preference, values = query.preference, arrival.values
        probing = self.state.summaries[query.sides[reading.side].summary].representation
        arriving = values.count[value].astype(np.float64)
        own = arriving if preference.order == "weighted" else self._total(query, probing, arrival)[value]
        counts = {query.counted_as(reading.side): own}
        faded: Floats = np.ones(len(value))
        if len(query.sides) == 1:
            if preference.order == "weighted":
                counts = {query.counted_as(0): matches}
        else:
            probed = self.state.summaries[query.sides[reading.other].summary].representation
            partners: Floats = np.asarray(matches / arriving)
            if preference.fade != 1:
                granularity, length = _band_of(found.lines, probed)
                faded = np.asarray(preference.fade ** (granularity - 1.0), np.float64)
                if preference.order == "desc":
                    partners = np.asarray(partners * probed.shape.granularity / length, np.float64)
            if preference.order == "asc":
                partners = np.bincount(value, partners, len(values)).astype(np.float64)[value]
            counts[query.counted_as(reading.other)] = partners

        worth = _promised(query, arrival, lambda leaf: counts[leaf.stream, leaf.occurrence], value)
        return worth / faded if preference.order == "asc" else worth * faded

    def value_promises(self, query: PreferenceQuery, arrival: BatchArrival) -> Floats:
        """The promise of each value of a batch, for a selection with desc or asc."""
        probing = self.state.summaries[query.sides[0].summary].representation
        total = self._total(query, probing, arrival)
        return _promised(query, arrival, lambda leaf: total, np.arange(len(arrival.values)))

    def _total(self, query: PreferenceQuery, probing: Representation, arrival: BatchArrival) -> Floats:
        """How often each value of a batch occurs in the window of its stream: the tuples at hand are counted."""
        window, values = query.preference.window, arrival.values
        shared = probing.shape.name, window
        if shared not in self._totals:
            since = newest_window_start(probing, window)
            key = self.read.keys_since(probing.shape.name, since)
            value = np.searchsorted(values.key, key)
            value[value == len(values)] = 0
            counts = np.bincount(value[values.key[value] == key], minlength=len(values))
            self._totals[shared] = np.maximum(counts, values.count).astype(np.float64)
        return self._totals[shared]


def _has_order(query: PreferenceQuery) -> bool:
    """Whether a selection takes the tuples of a batch in an order that does not depend on what it selects."""
    return query.is_even or query.ranking is not None


def _promised(
    query: PreferenceQuery, arrival: BatchArrival, counts: Callable[[EstimatedCount], Floats], value: Ints
) -> Floats:
    """The promises of some values of a batch, given their counts."""

    def leaf_values(leaf: EstimatedCount | Column) -> Floats:
        if isinstance(leaf, EstimatedCount):
            return counts(leaf)
        numbers = arrival.means.get(leaf.column, arrival.values.number)
        if numbers is None:
            raise ValueError(f"the promise reads {leaf.column}, and its values are not given")
        return numbers[value]

    return np.broadcast_to(promised(query.promise, leaf_values), len(value)).astype(np.float64)


def _bands(probed: Representation, arrival: BatchArrival) -> Lines:
    """A line for each value and granularity, whose promise fades."""
    since, until = _band_times(probed)
    keys = arrival.values.key
    return Lines(np.repeat(keys, len(since)), np.tile(since, len(keys)), np.tile(until, len(keys)))


def _band_times(probed: Representation) -> tuple[Ints, Ints]:
    """The times of the granularities, the newest first; together they cover all times."""
    starts = probed.granularity_starts() or [0]
    return np.array([*starts[:-1], EARLIEST]), np.array([LATEST, *starts[:-1]])


def _band_of(lines: Lines, probed: Representation) -> tuple[Ints, Floats]:
    """The granularity of each line, and how long it is."""
    since, _ = _band_times(probed)
    granularity = len(since) - np.searchsorted(since[::-1], lines.since)
    high, floor = probed.high or 0, probed.floor or 0
    length = np.minimum(lines.until, high + 1) - np.maximum(lines.since, floor)
    return granularity, np.maximum(length, 1).astype(np.float64)
