"""A tree of blocks: any window of any aggregate from few nodes, and nothing is ever subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States
from transom.aggregates.numeric import added_up
from transom.ondemand.structures.runs import GroupAnswers, Numbers, Run
from transom.ondemand.structures.values import ValueStructure
from transom.ondemand.structures.window_entries import (
    combine_states,
    concatenate_arrays,
    entries_since,
    take_ranges,
)

BLOCK = 32  # measured: with 16 there are more levels to visit, with 64 groups have longer rests


@dataclass(frozen=True)
class Level:
    """States of blocks; group g has the `bounds[g]`-th to the `bounds[g + 1]`-th, its last entries last."""

    bounds: Numbers
    states: States


@dataclass(frozen=True)
class BlockTree(ValueStructure):
    """Values at the bottom (column `value`), above them states of blocks of entries, of blocks of blocks, ...

    All windows reach to the end of a run, so blocks are counted from the end of each group, and a window is
    the rest of one block on every level: at most `block - 1` nodes each. The levels are not kept with the
    run but derived from it at its first lookup.
    """

    block: int = BLOCK

    def lookup(self, runs: Sequence[Run], since: int) -> GroupAnswers:
        seen = entries_since(runs, since)
        rests: list[tuple[States, Numbers]] = []  # of the bottom: values, and the group of each
        nodes: list[tuple[States, Numbers]] = []  # of all above
        for part in seen.parts:
            lengths, stops, columns = part.stops - part.starts, part.stops, [part.run.columns["value"]]
            found = rests
            for level in self.levels(part.run):
                above = lengths // self.block
                found.append(_reached(columns, stops - lengths, stops - above * self.block, part.codes))
                lengths, stops, columns = above, level.bounds[1:][part.groups], level.states
                found = nodes
            found.append(_reached(columns, stops - lengths, stops, part.codes))
        if not rests:
            return seen.found([pa.nulls(0, type) for type in self.accumulator.types()])
        [values], codes = _together(rests)
        nodes.append((added_up(self.accumulator, values, None, codes, seen.count), np.arange(seen.count)))
        return seen.found(combine_states(self.accumulator, *_together(nodes), seen.count))

    def levels(self, run: Run) -> list[Level]:
        """The levels of a run, from the lowest; none where no group fills a block."""
        known: list[Level] | None = run.derived.get(self)
        if known is None:
            known, counts, stops = [], np.diff(run.bounds), run.bounds[1:]
            states = [run.columns["value"]]
            while (counts >= self.block).any():
                counts = counts // self.block
                bounds = np.r_[0, np.cumsum(counts)]
                states, _ = take_ranges(states, stops - counts * self.block, stops)
                codes = np.repeat(np.arange(bounds[-1]), self.block)
                if known:
                    states = combine_states(self.accumulator, states, codes, int(bounds[-1]))
                else:
                    states = added_up(self.accumulator, states[0], None, codes, int(bounds[-1]))
                known.append(Level(bounds, states))
                stops = bounds[1:]
            run.derived[self] = known
        return known


def _reached(columns: States, starts: Numbers, stops: Numbers, codes: Numbers) -> tuple[States, Numbers]:
    states, which = take_ranges(columns, starts, stops)
    return states, codes[which]


def _together(found: Sequence[tuple[States, Numbers]]) -> tuple[States, Numbers]:
    columns = zip(*(states for states, _ in found), strict=True)
    return [pa.concat_arrays(parts) for parts in columns], concatenate_arrays([codes for _, codes in found])
