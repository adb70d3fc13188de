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
    found_pairs,
    regions_by_key,
    selected_lines,
    selected_rows,
)
from transom.promising.joins import newest_window_start
from transom.promising.key_matches import EARLIEST, LATEST, Lines
from transom.promising.probes import TupleReader
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.zones import bucket_of
from transom.sql.promise import Column, EstimatedCount, promised
from transom.state.promising import PromisingState


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
    ):
        self.state, self.arrivals, self.batch_id, self.read = state, arrivals, batch_id, read
        self._pairs: dict[Hashable, FoundTuples] = {}
        self._rows: dict[Hashable, Ints] = {}
        self._totals: dict[Hashable, Floats] = {}

    def matches(self, reading: TupleReading) -> BatchMatches | None:
        """The matches of the tuples that arrived on a side; None if there are none."""
        query, side = reading.query, reading.query.sides[reading.side]
        arrival = self.arrivals.get(side.summary)
        if arrival is None or arrival.run is None:
            return None
        tuples = arrival.run.tuples
        if len(query.sides) == 1:
            shared = side.summary, side.where, reading.since
            if shared not in self._rows:
                self._rows[shared] = selected_rows(reading, tuples)
            rows = self._rows[shared]
            return BatchMatches(
                len(rows),
                lambda: all_selected(tuples, rows),
                lambda: selected_lines(reading, None, tuples, rows),
            )
        found = self._found_pairs(reading, arrival)
        return BatchMatches(found.matches.total, lambda: found, lambda: found)

    def _found_pairs(self, reading: TupleReading, arrival: BatchArrival) -> FoundTuples:
        query, run = reading.query, arrival.run
        assert run is not None
        window, other = query.preference.window, query.sides[reading.other].summary
        sides = tuple((side.summary, side.where) for side in query.sides)
        shared = sides, reading.side, window, query.preference.fade == 1, reading.since
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
        if query.samples:
            low, none = np.array([arrival.low]), np.zeros(1, np.int64)
            times = low, np.array([arrival.high + 1])
            return regions_by_key(found, self.batch_id, none, low, np.ones(1), times)
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
        own = arriving if preference.order == "weighted" else self._total(reading, probing, arrival)[value]
        counts = {query.sides[reading.side].stream: own}
        faded: Floats = np.ones(len(value))
        if len(query.sides) == 1:
            if preference.order == "weighted":
                counts = {query.sides[0].stream: matches}
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
            counts[probed.shape.stream] = partners

        def leaf_values(leaf: EstimatedCount | Column) -> Floats:
            if isinstance(leaf, EstimatedCount):
                return counts[leaf.stream]
            numbers = arrival.means.get(leaf.column, values.number)
            if numbers is None:
                raise ValueError(f"the promise reads {leaf.column}, and its values are not given")
            return numbers[value]

        worth = np.broadcast_to(promised(query.promise, leaf_values), len(value)).astype(np.float64)
        return worth / faded if preference.order == "asc" else worth * faded

    def _total(self, reading: TupleReading, probing: Representation, arrival: BatchArrival) -> Floats:
        """How often each value of a batch occurs in the window of its stream: the tuples at hand are counted."""
        window, values = reading.query.preference.window, arrival.values
        shared = probing.shape.name, window
        if shared not in self._totals:
            since = newest_window_start(probing, window)
            key = self.read.keys_since(probing.shape.name, since)
            value = np.searchsorted(values.key, key)
            value[value == len(values)] = 0
            counts = np.bincount(value[values.key[value] == key], minlength=len(values))
            self._totals[shared] = np.maximum(counts, values.count).astype(np.float64)
        return self._totals[shared]


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
