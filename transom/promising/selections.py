"""Selection guided by summaries (section 4.2), and aggregates over one (section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.elements import Preference
from transom.promising.joins import BatchValues, newest_window_start
from transom.promising.key_matches import spread_steps
from transom.promising.pyramid import LIKELY
from transom.promising.regions import Regions
from transom.promising.representation import Representation, Zones
from transom.promising.step_summaries import StepSummaries
from transom.promising.tuples import KeptTuples, run_positions
from transom.promising.zones import step_of
from transom.sql.promise import Column, EstimatedCount, Promise, promised


@dataclass(frozen=True)
class BatchCells:
    """The cells of a batch's tuples, with the estimates of its values there: the same for all queries.

    `estimate` has a row per distinct value and a column per zone in which the batch has tuples; it
    estimates the batch's own tuples, which are assumed to be distributed like the others of their cell. `total`
    is for the whole window. `means` are the values' means of columns that promises read and that are not
    summarized.
    """

    batch_id: int
    values: BatchValues
    zones: Zones
    counts: Ints  # [zones, buckets], of the batch alone
    estimate: Floats
    total: Floats
    low: int
    means: Mapping[str, Floats] = field(default_factory=dict)

    def regions(self, matching: Mask, preference: Preference, promise: Promise) -> Regions:
        """The regions of a query whose guide the `matching` values satisfy.

        A cell's promise is the sum of its matching values' promises: with desc, per tuple to probe, so that
        rich cells precede large ones; with weighted, the sum itself; with asc, the average over the expected
        tuples.
        """
        zone, bucket = np.nonzero(self.counts)
        cell = self.counts[zone, bucket]
        expected = np.clip(self._summed(self.estimate, matching)[zone, bucket], 0, cell)
        faded = preference.fade ** (self.zones.granularity[zone] - 1.0)
        if preference.order == "asc":
            worth = self._promised(promise, np.broadcast_to(self.total[:, None], self.estimate.shape))
            together = self._summed(worth * self.estimate, matching)[zone, bucket]
            worth = together / np.maximum(expected, LIKELY) / faded
        else:
            worth = self._summed(self._promised(promise, self.estimate), matching)[zone, bucket] * faded
            if preference.order == "desc":
                worth = worth / cell
        return Regions(
            key=np.zeros(len(cell), np.uint64),
            bucket=bucket,
            batch_id=np.full(len(cell), self.batch_id),
            since=self.zones.since[zone],
            until=self.zones.until[zone],
            low=np.full(len(cell), self.low),
            arriving=np.ones(len(cell), np.int64),
            cell=cell,
            done=np.zeros(len(cell), np.int64),
            promise=worth,
            expected=expected,
            likely=expected >= LIKELY,
            by_key=np.zeros(len(cell), bool),
        )

    def even_regions(self, matching: Mask, preference: Preference, promise: Promise) -> Regions:
        """The regions of a query that draws an even sample.

        It looks in every cell that may have a tuple of a matching value, whatever the summary expects there: a sketch
        misses values, and of a small batch it expects less than a tuple in most cells. Which values the batch has, and
        when each occurs first and last, is known, so other cells are left out without a bias.
        """
        some = np.flatnonzero(matching)
        bucket = self.values.bucket[some]
        overlaps = self.values.low[some] < self.zones.until[:, None]
        overlaps &= self.values.high[some] >= self.zones.since[:, None]
        may_match = np.zeros(self.counts.shape, bool)
        zone, place = np.nonzero(overlaps)
        may_match[zone, bucket[place]] = True
        return self.regions(matching, preference, promise).evenly_promising(may_match[self.counts > 0])

    def _summed(self, amounts: Floats, matching: Mask) -> Floats:
        """Amounts by value and zone, summed over the matching values of each bucket: [zones, buckets]."""
        zones, buckets = self.counts.shape
        some = np.flatnonzero(matching)
        flat = np.arange(zones) * buckets + self.values.bucket[some, None]
        summed = np.bincount(flat.ravel(), amounts[some].ravel(), zones * buckets)
        return summed.reshape(zones, buckets).astype(np.float64)

    def _promised(self, promise: Promise, counts: Floats) -> Floats:
        """The promise of each value in each zone."""

        def leaf_values(leaf: EstimatedCount | Column) -> Floats:
            if isinstance(leaf, EstimatedCount):
                return counts
            number = self.means.get(leaf.column, self.values.number)
            if number is None:
                raise ValueError(f"the promise reads {leaf.column}, and its values are not given")
            return np.broadcast_to(number[:, None], counts.shape)

        return np.broadcast_to(promised(promise, leaf_values), counts.shape)


def batch_cells(
    values: BatchValues,
    batch_id: int,
    representation: Representation,
    counts: Ints,
    window: int | None = None,
    means: Mapping[str, Floats] | None = None,
) -> BatchCells:
    """The cells of a batch whose tuples are in `representation`; `counts` are its tuples by zone and bucket."""
    zones = representation.zones()
    here = np.flatnonzero(counts.any(axis=1))
    some = Zones(zones.granularity[here], zones.since[here], zones.until[here], zones.counts[here])
    share = counts[here] / np.maximum(some.counts, 1)
    estimate = representation.estimate(values.key, values.bucket)[:, here] * share[:, values.bucket].T
    return BatchCells(
        batch_id,
        values,
        some,
        counts[here],
        np.clip(estimate, 0, counts[here][:, values.bucket].T),
        np.maximum(
            representation.total(values.key, values.bucket, newest_window_start(representation, window)), 0
        ),
        int(values.low.min()) if len(values) else 0,
        means or {},
    )


def cell_counts(more: StepSummaries, representation: Representation) -> Ints:
    """The number of a batch's tuples in each zone and bucket of the representation that contains them."""
    zones = representation.zones()
    by_time = np.argsort(zones.since)
    times = more.steps * step_of(representation.shape)
    zone = np.searchsorted(zones.since[by_time], times, side="right") - 1
    kept = zone >= 0
    kept[kept] = times[kept] < zones.until[by_time][zone[kept]]
    counts = np.zeros_like(zones.counts)
    np.add.at(counts, by_time[zone[kept]], more.counts[kept])
    return counts


def probe_selection(
    regions: Regions, taken: Ints, tuples: KeptTuples, spread: bool = False
) -> tuple[Ints, Ints]:
    """The rows that the next `taken` probes of the regions read, and the region of each.

    They are the oldest ones, or spread evenly over the region. The caller checks the query's other conditions: a
    summary covers only its own column.
    """
    selected = [
        _batch_rows(regions, some, taken[some], tuples, spread)
        for batch_id in np.unique(regions.batch_id[taken > 0]).tolist()
        for some in [np.flatnonzero((regions.batch_id == batch_id) & (taken > 0))]
    ]
    if not selected:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([rows for rows, _ in selected]), np.concatenate([whose for _, whose in selected])


def _batch_rows(
    regions: Regions, some: Ints, taken: Ints, tuples: KeptTuples, spread: bool
) -> tuple[Ints, Ints]:
    """The rows of one batch's regions."""
    batch_id = int(regions.batch_id[some[0]])
    here = np.flatnonzero(tuples.batch_id == batch_id)
    bucket = regions.bucket[some]
    start = np.searchsorted(here, tuples.places.at(bucket, regions.since[some]))
    stop = np.searchsorted(here, tuples.places.at(bucket, regions.until[some]))
    if (stop - start != regions.cell[some]).any():
        raise ValueError(f"tuples of a region of batch {batch_id} are no longer, or not yet, all there")
    which, place = run_positions(taken)
    place += regions.done[some][which]
    if spread:
        length = regions.cell[some]
        place = place * spread_steps(length)[which] % length[which]
    return here[start[which] + place], some[which]


def scale(regions: Regions, taken: Ints, region: Ints) -> Floats:
    """How many tuples each probed tuple represents, if the tuples of its region are alike.

    With weighted, all represent about the same number. SUM and COUNT over probed tuples, multiplied by this,
    estimate the exact value.
    """
    made = np.maximum(regions.done + taken, 1)
    return (regions.probes / made)[region]
