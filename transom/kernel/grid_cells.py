"""Fold the tuples of a grid family: selections over several scalars, each a union of boxes.

For each block of selections every tuple is added to one cell: (fragment on each axis, slice, group). A selection
adds up the cells in its boxes. Where accumulators are not plain numbers, or arrays would be too large, each
selection adds up its own tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import is_numeric
from transom.columns.arrays import Ints, Mask
from transom.kernel.dense_cells import Lifted, add_cells, add_pieces, lift_numbers, pieces, sheet_rows
from transom.kernel.fold import alone
from transom.kernel.grid_blocks import GridBlock, GridBlocks, box_ranges, coarse_codes
from transom.kernel.rows import FamilyTuples, Ranges, wanted_by
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.windows.slices import Slices, slices

LONG_BOX_ROWS = 64  # rows of at least so many numbers are added box by box


@dataclass
class GridFold:
    """The slices of a grid family's members, the tuples of each member, and which tuples some member wants."""

    rows: Ints
    wanted: Mask
    tables: list[tuple[Layout, pa.Table]]


def fold_grid(family: Family, tuples: FamilyTuples, limits: Limits) -> GridFold:
    """The slices of all members of a grid family."""
    done = GridFold(np.zeros(len(family), np.int64), np.zeros(len(tuples), bool), [])
    if not len(tuples):
        return done
    low, high = int(tuples.times.min()), int(tuples.times.max())
    members = range(len(family))
    if family.cut.count(low, high) > limits.edges_per_tuple * len(tuples) + limits.spare_edges:
        _fold_members(family, tuples, None, members, done)
        return done
    cut = slices(family.cut, len(family), low, high)
    if limits.grid_fold == "members" or not is_numeric([slot.accumulator for slot in family.slots]):
        _fold_members(family, tuples, cut, members, done)
        return done
    cells = _GridCells(family, tuples, cut, limits)
    for block in GridBlocks(family, tuples, cut, limits.dense_cells):
        if block.cells > limits.dense_cells:
            _fold_members(family, tuples, cut, block.members.tolist(), done)
        else:
            done.tables += cells.fold(block, done)
    return done


# --- selection by selection ---


def _fold_members(
    family: Family, tuples: FamilyTuples, cut: Slices | None, members: Sequence[int], done: GridFold
) -> None:
    """Add up the tuples of each member by themselves; without slices, where tuples are far apart in time."""
    fine = None if cut is None else cut.of(tuples.times, tuples.in_order)
    for member in members:
        wanted = wanted_by(family, tuples, member)
        chosen = np.flatnonzero(wanted)
        done.rows[member] = len(chosen)
        done.wanted |= wanted
        if cut is None or fine is None:
            starts, stops = family.cut.around(tuples.times[chosen], member)
        else:
            first, last = int(cut.bounds[member]), int(cut.bounds[member + 1])
            numbers = first + coarse_codes(cut.firsts[first:last], cut.fine)[fine[chosen]]
            starts, stops = cut.starts[numbers], cut.stops[numbers]
        done.tables.append(alone(family, member, tuples, chosen, starts, stops, merged=True))


# --- cell by cell ---


class _GridCells:
    """The tuples of a grid family, to be added to the cells of its blocks."""

    def __init__(self, family: Family, tuples: FamilyTuples, cut: Slices, limits: Limits):
        assert family.grid is not None
        self.family, self.grid, self.tuples, self.cut = family, family.grid, tuples, cut
        self.short = limits.short_range
        self.fine = cut.of(tuples.times, tuples.in_order)
        self.lifted = [lift_numbers(tuples, place, slot) for place, slot in enumerate(family.slots)]
        self._orders: dict[int, tuple[Ints, Ints]] = {}

    def fold(self, block: GridBlock, done: GridFold) -> Iterator[tuple[Layout, pa.Table]]:
        """The slices of a block's members."""
        at = self._tuples_of(block)
        fragments, at = self._inside(block, at, done)
        codes = coarse_codes(block.edges, self.cut.fine)[self.fine if at is None else self.fine[at]]
        codes += fragments * len(block.edges)
        groups = self.tuples.group_count
        if self.tuples.groups is not None:
            group_codes = self.tuples.groups.codes
            codes = codes * groups + (group_codes if at is None else group_codes[at])
        shape = *(len(borders) for borders in block.borders), len(block.edges) * groups
        cells = int(np.prod(shape))
        lifted = (
            self.lifted if at is None else [_taken(numbers, at, len(self.tuples)) for numbers in self.lifted]
        )
        arrays: list[tuple[np.ufunc, np.ndarray]] = [(np.add, np.bincount(codes, minlength=cells))]
        places = [add_cells(arrays, numbers, codes, cells) for numbers in lifted]
        ranges = [box_ranges(self.grid, block, axis) for axis in range(len(self.grid.axes))]
        parts = pieces(Ranges(np.arange(len(block.boxes)), *ranges[0]), len(block.borders[0]) - 1, self.short)
        summed = []
        for ufunc, array in arrays:
            boxes = _add_axes(
                ufunc, add_pieces(ufunc, array.reshape(shape), parts, len(block.borders[0]) - 1), ranges
            )
            summed.append(self._slices(ufunc, boxes, block, groups))
        owners = block.members[block.which]
        done.rows += np.bincount(owners, summed[0].sum(axis=1), len(self.family)).astype(np.int64)
        yield from sheet_rows(
            self.family, self.tuples, self.cut, owners, block.slice_numbers, summed, lifted, places
        )

    def _tuples_of(self, block: GridBlock) -> Ints | None:
        """The tuples in the block's hull; None: all, or nearly."""
        if block.tuples * 2 > len(self.tuples):
            return None
        if block.narrow not in self._orders:
            codes = self.tuples.axis_codes[block.narrow]
            order = np.argsort(codes, kind="stable")
            self._orders[block.narrow] = order, codes[order]
        order, in_order = self._orders[block.narrow]
        start, stop = np.searchsorted(in_order, block.hull)
        return order[start:stop]

    def _inside(self, block: GridBlock, at: Ints | None, done: GridFold) -> tuple[Ints, Ints | None]:
        """The fragments of tuples, over all axes, and the tuples; those in no box are left out if they are many."""
        fragments: Ints | None = None
        stride = 1
        for place in reversed(range(len(self.grid.axes))):
            codes = self.tuples.axis_codes[place]
            table = coarse_codes(block.borders[place], self.grid.axes[place].size) * stride
            stride *= len(block.borders[place])
            here = table[codes if at is None else codes[at]]
            fragments = here if fragments is None else np.add(fragments, here, out=fragments)
        assert fragments is not None
        inside = self._wanted_fragments(block)[fragments]
        if at is None:
            done.wanted |= inside
        else:
            done.wanted[at[inside]] = True
        if 3 * np.count_nonzero(inside) < 2 * len(inside):
            chosen = np.flatnonzero(inside)
            return fragments[chosen], chosen if at is None else at[chosen]
        return fragments, at

    def _wanted_fragments(self, block: GridBlock) -> Mask:
        """Which fragments lie in a box of the block."""
        wanted = np.zeros([len(borders) for borders in block.borders], bool)
        ends = [box_ranges(self.grid, block, axis) for axis in range(len(self.grid.axes))]
        for ranges in zip(
            *(zip(*(side.tolist() for side in pair), strict=True) for pair in ends), strict=True
        ):
            wanted[tuple(slice(start, stop) for start, stop in ranges)] = True
        return wanted.reshape(-1)

    def _slices(self, ufunc: np.ufunc, boxes: np.ndarray, block: GridBlock, groups: int) -> np.ndarray:
        """The cells of boxes (box, slice and group), added up to the slices of the members."""
        owners = self.grid.owners[block.boxes]
        firsts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        by_member = ufunc.reduceat(boxes, firsts, axis=0) if len(firsts) < len(boxes) else boxes
        flat = by_member.reshape(-1, groups)
        if len(flat) == len(block.slice_numbers):
            return flat
        begins = np.searchsorted(block.edges, self.cut.firsts[block.slice_numbers])
        starts = block.which * len(block.edges) + begins
        if groups == 1:
            return ufunc.reduceat(flat[:, 0], starts)[:, None]
        return ufunc.reduceat(flat, starts, axis=0)


def _taken(lifted: Lifted, at: Ints, tuples: int) -> Lifted:
    """The numbers that some tuples contribute."""
    numbers, present = lifted.numbers, lifted.present
    if present is None:
        return Lifted(lifted.form, None if numbers is None else numbers[at], None)
    here = present[at]
    if numbers is None:
        return Lifted(lifted.form, None, here)
    places = np.cumsum(present) - 1  # of the tuples among those that contribute
    return Lifted(lifted.form, numbers[places[at[here]]], here)


def _add_axes(ufunc: np.ufunc, boxes: np.ndarray, ranges: Sequence[tuple[Ints, Ints]]) -> np.ndarray:
    """An array (box, fragment on each further axis, slice and group), added up over the boxes' fragments."""
    for starts, stops in ranges[1:]:
        count, fragments, *others = boxes.shape
        length = int(np.prod(others))
        if length >= LONG_BOX_ROWS:
            flat = boxes.reshape(count, fragments, length)
            added = np.empty((count, length), boxes.dtype)
            for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
                ufunc.reduce(flat[place, start:stop], axis=0, out=added[place])
        else:
            rows = boxes.reshape(count * fragments, length)
            ends = (np.stack([starts, stops], axis=1) + np.arange(count)[:, None] * fragments).reshape(-1)
            ends = ends[:-1] if ends[-1] == len(rows) else ends
            added = ufunc.reduceat(rows, ends, axis=0)[::2]
        boxes = added.reshape(count, *others)
    return boxes
