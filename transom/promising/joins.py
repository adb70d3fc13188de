"""The window join of two streams by promise (section 4.1): the regions of a batch, and the pairs in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transom.columns.arrays import Floats, Ints, Keys
from transom.elements import Preference
from transom.promising.key_matches import spread_steps
from transom.promising.pyramid import LIKELY
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.tuples import KeptTuples, run_positions
from transom.promising.zones import bucket_of
from transom.sql.promise import Column, EstimatedCount, Promise, promised

CountedStream = tuple[str, int]  # a stream, and which of its occurrences in FROM


@dataclass(frozen=True)
class BatchValues:
    """The distinct values of a batch: how many tuples each has, and their first and last time.

    `number` are the values themselves, if they are numbers and a promise reads them.
    """

    key: Keys
    bucket: Ints
    count: Ints
    low: Ints
    high: Ints
    number: Floats | None = None

    def __len__(self) -> int:
        return len(self.key)


def batch_values(tuples: KeptTuples, number: Floats | None = None) -> BatchValues:
    """The distinct values of some tuples, by key; `number` has the value of each tuple.

    >>> few = KeptTuples.of_arrays(np.array([5, 7, 5], np.uint64), np.zeros(3, int), np.array([10, 11, 12]), 0)
    >>> batch_values(few).count.tolist(), batch_values(few).high.tolist()
    ([2, 1], [12, 11])
    """
    runs = tuples.by_key
    count, first = runs.counts, runs.starts
    if not len(first):
        return BatchValues(runs.keys, count, count, count, count, number)
    time, rows = tuples.time[runs.rows], runs.firsts
    return BatchValues(
        runs.keys,
        tuples.bucket[rows],
        count,
        np.minimum.reduceat(time, first),
        np.maximum.reduceat(time, first),
        None if number is None else number[rows],
    )


def join_regions(
    values: BatchValues,
    batch_id: int,
    probing: Representation,
    probed: Representation,
    preference: Preference,
    promise: Promise,
    counted: tuple[CountedStream, CountedStream] | None = None,
) -> Regions:
    """The regions in which a batch's values may find partners among earlier tuples of the other stream.

    There is one region for every value and every cell with tuples that the window reaches. Neighbouring
    zones of a granularity in which a value is unlikely share a region. `probing` contains the batch's tuples.
    `counted` says what the promise calls the two streams, if a stream is joined with itself.
    """
    if probed.high is None:
        return Regions.none()
    zones = probed.zones()
    # The two summaries may have different shapes.
    bucket = bucket_of(probed.shape, values.key, values.number)
    cells = zones.counts[:, bucket].T
    reached = cells > 0
    if preference.window is not None:
        reached &= zones.until > (values.low - preference.window)[:, None]
        reached &= zones.since <= (values.high + preference.window)[:, None]
    estimate: Floats = np.clip(probed.estimate(values.key, bucket), 0, cells)
    until = np.maximum(
        np.minimum(zones.until, probed.high + 1), zones.since + 1
    )  # the newest zone ends with the newest tuple
    inside: Floats = estimate * _overlap(values, zones.since, until, preference.window)
    value, zone = np.nonzero(reached)
    own, other = counted or ((probing.shape.stream, 0), (probed.shape.stream, 0))
    counts = {
        own: _own_counts(values, probing, preference)[value],
        other: _other_counts(values.key, bucket, probed, inside, until - zones.since, preference)[
            value, zone
        ],
    }
    faded = preference.fade ** (zones.granularity[zone] - 1.0)
    worth = _promised(promise, counts, None if values.number is None else values.number[value], len(value))
    regions = Regions(
        key=values.key[value],
        bucket=bucket[value],
        batch_id=np.full(len(value), batch_id),
        since=zones.since[zone],
        until=zones.until[zone],
        low=values.low[value],
        arriving=values.count[value],
        cell=cells[value, zone],
        done=np.zeros(len(value), np.int64),
        # A faded region comes later in either order.
        promise=worth / faded if preference.order == "asc" else worth * faded,
        expected=values.count[value] * inside[value, zone],
        likely=estimate[value, zone] >= LIKELY,
        by_key=np.zeros(len(value), bool),
    )
    return _joined(regions, zones.granularity[zone])


def newest_window_start(representation: Representation, window: int | None) -> int | None:
    """Where the window that ends with a stream's newest tuple begins; None: with the oldest tuple."""
    return None if window is None or representation.high is None else representation.high - window


def _overlap(values: BatchValues, since: Ints, until: Ints, window: int | None) -> Floats:
    """The share of a zone's time that is within the window of a value's tuples."""
    if window is None:
        return np.ones((len(values), len(since)))
    middle = ((values.low + values.high) // 2)[:, None]
    inside = np.minimum(until, middle + window + 1) - np.maximum(since, middle - window)
    return np.clip(inside / (until - since), 0, 1)


def _own_counts(values: BatchValues, probing: Representation, preference: Preference) -> Floats:
    """Counts of the arriving values in their own stream.

    With order weighted, the number of arriving tuples, so that the output is in the ratio of promises;
    otherwise the frequency in the window.
    """
    if preference.order == "weighted":
        return values.count.astype(np.float64)
    total = probing.total(values.key, values.bucket, newest_window_start(probing, preference.window))
    return np.maximum(total, values.count)


def _other_counts(
    key: Keys, bucket: Ints, probed: Representation, inside: Floats, length: Ints, preference: Preference
) -> Floats:
    """Counts of the arriving values in the other stream.

    With order weighted, the count in the cell, so that the output is in the ratio of promises. With desc,
    the count per length of the newest granularity, so that a longer zone is not more promising. With asc,
    the count in the whole window, since a frequent value is not rare because one zone has few of it.
    """
    if preference.order == "weighted":
        return inside
    if preference.order == "asc":
        total = probed.total(key, bucket, newest_window_start(probed, preference.window))
        return np.repeat(total[:, None], inside.shape[1], axis=1)
    return inside * (probed.shape.granularity / length)


def _promised(
    promise: Promise, counts: Mapping[CountedStream, Floats], number: Floats | None, size: int
) -> Floats:
    """The promise of each region; its columns are the summarized ones, which the join makes equal."""

    def leaf_values(leaf: EstimatedCount | Column) -> Floats:
        if isinstance(leaf, EstimatedCount):
            return counts[leaf.stream, leaf.occurrence]
        if number is None:
            raise ValueError(f"the promise reads {leaf.column}, and its values are not given")
        return number

    return np.broadcast_to(promised(promise, leaf_values), size).astype(np.float64)


def _joined(regions: Regions, granularity: Ints) -> Regions:
    """Neighbouring unlikely regions of a value and granularity, merged.

    The tuples of their cells are in order of time, so positions in the longer line are well defined.
    """
    if not len(regions):
        return regions
    apart = np.ones(len(regions), bool)
    apart[1:] = (
        regions.likely[1:]
        | regions.likely[:-1]
        | (regions.key[1:] != regions.key[:-1])
        | (granularity[1:] != granularity[:-1])
        | (regions.until[1:] > regions.since[:-1])
    )
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(apart)) - 1
    made = regions.where(first)
    return Regions(
        **{
            **vars(made),
            "since": regions.since[last],  # zones are listed newest first
            "cell": np.add.reduceat(regions.cell, first),
            "expected": np.add.reduceat(regions.expected, first),
        }
    )


class OwnBatch(NamedTuple):
    """Whether the cells of a batch's regions have the batch's own tuples, and whether these are partners.

    If a stream is joined with itself, cells have them. The pairs of a batch's own tuples are found from its first side.
    """

    in_cells: bool
    are_partners: bool


NO_OWN_BATCH = OwnBatch(in_cells=False, are_partners=False)


class JoinPairs(NamedTuple):
    """The pairs found, as rows of both sides; the cost of the probes; and how many of each region were made."""

    probing: Ints
    probed: Ints
    charge: int
    made: Ints


def probe_join(
    regions: Regions,
    taken: Ints,
    probing: KeptTuples,
    probed: KeptTuples,
    window: int | None,
    limit: int | None = None,
    spread: bool = False,
    own_batch: OwnBatch = NO_OWN_BATCH,
) -> JoinPairs:
    """The pairs that the next `taken` probes of the regions find, up to a cost of `limit`, in the given order.

    The probes of a region are made in order of time, or with `spread` in an order that spreads them evenly over
    arriving tuples and cell, so that any part of them is a sample.

    A probe that can't match costs as much budget as any other, but no work: matches are looked up by key, and
    those in the probed part of the region's line are returned. Tuples outside of an arriving
    tuple's window cost nothing, since the tuples of a cell are in order of time. Both sides may hold more
    tuples than the regions need, but not fewer.
    """
    nothing = np.zeros(0, np.int64)
    pairs, made, left = [JoinPairs(nothing, nothing, 0, nothing)], np.zeros_like(taken), limit
    for batch_id in np.unique(regions.batch_id[taken > 0])[::-1].tolist():
        some = np.flatnonzero((regions.batch_id == batch_id) & (taken > 0))
        batch = _Batch.of(regions.where(some), probing, probed, own_batch)
        pairs.append((batch.sampled if spread else batch.probed)(taken[some], window, left))
        made[some] = pairs[-1].made
        left = None if left is None else left - pairs[-1].charge
    mine, theirs, charges, _ = zip(*pairs, strict=True)
    return JoinPairs(np.concatenate(mine), np.concatenate(theirs), sum(charges), made)


@dataclass(frozen=True)
class _Batch:
    """The regions of one batch, and where their tuples are.

    Positions in a cell count the tuples of earlier batches: `earlier` has their rows, and a region's rows
    are `start` to `stop` of it. `arrived` has the batch's own rows by key, those of a region from `first`
    on. Partners are of batches up to `last`.
    """

    regions: Regions
    probing_tuples: KeptTuples
    probed_tuples: KeptTuples
    earlier: Ints
    start: Ints
    stop: Ints
    arrived: Ints
    first: Ints
    last: int

    @staticmethod
    def of(regions: Regions, probing: KeptTuples, probed: KeptTuples, own_batch: OwnBatch) -> _Batch:
        batch_id = int(regions.batch_id[0])
        earlier = np.flatnonzero(probed.batch_id < batch_id + own_batch.in_cells)
        start = np.searchsorted(earlier, probed.places.at(regions.bucket, regions.since))
        stop = np.searchsorted(earlier, probed.places.at(regions.bucket, regions.until))
        arrived = np.flatnonzero(probing.batch_id == batch_id)
        arrived = arrived[np.argsort(probing.key[arrived], kind="stable")]
        first = np.searchsorted(probing.key[arrived], regions.key)
        count = np.searchsorted(probing.key[arrived], regions.key, side="right") - first
        if (stop - start != regions.cell).any() or (count != regions.arriving).any():
            raise ValueError(f"tuples of a region of batch {batch_id} are no longer, or not yet, all there")
        last = batch_id if own_batch.are_partners else batch_id - 1
        return _Batch(regions, probing, probed, earlier, start, stop, arrived, first, last)

    def probed(self, taken: Ints, window: int | None, limit: int | None) -> JoinPairs:
        """The pairs that the next `taken` probes of each region find, and their cost."""
        regions, earlier = self.regions, self.earlier
        strip, low, high = _strips(regions.done, taken, regions.cell)
        since, cost = self._inside(strip, low, high, window)
        if limit is not None and cost.sum() > limit:
            first = int(np.searchsorted(np.cumsum(cost), limit, side="right"))  # the first beyond the limit
            high = high.copy()
            high[first] = since[first] + limit - int(cost[:first].sum())
            high[first + 1 :] = low[first + 1 :]
            cost = np.minimum(np.maximum(high - since, 0), cost)
        charge = int(cost.sum())
        made = np.bincount(strip.region, high - low, len(regions)).astype(np.int64)
        begin, end = self.probed_tuples.by_key.between(
            regions.key, earlier[self.start], earlier[self.stop - 1] + 1
        )
        # Most unlikely regions end here.
        some = np.flatnonzero((end > begin)[strip.region] & (high > low))
        if not len(some):
            return JoinPairs(some, some, charge, made)
        region, low, high = strip.region[some], low[some], high[some]
        begin, end = begin[region], end[region]
        cut = np.flatnonzero((low > 0) | (high < regions.cell[region]))
        at = self.start[region[cut]]
        begin[cut], end[cut] = self.probed_tuples.by_key.between(
            regions.key[region[cut]], earlier[at + low[cut]], earlier[at + high[cut] - 1] + 1
        )
        pair, place = run_positions(end - begin)
        theirs = self.probed_tuples.by_key.rows[begin[pair] + place]
        mine = self.arrived[(self.first[region] + strip.index[some])[pair]]
        match = self.probed_tuples.batch_id[theirs] <= self.last
        if window is not None:
            match &= np.abs(self.probing_tuples.time[mine] - self.probed_tuples.time[theirs]) <= window
        return JoinPairs(mine[match], theirs[match], charge, made)

    def sampled(self, taken: Ints, window: int | None, limit: int | None) -> JoinPairs:
        """The pairs that the next `taken` probes of each region find if probes are spread evenly, and their cost.

        A region's probes cost their number times the share of its line that is inside of windows.
        """
        regions, cell = self.regions, self.regions.cell
        region, index = run_positions(regions.arriving)
        strip = _Strip(region, index)
        _, inside = self._inside(strip, np.zeros(len(region), np.int64), cell[region], window)
        share = np.bincount(region, inside, len(regions)) / np.maximum(regions.probes, 1)
        cost = taken * share
        if limit is not None and cost.sum() > limit:
            rest = np.maximum(limit - (np.cumsum(cost) - cost), 0)
            free = share == 0
            taken = np.where(free, taken, np.minimum(taken, rest / np.where(free, 1, share))).astype(np.int64)
        charge = round(float((taken * share).sum()))
        begin, end = self.probed_tuples.by_key.between(
            regions.key, self.earlier[self.start], self.earlier[self.stop - 1] + 1
        )
        some = np.flatnonzero((end > begin)[region] & (taken > 0)[region])
        pair, place = run_positions((end - begin)[region[some]])
        strips = some[pair]
        owner = region[strips]
        theirs = self.probed_tuples.by_key.rows[begin[owner] + place]
        match = self.probed_tuples.batch_id[theirs] <= self.last
        owner, strips, theirs = owner[match], strips[match], theirs[match]
        inverse = np.zeros(len(regions), np.int64)
        wanted = np.unique(owner)
        steps, lengths = spread_steps(regions.probes[wanted]).tolist(), regions.probes[wanted].tolist()
        inverse[wanted] = [pow(step, -1, length) for step, length in zip(steps, lengths, strict=True)]
        position = index[strips] * cell[owner] + np.searchsorted(self.earlier, theirs) - self.start[owner]
        turn = position * inverse[owner] % regions.probes[owner]  # when this position is probed
        hit = (turn >= regions.done[owner]) & (turn < (regions.done + taken)[owner])
        mine, theirs = self.arrived[(self.first[owner] + index[strips])[hit]], theirs[hit]
        if window is not None:
            near = np.abs(self.probing_tuples.time[mine] - self.probed_tuples.time[theirs]) <= window
            mine, theirs = mine[near], theirs[near]
        return JoinPairs(mine, theirs, charge, taken)

    def _inside(self, strip: _Strip, low: Ints, high: Ints, window: int | None) -> tuple[Ints, Ints]:
        """The first tuple within the window of each arriving one, and the number of such tuples."""
        if window is None:
            return low, high - low
        region = strip.region
        bucket, start = self.regions.bucket[region], self.start[region]
        time = self.probing_tuples.time[self.arrived[self.first[region] + strip.index]]
        since = np.searchsorted(self.earlier, self.probed_tuples.places.at(bucket, time - window)) - start
        until = np.searchsorted(self.earlier, self.probed_tuples.places.at(bucket, time + window + 1)) - start
        first = np.clip(since, low, high)
        return first, np.maximum(np.minimum(until, high) - first, 0)


@dataclass(frozen=True)
class _Strip:
    """Parts of regions' lines with one arriving tuple each: the region, and which of its tuples."""

    region: Ints
    index: Ints


def _strips(done: Ints, taken: Ints, cell: Ints) -> tuple[_Strip, Ints, Ints]:
    """The probed parts of lines, cut by arriving tuple, with the positions in the cell that each covers."""
    first = done // cell
    last = (done + taken - 1) // cell
    region, place = run_positions(last - first + 1)
    index = first[region] + place
    passed = index * cell[region]
    low = np.maximum(done[region] - passed, 0)
    high = np.minimum((done + taken)[region] - passed, cell[region])
    return _Strip(region, index), low, high
