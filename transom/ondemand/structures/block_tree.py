"""A tree of blocks: any aggregate over any window from a few precombined states; nothing is ever subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States
from transom.aggregates.numeric import lift_where_numeric
from transom.columns.arrays import Ints
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run
from transom.ondemand.structures.value_structures import ValueStructure
from transom.ondemand.structures.window_entries import (
    combine_states,
    concatenate_arrays,
    entries_since,
    take_ranges,
)

BLOCK = 32  # measured: 16 means more levels to visit, 64 more single entries per group


@dataclass(frozen=True)
class Level:
    """States of blocks of one size.

    Group g has blocks `bounds[g]` to `bounds[g + 1]`; its last block ends with its last entry.
    """

    bounds: Ints
    states: States


@dataclass(frozen=True)
class BlockTree(ValueStructure):
    """Values at the bottom (column `value`), above them the states of blocks of entries, of blocks of blocks, ...

    All windows reach to the end of a run. So blocks are counted from the end of each group, and a window
    consists of at most `block - 1` nodes per level. The levels are not stored with the run: its first
    lookup derives them.
    """

    block: int = BLOCK

    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        window = entries_since(runs, since, where)
        rests: list[tuple[States, Ints]] = []  # entries outside of any block: values, and their groups
        nodes: list[tuple[States, Ints]] = []  # blocks of all levels: states, and their groups
        for part in window.parts:
            lengths, stops, columns = part.stops - part.starts, part.stops, [part.run.columns["value"]]
            pieces = rests
            for level in self.levels(part.run):
                above = lengths // self.block
                pieces.append(
                    _entries_between(columns, stops - lengths, stops - above * self.block, part.codes)
                )
                lengths, stops, columns = above, level.bounds[1:][part.groups], level.states
                pieces = nodes
            pieces.append(_entries_between(columns, stops - lengths, stops, part.codes))
        if not rests:
            return window.answers([pa.nulls(0, type) for type in self.accumulator.types()])
        [values], codes = _concatenated(rests)
        nodes.append(
            (lift_where_numeric(self.accumulator, values, None, codes, window.count), np.arange(window.count))
        )
        return window.answers(combine_states(self.accumulator, *_concatenated(nodes), window.count))

    def levels(self, run: Run) -> list[Level]:
        """The levels of a run, the lowest first; none if no group fills a block."""
        levels: list[Level] | None = run.derived.get(self)
        if levels is None:
            levels, counts, stops = [], np.diff(run.bounds), run.bounds[1:]
            states = [run.columns["value"]]
            while (counts >= self.block).any():
                counts = counts // self.block
                bounds = np.r_[0, np.cumsum(counts)]
                states, _ = take_ranges(states, stops - counts * self.block, stops)
                codes = np.repeat(np.arange(bounds[-1]), self.block)
                if levels:
                    states = combine_states(self.accumulator, states, codes, int(bounds[-1]))
                else:
                    states = lift_where_numeric(self.accumulator, states[0], None, codes, int(bounds[-1]))
                levels.append(Level(bounds, states))
                stops = bounds[1:]
            run.derived[self] = levels
        return levels


def _entries_between(columns: States, starts: Ints, stops: Ints, codes: Ints) -> tuple[States, Ints]:
    states, which = take_ranges(columns, starts, stops)
    return states, codes[which]


def _concatenated(pieces: Sequence[tuple[States, Ints]]) -> tuple[States, Ints]:
    columns = zip(*(states for states, _ in pieces), strict=True)
    return [pa.concat_arrays(parts) for parts in columns], concatenate_arrays([codes for _, codes in pieces])
