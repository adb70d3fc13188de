"""A tree over rows: each of many overlapping runs is combined from a logarithmic number of precombined nodes.

Node `i` of level `l` stands for the rows from `i * 2**l` to `(i + 1) * 2**l`. Windows that slide over many slices
share nearly all of them; only nodes that a run needs are computed. Nothing is ever subtracted.

Numbers are added row by row even so: NumPy adds several billion of them a second, and finding the nodes of a run takes
longer than adding up the 86,400 slices of a day. Merging two sketches takes a thousand times as long as an addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Codes, States
from transom.aggregates.numeric import combine_runs, numeric_form
from transom.columns.groups import sorted_distinct

# Rows of runs for each row that a run has: with fewer, runs are combined row by row.
LEAST_SHARED = 64
LEAST_SHARED_SKETCHES = 4


@dataclass(frozen=True)
class _Level:
    """The nodes of a level that are computed, and the places of their children in the level below."""

    numbers: Codes
    left: Codes
    right: Codes


@dataclass(frozen=True)
class RunTree:
    """Runs of rows, half-open and none of them empty, whose states are to be combined."""

    starts: Codes
    stops: Codes

    @cached_property
    def shared(self) -> float:
        """How many runs a row is in, on average over the rows that are in any."""
        lengths = self.stops - self.starts
        if len(lengths) < 2:
            return 1.0
        covered = np.zeros(int(self.stops.max()) - int(self.starts.min()) + 1, np.int64)
        np.add.at(covered, self.starts - self.starts.min(), 1)
        np.add.at(covered, self.stops - self.starts.min(), -1)
        return float(lengths.sum()) / int(np.count_nonzero(np.cumsum(covered)))

    def pays_for(self, accumulator: Accumulator, least_shared: int | None = None) -> bool:
        """Whether runs overlap so much that nodes pay; `least_shared` replaces the thresholds."""
        if numeric_form(accumulator) is not None:
            return False
        if least_shared is None:
            least_shared = LEAST_SHARED_SKETCHES if accumulator.traits.is_sketch else LEAST_SHARED
        return self.shared > least_shared

    @cached_property
    def _nodes(self) -> tuple[Codes, Codes, Codes]:
        """The nodes of all runs: their levels, their numbers and their runs, from left to right in each run."""
        starts, stops, runs = self.starts.copy(), self.stops.copy(), np.arange(len(self.starts))
        parts, level = [], 0
        while len(runs):
            odd = np.flatnonzero(starts & 1)
            parts.append((np.full(len(odd), level), starts[odd], runs[odd]))
            starts[odd] += 1
            odd = np.flatnonzero(stops & 1)
            stops[odd] -= 1
            parts.append((np.full(len(odd), level), stops[odd], runs[odd]))
            starts, stops, level = starts >> 1, stops >> 1, level + 1
            left = starts < stops
            starts, stops, runs = starts[left], stops[left], runs[left]
        levels, numbers, owners = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((numbers << levels, owners))
        return levels[order], numbers[order], owners[order]

    @cached_property
    def _levels(self) -> list[_Level]:
        """The nodes to compute, from the rows upwards."""
        levels, numbers, _ = self._nodes
        needed: list[Codes] = []
        above = np.zeros(0, np.int64)
        for level in range(int(levels.max()), -1, -1):
            children = np.concatenate([2 * above, 2 * above + 1])
            above = sorted_distinct(np.concatenate([numbers[levels == level], children]))
            needed.append(above)
        needed.reverse()
        found = [_Level(needed[0], needed[0], needed[0])]
        for below, own in pairwise(needed):
            found.append(_Level(own, np.searchsorted(below, 2 * own), np.searchsorted(below, 2 * own + 1)))
        return found

    @cached_property
    def _places(self) -> Codes:
        """Where the nodes of the runs are among all nodes, one level after the other."""
        levels, numbers, _ = self._nodes
        places, offset = np.empty(len(levels), np.int64), 0
        for level, nodes in enumerate(self._levels):
            chosen = np.flatnonzero(levels == level)
            places[chosen] = offset + np.searchsorted(nodes.numbers, numbers[chosen])
            offset += len(nodes.numbers)
        return places

    def combine(self, accumulator: Accumulator, states: States, least_shared: int | None = None) -> States:
        """The states of all runs."""
        if not self.pays_for(accumulator, least_shared):
            return combine_runs(accumulator, states, (self.starts, self.stops))
        nodes, chosen = self._combined_nodes(accumulator, states), pa.array(self._places)
        return accumulator.combine([state.take(chosen) for state in nodes], self._nodes[2], len(self.starts))

    def _combined_nodes(self, accumulator: Accumulator, states: States) -> States:
        first, *others = self._levels
        at = [state.take(pa.array(first.numbers)) for state in states]
        levels = [at]
        for level in others:
            pairs = pa.array(np.stack([level.left, level.right], axis=1).reshape(-1))
            codes = np.repeat(np.arange(len(level.numbers)), 2)
            at = accumulator.combine([state.take(pairs) for state in at], codes, len(level.numbers))
            levels.append(at)
        return [pa.concat_arrays(parts) for parts in zip(*levels, strict=True)]
