"""Fold few rows for all families at once: a matrix says which row belongs to which selection.

Families save work where many rows have the same fragment, slice and group. With few rows, what a family costs
whatever it reads is far more than its rows. So here every row is added to each selection that wants it, in the order
of the rows: one pass over all pairs of a row and a selection for each kind of accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States, lift_where
from transom.aggregates.numeric import NumericForm, Values, contributions, numeric_form
from transom.columns.arrays import Ints, Mask, joined_array
from transom.columns.groups import densify
from transom.elements import Clock
from transom.kernel.matrix_plan import MatrixPlan, NumberColumn, StackPlan, StateSlot, StateSource
from transom.kernel.rows import Rows, count_codes
from transom.kernel.sheet_stack import ArrowStates, NumberStates, SheetStack, StackColumn, StackStates
from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import Slot
from transom.windows import ids as windows
from transom.windows.intervals import HIGHEST, LOWEST


@dataclass(frozen=True)
class MatrixFold:
    """The sheets that some rows come to, and what became of the rows.

    `selections`, `starts` and `rows` have the cells of all sheets. `matched` is the number of rows of each selection,
    and `lifted` the number of rows that each family reads, all together.
    """

    sheets: Sheets
    selections: Ints
    starts: Ints
    rows: Ints
    matched: Ints
    lifted: int
    wanted: Mask


def fold_matrix(rows: Rows, plan: MatrixPlan, clocks: Mapping[Clock, str], accepted: Mask) -> MatrixFold:
    """The slices of all selections of a plan; `clocks` are the columns of the clocks."""
    matrix = _matrix(rows, plan, clocks, accepted)
    pairs = _Pairs(rows, plan, clocks, *np.nonzero(matrix))
    read = np.zeros((plan.family_count, matrix.shape[1]), bool)
    read[plan.families[pairs.boxes], pairs.rows] = True
    return MatrixFold(
        pairs.sheets(),
        pairs.selections,
        pairs.starts,
        pairs.counts,
        count_codes(pairs.members, len(plan.ids), rows.multiplicity_of(pairs.rows)),
        int(np.count_nonzero(read)),
        pairs.wanted(matrix.shape[1]),
    )


def _matrix(rows: Rows, plan: MatrixPlan, clocks: Mapping[Clock, str], accepted: Mask) -> Mask:
    """Which rows lie in which boxes: a row of the matrix for each box."""
    matrix = np.empty((len(plan.members), len(accepted)), bool)
    for clock, boxes in plan.clocks:
        times, valid = rows.numbers(clocks[clock])
        matrix[boxes] = accepted & valid & (times > LOWEST) & (times < HIGHEST)
    for side in plan.ranges:
        codes = rows.placed(side.axis, rows.every)
        inside = codes >= side.starts[:, None]
        inside &= codes < side.stops[:, None]
        if side.boxes is None:
            matrix &= inside
        else:
            matrix[side.boxes] &= inside
    for condition, boxes in plan.conditions:
        matrix[boxes] &= rows.truth(condition)
    return matrix


class _Pairs:
    """The pairs of a row and a selection that wants it, in the order of the selections, and the cells they add to.

    A cell is a selection, a group and a slice. Only cells that have rows are numbered, in this order.
    """

    def __init__(self, rows: Rows, plan: MatrixPlan, clocks: Mapping[Clock, str], boxes: Ints, at: Ints):
        self.table, self.plan, self.clocks = rows, plan, clocks
        self.boxes, self.rows, self.members = boxes, at, plan.members[boxes]
        slice_ranks, self.slice_starts, self.slice_stops, first_slices = self._slices()
        self.slice_counts = np.diff(first_slices)
        groups, self.keys = self._groups()
        group_counts = np.array([len(keys[0]) if keys else 1 for keys in self.keys])
        lists, sets = plan.keys_of[self.members], plan.edges_of[self.members]
        counts = self.slice_counts[plan.edges_of]
        sizes = group_counts[plan.keys_of] * counts
        ends = np.cumsum(sizes)
        own_groups, own_slices = groups[lists, at], slice_ranks[sets, at]
        codes = (ends - sizes)[self.members] + own_groups * counts[self.members] + own_slices
        self.codes, self.count = densify(codes, int(ends[-1]))
        firsts = np.empty(self.count, np.int64)  # one pair of each cell
        firsts[self.codes] = np.arange(len(codes))
        self.cell_members, self.cell_groups = self.members[firsts], own_groups[firsts]
        slices = first_slices[sets[firsts]] + own_slices[firsts]
        self.starts, self.stops = self.slice_starts[slices], self.slice_stops[slices]
        self.selections = plan.ids[self.cell_members]
        self.counts = count_codes(self.codes, self.count, rows.multiplicity_of(at))

    def _slices(self) -> tuple[Ints, Ints, Ints, Ints]:
        """For each set of edges the slice of each row, from 0; all slices, by their ends; and the first of each set."""
        ranks, starts, stops, counts = [], [], [], [np.zeros(1, np.int64)]
        for edges in self.plan.edges:
            times, _ = self.table.numbers(self.clocks[edges.clock])
            order = None if self.table.in_order(self.clocks[edges.clock]) else np.argsort(times)
            own_starts, own_stops = edges.around(times if order is None else times[order])
            is_first = np.ones(own_starts.shape, bool)
            np.not_equal(own_starts[:, 1:], own_starts[:, :-1], out=is_first[:, 1:])
            in_order = np.cumsum(is_first, axis=1) - 1
            counts.append(in_order[:, -1] + 1)
            starts.append(own_starts[is_first])
            stops.append(own_stops[is_first])
            if order is not None:
                unsorted = np.empty_like(in_order)
                unsorted[:, order] = in_order
                in_order = unsorted
            ranks.append(in_order)
        return (
            np.concatenate(ranks),
            np.concatenate(starts),
            np.concatenate(stops),
            np.cumsum(np.concatenate(counts)),
        )

    def _groups(self) -> tuple[Ints, list[list[pa.Array]]]:
        """For each GROUP BY list the group of each row, and the key columns of the groups."""
        codes = np.zeros((len(self.plan.key_lists), len(self.table.every)), np.int64)
        columns = []
        for place, keys in enumerate(self.plan.key_lists):
            groups, values = self.table.grouped(keys, self.table.every, None)
            if groups is not None:
                codes[place] = groups.codes
            columns.append(values)
        return codes, columns

    def wanted(self, rows: int) -> Mask:
        """Which rows some query wants; rows between the windows of a selection are not wanted by it."""
        is_inside = np.ones(len(self.rows), bool)
        for members, clock, specs in self.plan.gaps:
            times, _ = self.table.numbers(self.clocks[clock])
            in_window = np.zeros(rows, bool)
            for spec in specs:
                in_window |= windows.in_some_window(spec, times)
            is_inside &= ~members[self.members] | in_window[self.rows]
        found = np.zeros(rows, bool)
        found[self.rows[is_inside]] = True
        return found

    # --- sheets ---

    def sheets(self) -> Sheets:
        """The cells as sheets, in stacks."""
        firsts = np.concatenate([stack.firsts for stack in self.plan.stacks])
        bounds = np.append(np.searchsorted(self.cell_members, firsts), self.count)
        stacks, number = [], 0
        for stack in self.plan.stacks:
            own = bounds[number : number + len(stack.firsts) + 1]
            number += len(stack.firsts)
            if own[0] < own[-1]:
                stacks.append(self._stack(stack, own))
        return Sheets(stacks=stacks)

    def _stack(self, stack: StackPlan, bounds: Ints) -> SheetStack:
        cells, offsets = slice(int(bounds[0]), int(bounds[-1])), bounds - bounds[0]
        sheet_of = np.repeat(np.arange(len(stack.firsts)), np.diff(offsets))
        return SheetStack(
            stack.shape,
            offsets,
            self.selections[cells],
            self.starts[cells],
            self.stops[cells],
            self._key_columns(stack, cells),
            self.counts[cells],
            list(self._columns(stack, bounds, sheet_of)),
        )

    def _columns(self, stack: StackPlan, bounds: Ints, sheet_of: Ints) -> Iterator[StackStates]:
        cells = slice(int(bounds[0]), int(bounds[-1]))
        held: dict[int, Mask] = {}  # by pattern
        for column, sources in zip(stack.shape.columns, stack.sources, strict=True):
            if column.form is None:
                yield ArrowStates(column.accumulator, self._states_of(column, sources, bounds))
                continue
            if column.pattern not in held:
                held[column.pattern] = column.holds[sheet_of]
            values, valid = self._numbers_of(sources, cells, sheet_of)
            chosen = held[column.pattern]
            yield NumberStates(column.form, values[chosen], None if valid is None else valid[chosen])

    def _numbers_of(
        self, sources: Sequence[tuple[StateSource, Mask | None]], cells: slice, sheet_of: Ints
    ) -> tuple[Values, Mask | None]:
        """The numbers of a column that has one source, or one for each of several lists of sheets."""
        parts = [(self._numbers_from(source, cells), sheets) for source, sheets in sources]
        (values, valid), _ = parts[0]
        if len(parts) == 1:
            return values, valid
        has_nulls = any(mask is not None for (_, mask), _ in parts)
        values, valid = values.copy(), np.ones(len(values), bool) if has_nulls else None
        for (numbers, mask), sheets in parts:
            assert sheets is not None
            own = sheets[sheet_of]
            values[own] = numbers[own]
            if valid is not None and mask is not None:
                valid[own] = mask[own]
        return values, valid

    def _numbers_from(self, source: StateSource, cells: slice) -> tuple[Values, Mask | None]:
        if source is None:
            return self.counts[cells], None
        assert isinstance(source, int)
        numbers, present = self._numbers[source]
        return numbers[cells], None if present is None else present[cells]

    def _key_columns(self, stack: StackPlan, cells: slice) -> list[pa.Array]:
        if not stack.shape.layout.keys:
            return []
        groups, lists = self.cell_groups[cells], [self.keys[place] for place in stack.key_lists]
        if len(lists) == 1:
            at = pa.array(groups)
            return [key.take(at) for key in lists[0]]
        firsts = np.zeros(len(self.keys), np.int64)  # of the groups of each list, among those of all
        firsts[list(stack.key_lists)] = np.cumsum([0, *(len(keys[0]) for keys in lists[:-1])])
        at = pa.array(groups + firsts[self.plan.keys_of[self.cell_members[cells]]])
        return [pa.concat_arrays(keys).take(at) for keys in zip(*lists, strict=True)]

    # --- states that are numbers ---

    @cached_property
    def _numbers(self) -> list[tuple[Values, Mask | None]]:
        """The numbers of each number column, by cell; and which cells have a value, None if all do."""
        return [self._number_column(column) for column in self.plan.numbers]

    def _number_column(self, column: NumberColumn) -> tuple[Values, Mask | None]:
        lifted = [_lifted(self.table, slot) for slot in column.slots]
        members, at, codes = self.members, self.rows, self.codes
        if column.members is not None:
            chosen = column.members[members]
            members, at, codes = members[chosen], at[chosen], codes[chosen]
        if len(lifted) == 1:
            values, valid = lifted[0][0][at], None if lifted[0][1] is None else lifted[0][1][at]
        else:
            slots = column.slot_of[members]
            values, valid = np.stack([numbers for numbers, _ in lifted])[slots, at], None
            if any(mask is not None for _, mask in lifted):
                every = np.ones(len(self.table.every), bool)
                masks = np.stack([every if mask is None else mask for _, mask in lifted])
                valid = masks[slots, at]
        present = None
        if valid is not None and not column.form.counts:
            present = np.zeros(self.count, bool)
            present[codes[valid]] = True
        return column.form.gathered(values, codes, self.count), present

    # --- other states ---

    @cached_property
    def _states(self) -> list[tuple[Ints, States]]:
        """For each state slot, the cells of its selections and their states."""
        return [self._lift(state) for state in self.plan.states]

    def _lift(self, state: StateSlot) -> tuple[Ints, States]:
        chosen = state.members[self.members]
        codes, at = self.codes[chosen], self.rows[chosen]
        codes, count = densify(codes, self.count)
        slot, argument = state.slot, state.slot.argument
        values = pa.nulls(len(at)) if argument is None else self.table.column(argument).take(pa.array(at))
        shown = None if slot.where is None else self.table.truth(slot.where)[at]
        cells = np.flatnonzero(state.members[self.cell_members])
        return cells, lift_where(slot.accumulator, values, shown, codes, count)

    def _states_of(
        self, column: StackColumn, sources: Sequence[tuple[StateSource, Mask | None]], bounds: Ints
    ) -> States:
        """The states of a column, sheet by sheet; a cell of a sheet has one of the slots of the sheet's source."""
        parts = []
        for sheet in np.flatnonzero(column.holds).tolist():
            slots = next(source for source, sheets in sources if sheets is None or sheets[sheet])
            assert isinstance(slots, tuple)
            found = [self._states[place] for place in slots]
            at = np.concatenate([own for own, _ in found])
            places = np.full(self.count, -1, np.int64)
            places[at] = np.arange(len(at))
            picked = pa.array(places[bounds[sheet] : bounds[sheet + 1]])
            states = zip(*(states for _, states in found), strict=True)
            parts.append([pa.concat_arrays(each).take(picked) for each in states])
        return [joined_array(each) for each in zip(*parts, strict=True)]


def _lifted(rows: Rows, slot: Slot) -> tuple[Values, Mask | None]:
    """The numbers that rows contribute to a slot, or the identity; and which rows contribute one, if not all do."""
    form = numeric_form(slot.accumulator)
    assert form is not None
    shown = None if slot.where is None else rows.truth(slot.where)
    if slot.argument is None:
        values = pa.nulls(len(rows.every))
    else:
        values = rows.column(slot.argument)
    numbers, valid = contributions(form, slot.accumulator, values)
    if shown is None:
        return numbers, valid
    return _masked(form, numbers, shown), shown if valid is None else shown & valid


def _masked(form: NumericForm, numbers: Values, shown: Mask) -> Values:
    return np.where(shown, numbers, np.array(form.identity, form.dtype))
