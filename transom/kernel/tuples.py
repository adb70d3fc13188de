"""The tuples of a batch that a family aggregates, or the roll-up cells that stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States, lift_where
from transom.columns.arrays import Ints, Mask
from transom.columns.groups import Groups
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.windows.slices import Slices


@dataclass(frozen=True)
class Ranges:
    """The fragments that each member wants: half-open runs of codes, in the order of the members."""

    owners: Ints
    starts: Ints
    stops: Ints

    def of(self, chosen: Mask) -> Ranges:
        return Ranges(self.owners[chosen], self.starts[chosen], self.stops[chosen])


@dataclass(frozen=True)
class Fragments:
    """The fragment of each tuple: `codes` below `count`; those below `ordered` are in the order of a scalar."""

    codes: Ints | None  # None: there is only one
    count: int
    ordered: int
    ranges: Ranges

    def among(self, chosen: Mask, tuples: int) -> Mask:
        """Which tuples have a fragment in one of the chosen ranges."""
        borders = np.zeros(self.count + 1, np.int64)
        np.add.at(borders, self.ranges.starts[chosen], 1)
        np.add.at(borders, self.ranges.stops[chosen], -1)
        wanted = np.cumsum(borders)[:-1] > 0
        return wanted[self.codes] if self.codes is not None else np.full(tuples, wanted[0])


@dataclass(frozen=True, eq=False)
class RollUpCells:
    """Tuples that every family of a roll-up puts into the same group, slice and fragment, added up.

    `at` and `times` are the number and the time of one row of each cell. `added` are the rows that were added
    up, and `codes` the cell of each. `rows` is the number of rows in each cell, and `states` has the states of
    slots there, by the ids of the slots.
    """

    at: Ints
    times: Ints
    added: Ints
    codes: Ints
    rows: Ints
    states: Mapping[str, States]


@dataclass(frozen=True)
class FamilyTuples:
    """The tuples of a batch that may belong to a family.

    `values[i]` is what the i-th slot of the family accumulates, and `shown[i]` which tuples pass the FILTER of
    the slot. In a roll-up each tuple is a cell, and `cells` has states in place of values.
    """

    times: Ints
    in_order: bool
    fragments: Fragments
    groups: Groups | None  # None: there is only one
    keys: Sequence[pa.Array]  # one row a group
    values: Sequence[pa.Array]
    shown: Sequence[Mask | None]
    cells: RollUpCells | None = None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def group_count(self) -> int:
        return 1 if self.groups is None else self.groups.count

    def counted(self, codes: Ints, size: int, chosen: Ints | None = None) -> Ints:
        """The number of tuples with each of `size` codes, among the chosen ones if given."""
        if self.cells is None:
            return np.bincount(codes, minlength=size)
        rows = self.cells.rows if chosen is None else self.cells.rows[chosen]
        return np.bincount(codes, rows, size).astype(np.int64)

    def states(self, place: int, slot: Slot, codes: Ints, size: int, chosen: Ints | None = None) -> States:
        """The states of the slot at a place for each of `size` codes, over the chosen tuples if given."""
        if self.cells is not None:
            states = self.cells.states[slot.id]
            if chosen is not None:
                states = [state.take(pa.array(chosen)) for state in states]
            return slot.accumulator.combine(states, codes, size)
        values, shown = self.values[place], self.shown[place]
        if chosen is not None:
            values, shown = values.take(pa.array(chosen)), None if shown is None else shown[chosen]
        return lift_where(slot.accumulator, values, shown, codes, size)

    def in_ranges(self) -> Ints:
        """The number of tuples in each range of fragments."""
        fragments = self.fragments
        if fragments.codes is None:
            total = len(self) if self.cells is None else int(self.cells.rows.sum())
            return np.full(len(fragments.ranges.owners), total)
        upto = np.r_[0, np.cumsum(self.counted(fragments.codes, fragments.count))]
        return upto[fragments.ranges.stops] - upto[fragments.ranges.starts]


def wanted_by(tuples: FamilyTuples, member: int) -> Mask:
    """Which tuples a member wants."""
    return tuples.fragments.among(tuples.fragments.ranges.owners == member, len(tuples))


def leading_columns(
    family: Family,
    tuples: FamilyTuples,
    cut: Slices,
    owners: Ints,
    slice_numbers: Ints,
    groups: Ints,
) -> list[pa.Array]:
    """The first columns of a sheet (selection, slice, stop, keys) for some members, slices and groups."""
    keys = pa.array(groups)
    return [
        pa.array(family.ids[owners]),
        pa.array(cut.starts[slice_numbers]),
        pa.array(cut.stops[slice_numbers]),
        *(key.take(keys) for key in tuples.keys),
    ]
