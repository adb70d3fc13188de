"""Cells as dense arrays: (fragment, slice, group), where accumulators are plain numbers.

A member wants ranges of fragments and runs of slices. Running sums from either end answer one-sided ranges, a
tree of sums answers all others, and one pass adds up the runs of slices of all members. Where members have
many different windows and constants, most cells of one array would be empty. Then neighbours on the axis form
blocks, and each block has an array with just the fragments and slices that its members distinguish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import CountRows
from transom.aggregates.numeric import (
    NumericForm,
    Values,
    contributions,
    expand_runs,
    is_numeric,
    numeric_form,
)
from transom.columns.arrays import Ints, Mask
from transom.columns.groups import sorted_distinct
from transom.kernel.rows import FamilyTuples, Ranges, leading_columns
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.windows.slices import Slices

LONG_ROWS = 128  # rows of at least so many numbers are added one by one
RAW_CELLS, SUFFIX_CELLS, PREFIX_CELLS, TREE_CELLS = 0, 1, 2, 3


@dataclass(frozen=True)
class Pieces:
    """The rows of the arrays in `_sources` that members add up, each by its kind and index.

    `firsts` is where the pieces of each member begin; members without any are left out.
    """

    kinds: Ints
    indexes: Ints
    firsts: Ints
    members: Ints

    @cached_property
    def by_kind(self) -> list[tuple[int, Ints, Ints]]:
        """Each kind with the places of its pieces and their indexes."""
        places = ((kind, np.flatnonzero(self.kinds == kind)) for kind in sorted_distinct(self.kinds).tolist())
        return [(kind, at, self.indexes[at]) for kind, at in places]


@dataclass(frozen=True)
class Block:
    """Some members, with the fragments and slices that they distinguish: coarser ones than the family's.

    `fragment_of` and `slice_of` translate fragments and slices of the family; None: they are the same.
    `slice_numbers` are the slices of the members, as numbers among those of all members. `begins` is the first
    of the block's slices in each, and `which` its member, as a place in `parts.members`.
    """

    fragments: int
    ordered: int
    slices: int
    parts: Pieces
    slice_numbers: Ints
    begins: Ints
    which: Ints
    fragment_of: Ints | None = None
    slice_of: Ints | None = None


@dataclass(frozen=True)
class Lifted:
    """The numbers that tuples contribute to a slot, and which tuples contribute one if not all do."""

    form: NumericForm
    numbers: Values | None  # None: one for each tuple
    present: Mask | None


def dense(
    family: Family, tuples: FamilyTuples, cut: Slices, limits: Limits
) -> Iterator[tuple[Layout, pa.Table]] | None:
    """The slices of all members, by layout; None where arrays would be too large or do not apply."""
    if not is_numeric([slot.accumulator for slot in family.slots]):
        return None
    size = _block_size(family, tuples, cut, limits)
    if size is None:
        return None
    if family.axis is not None and limits.block_members is not None:
        size = min(size, limits.block_members)
    return _dense(family, tuples, cut, size, limits.short_range)


def _block_size(family: Family, tuples: FamilyTuples, cut: Slices, limits: Limits) -> int | None:
    """The number of members in a block; None: arrays would be too large with any number."""
    members, groups, enough = (
        len(family),
        tuples.group_count,
        limits.dense_cells_per_tuple * len(tuples) + (1 << 16),
    )
    cells = tuples.fragments.count * cut.fine * groups
    if cells <= min(enough, limits.dense_cells):
        return members
    if tuples.fragments.ordered == tuples.fragments.count or family.axis is None:
        gathered = len(tuples.fragments.ranges.owners) * cut.fine * groups
        return members if max(cells, gathered // 4) <= min(64 * enough, limits.dense_cells) else None
    per_member = max(1.0, len(cut.starts) / members)
    size = max(1, int((max(len(tuples), 1 << 12) / (per_member * groups)) ** 0.5))
    ranges = -(-len(tuples.fragments.ranges.owners) // members)
    coarse = (2 * ranges * size + 3) * min(cut.fine, per_member * size + 1) * groups
    return size if coarse <= min(64 * enough, limits.dense_cells) else None


def _dense(
    family: Family, tuples: FamilyTuples, cut: Slices, size: int, short: int
) -> Iterator[tuple[Layout, pa.Table]]:
    fine, groups = cut.of(tuples.times, tuples.in_order), tuples.group_count
    lifted = [lift_numbers(tuples, place, slot) for place, slot in enumerate(family.slots)]
    for block in _blocks(tuples, cut, len(family), size, short):
        codes = fine if block.slice_of is None else block.slice_of[fine]
        fragments = tuples.fragments.codes
        if fragments is not None:
            fragments = fragments if block.fragment_of is None else block.fragment_of[fragments]
            codes = fragments * block.slices + codes
        if tuples.groups is not None:
            codes = codes * groups + tuples.groups.codes
        shape = block.fragments, block.slices, groups
        arrays: list[tuple[np.ufunc, np.ndarray]] = [(np.add, tuples.counted(codes, int(np.prod(shape))))]
        places = [add_cells(arrays, slot_numbers, codes, int(np.prod(shape))) for slot_numbers in lifted]
        summed = [_folded(ufunc, array.reshape(shape), block) for ufunc, array in arrays]
        members = block.parts.members[block.which]
        yield from sheet_rows(family, tuples, cut, members, block.slice_numbers, summed, lifted, places)


# --- blocks ---


def _blocks(tuples: FamilyTuples, cut: Slices, members: int, size: int, short: int) -> Iterator[Block]:
    fragments = tuples.fragments
    if size >= members:
        parts = pieces(fragments.ranges, fragments.ordered, short)
        slice_numbers, which = expand_runs(cut.bounds[parts.members], cut.bounds[parts.members + 1])
        begins = cut.firsts[slice_numbers]
        yield Block(fragments.count, fragments.ordered, cut.fine, parts, slice_numbers, begins, which)
        return
    first = np.full(members, fragments.count)
    np.minimum.at(first, fragments.ranges.owners, fragments.ranges.starts)
    rank = np.empty(members, np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(members)
    block_of = rank[fragments.ranges.owners] // size
    for number in range(-(-members // size)):
        ranges = fragments.ranges.of(block_of == number)
        if len(ranges.owners):
            yield _block(ranges, fragments.count, fragments.ordered, cut, short)


def _block(ranges: Ranges, count: int, ordered: int, cut: Slices, short: int) -> Block:
    borders = sorted_distinct(np.concatenate([[0, ordered], ranges.starts, ranges.stops]))
    borders = borders[borders < count]
    fragment_of = np.searchsorted(borders, np.arange(count), side="right") - 1
    coarse = Ranges(
        ranges.owners, np.searchsorted(borders, ranges.starts), np.searchsorted(borders, ranges.stops)
    )
    in_order = int(np.searchsorted(borders, ordered))
    parts = pieces(coarse, in_order, short)
    slice_numbers, which = expand_runs(cut.bounds[parts.members], cut.bounds[parts.members + 1])
    edges = sorted_distinct(cut.firsts[slice_numbers])  # begins with 0
    slice_of = np.searchsorted(edges, np.arange(cut.fine), side="right") - 1
    begins = np.searchsorted(edges, cut.firsts[slice_numbers])
    return Block(
        len(borders), in_order, len(edges), parts, slice_numbers, begins, which, fragment_of, slice_of
    )


def pieces(ranges: Ranges, ordered: int, short: int) -> Pieces:
    """The fewest rows that add up to each range, where the fragments below `ordered` are in order.

    Ranges of at most `short` fragments are added up fragment by fragment. Ranges remember their pieces.
    """
    known: dict[tuple[int, int], Pieces] = ranges.__dict__.setdefault("_pieces", {})
    if (ordered, short) not in known:
        known[ordered, short] = _pieces(ranges, ordered, short)
    return known[ordered, short]


def _pieces(ranges: Ranges, ordered: int, short: int) -> Pieces:
    kinds, indexes, owners = [], [], []
    left = ranges.starts < ranges.stops
    for chosen, kind, at in (
        (ranges.stops - ranges.starts == 1, RAW_CELLS, ranges.starts),
        (ranges.stops == ordered, SUFFIX_CELLS, ranges.starts),
        ((ranges.starts == 0) & (ranges.stops <= ordered), PREFIX_CELLS, ranges.stops - 1),
    ):
        chosen = chosen & left
        kinds.append(np.full(int(chosen.sum()), kind))
        indexes.append(at[chosen])
        owners.append(ranges.owners[chosen])
        left &= ~chosen
    for i in np.flatnonzero(left):
        nodes = _nodes(int(ranges.starts[i]), int(ranges.stops[i]), short)
        kinds.append(np.array([kind for kind, _ in nodes]))
        indexes.append(np.array([index for _, index in nodes]))
        owners.append(np.full(len(nodes), ranges.owners[i]))
    whose = np.concatenate(owners).astype(np.int64)
    order = np.argsort(whose, kind="stable")
    whose = whose[order]
    firsts = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]]) if len(whose) else whose
    all_kinds, all_indexes = (np.concatenate(parts).astype(np.int64)[order] for parts in (kinds, indexes))
    return Pieces(all_kinds, all_indexes, firsts, whose[firsts])


def _nodes(start: int, stop: int, short: int) -> list[tuple[int, int]]:
    """A range as nodes (TREE_CELLS + level, index) of a binary tree over the fragments; level 0 are these.

    >>> _nodes(3, 14, short=8)
    [(0, 3), (4, 6), (5, 1), (5, 2)]
    """
    if stop - start <= short:
        return [(RAW_CELLS, index) for index in range(start, stop)]
    parts, level = [], 0
    while start < stop:
        kind = TREE_CELLS + level if level else RAW_CELLS
        if start & 1:
            parts.append((kind, start))
            start += 1
        if stop & 1:
            stop -= 1
            parts.append((kind, stop))
        start, stop, level = start >> 1, stop >> 1, level + 1
    return parts


# --- arrays ---


def lift_numbers(tuples: FamilyTuples, place: int, slot: Slot) -> Lifted:
    """The numbers that the tuples contribute to the slot at a place."""
    form, shown = numeric_form(slot.accumulator), tuples.shown[place]
    assert form is not None
    if isinstance(slot.accumulator, CountRows) and (tuples.cells is None or slot.where is None):
        return Lifted(form, None, shown)
    if tuples.cells is not None:
        numbers, valid = form.values(tuples.cells.states[slot.id][0])
    else:
        numbers, valid = contributions(form, slot.accumulator, tuples.values[place])
    present = valid if shown is None else shown if valid is None else shown & valid
    return Lifted(form, numbers if present is None else numbers[present], present)


def add_cells(
    arrays: list[tuple[np.ufunc, np.ndarray]], lifted: Lifted, codes: Ints, cells: int
) -> tuple[int, int | None]:
    """Append the cells of a slot to arrays; the places of its values, and of the counts that say where it has any."""
    if lifted.numbers is None and lifted.present is None:
        return 0, None  # the count of all tuples, which is there already
    if lifted.present is not None:
        codes = codes[lifted.present]
    place = len(arrays)
    if lifted.numbers is None:
        arrays.append((np.add, np.bincount(codes, minlength=cells)))
        return place, None
    arrays.append((lifted.form.ufunc, lifted.form.gathered(lifted.numbers, codes, cells)))
    if lifted.form.counts:
        return place, None
    if lifted.present is None:
        return place, 0
    arrays.append((np.add, np.bincount(codes, minlength=cells)))
    return place, place + 1


def _folded(ufunc: np.ufunc, cube: np.ndarray, block: Block) -> np.ndarray:
    """A cube (fragment, slice, group) as (slices of the members one after the other, group)."""
    parts = block.parts
    if len(cube) == 1:
        rows = np.repeat(cube, len(parts.members), axis=0) if len(parts.members) > 1 else cube
    else:
        rows = add_pieces(ufunc, cube, parts, block.ordered)
    members, slices, groups = rows.shape
    flat = rows.reshape(members * slices, groups)
    if len(block.slice_numbers) == len(flat):
        return flat
    starts = block.which * slices + block.begins
    return (
        ufunc.reduceat(flat[:, 0], starts)[:, None] if groups == 1 else ufunc.reduceat(flat, starts, axis=0)
    )


def add_pieces(ufunc: np.ufunc, cube: np.ndarray, parts: Pieces, ordered: int) -> np.ndarray:
    """The rows of a cube added up for each member, by its pieces."""
    rows = np.empty((len(parts.kinds), *cube.shape[1:]), cube.dtype)
    sources = _sources(ufunc, cube, {kind for kind, _, _ in parts.by_kind}, ordered)
    for (_, places, indexes), source in zip(parts.by_kind, sources, strict=True):
        rows[places] = source[indexes]
    return ufunc.reduceat(rows, parts.firsts, axis=0) if len(parts.firsts) < len(rows) else rows


def _sources(ufunc: np.ufunc, cube: np.ndarray, kinds: set[int], ordered: int) -> Iterator[np.ndarray]:
    """The arrays that pieces are rows of, by kind: the cube, its running sums from either end, the levels of a tree."""
    if RAW_CELLS in kinds:
        yield cube
    if SUFFIX_CELLS in kinds:
        yield _running(ufunc, cube[:ordered][::-1])[::-1]
    if PREFIX_CELLS in kinds:
        yield _running(ufunc, cube[:ordered])
    level, at = 0, cube
    while kinds and max(kinds) > TREE_CELLS + level:
        even = len(at) // 2 * 2
        at, level = ufunc(at[0:even:2], at[1:even:2]), level + 1
        if TREE_CELLS + level in kinds:
            yield at


def _running(ufunc: np.ufunc, cube: np.ndarray) -> np.ndarray:
    """`ufunc.accumulate` along the first axis.

    For each number it steps through all rows of memory, so that long rows are added one by one instead.
    """
    if not len(cube) or cube[0].size < LONG_ROWS:
        running: np.ndarray = ufunc.accumulate(cube, axis=0)
        return running
    running = np.empty(cube.shape, cube.dtype)
    running[0] = cube[0]
    for i in range(1, len(cube)):
        ufunc(running[i - 1], cube[i], out=running[i])
    return running


def sheet_rows(
    family: Family,
    tuples: FamilyTuples,
    cut: Slices,
    members: Ints,
    slice_numbers: Ints,
    summed: Sequence[np.ndarray],
    lifted: Sequence[Lifted],
    places: Sequence[tuple[int, int | None]],
) -> Iterator[tuple[Layout, pa.Table]]:
    """The slices that hold tuples, as rows of sheets; `summed` has a row for each member and slice."""
    at, groups = np.nonzero(summed[0])
    owners = members[at]
    bounds = [0, len(at)]
    if len(family.by_layout) > 1:  # all cells in the order of their layouts, so that each has a run of them
        layouts = family.layout_of[owners]
        order = np.argsort(layouts, kind="stable")
        at, groups, owners = at[order], groups[order], owners[order]
        bounds = np.searchsorted(layouts[order], np.arange(len(family.by_layout) + 1)).tolist()
    leading = leading_columns(family, tuples, cut, owners, slice_numbers[at], groups)
    leading.append(pa.array(summed[0][at, groups]))
    for (layout, _, slots), (start, stop) in zip(family.by_layout, pairwise(bounds), strict=True):
        if start == stop:
            continue
        picked, group_of = at[start:stop], groups[start:stop]
        columns = [column.slice(start, stop - start) for column in leading]
        for slot in slots:
            place, counted = places[slot]
            present = None if counted is None else summed[counted][picked, group_of] > 0
            columns.append(lifted[slot].form.column(summed[place][picked, group_of], present))
        yield layout, pa.Table.from_arrays(columns, schema=layout.schema)
