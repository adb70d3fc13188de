"""Fold the tuples of a batch into the slices of a family's members.

Tuples are aggregated once for all members, into cells: (fragment, slice, group). Where accumulators are
plain numbers and cells are not too many, cells are a dense array. Otherwise they are expanded into pairs of
a cell and a member that wants it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States
from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints
from transom.columns.groups import each_row_alone, group
from transom.kernel.dense_cells import dense
from transom.kernel.rows import FamilyTuples, leading_columns, wanted_by
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.windows.slices import Slices, slices


def fold(family: Family, tuples: FamilyTuples, limits: Limits) -> Iterator[tuple[Layout, pa.Table]]:
    """The slices of all members, by layout."""
    if not len(tuples):
        return
    if not family.merged:
        yield from _every_row(family, tuples)
        return
    low, high = int(tuples.times.min()), int(tuples.times.max())
    if family.cut.count(low, high) > limits.edges_per_tuple * len(tuples) + limits.spare_edges:
        yield from _scattered(family, tuples)
        return
    cut = slices(family.cut, len(family), low, high)
    yield from dense(family, tuples, cut, limits) or _sparse(family, tuples, cut, limits.pairs)


# --- sparse ---


def _sparse(
    family: Family, tuples: FamilyTuples, cut: Slices, most_pairs: int
) -> Iterator[tuple[Layout, pa.Table]]:
    """Expand the cells that occur into pairs of a cell and a member that wants it."""
    fragments = tuples.fragments
    columns = [] if fragments.codes is None else [fragments.codes]
    columns.append(cut.of(tuples.times, tuples.in_order))
    if tuples.groups is not None:
        columns.append(tuples.groups.codes)
    cells = group(columns, len(tuples))
    rows = tuples.counted(cells.codes, cells.count)
    states = [tuples.states(i, slot, cells.codes, cells.count) for i, slot in enumerate(family.slots)]
    fragment = np.zeros(cells.count, np.int64) if fragments.codes is None else fragments.codes[cells.firsts]
    fine = cut.of(tuples.times[cells.firsts])
    groups = np.zeros(cells.count, np.int64) if tuples.groups is None else tuples.groups.codes[cells.firsts]
    starts = np.searchsorted(fragment, fragments.ranges.starts)
    stops = np.searchsorted(fragment, fragments.ranges.stops)
    # The first fine slice of every slice of every member, as numbers that rise over all members.
    owners_of = np.repeat(np.arange(len(family)), np.diff(cut.bounds))
    ladder = owners_of * cut.fine + cut.firsts
    for start, stop in pair_batches(stops - starts, fragments.ranges.owners, most_pairs):
        at, which = expand_runs(starts[start:stop], stops[start:stop])
        owners = fragments.ranges.owners[start:stop][which]
        slice_numbers = np.searchsorted(ladder, owners * cut.fine + fine[at], side="right") - 1
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
                    slice_numbers[mine],
                    groups[at[mine]],
                    at[mine],
                    rows,
                    [states[slot] for slot in slots],
                ),
            )


def pair_batches(lengths: Ints, owners: Ints, most_pairs: int) -> Iterator[tuple[int, int]]:
    """Split ranges between members, so that a part has at most so many pairs, or one member."""
    if not len(lengths):
        return
    sizes = np.cumsum(lengths)
    breaks = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    start = 0
    for here, following in zip(breaks, [*breaks[1:], len(lengths)], strict=True):
        before = sizes[start - 1] if start else 0
        if here > start and sizes[following - 1] - before > most_pairs:
            yield start, int(here)
            start = int(here)
    yield start, len(lengths)


def _combined(
    family: Family,
    tuples: FamilyTuples,
    cut: Slices,
    layout: Layout,
    owners: Ints,
    slice_numbers: Ints,
    groups: Ints,
    cells: Ints,
    rows: Ints,
    states: Sequence[States],
) -> pa.Table:
    if not len(cells):
        return layout.schema.empty_table()
    rows_of_sheet = group([slice_numbers, groups], len(cells))
    firsts = rows_of_sheet.firsts
    columns = leading_columns(family, tuples, cut, owners[firsts], slice_numbers[firsts], groups[firsts])
    columns.append(
        pa.array(np.bincount(rows_of_sheet.codes, rows[cells], rows_of_sheet.count).astype(np.int64))
    )
    at = pa.array(cells)
    for accumulator, state in zip(layout.accumulators, states, strict=True):
        columns += accumulator.combine(
            [part.take(at) for part in state], rows_of_sheet.codes, rows_of_sheet.count
        )
    return pa.Table.from_arrays(columns, schema=layout.schema)


# --- tuples that are far apart in time, or kept one by one: the edges between them are not listed ---


def _scattered(family: Family, tuples: FamilyTuples) -> Iterator[tuple[Layout, pa.Table]]:
    for member in range(len(family)):
        chosen = np.flatnonzero(wanted_by(family, tuples, member))
        starts, stops = family.cut.around(tuples.times[chosen], member)
        yield alone(family, member, tuples, chosen, starts, stops, merged=True)


def _every_row(family: Family, tuples: FamilyTuples) -> Iterator[tuple[Layout, pa.Table]]:
    chosen = np.flatnonzero(wanted_by(family, tuples, 0))
    times = tuples.times[chosen]
    yield alone(family, 0, tuples, chosen, times, times + 1, merged=False)


def alone(
    family: Family,
    member: int,
    tuples: FamilyTuples,
    chosen: Ints,
    starts: Ints,
    stops: Ints,
    merged: bool,
) -> tuple[Layout, pa.Table]:
    """The slices of one member, from the slice of each of its tuples, `chosen` by their numbers."""
    layout, slots = next((layout, slots) for layout, own, slots in family.by_layout if member in own)
    if not len(chosen):
        return layout, layout.schema.empty_table()
    groups = np.zeros(len(chosen), np.int64) if tuples.groups is None else tuples.groups.codes[chosen]
    cells = group([starts, groups], len(chosen)) if merged else each_row_alone(len(chosen))
    keys = pa.array(groups[cells.firsts])
    columns = [
        pa.array(np.full(cells.count, family.ids[member])),
        pa.array(starts[cells.firsts]),
        pa.array(stops[cells.firsts]),
        *(key.take(keys) for key in tuples.keys),
        pa.array(tuples.counted(cells.codes, cells.count, chosen)),
    ]
    for place in slots:
        columns += tuples.states(place, family.slots[place], cells.codes, cells.count, chosen)
    return layout, pa.Table.from_arrays(columns, schema=layout.schema)
