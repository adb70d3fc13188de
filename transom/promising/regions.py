"""Promising regions: the priority queue of section 4.1.2, and how a budget is divided among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints, Keys, Mask
from transom.columns.hashes import mix_bits

# Shares this close to a whole number are rounded to it.
LEAST_PROMISE = 1e-9
LEAST_EXPECTED = 1e-6  # of a region in which an even sample has to look, whatever the summary expects there
WHOLE_BATCH = -1  # the bucket of a region with all selected tuples of a batch


@dataclass(frozen=True)
class Regions:
    """Regions as columns; a region is a line of `arriving` times `cell` probes, of which `done` are made.

    For a join: the `arriving` tuples of value `key` in `batch_id`, by time, the earliest at `low`; each
    with the `cell` tuples of the other stream in `bucket` from `since` to before `until` that came in
    earlier batches. For a selection: the batch's own tuples in that cell, and `arriving` is 1. Times identify
    a region, so it outlives the zone from which it was made.

    A region `by_key` has only matches: the pairs of the arriving tuples of `key`, or the selected tuples of
    that value. `cell` is their number, and `since` and `until` are the times of the partners. A selection that
    takes the values of a batch in a fixed order, or draws a sample, has one such region for all its tuples of the
    batch: its `bucket` is `WHOLE_BATCH`.
    """

    key: Keys
    bucket: Ints
    batch_id: Ints
    since: Ints
    until: Ints
    low: Ints
    arriving: Ints
    cell: Ints
    done: Ints
    promise: Floats
    expected: Floats
    likely: Mask
    by_key: Mask

    def __len__(self) -> int:
        return len(self.key)

    @staticmethod
    @cache
    def none() -> Regions:
        return Regions(**{name: np.zeros(0, dtype) for name, dtype in DTYPES.items()})

    @staticmethod
    def of_matches(
        key: Keys,
        bucket: Ints,
        batch_id: int,
        times: tuple[Ints, Ints],
        low: Ints,
        counts: Ints,
        promise: Floats,
    ) -> Regions:
        """The regions `by_key` of lines with so many matches each; `times` are `since` and `until`."""
        size = len(counts)
        return Regions(
            key=key,
            bucket=bucket,
            batch_id=np.full(size, batch_id),
            since=times[0],
            until=times[1],
            low=low,
            arriving=np.ones(size, np.int64),
            cell=counts,
            done=np.zeros(size, np.int64),
            promise=promise,
            expected=counts.astype(np.float64),
            likely=counts > 0,
            by_key=np.ones(size, bool),
        )

    @property
    def probes(self) -> Ints:
        """The length of each region's line."""
        return self.arriving * self.cell

    @property
    def left(self) -> Ints:
        """The probes that are not made yet."""
        return self.probes - self.done

    @property
    def expected_left(self) -> Floats:
        """The expected output of the probes that are not made yet."""
        return self.expected * self.left / np.maximum(self.probes, 1)

    def where(self, mask: Mask | Ints | slice) -> Regions:
        """The regions of a mask, of numbers, or of a slice."""
        return Regions(*(getattr(self, name)[mask] for name in DTYPES))

    def after(self, taken: Ints) -> Regions:
        """The regions after `taken` more probes of each, without completed ones."""
        is_left = self.left > taken
        after = replace(self, done=self.done + taken) if taken.any() else self
        return after if is_left.all() else after.where(is_left)

    def reachable(
        self, floor: int | None = None, own_floor: int | None = None, since: int | None = None
    ) -> Regions:
        """The regions whose tuples are all kept and that the window still reaches."""
        is_reachable = self.is_reachable(floor, own_floor, since)
        return self if is_reachable.all() else self.where(is_reachable)

    def is_reachable(
        self, floor: int | None = None, own_floor: int | None = None, since: int | Ints | None = None
    ) -> Mask:
        """Whether the tuples of each region are all kept and the window still reaches it.

        No tuple of the cell may be before `floor`, no arriving one before `own_floor`, and the cell must
        not end before `since`, where the query's window begins now.
        """
        is_reachable = np.ones(len(self), bool)
        if floor is not None:
            is_reachable &= self.since >= floor
        if own_floor is not None:
            is_reachable &= self.low >= own_floor
        if since is not None:
            is_reachable &= self.until > since
        return is_reachable

    def evenly_promising(self, may_match: Mask | None = None) -> Regions:
        """The regions with the same promise for each probe, likely or not, so that an even sample looks everywhere.

        With a mask, it does not look where no tuple can match.
        """
        expected = np.maximum(self.expected, LEAST_EXPECTED)
        likely = np.ones(len(self), bool)
        if may_match is not None:
            expected, likely = np.where(may_match, expected, 0.0), may_match
        return replace(self, promise=expected, expected=expected, likely=likely)

    def at(self, number: int) -> Regions:
        """A single region."""
        some = slice(number, number + 1)
        return Regions(*(getattr(self, name)[some] for name in DTYPES))

    def most_likely(self, limit: int) -> Regions:
        """At most so many of the regions: those that are likely and have the most expected output left."""
        if len(self) <= limit:
            return self
        order = np.lexsort((-self.expected_left, ~self.likely))
        return self.where(np.sort(order[:limit]))

    def table(self) -> pa.Table:
        """The regions as a table, for checkpoints."""
        return pa.table({stored: getattr(self, name) for stored, name in STORED_COLUMNS.items()})

    @staticmethod
    def of_table(table: pa.Table) -> Regions:
        """The inverse of `table`."""
        columns = {name: table.column(stored).combine_chunks() for stored, name in STORED_COLUMNS.items()}
        return Regions(**{name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()})

    @staticmethod
    def concatenated(parts: Iterable[Regions]) -> Regions:
        """The regions of all parts."""
        some = [part for part in parts if len(part)]
        if len(some) < 2:
            return some[0] if some else Regions.none()
        return Regions(**{name: np.concatenate([getattr(part, name) for part in some]) for name in DTYPES})


# The columns in checkpoints, each with the attribute that holds it: a renamed attribute keeps its column.
STORED_COLUMNS = {
    "key": "key",
    "bucket": "bucket",
    "batch": "batch_id",
    "since": "since",
    "until": "until",
    "low": "low",
    "arriving": "arriving",
    "cell": "cell",
    "done": "done",
    "promise": "promise",
    "expected": "expected",
    "likely": "likely",
    "by_key": "by_key",
}

DTYPES: dict[str, type] = {field.name: np.int64 for field in fields(Regions)} | {
    "key": np.uint64,
    "promise": np.float64,
    "expected": np.float64,
    "likely": np.bool_,
    "by_key": np.bool_,
}


def choose_probes(regions: Regions, order: str, budget: int | None) -> Ints:
    """How many probes of each region to make now: the next ones of its line.

    The whole budget is spent while probes are left: `sum(chosen) == min(budget, sum(left))`. The order
    depends on the regions, not on how they are listed. Regions that are not `likely` come last in every
    order.
    """
    left = regions.left
    if budget is None or budget >= left.sum():
        return left
    if budget == 0:
        return np.zeros_like(left)
    if order == "weighted":
        return _weighted(regions, budget)
    rank = regions.promise if order == "asc" else -regions.promise
    return _filled(left, _order(regions, rank), budget)


def spend_budget(fresh: Regions, waiting: Regions, order: str, budget: int | None) -> tuple[Ints, Ints]:
    """The probes to make in the batch's own regions, and in those deferred by earlier batches.

    With asc they compete: few tuples are rare, and a batch without rare ones should return to those of
    earlier batches. With desc and weighted, deferred regions get what the batch leaves of the budget, as
    when a query is idle (section 4.1.2): desc would find hardly more, and weighted would round up their
    small shares with every batch, until the output is no even sample.
    """
    if order == "asc":
        taken = choose_probes(Regions.concatenated([fresh, waiting]), order, budget)
        return taken[: len(fresh)], taken[len(fresh) :]
    now = choose_probes(fresh, order, budget)
    return now, choose_probes(waiting, order, None if budget is None else budget - int(now.sum()))


def spending_order(regions: Regions, order: str) -> Ints:
    """The regions in the order in which a budget is spent on them."""
    rank = {"asc": regions.promise, "desc": -regions.promise}.get(order)
    return _order(regions, np.zeros(len(regions)) if rank is None else rank)


def _order(regions: Regions, rank: Floats) -> Ints:
    """The regions by rank, the unlikely ones last; ties by age, value and time."""
    return np.lexsort((regions.since, regions.key, regions.batch_id, rank, ~regions.likely))


def _filled(left: Ints, order: Ints, budget: int) -> Ints:
    """Each region in turn gets all that is left of it, until the budget is spent."""
    needs = left[order]
    before = np.cumsum(needs) - needs
    taken = np.zeros_like(left)
    taken[order] = np.clip(budget - before, 0, needs)
    return taken


def _weighted(regions: Regions, budget: int) -> Ints:
    """The budget divided so that the regions' output is in the ratio of their promises.

    A region that is to give t * promise tuples takes t * promise * probes / expected probes, counting those
    made before, and at most its whole line: one t for all, such that the budget is spent. The rest goes to
    regions with no expected output.
    """
    left = regions.left
    sure = regions.likely & (regions.promise > 0) & (regions.expected > 0) & (left > 0)
    if budget >= left[sure].sum():
        order = _order(regions, np.zeros(len(regions)))
        rest = np.where(sure, 0, left)
        return np.where(sure, left, _filled(rest, order, budget - int(left[sure].sum())))
    order = np.flatnonzero(sure)
    if len(order) == 1:  # such as the one line of a batch that a sample is drawn from
        return np.where(sure, min(budget, int(left[order[0]])), 0)
    mixed = mix_bits(regions.key ^ mix_bits(regions.batch_id.view(np.uint64) ^ regions.since.view(np.uint64)))
    order = order[np.lexsort((regions.since[order], regions.batch_id[order], mixed[order]))]
    some = regions.where(order)
    taken = np.zeros_like(left)
    taken[order] = _whole(_shares(some, budget), some.left, budget)
    return taken


def _shares(regions: Regions, budget: int) -> Floats:
    """The shares of the budget by water-filling: clip(t * rate - done, 0, left), with the budget as their sum."""
    promise = np.nan_to_num(regions.promise)
    rate = promise / promise.max() * regions.probes / np.maximum(regions.expected, LEAST_PROMISE)
    rate = np.maximum(
        rate / rate.max(), LEAST_PROMISE
    )  # a region with almost no promise waits long, but not forever
    start, stop = regions.done / rate, regions.probes / rate
    times = np.concatenate([start, stop])
    by_time = np.argsort(times, kind="stable")
    slope = np.cumsum(np.concatenate([rate, -rate])[by_time])
    times = times[by_time]
    spent = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    last = max(int(np.searchsorted(spent, budget, side="right")) - 1, 0)
    t = times[last] + (budget - spent[last]) / max(slope[last], LEAST_PROMISE)
    return np.clip(t * rate - regions.done, 0, regions.left)


def _whole(shares: Floats, left: Ints, budget: int) -> Ints:
    """Shares as whole numbers that sum up to the budget.

    The fraction of each share is carried over to the next region, and the region at which the fractions add up
    to a whole gets a probe. The regions are in an order that differs from batch to batch, so no value is always the
    lucky one. If the largest fractions got the probes, small shares would get none in any batch, and
    rare values would vanish.
    """
    taken = np.minimum(np.floor(shares + LEAST_PROMISE).astype(np.int64), left)
    remainder = np.where(taken < left, np.maximum(shares - taken, 0), 0)
    whole = np.floor(np.cumsum(remainder) + 0.5 + LEAST_PROMISE).astype(np.int64)
    taken += np.diff(whole, prepend=0)
    missing = budget - int(taken.sum())  # only because of rounding
    numbers = np.arange(len(left))
    if missing > 0:
        return taken + _filled(left - taken, numbers, missing)
    return taken - _filled(taken, numbers[::-1], -missing)
