"""Fold the tuples of a grid family: selections over several scalars, each a union of boxes.

For each block of selections every tuple is added to one cell: (fragment on each axis, slice, group). A selection
adds up the cells in its boxes. Where accumulators are not plain numbers, or arrays would be too large, each
selection adds up its own tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

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


@dataclass(frozen=True)
class _InOrder:
    """The tuples of a grid family in the order of their codes on one axis, so that a block reads a run of them."""

    numbers: Ints  # of the tuples
    codes: Sequence[Ints]  # on each axis
    fine: Ints
    groups: Ints | None
    lifted: Sequence[Lifted]  # with a number for every tuple
    below: Ints  # the number of tuples with a lower code, for each code

    def run(self, start: int, stop: int) -> _InOrder:
        """The tuples of a run of codes."""
        return self._at(slice(int(self.below[start]), int(self.below[stop])))

    def at(self, chosen: Ints) -> _InOrder:
        """Some of the tuples."""
        return self._at(chosen)

    def _at(self, which: slice | Ints) -> _InOrder:
        return _InOrder(
            self.numbers[which],
            [codes[which] for codes in self.codes],
            self.fine[which],
            None if self.groups is None else self.groups[which],
            [_taken(lifted, which) for lifted in self.lifted],
            self.below,
        )


class _GridCells:
    """The tuples of a grid family, to be added to the cells of its blocks."""

    def __init__(self, family: Family, tuples: FamilyTuples, cut: Slices, limits: Limits):
        assert family.grid is not None
        self.family, self.grid, self.tuples, self.cut = family, family.grid, tuples, cut
        self.short = limits.short_range
        fine = cut.of(tuples.times, tuples.in_order)
        lifted = [
            _with_all_numbers(lift_numbers(tuples, place, slot)) for place, slot in enumerate(family.slots)
        ]
        groups = None if tuples.groups is None else tuples.groups.codes
        self.all = _InOrder(np.arange(len(tuples)), tuples.axis_codes, fine, groups, lifted, fine[:0])
        self._by_axis: dict[int, _InOrder] = {}

    def fold(self, block: GridBlock, done: GridFold) -> Iterator[tuple[Layout, pa.Table]]:
        """The slices of a block's members."""
        ranges = box_ranges(self.grid, block)
        fragments, chosen = self._inside(block, ranges, done)
        codes = coarse_codes(block.edges, self.cut.fine)[chosen.fine]
        codes += fragments * len(block.edges)
        groups = self.tuples.group_count
        if chosen.groups is not None:
            codes = codes * groups + chosen.groups
        shape = *(len(borders) for borders in block.borders), len(block.edges) * groups
        cells = int(np.prod(shape))
        lifted = [_of_present(numbers) for numbers in chosen.lifted]
        arrays: list[tuple[np.ufunc, np.ndarray]] = [(np.add, np.bincount(codes, minlength=cells))]
        places = [add_cells(arrays, numbers, codes, cells) for numbers in lifted]
        ordered = len(block.borders[0]) - 1  # the last fragment is null
        parts = pieces(Ranges(np.arange(len(block.boxes)), *ranges[0]), ordered, self.short)
        summed = []
        for ufunc, array in arrays:
            first_added = add_pieces(ufunc, array.reshape(shape), parts, ordered)
            summed.append(self._slices(ufunc, _add_axes(ufunc, first_added, ranges), block, groups))
        owners = block.members[block.which]
        done.rows += np.bincount(owners, summed[0].sum(axis=1), len(self.family)).astype(np.int64)
        yield from sheet_rows(
            self.family, self.tuples, self.cut, owners, block.slice_numbers, summed, lifted, places
        )

    def _by(self, axis: int) -> _InOrder:
        """The tuples in the order of an axis."""
        if axis not in self._by_axis:
            codes, size = self.tuples.axis_codes[axis], self.grid.axes[axis].size
            order = np.argsort(codes.astype(np.uint16) if size < 1 << 16 else codes, kind="stable")
            below = np.r_[0, np.cumsum(np.bincount(codes, minlength=size))]
            self._by_axis[axis] = replace(self.all.at(order), below=below)
        return self._by_axis[axis]

    def _inside(
        self, block: GridBlock, ranges: Sequence[tuple[Ints, Ints]], done: GridFold
    ) -> tuple[Ints, _InOrder]:
        """The fragments of tuples, over all axes, and the tuples; those in no box are left out if they are many."""
        chosen = self._by(block.narrow).run(*block.hull)
        fragments: Ints | None = None
        stride = 1
        for place in reversed(range(len(self.grid.axes))):
            table = coarse_codes(block.borders[place], self.grid.axes[place].size) * stride
            stride *= len(block.borders[place])
            here = table[chosen.codes[place]]
            fragments = here if fragments is None else np.add(fragments, here, out=fragments)
        assert fragments is not None
        inside = _wanted_fragments(block, ranges)[fragments]
        at = np.flatnonzero(inside)
        done.wanted[chosen.numbers[at]] = True
        if 3 * len(at) < 2 * len(inside):
            return fragments[at], chosen.at(at)
        return fragments, chosen

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


def _wanted_fragments(block: GridBlock, ranges: Sequence[tuple[Ints, Ints]]) -> Mask:
    """Which fragments lie in a box of the block."""
    corners = np.zeros([len(borders) + 1 for borders in block.borders], np.int32)
    for sides in product((0, 1), repeat=len(ranges)):
        at = tuple(pair[side] for pair, side in zip(ranges, sides, strict=True))
        np.add.at(corners, at, -1 if sum(sides) % 2 else 1)
    for axis in range(len(ranges)):
        np.cumsum(corners, axis=axis, out=corners)
    return (corners[(slice(-1),) * len(ranges)] > 0).reshape(-1)


def _with_all_numbers(lifted: Lifted) -> Lifted:
    """Numbers for every tuple; where a tuple contributes none, the number is arbitrary."""
    if lifted.numbers is None or lifted.present is None:
        return lifted
    numbers = np.zeros(len(lifted.present), lifted.numbers.dtype)
    numbers[lifted.present] = lifted.numbers
    return Lifted(lifted.form, numbers, lifted.present)


def _of_present(lifted: Lifted) -> Lifted:
    """Only the numbers of tuples that contribute one."""
    if lifted.numbers is None or lifted.present is None:
        return lifted
    return Lifted(lifted.form, lifted.numbers[lifted.present], lifted.present)


def _taken(lifted: Lifted, which: slice | Ints) -> Lifted:
    """The numbers of some tuples."""
    numbers, present = lifted.numbers, lifted.present
    return Lifted(
        lifted.form, None if numbers is None else numbers[which], None if present is None else present[which]
    )


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
