"""A family over the rows of a page: fragments and slices at once, folded into each selection's slices.

Tuples are aggregated once for all members, into cells: (fragment, slice, group). What a member asks for is
ranges of fragments and runs of slices. Where accumulators are plain numbers and cells not too many, they are
a dense array: sums from either end answer one-sided ranges, a tree of sums all others, and runs of
slices are added up in one sweep. Everything else is expanded into (cell, member) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.accumulators import CountRows, States, lifted
from transom.aggregates.numeric import NumericForm, expanded, is_numeric, lifted_form, numeric_form
from transom.algorithms.grouping import Groups, each_alone, group
from transom.algorithms.slicing import Slices, slices
from transom.plan.families import Family
from transom.plan.layout import Layout

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_CELLS = 1 << 22  # of a dense array
CELLS_PER_ROW = 256
MOST_PAIRS = 1 << 22  # that are expanded at once
SHORT = 8  # ranges of so many fragments are added up one by one


@dataclass(frozen=True)
class Ranges:
    """Which fragments each member asks for: half-open runs of codes, in the order of the members."""

    owners: Numbers
    starts: Numbers
    stops: Numbers


@dataclass(frozen=True)
class Fragmented:
    """Tuples with their fragments: `codes` below `count`, of which the last may stand for null."""

    codes: Numbers | None  # None: there is only one
    count: int
    ranges: Ranges

    def among(self, chosen: Mask, tuples: int) -> Mask:
        """Which tuples have a fragment in one of the chosen ranges."""
        borders = np.zeros(self.count + 1, np.int64)
        np.add.at(borders, self.ranges.starts[chosen], 1)
        np.add.at(borders, self.ranges.stops[chosen], -1)
        asked = np.cumsum(borders)[:-1] > 0
        return asked[self.codes] if self.codes is not None else np.full(tuples, asked[0])


@dataclass(frozen=True)
class Tuples:
    """The tuples of a page that may belong to a family.

    `values[i]` is what the family's i-th slot accumulates, and `shown[i]` which tuples it is shown.
    """

    times: Numbers
    fragments: Fragmented
    groups: Groups | None  # None: there is only one
    keys: Sequence[pa.Array]  # one row a group
    values: Sequence[pa.Array]
    shown: Sequence[Mask | None]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def group_count(self) -> int:
        return 1 if self.groups is None else self.groups.count


def fold(family: Family, tuples: Tuples) -> Iterator[tuple[Layout, pa.Table]]:
    """The members' slices of some tuples, by layout."""
    if not len(tuples):
        return
    if not family.members[0].merged:
        yield from _every_row(family, tuples)
        return
    low, high = int(tuples.times.min()), int(tuples.times.max())
    members = len(family.members)
    if family.cut.count(low, high) > 8 * len(tuples) + (1 << 16):
        yield from _scattered(family, tuples)
        return
    cut = slices(family.cut, members, low, high)
    cells = cut.fine * tuples.fragments.count * tuples.group_count
    fits = cells <= min(MOST_CELLS, CELLS_PER_ROW * len(tuples) + (1 << 16))
    if fits and is_numeric([slot.accumulator for slot in family.slots]):
        yield from _dense(family, tuples, cut)
    else:
        yield from _sparse(family, tuples, cut)


# --- dense ---


@dataclass(frozen=True)
class Pieces:
    """What members add up, as rows of the arrays that are made of the fragments: see `_sources`."""

    kinds: Numbers
    indexes: Numbers
    firsts: Numbers  # where each member's pieces begin
    members: Numbers  # those that have any


RAW, SUFFIX, PREFIX, TREE = 0, 1, 2, 3


def pieces(ranges: Ranges, end: int) -> Pieces:
    """The fewest rows that make up each range, where fragments from 0 to `end` are in order."""
    kinds, indexes, owners = [], [], []
    simple = np.ones(len(ranges.owners), bool)
    lengths = ranges.stops - ranges.starts
    for chosen, kind, at in (
        (lengths == 1, RAW, ranges.starts),
        ((ranges.stops == end) & (ranges.starts < end), SUFFIX, ranges.starts),
        ((ranges.starts == 0) & (ranges.stops <= end), PREFIX, ranges.stops - 1),
    ):
        chosen = chosen & simple
        kinds.append(np.full(int(chosen.sum()), kind))
        indexes.append(at[chosen])
        owners.append(ranges.owners[chosen])
        simple &= ~chosen
    for i in np.flatnonzero(simple):
        parts = _tree_parts(int(ranges.starts[i]), int(ranges.stops[i]))
        kinds.append(np.array([kind for kind, _ in parts]))
        indexes.append(np.array([index for _, index in parts]))
        owners.append(np.full(len(parts), ranges.owners[i]))
    whose = np.concatenate(owners).astype(np.int64)
    order = np.argsort(whose, kind="stable")
    whose = whose[order]
    firsts = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]]) if len(whose) else whose
    return Pieces(
        np.concatenate(kinds).astype(np.int64)[order],
        np.concatenate(indexes).astype(np.int64)[order],
        firsts,
        whose[firsts],
    )


def _tree_parts(start: int, stop: int) -> list[tuple[int, int]]:
    """A range as nodes (TREE + level, index) of a binary tree over the fragments; level 0 are these."""
    if stop - start <= SHORT:
        return [(RAW, index) for index in range(start, stop)]
    parts, level = [], 0
    while start < stop:
        if start & 1:
            parts.append((TREE + level if level else RAW, start))
            start += 1
        if stop & 1:
            stop -= 1
            parts.append((TREE + level if level else RAW, stop))
        start, stop, level = start >> 1, stop >> 1, level + 1
    return parts


def _dense(family: Family, tuples: Tuples, cut: Slices) -> Iterator[tuple[Layout, pa.Table]]:
    fragments, groups = tuples.fragments, tuples.group_count
    codes = cut.of(tuples.times)
    if fragments.codes is not None:
        codes = fragments.codes * cut.fine + codes
    if tuples.groups is not None:
        codes = codes * groups + tuples.groups.codes
    cells = fragments.count * cut.fine * groups
    counts = np.bincount(codes, minlength=cells)
    arrays: list[tuple[np.ufunc, np.ndarray]] = [(np.add, counts)]
    forms: list[tuple[NumericForm, int, int | None]] = []  # and where its values and its counts are
    for slot, values, shown in zip(family.slots, tuples.values, tuples.shown, strict=True):
        if isinstance(slot.accumulator, CountRows) and shown is None:
            forms.append((numeric_form(slot.accumulator), 0, None))  # type: ignore[arg-type]
            continue
        forms.append(_gathered(arrays, slot.accumulator, values, shown, codes, cells))
    end = fragments.count - 1 if family.axis is not None else fragments.count  # null is in no order
    parts = pieces(fragments.ranges, end)
    size = max(1, MOST_CELLS // (cut.fine * groups))
    for start in range(0, len(parts.members), size):
        chunk = _part(parts, start, start + size)
        summed = [
            _folded(ufunc, array.reshape(fragments.count, cut.fine, groups), chunk, cut, end)
            for ufunc, array in arrays
        ]
        yield from _presented(family, tuples, cut, chunk.members, summed, forms)


def _gathered(
    arrays: list[tuple[np.ufunc, np.ndarray]],
    accumulator: object,
    values: pa.Array,
    shown: Mask | None,
    codes: Numbers,
    cells: int,
) -> tuple[NumericForm, int, int | None]:
    """Put a slot's cells into arrays: its values and, unless every tuple has one, how many there are."""
    form = numeric_form(accumulator)  # type: ignore[arg-type]
    assert form is not None
    numbers, valid = lifted_form(form, accumulator, values)  # type: ignore[arg-type]
    present = valid if shown is None else shown if valid is None else shown & valid
    if present is not None:
        codes, numbers = codes[present], numbers[present]
    arrays.append((form.ufunc, form.gathered(numbers, codes, cells)))
    place = len(arrays) - 1
    if present is None or form.counts:
        return form, place, None if form.counts else 0
    arrays.append((np.add, np.bincount(codes, minlength=cells)))
    return form, place, place + 1


def _part(parts: Pieces, start: int, stop: int) -> Pieces:
    members = parts.members[start:stop]
    if len(members) == len(parts.members):
        return parts
    low = parts.firsts[start]
    high = parts.firsts[stop] if stop < len(parts.firsts) else len(parts.kinds)
    return Pieces(parts.kinds[low:high], parts.indexes[low:high], parts.firsts[start:stop] - low, members)


def _folded(ufunc: np.ufunc, cube: np.ndarray, parts: Pieces, cut: Slices, end: int) -> np.ndarray:
    """A cube (fragment, fine slice, group) as (slices of the members one after the other, group)."""
    if len(cube) == 1:
        rows = np.repeat(cube, len(parts.members), axis=0) if len(parts.members) > 1 else cube
    else:
        rows = np.empty((len(parts.kinds), *cube.shape[1:]), cube.dtype)
        for kind, source in _sources(ufunc, cube, parts.kinds, end):
            chosen = parts.kinds == kind
            rows[chosen] = source[parts.indexes[chosen]]
        if len(parts.firsts) < len(rows):
            rows = ufunc.reduceat(rows, parts.firsts, axis=0)
    members, fine, groups = rows.shape
    owned = cut.bounds[parts.members + 1] - cut.bounds[parts.members]
    flat = rows.reshape(members * fine, groups)
    if owned.sum() == members * fine:
        return flat
    own, which = expanded(cut.bounds[parts.members], cut.bounds[parts.members + 1])
    starts = which * fine + cut.firsts[own]
    return (
        ufunc.reduceat(flat[:, 0], starts)[:, None] if groups == 1 else ufunc.reduceat(flat, starts, axis=0)
    )


def _sources(ufunc: np.ufunc, cube: np.ndarray, kinds: Numbers, end: int) -> Iterator[tuple[int, np.ndarray]]:
    """The arrays that pieces are rows of: the cube itself, its sums from either end, the levels of a tree."""
    used = set(np.unique(kinds).tolist())
    if RAW in used:
        yield RAW, cube
    if SUFFIX in used:
        yield SUFFIX, ufunc.accumulate(cube[:end][::-1], axis=0)[::-1]
    if PREFIX in used:
        yield PREFIX, ufunc.accumulate(cube, axis=0)
    level, at = 0, cube
    while used and max(used) > TREE + level:
        even = len(at) // 2 * 2
        at, level = ufunc(at[0:even:2], at[1:even:2]), level + 1
        if TREE + level in used:
            yield TREE + level, at


def _presented(
    family: Family,
    tuples: Tuples,
    cut: Slices,
    members: Numbers,
    summed: Sequence[np.ndarray],
    forms: Sequence[tuple[NumericForm, int, int | None]],
) -> Iterator[tuple[Layout, pa.Table]]:
    """The slices that hold tuples, as rows of sheets."""
    own, which = expanded(cut.bounds[members], cut.bounds[members + 1])
    at, groups = np.nonzero(summed[0])
    owners = members[which[at]]
    for layout, chosen, slots in family.by_layout:
        if len(family.by_layout) > 1:
            mine = np.isin(owners, chosen)
            picked, of, group_of = at[mine], owners[mine], groups[mine]
        else:
            picked, of, group_of = at, owners, groups
        columns = _heads(family, tuples, cut, of, own[picked], group_of)
        columns.append(pa.array(summed[0][picked, group_of]))
        for form, place, counted in (forms[slot] for slot in slots):
            present = None if counted is None else summed[counted][picked, group_of] > 0
            columns.append(form.column(summed[place][picked, group_of], present))
        yield layout, pa.Table.from_arrays(columns, schema=layout.schema)


def _heads(
    family: Family, tuples: Tuples, cut: Slices, owners: Numbers, own: Numbers, groups: Numbers
) -> list[pa.Array]:
    """The columns selection, slice, stop and the keys."""
    ids = np.array([member.id for member in family.members], np.int64)
    keys = pa.array(groups)
    return [
        pa.array(ids[owners]),
        pa.array(cut.starts[own]),
        pa.array(cut.stops[own]),
        *(key.take(keys) for key in tuples.keys),
    ]


# --- sparse ---


def _sparse(family: Family, tuples: Tuples, cut: Slices) -> Iterator[tuple[Layout, pa.Table]]:
    """Cells that occur, expanded into pairs of a cell and a member that asks for it."""
    fragments = tuples.fragments
    columns = [] if fragments.codes is None else [fragments.codes]
    columns.append(cut.of(tuples.times))
    if tuples.groups is not None:
        columns.append(tuples.groups.codes)
    cells = group(columns, len(tuples))
    rows = np.bincount(cells.codes, minlength=cells.count)
    states = [
        lifted(slot.accumulator, values, shown, cells.codes, cells.count)
        for slot, values, shown in zip(family.slots, tuples.values, tuples.shown, strict=True)
    ]
    fragment = np.zeros(cells.count, np.int64) if fragments.codes is None else fragments.codes[cells.firsts]
    fine = cut.of(tuples.times[cells.firsts])
    groups = np.zeros(cells.count, np.int64) if tuples.groups is None else tuples.groups.codes[cells.firsts]
    starts = np.searchsorted(fragment, fragments.ranges.starts)
    stops = np.searchsorted(fragment, fragments.ranges.stops)
    # A member's slices in all fine ones: numbers that rise from member to member and within each.
    owners_of = np.repeat(np.arange(len(family.members)), np.diff(cut.bounds))
    ladder = owners_of * cut.fine + cut.firsts
    for start, stop in _batches(stops - starts, fragments.ranges.owners):
        at, which = expanded(starts[start:stop], stops[start:stop])
        owners = fragments.ranges.owners[start:stop][which]
        own = np.searchsorted(ladder, owners * cut.fine + fine[at], side="right") - 1
        for layout, chosen, slots in family.by_layout:
            mine = slice(None) if len(family.by_layout) == 1 else np.isin(owners, chosen)
            yield (
                layout,
                _combined(
                    family,
                    tuples,
                    cut,
                    layout,
                    owners[mine],
                    own[mine],
                    groups[at[mine]],
                    at[mine],
                    rows,
                    [states[slot] for slot in slots],
                ),
            )


def _batches(lengths: Numbers, owners: Numbers) -> Iterator[tuple[int, int]]:
    """Ranges in runs of whole members, of not too many pairs each."""
    if not len(lengths):
        return
    sizes = np.cumsum(lengths)
    breaks = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    start = 0
    for here, following in zip(breaks, [*breaks[1:], len(lengths)], strict=True):
        before = sizes[start - 1] if start else 0
        if here > start and sizes[following - 1] - before > MOST_PAIRS:
            yield start, int(here)
            start = int(here)
    yield start, len(lengths)


def _combined(
    family: Family,
    tuples: Tuples,
    cut: Slices,
    layout: Layout,
    owners: Numbers,
    own: Numbers,
    groups: Numbers,
    cells: Numbers,
    rows: Numbers,
    states: Sequence[States],
) -> pa.Table:
    if not len(cells):
        return layout.schema.empty_table()
    found = group([own, groups], len(cells))
    firsts = found.firsts
    columns = _heads(family, tuples, cut, owners[firsts], own[firsts], groups[firsts])
    columns.append(pa.array(np.bincount(found.codes, rows[cells], found.count).astype(np.int64)))
    at = pa.array(cells)
    for accumulator, state in zip(layout.accumulators, states, strict=True):
        columns += accumulator.combine([part.take(at) for part in state], found.codes, found.count)
    return pa.Table.from_arrays(columns, schema=layout.schema)


# --- tuples so scattered in time, or kept one by one, that edges are not worth listing ---


def _scattered(family: Family, tuples: Tuples) -> Iterator[tuple[Layout, pa.Table]]:
    for member in range(len(family.members)):
        chosen = np.flatnonzero(matching(tuples, member))
        starts, stops = family.cut.around(tuples.times[chosen], member)
        yield _alone(family, member, tuples, chosen, starts, stops, merged=True)


def _every_row(family: Family, tuples: Tuples) -> Iterator[tuple[Layout, pa.Table]]:
    chosen = np.flatnonzero(matching(tuples, 0))
    times = tuples.times[chosen]
    yield _alone(family, 0, tuples, chosen, times, times + 1, merged=False)


def matching(tuples: Tuples, member: int) -> Mask:
    """Which tuples a member asks for."""
    mine = tuples.fragments.ranges.owners == member
    return tuples.fragments.among(mine, len(tuples))


def _alone(
    family: Family,
    member: int,
    tuples: Tuples,
    chosen: Numbers,
    starts: Numbers,
    stops: Numbers,
    merged: bool,
) -> tuple[Layout, pa.Table]:
    """One member's slices, from the slice of each of its tuples."""
    selection = family.members[member]
    if not len(chosen):
        return selection.layout, selection.layout.schema.empty_table()
    groups = np.zeros(len(chosen), np.int64) if tuples.groups is None else tuples.groups.codes[chosen]
    cells = group([starts, groups], len(chosen)) if merged else each_alone(len(chosen))
    at, keys = pa.array(chosen), pa.array(groups[cells.firsts])
    columns = [
        pa.array(np.full(cells.count, selection.id)),
        pa.array(starts[cells.firsts]),
        pa.array(stops[cells.firsts]),
        *(key.take(keys) for key in tuples.keys),
        pa.array(np.bincount(cells.codes, minlength=cells.count)),
    ]
    places = {slot.key: i for i, slot in enumerate(family.slots)}
    for slot in selection.slots:
        values, shown = tuples.values[places[slot.key]], tuples.shown[places[slot.key]]
        mask = None if shown is None else shown[chosen]
        columns += lifted(slot.accumulator, values.take(at), mask, cells.codes, cells.count)
    return selection.layout, pa.Table.from_arrays(columns, schema=selection.layout.schema)
