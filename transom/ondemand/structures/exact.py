"""Exact structures by aggregate, and the simple ones: raw entries, and prefix sums for whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Sum
from transom.aggregates.numeric import added_up
from transom.aggregates.sketches import Distinct, Quantiles
from transom.ondemand.structures.block_tree import Tree
from transom.ondemand.structures.run_search import joined, running_totals, stretches, view
from transom.ondemand.structures.runs import Found, Numbers, Recipe, Run
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.values import Values

SKETCHED = 128  # entries a block: a sketch of fewer takes as much room as they do


def exact(accumulator: Accumulator) -> Recipe:
    """The structure that answers an aggregate exactly for any window, and soonest."""
    match accumulator:
        case CountRows() | Count():
            return PrefixSums(accumulator)
        case Sum(input) if pa.types.is_integer(input):
            return PrefixSums(accumulator)
        case Extreme():
            return Staircase(accumulator)
        case Distinct() | Quantiles():
            return Tree(accumulator, SKETCHED)
    return Tree(accumulator)


@dataclass(frozen=True)
class Raw(Values):
    """Tuples as they are (column `value`, without nulls); a lookup reads all of its window."""

    def lookup(self, runs: Sequence[Run], since: int) -> Found:
        seen = view(runs, since)
        values, codes = [], []
        for part in seen.parts:
            column = part.run.columns["value"] if part.run.columns else pa.nulls(part.run.entries)
            [own], which = stretches([column], part.starts, part.stops)
            values.append(own)
            codes.append(part.codes[which])
        found = pa.concat_arrays(values) if values else pa.nulls(0)
        return seen.found(added_up(self.accumulator, found, None, joined(codes), seen.count))


@dataclass(frozen=True)
class PrefixSums(Values):
    """Counts and sums of whole numbers: what is in a window is one difference in each run.

    A count is a difference of places. Sums are read off running totals over all of a run, groups or not,
    derived from the values at the first lookup: they wrap in 64 bits, as Spark's do, and so do their
    differences. Never for floats, where a difference is not what was added in between.
    """

    accumulator: CountRows | Count | Sum

    def lookup(self, runs: Sequence[Run], since: int) -> Found:
        seen = view(runs, since)
        sums = np.zeros(seen.count, np.int64)
        for part in seen.parts:
            np.add.at(sums, part.codes, self._between(part.run, part.starts, part.stops))
        return seen.found([pa.array(sums)])

    def _between(self, run: Run, starts: Numbers, stops: Numbers) -> Numbers:
        if not isinstance(self.accumulator, Sum):
            return stops - starts
        upto = running_totals(run, "value")
        return upto[stops - 1] - np.where(starts > 0, upto[starts - 1], 0)
