"""Prefix sums: counts and sums of whole numbers from two running totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import ExactStore
from transom.columns.arrays import Ints
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run
from transom.ondemand.structures.value_structures import ValueStructure
from transom.ondemand.structures.window_entries import entries_since, running_totals


@dataclass(frozen=True)
class PrefixSums(ValueStructure):
    """Counts and sums of whole numbers: a window's total is one difference per run.

    A count is a difference of positions. A sum is a difference of running totals over the whole run, which
    its first lookup derives. Totals wrap in 64 bits, as Spark's do, and so do their differences. Floats are
    never subtracted: a difference of rounded sums is not the sum in between.
    """

    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        window = entries_since(runs, since, where)
        sums = np.zeros(window.count, np.int64)
        for part in window.parts:
            np.add.at(sums, part.codes, self._between(part.run, part.starts, part.stops))
        return window.answers([pa.array(sums)])

    def _between(self, run: Run, starts: Ints, stops: Ints) -> Ints:
        if self.accumulator.traits.store is ExactStore.COUNT:
            return stops - starts
        upto = running_totals(run, "value")
        return upto[stops - 1] - np.where(starts > 0, upto[starts - 1], 0)
