"""Staircases for MAX and MIN: of the tuples that no later tuple beats, the first in a window is the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import Accumulator, ExactStore, Extreme
from transom.aggregates.numeric import numeric_form
from transom.columns.arrays import Ints
from transom.ondemand.structures.build_runs import (
    align_groups,
    keep_entries,
    merge_entries,
    sorted_run,
    without_nulls,
)
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run, Structure, TupleBatch
from transom.ondemand.structures.window_entries import combine_states, entries_since


@dataclass(frozen=True)
class Staircase(Structure):
    """The greatest or least value of any window by one search per run.

    Of n random values a run keeps about ln n; of values that fall all the time (for MAX), it keeps all.
    """

    accumulator: Accumulator

    @property
    def id(self) -> str:
        return f"staircase({self.accumulator.id})"

    @property
    def is_greatest(self) -> bool:
        """Whether it answers MAX, and not MIN."""
        return self.accumulator.traits.store is ExactStore.GREATEST

    def run(self, batch: TupleBatch) -> Run:
        return self._stairs(sorted_run(without_nulls(batch)))

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups = align_groups([run.keys for run in runs], sum(run.groups for run in runs))
        return self._stairs(merge_entries(runs, groups, floor).run)

    def _stairs(self, run: Run) -> Run:
        """The run without the entries that a later entry of the same group equals or beats."""
        values = run.columns["value"]
        if not run.entries:
            return run
        if run.groups == 1 and values.type in (pa.float32(), pa.float64()):
            return keep_entries(run, self._stairs_of_floats(values))
        ranks, count = _ranks(values)
        if not self.is_greatest:
            ranks = count - 1 - ranks
        # Each group is lifted above all later groups, so that one running maximum from the end serves for all.
        lifts = np.arange(run.groups - 1, -1, -1) * count
        heights = ranks + np.repeat(lifts, np.diff(run.bounds))
        above = np.maximum.accumulate(heights[::-1])[::-1]
        return keep_entries(run, np.r_[heights[:-1] > above[1:], True])

    def _stairs_of_floats(self, values: pa.Array) -> NDArray[np.bool_]:
        """The mask of `_stairs` for the floats of a single group, without ranks; NaN is above all."""
        numbers = values.to_numpy()
        with np.errstate(invalid="ignore"):
            if self.is_greatest:
                above = np.maximum.accumulate(numbers[::-1])[::-1]
                is_stair = (numbers[:-1] > above[1:]) | (np.isnan(numbers[:-1]) & ~np.isnan(above[1:]))
            else:
                below = np.fmin.accumulate(numbers[::-1])[::-1]
                is_stair = (numbers[:-1] < below[1:]) | (np.isnan(below[1:]) & ~np.isnan(numbers[:-1]))
        return np.r_[is_stair, True]

    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        window = entries_since(runs, since, where)
        firsts = [part.run.columns["value"].take(pa.array(part.starts)) for part in window.parts]
        values = pa.concat_arrays(firsts) if firsts else pa.nulls(0, self.accumulator.types()[0])
        return window.answers(combine_states(self.accumulator, [values], window.codes, window.count))


def _ranks(values: pa.Array) -> tuple[Ints, int]:
    """Numbers in the order of the values, equal for equal values, and one more than the greatest number."""
    form = numeric_form(Extreme(values.type, "max"))
    if form is not None and form.dtype.kind == "i":
        numbers, _ = form.values(values)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < 1 << 32:
            return numbers.astype(np.int64) - low, high - low + 1
    if form is not None:
        distinct, ranks = np.unique(form.values(values)[0], return_inverse=True)
        return ranks, len(distinct)
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], len(order)
