"""A tree of blocks: any window of any aggregate from few nodes, and nothing is ever subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.numeric import added_up, expanded
from transom.structures.finding import combined, joined, view
from transom.structures.runs import Batch, Found, Numbers, Recipe, Run
from transom.structures.weaving import aligned, raw, without_nulls, woven

BLOCK = 32


@dataclass(frozen=True)
class Level:
    """States of blocks; group g has the `bounds[g]`-th to the `bounds[g + 1]`-th, its last entries last."""

    bounds: Numbers
    states: States


@dataclass(frozen=True)
class Tree(Recipe):
    """Values at the bottom (column `value`), above them states of blocks of entries, of blocks of blocks, ...

    All windows reach to the end of a run, so blocks are counted from the end of each group, and a window is
    the rest of one block on every level: at most `block - 1` nodes each. The levels are not kept with the
    run but derived from it at its first lookup.
    """

    accumulator: Accumulator
    block: int = BLOCK

    def run(self, batch: Batch) -> Run:
        return raw(without_nulls(batch))

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups = aligned([run.keys for run in runs], sum(run.groups for run in runs), len(runs) == 1)
        return woven(runs, groups, floor).run

    def lookup(self, runs: Sequence[Run], since: int) -> Found:
        seen = view(runs, since)
        values, bottom = [], []
        states, nodes = [], []
        for part in seen.parts:
            lengths, ends = part.stops - part.starts, part.stops
            levels = self.levels(part.run)
            for height in range(len(levels) + 1):
                above = lengths // self.block if height < len(levels) else np.zeros_like(lengths)
                rows, which = expanded(ends - lengths, ends - above * self.block)
                at = pa.array(rows)
                if height == 0:
                    values.append(part.run.columns["value"].take(at))
                    bottom.append(part.codes[which])
                else:
                    states.append([state.take(at) for state in levels[height - 1].states])
                    nodes.append(part.codes[which])
                if height < len(levels):
                    lengths, ends = above, levels[height].bounds[1:][part.groups]
        if not values:
            return seen.found([pa.nulls(0, type) for type in self.accumulator.types()])
        lifted = added_up(self.accumulator, pa.concat_arrays(values), None, joined(bottom), seen.count)
        if not states:
            return seen.found(lifted)
        states.append(lifted)
        nodes.append(np.arange(seen.count))
        columns = [pa.concat_arrays(column) for column in zip(*states, strict=True)]
        return seen.found(combined(self.accumulator, columns, joined(nodes), seen.count))

    def levels(self, run: Run) -> list[Level]:
        """The levels of a run, from the lowest; none where no group fills a block."""
        known: list[Level] | None = run.derived.get(self)
        if known is None:
            known, counts, stops = [], np.diff(run.bounds), run.bounds[1:]
            states = [run.columns["value"]]
            while (counts >= self.block).any():
                counts = counts // self.block
                rows, _ = expanded(stops - counts * self.block, stops)
                codes = np.arange(len(rows)) // self.block
                states = [_taken(state, rows) for state in states]
                if known:
                    states = combined(self.accumulator, states, codes, len(rows) // self.block)
                else:
                    states = added_up(self.accumulator, states[0], None, codes, len(rows) // self.block)
                bounds = np.r_[0, np.cumsum(counts)]
                known.append(Level(bounds, states))
                stops = bounds[1:]
            run.derived[self] = known
        return known


def _taken(column: pa.Array, rows: Numbers) -> pa.Array:
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # one stretch, as without GROUP BY
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))
