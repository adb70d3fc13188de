"""What folding few rows needs to know of a plan: all selections of several families in common arrays.

Selections are in the order of their sheets: by the types of their groups, by layout, then by id. A selection's
predicate is a union of disjoint boxes. A box has a range of codes on the axes of some scalars, and some conditions that
no axis evaluates. All families read the same axes, with the thresholds of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, CountRows
from transom.aggregates.numeric import NumericForm, numeric_form
from transom.columns.arrays import Ints, Mask
from transom.columns.groups import sorted_distinct
from transom.elements import Clock, WindowSpec
from transom.kernel.sheet_stack import StackShape, stack_shape
from transom.plan.axis import Axis
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.predicate_text import predicate_text
from transom.sql.query import Predicate, Scalar
from transom.windows.ids import has_gaps
from transom.windows.slices import calendar_around

PLANS_KEPT = 16  # of the streams and batch sizes of all engines of a process
# The place of a number column, or the places of the state slots of a sheet's selections; None: the number of tuples.
StateSource = int | tuple[int, ...] | None


@dataclass(frozen=True)
class AxisRanges:
    """The boxes that have a range on an axis; `boxes` is None if all have one."""

    axis: Axis
    boxes: Ints | None
    starts: Ints
    stops: Ints


@dataclass(frozen=True)
class NumberColumn:
    """A state column of some selections, whose accumulators have the same numeric form.

    `members` says which selections have it, None: all; and `slot_of` which of the slots each of them accumulates.
    """

    form: NumericForm
    slots: tuple[Slot, ...]
    members: Mask | None
    slot_of: Ints


@dataclass(frozen=True)
class StateSlot:
    """A slot whose states are not plain numbers, and the selections that have it."""

    slot: Slot
    members: Mask


@dataclass(frozen=True, eq=False)
class StackPlan:
    """Sheets with groups of the same types: the first selection of each, and their GROUP BY lists.

    `sources` says for each column of states where it comes from, and on which sheets, None: on all that have it.
    """

    shape: StackShape
    firsts: Ints
    key_lists: tuple[int, ...]
    sources: tuple[tuple[tuple[StateSource, Mask | None], ...], ...]


@dataclass(frozen=True)
class SliceEdges:
    """The edges of the slices that selections of one clock have: of each, the progressions `firsts` and following.

    `calendars` are the calendar windows whose edges a set has, too.

    >>> SliceEdges(Clock("s", "ts"), np.array([0, 3, 0]), np.array([5, 5, 4]), np.array([0, 2])).around(np.array([9]))
    (array([[8],
           [8]]), array([[10],
           [12]]))
    """

    clock: Clock
    bases: Ints
    steps: Ints
    firsts: Ints
    calendars: tuple[tuple[int, WindowSpec], ...] = ()

    def around(self, times: Ints) -> tuple[Ints, Ints]:
        """For each set of edges and each time, the last edge at or before the time, and the first after it."""
        steps = self.steps[:, None]
        starts = times - (times - self.bases[:, None]) % steps
        stops = starts + steps
        if len(self.firsts) < len(self.bases):
            starts = np.maximum.reduceat(starts, self.firsts)
            stops = np.minimum.reduceat(stops, self.firsts)
        if self.calendars:
            edges = {spec: calendar_around(spec, times) for _, spec in self.calendars}
            for place, spec in self.calendars:
                np.maximum(starts[place], edges[spec][0], out=starts[place])
                np.minimum(stops[place], edges[spec][1], out=stops[place])
        return starts, stops


@dataclass(frozen=True, eq=False)
class MatrixPlan:
    """The selections of some families, their boxes, and the columns of their sheets."""

    ids: Ints
    queries: Ints  # how many queries each selection has
    stacks: tuple[StackPlan, ...]
    key_lists: tuple[tuple[Scalar, ...], ...]
    keys_of: Ints  # the GROUP BY list of each selection
    edges: tuple[SliceEdges, ...]  # by clock
    edges_of: Ints  # the set of edges of each selection, counted over all clocks
    gaps: tuple[
        tuple[Mask, Clock, tuple[WindowSpec, ...]], ...
    ]  # selections whose windows do not cover all of time
    members: Ints  # the selection of each box, in order
    families: Ints  # the family of each box
    family_count: int
    ranges: tuple[AxisRanges, ...]
    conditions: tuple[tuple[Predicate, Ints], ...]  # each with the boxes that require it
    clocks: tuple[tuple[Clock, Ints], ...]  # each with its boxes
    numbers: tuple[NumberColumn, ...]
    states: tuple[StateSlot, ...]


@dataclass(frozen=True)
class _FamilyBoxes:
    """The boxes of a family by member, and the ranges of all boxes on each of its axes."""

    owners: Ints
    sides: tuple[tuple[Axis, Ints, Ints], ...]


def box_count(family: Family) -> int:
    """How many boxes the selections of a family have."""
    if family.grid is not None:
        return len(family.grid.owners)
    return len(family) if family.ranges is None else len(family.ranges[0])


def _boxes(family: Family) -> _FamilyBoxes:
    if family.grid is not None:
        grid = family.grid
        sides = ((axis, grid.starts[:, i], grid.stops[:, i]) for i, axis in enumerate(grid.axes))
        return _FamilyBoxes(grid.owners, tuple(sides))
    if family.axis is None or family.ranges is None:
        return _FamilyBoxes(np.arange(len(family)), ())
    owners, starts, stops = family.ranges
    return _FamilyBoxes(owners, ((family.axis, starts, stops),))


@lru_cache(maxsize=PLANS_KEPT)
def merged_axes(families: tuple[Family, ...]) -> dict[str, Axis]:
    """For each scalar, one axis with the thresholds of all families over it."""
    by_scalar: dict[str, list[Axis]] = {}
    for family in families:
        axes = () if family.grid is None else family.grid.axes
        for axis in axes if family.axis is None else (family.axis,):
            by_scalar.setdefault(axis.scalar.sql, []).append(axis)
    return {sql: Axis.merged(axes) for sql, axes in by_scalar.items()}


@lru_cache(maxsize=PLANS_KEPT)
def matrix_plan(families: tuple[Family, ...], all_families: tuple[Family, ...]) -> MatrixPlan:
    """The arrays of some families, on the axes of all families of a batch."""
    return _Builder(families, merged_axes(all_families)).plan()


class _Builder:
    """Puts the selections of families in the order of their sheets, and their boxes beside them."""

    def __init__(self, families: Sequence[Family], axes: dict[str, Axis]):
        self.families, self.axes = families, axes
        layouts: dict[str, int] = {}
        family_of, own_place, layout_of = [], [], []
        by_groups: dict[tuple[pa.DataType, ...], list[int]] = {}
        given: list[Layout] = []
        self.slots: dict[tuple[int, int], tuple[Slot, ...]] = {}  # by family and member
        for number, family in enumerate(families):
            for layout, own, slots in family.by_layout:
                if layout.id not in layouts:
                    layouts[layout.id] = len(layouts)
                    by_groups.setdefault(layout.keys, []).append(len(given))
                    given.append(layout)
                own_slots = tuple(family.slots[slot] for slot in slots)
                self.slots |= dict.fromkeys(((number, int(place)) for place in own), own_slots)
                family_of.append(np.full(len(own), number))
                own_place.append(own)
                layout_of.append(np.full(len(own), layouts[layout.id]))
        family_numbers, places, sheet_of = (
            np.concatenate(parts).astype(np.int64) for parts in (family_of, own_place, layout_of)
        )
        self.stacks = [[given[number] for number in numbers] for numbers in by_groups.values()]
        self.layouts = [layout for stack in self.stacks for layout in stack]
        new_numbers = np.empty(len(given), np.int64)
        new_numbers[[number for numbers in by_groups.values() for number in numbers]] = np.arange(len(given))
        sheet_of = new_numbers[sheet_of]
        sizes = [len(family) for family in families]
        self.firsts = np.cumsum([0, *sizes])  # of each family's members, in the order of the families
        flat = self.firsts[family_numbers] + places
        ids = np.concatenate([family.ids for family in families])
        order = np.lexsort((ids[flat], sheet_of))
        self.family_of, self.place_of, self.sheet_of = family_numbers[order], places[order], sheet_of[order]
        self.flat = flat[order]
        self.ranks = np.empty(len(flat), np.int64)  # where each member of each family comes in the order
        self.ranks[self.flat] = np.arange(len(flat))
        self.ids = ids[self.flat]

    def plan(self) -> MatrixPlan:
        queries = np.concatenate([family.queries for family in self.families])[self.flat]
        key_lists, keys_of = _distinct_key_lists(self.families)
        edges, edges_of = self._edges()
        boxes = [_boxes(family) for family in self.families]
        owners = np.concatenate(
            [self.ranks[first + own.owners] for first, own in zip(self.firsts[:-1], boxes, strict=True)]
        ).astype(np.int64)
        order = np.argsort(owners, kind="stable")
        box_ranks = np.empty(len(order), np.int64)
        box_ranks[order] = np.arange(len(order))
        box_firsts = np.cumsum([0, *(len(own.owners) for own in boxes)])
        families = np.repeat(np.arange(len(boxes)), np.diff(box_firsts))[order]
        columns, sources = self._columns()
        return MatrixPlan(
            ids=self.ids,
            queries=queries,
            stacks=tuple(self._stacks(sources, keys_of[self.family_of])),
            key_lists=key_lists,
            keys_of=keys_of[self.family_of],
            edges=edges,
            edges_of=edges_of,
            gaps=self._gaps(),
            members=owners[order],
            families=families,
            family_count=len(boxes),
            ranges=self._ranges(boxes, box_ranks, box_firsts),
            conditions=self._conditions(boxes, box_ranks, box_firsts),
            clocks=_boxes_by_clock(self.families, families),
            numbers=columns.numbers,
            states=columns.states,
        )

    def _sheet_bounds(self) -> list[int]:
        return np.searchsorted(self.sheet_of, np.arange(len(self.layouts) + 1)).tolist()

    def _stacks(self, sources: Sequence[tuple[StateSource, ...]], keys_of: Ints) -> Iterator[StackPlan]:
        bounds, number = np.array(self._sheet_bounds(), np.int64), 0
        for layouts in self.stacks:
            own = slice(number, number + len(layouts))
            first, stop = bounds[number], bounds[number + len(layouts)]
            shape, number = stack_shape(layouts), number + len(layouts)
            key_lists = tuple(sorted_distinct(keys_of[first:stop]).tolist())
            yield StackPlan(shape, bounds[own], key_lists, _sources_of_columns(shape, sources[own]))

    # --- time ---

    def _edges(self) -> tuple[tuple[SliceEdges, ...], Ints]:
        """The sets of edges of each clock, and the set that each selection has."""
        numbers: dict[Clock, dict[object, int]] = {}
        parts: dict[Clock, list[np.ndarray]] = {}
        calendars: dict[Clock, list[tuple[int, WindowSpec]]] = {}
        own: list[tuple[Clock, int]] = []
        for family in self.families:
            cut = family.cut
            order = np.lexsort((cut.steps, cut.bases, cut.owners))
            pairs = np.stack([cut.bases, cut.steps])[:, order]
            bounds = np.searchsorted(cut.owners[order], np.arange(len(family) + 1)).tolist()
            known = numbers.setdefault(family.clock, {})
            of_calendars: dict[int, list[WindowSpec]] = {}
            for member, spec in cut.calendars:
                of_calendars.setdefault(member, []).append(spec)
            for member, (start, stop) in enumerate(pairwise(bounds)):
                own_calendars = of_calendars.get(member, [])
                name = pairs[:, start:stop].tobytes(), frozenset(own_calendars)
                if name not in known:
                    known[name] = len(known)
                    parts.setdefault(family.clock, []).append(pairs[:, start:stop])
                    calendars.setdefault(family.clock, []).extend(
                        (known[name], spec) for spec in own_calendars
                    )
                own.append((family.clock, known[name]))
        edges, firsts, first = [], {}, 0
        for clock, sets in parts.items():
            lengths = [one.shape[1] for one in sets]
            bases, steps = np.concatenate(sets, axis=1)
            sets_of_calendars = tuple(calendars.get(clock, ()))
            edges.append(SliceEdges(clock, bases, steps, np.cumsum([0, *lengths[:-1]]), sets_of_calendars))
            firsts[clock], first = first, first + len(sets)
        numbered = np.array([firsts[clock] + number for clock, number in own], np.int64)
        return tuple(edges), numbered[self.flat]

    def _gaps(self) -> tuple[tuple[Mask, Clock, tuple[WindowSpec, ...]], ...]:
        by_windows: dict[tuple[Clock, tuple[WindowSpec, ...]], list[int]] = {}
        for number, family in enumerate(self.families):
            for place, specs in enumerate(family.gaps or ()):
                if not all(map(has_gaps, specs)):
                    continue
                rank = int(self.ranks[self.firsts[number] + place])
                by_windows.setdefault((family.clock, specs), []).append(rank)
        return tuple((self._mask(ranks), clock, specs) for (clock, specs), ranks in by_windows.items())

    def _mask(self, ranks: Sequence[int]) -> Mask:
        mask = np.zeros(len(self.ids), bool)
        mask[ranks] = True
        return mask

    # --- predicates ---

    def _ranges(
        self, boxes: Sequence[_FamilyBoxes], box_ranks: Ints, box_firsts: Ints
    ) -> tuple[AxisRanges, ...]:
        sides: dict[str, list[tuple[Ints, Ints, Ints]]] = {}
        for first, own in zip(box_firsts[:-1], boxes, strict=True):
            for axis, starts, stops in own.sides:
                finer = self.axes[axis.scalar.sql]
                if finer is not axis:
                    coarse = axis.translation(finer)
                    starts, stops = np.searchsorted(coarse, starts), np.searchsorted(coarse, stops)
                at = box_ranks[first : first + len(starts)]
                sides.setdefault(axis.scalar.sql, []).append((at, starts, stops))
        found = []
        for sql, parts in sides.items():
            at, starts, stops = (np.concatenate(each) for each in zip(*parts, strict=True))
            order = np.argsort(at)
            is_all = len(at) == len(box_ranks)
            found.append(
                AxisRanges(self.axes[sql], None if is_all else at[order], starts[order], stops[order])
            )
        return tuple(found)

    def _conditions(
        self, boxes: Sequence[_FamilyBoxes], box_ranks: Ints, box_firsts: Ints
    ) -> tuple[tuple[Predicate, Ints], ...]:
        """The predicates that no axis evaluates, with the boxes that require each."""
        required: dict[str, tuple[Predicate, list[Ints]]] = {}  # by text: 1 and 1.0 are different constants
        for first, own, family in zip(box_firsts[:-1], boxes, self.families, strict=True):
            at = box_ranks[first : first + len(own.owners)]
            for part in family.rest:
                required.setdefault(predicate_text(part), (part, []))[1].append(at)
            for place, part in enumerate(family.conjuncts):
                needed = [place in needs for needs in family.needs]
                chosen = at[np.array(needed, bool)]
                required.setdefault(predicate_text(part), (part, []))[1].append(chosen)
        return tuple((part, np.sort(np.concatenate(at))) for part, at in required.values())

    # --- states ---

    def _columns(self) -> tuple[_Columns, list[tuple[StateSource, ...]]]:
        """The columns that hold the states of all sheets, and for each sheet the source of each of its states."""
        columns = _Columns(len(self.ids))
        own_slots = [
            self.slots[number, place]
            for number, place in zip(self.family_of.tolist(), self.place_of.tolist(), strict=True)
        ]
        bounds = self._sheet_bounds()
        sources = []
        for i, layout in enumerate(self.layouts):
            ranks = range(bounds[i], bounds[i + 1])
            seen: dict[object, int] = {}
            sources.append(
                tuple(
                    columns.add(accumulator, [(rank, own_slots[rank][place]) for rank in ranks], seen)
                    for place, accumulator in enumerate(layout.accumulators)
                )
            )
        return columns, sources


def _sources_of_columns(
    shape: StackShape, sources: Sequence[tuple[StateSource, ...]]
) -> tuple[tuple[tuple[StateSource, Mask | None], ...], ...]:
    """Where the columns of a stack come from; `sources` has the source of each state of each sheet."""
    sheets: list[dict[StateSource, list[int]]] = [{} for _ in shape.columns]
    for sheet, (columns, own) in enumerate(zip(shape.columns_of, sources, strict=True)):
        for column, source in zip(columns, own, strict=True):
            sheets[column].setdefault(source, []).append(sheet)
    return tuple(
        tuple(
            (source, None if len(by_source) == 1 else np.isin(np.arange(len(shape.layouts)), own))
            for source, own in by_source.items()
        )
        for by_source in sheets
    )


class _Columns:
    """The columns of states that sheets need; columns of the same form serve several sheets."""

    def __init__(self, selections: int):
        self.selections = selections
        self._numbers: dict[object, tuple[NumericForm, list[tuple[int, Slot]]]] = {}
        self._number_places: dict[object, int] = {}
        self._states: dict[str, tuple[int, Slot, Mask]] = {}

    def add(
        self, accumulator: Accumulator, given: Sequence[tuple[int, Slot]], seen: dict[object, int]
    ) -> StateSource:
        """Where the states of an accumulator of a sheet are found; `given` has the slot of each selection.

        The first state of a form that a sheet has is in the form's first column, the second in its second: `seen`
        is how many there were.
        """
        form = numeric_form(accumulator)
        if form is None:
            return tuple(dict.fromkeys(self._state_place(rank, slot) for rank, slot in given))
        if isinstance(accumulator, CountRows) and all(slot.where is None for _, slot in given):
            return None
        form_name = form.ufunc.__name__, form.dtype, form.counts
        name = form_name, seen.get(form_name, 0)
        seen[form_name] = name[1] + 1
        self._numbers.setdefault(name, (form, []))[1].extend(given)
        return self._number_places.setdefault(name, len(self._number_places))

    def _state_place(self, rank: int, slot: Slot) -> int:
        none = np.zeros(self.selections, bool)
        place, _, members = self._states.setdefault(slot.id, (len(self._states), slot, none))
        members[rank] = True
        return place

    @property
    def numbers(self) -> tuple[NumberColumn, ...]:
        return tuple(self._number_column(form, given) for form, given in self._numbers.values())

    @property
    def states(self) -> tuple[StateSlot, ...]:
        return tuple(StateSlot(slot, members) for _, slot, members in self._states.values())

    def _number_column(self, form: NumericForm, given: Sequence[tuple[int, Slot]]) -> NumberColumn:
        slots = {slot.id: slot for _, slot in given}
        places = {slot_id: i for i, slot_id in enumerate(slots)}
        slot_of, mask = np.zeros(self.selections, np.int64), np.zeros(self.selections, bool)
        for rank, slot in given:
            slot_of[rank], mask[rank] = places[slot.id], True
        return NumberColumn(form, tuple(slots.values()), None if mask.all() else mask, slot_of)


def _distinct_key_lists(families: Sequence[Family]) -> tuple[tuple[tuple[Scalar, ...], ...], Ints]:
    """The GROUP BY lists of families, each once, and the list of each family."""
    lists: dict[tuple[str, ...], tuple[Scalar, ...]] = {}
    names = [tuple(key.sql for key in family.keys) for family in families]
    for name, family in zip(names, families, strict=True):
        lists.setdefault(name, family.keys)
    places = {name: i for i, name in enumerate(lists)}
    return tuple(lists.values()), np.array([places[name] for name in names], np.int64)


def _boxes_by_clock(families: Sequence[Family], family_of: Ints) -> tuple[tuple[Clock, Ints], ...]:
    clocks = dict.fromkeys(family.clock for family in families)
    return tuple(
        (clock, np.flatnonzero(np.array([family.clock == clock for family in families])[family_of]))
        for clock in clocks
    )
