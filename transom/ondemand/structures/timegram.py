"""TimeGram: the times of tuples by bucket of their values; it answers any window with intervals.

Paper: Aggregate Sharing in Stream Databases, section 3. Beyond the paper, a bucket records the least and
the greatest of its values, so intervals are narrower, and correct for values outside of all bounds; bounds may
follow the values; an average is divided by the count of the window, where the paper
divides by the count of the whole structure; and with slices of time there are counts in place of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.columns.type_ids import type_id
from transom.ondemand.structures.answer_intervals import AnswerIntervals, BucketTuples
from transom.ondemand.structures.buckets import (
    FINEST,
    FixedBuckets,
    GeometricBuckets,
    bucket_floors,
    dyadic_buckets,
    fitting_exponents,
)
from transom.ondemand.structures.build_runs import (
    AlignedGroups,
    align_divided_groups,
    align_groups,
    merge_entries,
    sorted_run,
    without_nulls,
)
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run, Structure, TupleBatch
from transom.ondemand.structures.window_entries import (
    RunPart,
    concatenate_arrays,
    entries_since,
    running_totals,
)

TIMEGRAM_BUCKETS = 64


@dataclass(frozen=True)
class TimeGram(Structure):
    """MAX, MIN, COUNT, SUM and AVG of numbers, as intervals that contain the exact answers.

    A run is divided by bucket (heads: `bucket`, and the hull `low` to `high` of its values); its entries
    are times. There are `buckets` of equal width `between` two values, or buckets between the given
    `bounds`, or buckets as wide as the fraction `within` of their values. Otherwise buckets follow the
    values: each group has the finest dyadic grid on which its values lie in at most `buckets` buckets. With
    a `slice`, entries are slices of time: the time of the slice's last tuple, the time from its first to
    its last tuple (column `span`), and the number of its tuples (column `count`). A TimeGram of `type` None
    only counts, in one bucket: the tuples that have a value, or all tuples if there are no values.
    """

    type: pa.DataType | None
    buckets: int = TIMEGRAM_BUCKETS
    between: tuple[float, float] | None = None
    bounds: tuple[float, ...] = ()
    within: float | None = None
    slice: int | None = None

    def __post_init__(self) -> None:
        type = self.type
        if type is not None and not (
            pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
        ):
            raise ValueError(f"a timegram is of numbers, not of {type}")
        if self.buckets < 1 or (self.slice is not None and self.slice < 1):
            raise ValueError("a timegram's buckets and slices must be positive")
        self._fixed_buckets  # noqa: B018  raises ValueError for wrong bounds

    @property
    def id(self) -> str:
        """The id in checkpoints: the type of the values and what divides them into buckets and slices.

        >>> TimeGram(pa.float64(), 8, between=(0.0, 1.0)).id
        'timegram(double,buckets=8,between=0.0:1.0)'
        """
        parts = ["rows" if self.type is None else type_id(self.type), f"buckets={self.buckets}"]
        if self.between is not None:
            parts.append(f"between={_numbers_text(self.between)}")
        if self.bounds:
            parts.append(f"bounds={_numbers_text(self.bounds)}")
        if self.within is not None:
            parts.append(f"within={_numbers_text([self.within])}")
        if self.slice is not None:
            parts.append(f"slice={self.slice}")
        return f"timegram({','.join(parts)})"

    @cached_property
    def _fixed_buckets(self) -> FixedBuckets | GeometricBuckets | None:
        """The buckets, unless they follow the values."""
        if self.within is not None:
            return GeometricBuckets(self.within)
        if self.bounds:
            return FixedBuckets(tuple(map(float, self.bounds)))
        return None if self.between is None else FixedBuckets.evenly(*self.between, self.buckets)

    def run(self, batch: TupleBatch) -> Run:
        batch = without_nulls(batch)
        if self.type is None or batch.values is None:
            run = sorted_run(replace(batch, values=None))
            return self._sliced(replace(run, heads={"bucket": pa.array(np.zeros(run.groups, np.int64))}))
        low, high = _outward(batch.values)
        numbers, exponents = self._filed(low.astype(np.float64), batch)
        cells = group([batch.codes, numbers] if batch.keys else [numbers], len(numbers))
        # Each bucket is a group of the run, even without GROUP BY.
        keys = (pa.array(numbers[cells.firsts]), pa.array(batch.codes[cells.firsts]))
        run = sorted_run(TupleBatch(batch.times, cells.codes, keys, pa.array(np.arange(len(numbers)))))
        rows, at, owners = run.columns["value"].to_numpy(), run.bounds[:-1], run.keys[1]
        heads = {"bucket": run.keys[0]}
        if len(at):
            low, high = np.fmin.reduceat(low[rows], at), np.fmax.reduceat(high[rows], at)
        heads |= {"low": pa.array(low), "high": pa.array(high)}
        if exponents is not None:
            heads["exponent"] = pa.array(exponents).take(owners)
        keys = tuple(key.take(owners) for key in batch.keys)
        return self._sliced(replace(run, keys=keys, columns={}, heads=heads))

    def _filed(self, values: NDArray[np.float64], batch: TupleBatch) -> tuple[Ints, NDArray[np.int16] | None]:
        """The bucket of each value, and the exponent of each group's grid if buckets follow the values."""
        if self._fixed_buckets is not None:
            return self._fixed_buckets.numbers(values), None
        groups = int(batch.codes.max(initial=0)) + 1
        exponents = fitting_exponents(values, batch.codes, groups, self.buckets)
        own = exponents[0] if groups == 1 else exponents[batch.codes]
        return dyadic_buckets(values, own), exponents.astype(np.int16)

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups, divided = self._aligned(runs, floor)
        entries = merge_entries(runs, groups, floor)
        outer = len(entries.run.keys) - len(divided)
        heads = dict(zip(divided, entries.run.keys[outer:], strict=True))
        for name, ufunc in (("low", np.fmin), ("high", np.fmax)):
            if name in runs[0].heads:
                heads[name] = entries.heads(runs, name, ufunc)
        return self._sliced(replace(entries.run, keys=entries.run.keys[:outer], heads=heads))

    def _aligned(self, runs: Sequence[Run], floor: int) -> tuple[AlignedGroups, tuple[str, ...]]:
        """The groups and buckets of all runs; their last keys are the heads with the returned names."""
        pieces = sum(run.groups for run in runs)
        numbers = concatenate_arrays([run.heads["bucket"].to_numpy() for run in runs])
        if "exponent" not in runs[0].heads:
            columns = [(*run.keys, run.heads["bucket"]) for run in runs]
            return align_groups(columns, pieces), ("bucket",)
        outer = align_divided_groups(runs)
        known = concatenate_arrays([run.heads["exponent"].to_numpy() for run in runs]).astype(np.int64)
        alive = concatenate_arrays([run.starts(floor) < run.bounds[1:] for run in runs])
        exponents = np.full(outer.count, FINEST)
        np.maximum.at(exponents, outer.codes[alive], known[alive])
        # Together there may be too many buckets. The values are no longer known, only their buckets.
        coarse = bucket_floors(dyadic_buckets(bucket_floors(numbers), exponents[outer.codes]))
        more = fitting_exponents(coarse[alive], outer.codes[alive], outer.count, self.buckets)
        exponents = np.maximum(exponents, more)
        numbers = dyadic_buckets(bucket_floors(numbers), exponents[outer.codes])
        cells = group([outer.codes, numbers], pieces)
        owners = outer.codes[cells.firsts]
        keys = (*(key.take(pa.array(owners)) for key in outer.keys), pa.array(numbers[cells.firsts]))
        found = AlignedGroups(cells.codes, cells.count, (*keys, pa.array(exponents[owners].astype(np.int16))))
        return found, ("bucket", "exponent")

    def _sliced(self, run: Run) -> Run:
        """The run with entries of the same slice of time merged, if this TimeGram has slices."""
        if self.slice is None:
            return run
        times, spans = run.times, np.zeros(run.entries, np.int64)
        counts = np.ones(run.entries, np.int64)
        if run.columns:
            counts, spans = (run.columns[name].to_numpy().astype(np.int64) for name in ("count", "span"))
        slices = times // self.slice
        is_first = np.r_[True, slices[1:] != slices[:-1]][: run.entries]
        is_first[run.bounds[:-1]] = True
        firsts = np.flatnonzero(is_first)
        lasts = np.r_[firsts[1:], run.entries][: len(firsts)] - 1
        if len(firsts):
            spans = times[lasts] - np.minimum.reduceat(times - spans, firsts)
            counts = np.add.reduceat(counts, firsts)
        narrow = pa.uint32() if self.slice <= 1 << 32 else pa.int64()
        columns = {"count": pa.array(counts), "span": pa.array(spans).cast(narrow)}
        return Run.of(run.keys, np.searchsorted(firsts, run.bounds), times[lasts], columns, run.heads)

    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        window = entries_since(runs, since, where, divided=True)
        counts = [self._counts(part, since) for part in window.parts]
        least, most = (concatenate_arrays([pair[i] for pair in counts]) for i in (0, 1))
        filed = BucketTuples(
            window.codes, window.count, least, most, *(self._hull(window.parts, s) for s in ("low", "high"))
        )
        return GroupAnswers(window.keys, window.count, AnswerIntervals(filed, self._grain))

    def _counts(self, part: RunPart, since: int) -> tuple[Ints, Ints]:
        """The least and the greatest number of tuples of each bucket in the window."""
        if self.slice is None:
            found = part.stops - part.starts
            return found, found
        upto, starts = running_totals(part.run, "count"), part.starts
        before = np.where(starts > 0, upto[starts - 1], 0)
        most = upto[part.stops - 1] - before
        # In the slice where the window begins, the last tuple is in the window and the first may not be.
        begun = part.run.ticks[starts].astype(np.int64) - part.run.columns["span"].to_numpy()[starts]
        cut = begun + part.run.base < since
        return np.where(cut, most - (upto[starts] - before) + 1, most), np.where(cut, most - 1, most)

    def _hull(self, parts: Sequence[RunPart], side: str) -> NDArray[Any] | None:
        if self.type is None:
            return None
        if not parts:
            return np.zeros(0, np.int64 if pa.types.is_integer(self.type) else np.float64)
        return concatenate_arrays([part.run.heads[side].to_numpy()[part.groups] for part in parts])

    @property
    def _grain(self) -> float:
        """The last digit of a decimal average, to which it is rounded."""
        if self.type is None or not pa.types.is_decimal(self.type):
            return 0.0
        return float(10.0 ** -min(self.type.scale + 4, 38))


def _outward(values: pa.Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Whole numbers as they are; others as doubles just below and above."""
    if pa.types.is_integer(values.type):
        numbers = values.cast(pa.int64()).to_numpy()
        return numbers, numbers
    numbers = values.cast(pa.float64()).to_numpy()
    if pa.types.is_floating(values.type):
        return numbers, numbers
    slack = np.abs(numbers) * 2.0**-50
    return numbers - slack, numbers + slack


def _numbers_text(values: Iterable[float]) -> str:
    return ":".join(str(float(value)) for value in values)
