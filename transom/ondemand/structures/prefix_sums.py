"""Prefix sums: counts and sums of whole numbers from two running totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Count, CountRows, Sum
from transom.ondemand.structures.runs import GroupAnswers, Numbers, Run
from transom.ondemand.structures.values import ValueStructure
from transom.ondemand.structures.window_entries import entries_since, running_totals


@dataclass(frozen=True)
class PrefixSums(ValueStructure):
    """Counts and sums of whole numbers: what is in a window is one difference in each run.

    A count is a difference of places. Sums are read off running totals over all of a run, groups or not,
    derived from the values at the first lookup: they wrap in 64 bits, as Spark's do, and so do their
    differences. Never for floats, where a difference is not what was added in between.
    """

    accumulator: CountRows | Count | Sum

    def lookup(self, runs: Sequence[Run], since: int) -> GroupAnswers:
        seen = entries_since(runs, since)
        sums = np.zeros(seen.count, np.int64)
        for part in seen.parts:
            np.add.at(sums, part.codes, self._between(part.run, part.starts, part.stops))
        return seen.found([pa.array(sums)])

    def _between(self, run: Run, starts: Numbers, stops: Numbers) -> Numbers:
        if not isinstance(self.accumulator, Sum):
            return stops - starts
        upto = running_totals(run, "value")
        return upto[stops - 1] - np.where(starts > 0, upto[starts - 1], 0)
