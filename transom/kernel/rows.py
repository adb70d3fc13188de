"""Rows of a batch, and the tuples of each family among them, or the roll-up cells that stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States, lift_where
from transom.columns.arrays import Ints, Mask, count_offsets, one_array
from transom.columns.groups import Encoded, Groups, encode, group, normalized
from transom.kernel.predicates import evaluate
from transom.plan.axis import Axis
from transom.plan.boxes import Grid
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.plan.predicate_text import predicate_text
from transom.sql.query import Predicate, Scalar
from transom.windows.intervals import HIGHEST, LOWEST
from transom.windows.slices import Slices


@dataclass(frozen=True)
class Ranges:
    """The fragments that each member wants: half-open runs of codes, in the order of the members."""

    owners: Ints
    starts: Ints
    stops: Ints

    def of(self, chosen: Mask) -> Ranges:
        return Ranges(self.owners[chosen], self.starts[chosen], self.stops[chosen])

    def holding(self, chosen: Mask | None, count: int) -> Mask:
        """Which of `count` fragments lie in one of the chosen ranges; None: in any range."""
        if chosen is not None:
            return self.of(chosen).holding(None, count)
        known: dict[int, Mask] = self.__dict__.setdefault("_holding", {})
        if count not in known:
            borders = np.zeros(count + 1, np.int64)
            np.add.at(borders, self.starts, 1)
            np.add.at(borders, self.stops, -1)
            known[count] = np.cumsum(borders)[:-1] > 0
        return known[count]


@dataclass(frozen=True)
class Fragments:
    """The fragment of each tuple: `codes` below `count`; those below `ordered` are in the order of a scalar."""

    codes: Ints | None  # None: there is only one
    count: int
    ordered: int
    ranges: Ranges

    def among(self, chosen: Mask | None, tuples: int) -> Mask:
        """Which tuples have a fragment in one of the chosen ranges; None: in any range."""
        wanted = self.ranges.holding(chosen, self.count)
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
    multiplicity: Ints | None = None  # how many rows each tuple stands for; None: one
    axis_codes: Sequence[Ints] = ()  # the codes on each axis of a grid family, whose `fragments` say nothing

    def __len__(self) -> int:
        return len(self.times)

    @property
    def group_count(self) -> int:
        return 1 if self.groups is None else self.groups.count

    def with_fragments(self, family: Family) -> FamilyTuples:
        """The tuples of a grid family with fragments in place of boxes."""
        assert family.grid is not None
        fragments = box_fragments(self.axis_codes, family.grid, len(self))
        return replace(self, fragments=fragments, axis_codes=())

    def counted(self, codes: Ints, size: int, chosen: Ints | None = None) -> Ints:
        """The number of rows with each of `size` codes, among the chosen tuples if given."""
        rows = self._row_counts
        return count_codes(codes, size, rows if rows is None or chosen is None else rows[chosen])

    @property
    def _row_counts(self) -> Ints | None:
        """How many rows each tuple or cell stands for; None: one."""
        return self.multiplicity if self.cells is None else self.cells.rows

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
        """The number of rows in each range of fragments."""
        fragments = self.fragments
        if fragments.codes is None:
            rows = self._row_counts
            total = len(self) if rows is None else int(rows.sum())
            return np.full(len(fragments.ranges.owners), total)
        upto = count_offsets(self.counted(fragments.codes, fragments.count))
        return upto[fragments.ranges.stops] - upto[fragments.ranges.starts]


def count_codes(codes: Ints, size: int, rows: Ints | None = None) -> Ints:
    """The number of rows with each of `size` codes; `rows` is how many each code stands for, if not one."""
    return (
        np.bincount(codes, minlength=size)
        if rows is None
        else np.bincount(codes, rows, size).astype(np.int64)
    )


def wanted_by(family: Family, tuples: FamilyTuples, member: int) -> Mask:
    """Which tuples a member wants."""
    if family.grid is not None:
        return in_boxes(tuples.axis_codes, family.grid, family.grid.owners == member, len(tuples))
    return tuples.fragments.among(tuples.fragments.ranges.owners == member, len(tuples))


def wanted_by_any(family: Family, tuples: FamilyTuples, members: Sequence[int]) -> Mask:
    """Which tuples some of several members want."""
    chosen = np.zeros(len(family), bool)
    chosen[members] = True
    if family.grid is not None:
        return in_boxes(tuples.axis_codes, family.grid, chosen[family.grid.owners], len(tuples))
    return tuples.fragments.among(chosen[tuples.fragments.ranges.owners], len(tuples))


def in_boxes(codes: Sequence[Ints], grid: Grid, boxes: Mask, tuples: int) -> Mask:
    """Which tuples lie in one of some boxes."""
    found = np.zeros(tuples, bool)
    for box in np.flatnonzero(boxes):
        inside: Mask | None = None
        for place, axis in enumerate(grid.axes):
            start, stop = int(grid.starts[box, place]), int(grid.stops[box, place])
            for bound, limit, compare in ((start, 0, np.greater_equal), (stop, axis.size, np.less)):
                if bound != limit:
                    side = compare(codes[place], bound)
                    inside = side if inside is None else np.logical_and(inside, side, out=inside)
        if inside is None:
            return np.ones(tuples, bool)
        found |= inside
    return found


def box_fragments(codes: Sequence[Ints], grid: Grid, tuples: int) -> Fragments:
    """The fragments of a grid that occur: combinations of codes that no box distinguishes are one."""
    coarse = [
        np.searchsorted(np.unique([grid.starts[:, place], grid.stops[:, place]]), codes[place], side="right")
        for place in range(len(grid.axes))
    ]
    cells = group(coarse, tuples)
    firsts = [axis_codes[cells.firsts] for axis_codes in codes]
    wanted = [
        np.flatnonzero(in_boxes(firsts, grid, grid.owners == member, cells.count))
        for member in range(int(grid.owners.max(initial=-1)) + 1)
    ]
    owners = np.repeat(np.arange(len(wanted)), [len(own) for own in wanted])
    starts = np.concatenate([*wanted, np.zeros(0, np.int64)]).astype(np.int64)
    return Fragments(cells.codes, cells.count, cells.count, Ranges(owners, starts, starts + 1))


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


# --- from rows to tuples ---

_ALL = Ranges(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64))


class Rows:
    """A table whose columns are scalars; masks and codes are computed once for all queries that use them.

    The column `multiplicity` has how many rows each row stands for, if not one.
    """

    def __init__(
        self,
        table: pa.Table,
        columns: Mapping[str, str],
        axes: Mapping[str, Axis] | None = None,
        multiplicity: str | None = None,
    ):
        self.table, self.columns = table.combine_chunks(), columns
        self.multiplicity = None if multiplicity is None else one_array(self.table[multiplicity]).to_numpy()
        self.axes = axes or {}  # for each scalar, one axis with the thresholds of all families
        self.every = np.arange(table.num_rows)  # the numbers of all rows
        self._codes: dict[str, Encoded] = {}
        self._masks: dict[str, Mask] = {}
        self._truths: dict[int, tuple[Predicate, Mask]] = {}  # the same by the id of the predicate
        self._numbers: dict[str, tuple[Ints, Mask]] = {}
        self._chosen: dict[object, tuple[Ints, Ints]] = {}
        self._ordered: dict[str, bool] = {}
        self._placed: dict[str, Ints] = {}
        self._groups: dict[object, tuple[Groups, list[pa.Array]]] = {}
        self._taken: dict[object, pa.Array] = {}

    def take(self, at: Ints) -> Rows:
        """The rows with some numbers."""
        taken = Rows(self.table.take(pa.array(at)), self.columns)
        taken.multiplicity = self.multiplicity_of(at)
        return taken

    def column(self, scalar: Scalar) -> pa.Array:
        return one_array(self.table[self.columns[scalar.sql]])

    def numbers(self, name: str) -> tuple[Ints, Mask]:
        """An int64 column as numbers (0 where null) and where it is not null."""
        if name not in self._numbers:
            array = one_array(self.table[name])
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            numbers = array.fill_null(0) if array.null_count else array
            self._numbers[name] = numbers.to_numpy(zero_copy_only=False), valid
        return self._numbers[name]

    def truth(self, predicate: Predicate) -> Mask:
        """Where a predicate is true: neither false nor null."""
        known = self._truths.get(id(predicate))
        if known is not None:
            return known[1]
        text = predicate_text(predicate)
        if text not in self._masks:
            truth = evaluate(predicate, self.column)
            self._masks[text] = truth.fill_null(False).to_numpy(zero_copy_only=False)
        self._truths[id(predicate)] = predicate, self._masks[text]  # held, so that its id stays its own
        return self._masks[text]

    def all_true(self, conjuncts: Sequence[Predicate]) -> Mask:
        """Where all of some predicates are true."""
        if not conjuncts:
            return np.ones(self.table.num_rows, bool)
        mask = self.truth(conjuncts[0])
        for part in conjuncts[1:]:
            mask = mask & self.truth(part)
        return mask

    def chosen(self, family: Family, clock: str, accepted: Mask) -> tuple[Ints, Ints]:
        """The rows that may belong to a family: their numbers and times."""
        key = selection_key(family, clock)
        if key not in self._chosen:
            numbers, valid = self.numbers(clock)
            valid = valid & (numbers > LOWEST) & (numbers < HIGHEST)  # window ids can't be computed beyond
            at = np.flatnonzero(accepted & valid & self.all_true(family.rest))
            is_every = len(at) == len(numbers)
            self._chosen[key] = (self.every, numbers) if is_every else (at, numbers[at])
        return self._chosen[key]

    def tuples(self, family: Family, clock: str, accepted: Mask) -> tuple[Ints, FamilyTuples]:
        """The rows that may belong to a family, by number and as its tuples."""
        at, times = self.chosen(family, clock, accepted)
        cache_key = selection_key(family, clock)
        groups, keys = self.grouped(family.keys, at, cache_key)
        shown = [self.shown(slot, at) for slot in family.slots]
        values = [self.values(slot, at, cache_key) for slot in family.slots]
        fragments = self._fragmented(family, at)
        axes = () if family.grid is None else family.grid.axes
        axis_codes = [self.placed(axis, at) for axis in axes]
        in_order = self.in_order(clock)
        return at, FamilyTuples(
            times,
            in_order,
            fragments,
            groups,
            keys,
            values,
            shown,
            multiplicity=self.multiplicity_of(at),
            axis_codes=axis_codes,
        )

    def of_cells(self, family: Family, cells: RollUpCells) -> FamilyTuples:
        """Cells that may belong to a family, as its tuples; one row of each cell has its group and fragment."""
        groups, keys = self.grouped(family.keys, cells.at, cells)
        fragments = self._fragmented(family, cells.at)
        return FamilyTuples(
            cells.times, False, fragments, groups, keys, (), [None] * len(family.slots), cells
        )

    def multiplicity_of(self, at: Ints) -> Ints | None:
        """How many rows each of some rows stands for; None: one."""
        return None if self.multiplicity is None else self.multiplicity[at]

    def count(self, chosen: Mask) -> int:
        """The number of chosen rows."""
        return int(np.count_nonzero(chosen) if self.multiplicity is None else self.multiplicity[chosen].sum())

    def in_order(self, clock: str) -> bool:
        """Whether the rows are in the order of a clock."""
        if clock not in self._ordered:
            times, valid = self.numbers(clock)
            self._ordered[clock] = bool(valid.all() and (times[1:] >= times[:-1]).all())
        return self._ordered[clock]

    def shown(self, slot: Slot, at: Ints) -> Mask | None:
        """Which of some rows pass the FILTER of a slot; None: all."""
        return None if slot.where is None else self.truth(slot.where)[at]

    def values(self, slot: Slot, at: Ints, cache_key: object) -> pa.Array:
        """What a slot accumulates of some rows; equal cache keys mean equal rows."""
        scalar = slot.argument
        if scalar is None:
            return pa.nulls(len(at))
        if at is self.every:
            return self.column(scalar)
        if (cache_key, scalar.sql) not in self._taken:
            self._taken[cache_key, scalar.sql] = self.column(scalar).take(pa.array(at))
        return self._taken[cache_key, scalar.sql]

    def grouped(
        self, keys: Sequence[Scalar], at: Ints, cache_key: object
    ) -> tuple[Groups | None, list[pa.Array]]:
        """The groups of some rows and the key columns of the groups; equal cache keys mean equal rows."""
        if not keys:
            return None, []
        name = cache_key, tuple(key.sql for key in keys)
        if name not in self._groups:
            groups = group([self.encode(key, at) for key in keys], len(at))
            firsts = pa.array(at[groups.firsts])
            self._groups[name] = groups, [normalized(self.column(key).take(firsts)) for key in keys]
        return self._groups[name]

    def encode(self, scalar: Scalar, at: Ints) -> Encoded:
        """The codes of a key column in some rows; the column is encoded once for all queries."""
        if scalar.sql not in self._codes:
            self._codes[scalar.sql] = encode(self.column(scalar))
        codes = self._codes[scalar.sql]
        return codes if at is self.every else codes.take(at)

    def _fragmented(self, family: Family, at: Ints) -> Fragments:
        if family.signed:
            return self._signed(family, at)
        axis = family.axis
        if axis is None or family.ranges is None:
            return Fragments(None, 1, 1, _ALL if family.ranges is None else Ranges(*family.ranges))
        ranges = family.__dict__.setdefault(
            "_fragment_ranges", Ranges(*family.ranges)
        )  # with what it remembers
        return Fragments(self.placed(axis, at), axis.size, axis.null, ranges)

    def placed(self, axis: Axis, at: Ints) -> Ints:
        """The codes of some rows on an axis."""
        finer = self.axes.get(axis.scalar.sql, axis)
        if axis.scalar.sql not in self._placed:
            self._placed[axis.scalar.sql] = finer.codes(self.column(axis.scalar))
        codes = self._placed[axis.scalar.sql]
        if at is not self.every:
            codes = codes[at]
        return codes if finer is axis else axis.translation(finer)[codes]

    def _signed(self, family: Family, at: Ints) -> Fragments:
        """Signatures: bit i of a tuple is whether the family's i-th conjunct is true for it."""
        masks = [self.truth(part)[at] for part in family.conjuncts]
        words = []
        for start in range(0, len(masks), 62):
            word = np.zeros(len(at), np.int64)
            for i, mask in enumerate(masks[start : start + 62]):
                word |= mask.astype(np.int64) << i
            words.append(word)
        signatures = group(words, len(at))
        truths = np.array([mask[signatures.firsts] for mask in masks]).reshape(len(masks), signatures.count)
        matched = [np.flatnonzero(truths[list(needs)].all(axis=0)) for needs in family.needs]
        owners = np.repeat(np.arange(len(matched)), [len(own) for own in matched])
        starts = np.concatenate(matched).astype(np.int64)
        return Fragments(
            signatures.codes, signatures.count, signatures.count, Ranges(owners, starts, starts + 1)
        )


def selection_key(family: Family, clock: str) -> tuple[object, ...]:
    """A cache key that is equal for families that select the same rows."""
    return clock, family.rest_texts
