"""Blocks of a grid family: selections that are near each other share one array of cells.

An array has a cell for each combination of what its selections distinguish on every axis, in time and by group.
With more selections in a block, fewer passes over the tuples are needed and arrays grow. Blocks are split where
that costs less: along an axis, by nearness of the constants, or by window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints
from transom.columns.groups import sorted_distinct
from transom.kernel.rows import FamilyTuples
from transom.plan.boxes import Grid
from transom.plan.families import Family
from transom.windows.slices import Slices

# Costs in nanoseconds, measured.
BLOCK_COST = 250_000  # a block without tuples
TUPLE_COST, SLOT_COST = 4, 3  # a tuple of a block: to find its cell, and to add to each slot
CELL_COST = 4  # a cell of an array, for each slot


@dataclass(frozen=True)
class GridBlock:
    """Some members of a grid family with what they distinguish.

    `borders` are the first codes of the block's fragments on each axis, and `edges` the first fine slices of its
    slices. Only the tuples with `hull[0] <= code < hull[1]` on the axis `narrow` can belong to its members.
    """

    members: Ints
    boxes: Ints  # places in the grid, in the order of the members
    borders: tuple[Ints, ...]
    slice_numbers: Ints
    which: Ints  # the member of each slice, as a place in `members`
    edges: Ints
    narrow: int
    hull: tuple[int, int]
    tuples: int
    groups: int

    @cached_property
    def cells(self) -> int:
        """The numbers in the larger of two arrays: all cells, or the first axis added up for each box."""
        first, *others = (len(borders) for borders in self.borders)
        return max(first, len(self.boxes)) * int(np.prod(others)) * len(self.edges) * self.groups

    def cost(self, slots: int) -> int:
        """Nanoseconds to fold it."""
        by_tuple = TUPLE_COST * len(self.borders) + SLOT_COST * (slots + 1)
        return BLOCK_COST + self.tuples * by_tuple + self.cells * CELL_COST * (slots + 1)


class GridBlocks:
    """The blocks of a grid family for the tuples of a task."""

    def __init__(self, family: Family, tuples: FamilyTuples, cut: Slices, most_cells: int):
        assert family.grid is not None
        self.family, self.grid, self.tuples, self.cut = family, family.grid, tuples, cut
        self.most_cells, self.slots = most_cells, len(family.slots)
        self.below = [
            np.r_[0, np.cumsum(np.bincount(codes, minlength=axis.size))]
            for codes, axis in zip(tuples.axis_codes, self.grid.axes, strict=True)
        ]
        is_filled = np.ones(len(self.grid.owners), bool)
        for place, below in enumerate(self.below):
            is_filled &= below[self.grid.stops[:, place]] > below[self.grid.starts[:, place]]
        self.filled = np.flatnonzero(
            is_filled
        )  # boxes with tuples on each axis, such as of null where there is null
        self.bounds = np.searchsorted(self.grid.owners[self.filled], np.arange(len(family) + 1))

    def __iter__(self) -> Iterator[GridBlock]:
        """The blocks; of members that match no tuple at all there are none."""
        for members in self._partition():
            block = self.block(members)
            if block is not None:
                yield block

    def _partition(self) -> Sequence[Ints]:
        """The members of each block.

        They depend on how many tuples and slices there are, but not much: the family remembers them.
        """
        known = self.family.__dict__.setdefault("_partitions", {})
        key = len(self.tuples).bit_length(), len(self.cut.starts).bit_length(), self.tuples.group_count
        if key not in known:
            if len(known) > 8:
                known.clear()
            known[key] = list(self._split(np.arange(len(self.family)), self._places))
        partition: Sequence[Ints] = known[key]
        return partition

    @cached_property
    def _places(self) -> Ints:
        """Where members lie: a row for each axis, with the middle of their first box, and one for their windows."""
        if not len(self.grid.owners):
            return np.zeros((1, len(self.family)), np.int64)
        firsts = np.searchsorted(self.grid.owners, np.arange(len(self.family)))
        firsts = np.minimum(firsts, len(self.grid.owners) - 1)
        middles = (self.grid.starts[firsts] + self.grid.stops[firsts]).T
        cut = self.family.cut
        order = np.lexsort((cut.bases, cut.steps))
        windows = np.zeros(len(self.family), np.int64)
        windows[cut.owners[order][::-1]] = np.arange(len(order))[::-1]
        return np.vstack([middles, windows])

    def _split(self, members: Ints, places: Ints) -> Iterator[Ints]:
        block = self.block(members)
        if block is None or len(members) == 1:
            yield members
            return
        best: tuple[int, tuple[Ints, Ints]] | None = None
        for numbers in places:
            order = members[np.argsort(numbers[members], kind="stable")]
            halves = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
            blocks = [self.block(half) for half in halves]
            cost = sum(half.cost(self.slots) for half in blocks if half is not None)
            if best is None or cost < best[0]:
                best = cost, halves
        assert best is not None
        if block.cells > self.most_cells or best[0] < block.cost(self.slots):
            for half in best[1]:
                yield from self._split(half, places)
        else:
            yield members

    def block(self, members: Ints) -> GridBlock | None:
        """The block of some members, without those whose boxes are empty; None if all are."""
        members = members[self.bounds[members] < self.bounds[members + 1]]
        if not len(members):
            return None
        at, _ = expand_runs(self.bounds[members], self.bounds[members + 1])
        boxes = self.filled[at]
        grid, borders, hulls = self.grid, [], []
        for place, axis in enumerate(grid.axes):
            starts, stops = grid.starts[boxes, place], grid.stops[boxes, place]
            found = sorted_distinct(np.concatenate([[0, axis.null], starts, stops]))
            borders.append(found[:-1] if found[-1] == axis.size else found)
            hulls.append((int(starts.min()), int(stops.max())))
        sizes = [
            int(self.below[place][stop] - self.below[place][start])
            for place, (start, stop) in enumerate(hulls)
        ]
        narrow = int(np.argmin(sizes))
        slice_numbers, which = expand_runs(self.cut.bounds[members], self.cut.bounds[members + 1])
        edges = sorted_distinct(self.cut.firsts[slice_numbers])  # begins with 0
        return GridBlock(
            members, boxes, tuple(borders), slice_numbers, which, edges, narrow, hulls[narrow], sizes[narrow],
            self.tuples.group_count,
        )  # fmt: skip


def coarse_codes(borders: Ints, size: int) -> Ints:
    """For each of `size` codes, the fragment of a block that it lies in."""
    return np.repeat(np.arange(len(borders)), np.diff(np.r_[borders, size]))


def box_ranges(grid: Grid, block: GridBlock, axis: int) -> tuple[Ints, Ints]:
    """The fragments of a block from which and to which its boxes reach on an axis."""
    borders = block.borders[axis]
    starts, stops = (ends[block.boxes, axis] for ends in (grid.starts, grid.stops))
    return np.searchsorted(borders, starts), np.searchsorted(borders, stops)
