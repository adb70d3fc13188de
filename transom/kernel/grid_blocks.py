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
BLOCK_COST = 500_000  # a block without tuples
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

    def tuple_cost(self, slots: int) -> int:
        """Nanoseconds to add the tuples to cells."""
        return self.tuples * (TUPLE_COST * len(self.borders) + SLOT_COST * (slots + 1))


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
        shape = len(family), len(self.grid.axes)
        self.lows, self.highs = np.full(shape, 2**62), np.zeros(shape, np.int64)  # the hull of each member
        np.minimum.at(self.lows, self.grid.owners[self.filled], self.grid.starts[self.filled])
        np.maximum.at(self.highs, self.grid.owners[self.filled], self.grid.stops[self.filled])

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
        if block.cells > self.most_cells or self._is_worth_halving(block):
            for half in self._halves(members, places):
                yield from self._split(half, places)
        else:
            yield members

    def _is_worth_halving(self, block: GridBlock) -> bool:
        """Whether two halves cost less: the tuples are read twice, and there are far fewer cells in all."""
        slots, cells, blocks = self.slots + 1, block.cells * CELL_COST, BLOCK_COST
        left = cells * slots / 2 ** len(block.borders)
        return blocks + block.tuple_cost(self.slots) < cells * slots - left

    def _halves(self, members: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Members in two halves: of those that have few different places, or else where they read fewest tuples."""
        orders = [members[np.argsort(numbers[members], kind="stable")] for numbers in places]
        distinct = [
            1 + int(np.count_nonzero(np.diff(numbers[order])))
            for numbers, order in zip(places, orders, strict=True)
        ]
        repeated = [(count, place) for place, count in enumerate(distinct) if 1 < count <= len(members) // 2]
        if repeated:
            order = orders[min(repeated)[1]]
        else:
            order = min(orders[:-1] or orders, key=self._tuples_of_halves)
        return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])

    def _tuples_of_halves(self, order: Ints) -> int:
        return sum(self._hull(half)[2] for half in (order[: len(order) // 2], order[len(order) // 2 :]))

    def _hull(self, members: Ints) -> tuple[int, tuple[int, int], int]:
        """The axis on which members reach the fewest tuples, from which code to which, and the tuples."""
        best = None
        for place, below in enumerate(self.below):
            start, stop = int(self.lows[members, place].min()), int(self.highs[members, place].max())
            tuples = int(below[stop] - below[start]) if start < stop else 0
            if best is None or tuples < best[2]:
                best = place, (start, stop), tuples
        assert best is not None
        return best

    def block(self, members: Ints) -> GridBlock | None:
        """The block of some members, without those whose boxes are empty; None if all are."""
        members = members[self.bounds[members] < self.bounds[members + 1]]
        if not len(members):
            return None
        at, _ = expand_runs(self.bounds[members], self.bounds[members + 1])
        boxes = self.filled[at]
        grid, borders = self.grid, []
        for place, axis in enumerate(grid.axes):
            starts, stops = grid.starts[boxes, place], grid.stops[boxes, place]
            found = sorted_distinct(np.concatenate([[0, axis.null], starts, stops]))
            borders.append(found[:-1] if found[-1] == axis.size else found)
        slice_numbers, which = expand_runs(self.cut.bounds[members], self.cut.bounds[members + 1])
        edges = sorted_distinct(self.cut.firsts[slice_numbers])  # begins with 0
        narrow, hull, tuples = self._hull(members)
        return GridBlock(
            members, boxes, tuple(borders), slice_numbers, which, edges, narrow, hull, tuples,
            self.tuples.group_count,
        )  # fmt: skip


def coarse_codes(borders: Ints, size: int) -> Ints:
    """For each of `size` codes, the fragment of a block that it lies in."""
    return np.repeat(np.arange(len(borders)), np.diff(np.r_[borders, size]))


def box_ranges(grid: Grid, block: GridBlock) -> list[tuple[Ints, Ints]]:
    """On each axis, the fragments of a block from which and to which its boxes reach."""
    return [
        (
            np.searchsorted(borders, grid.starts[block.boxes, axis]),
            np.searchsorted(borders, grid.stops[block.boxes, axis]),
        )
        for axis, borders in enumerate(block.borders)
    ]
