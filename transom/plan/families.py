"""Families: selections whose predicates are evaluated together, by binary searches or one signature per tuple.

A selection's WHERE is a conjunction. Selections that differ only in their conditions on one scalar form a range
family: its fragments are intervals of that scalar (the grouped filter). Selections that compare the same two to
four scalars with constants form a grid family: each is a union of boxes. Selections without such a common part
form a signature family: the truth values of all conjuncts are a tuple's fragment, and only fragments that occur
exist. One signature family of all selections is the paper's Shared Data Fragments; one family per selection is
the unshared plan. A family has one GROUP BY list. Families that differ only in that list are kin, and may be
rolled up from groups of all their lists together.
Paper: On-the-Fly Sharing, sections 4 (fragments) and 5 (shards).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.elements import Clock, WindowSpec
from transom.plan.axis import Axis
from transom.plan.boxes import Grid
from transom.plan.compiled_query import Slot
from transom.plan.conjunction import Conjunction
from transom.plan.layout import Layout
from transom.plan.predicate_text import predicate_text
from transom.sql.query import Predicate, Scalar
from transom.windows import ids
from transom.windows.slices import Progressions, progressions


@dataclass(frozen=True, eq=False)
class Selection:
    """The tuples that some queries read, and the windows of these queries.

    `id` is its number in the state; `joins` are the ids of the joins that it reads.
    """

    id: int
    name: str
    clock: Clock
    joins: tuple[str, ...]
    where: Conjunction
    keys: tuple[Scalar, ...]
    slots: tuple[Slot, ...]
    windows: tuple[WindowSpec, ...]
    layout: Layout
    queries: tuple[str, ...] = ()

    @property
    def merged(self) -> bool:
        """Whether tuples are aggregated in slices; a naive query keeps every tuple."""
        return self.layout.merged

    @property
    def is_session(self) -> bool:
        """Whether its tuples are aggregated in sessions, not in slices."""
        return self.layout.gap is not None

    def options(self, intern: dict[object, int]) -> list[tuple[int, int, str]]:
        """The range families that the selection fits: the number of the family, that of its kin, and the scalar."""
        options = self.__dict__.get("_options")
        if options is None:
            options = []
            own_key = intern.setdefault(self.family_key, len(intern) + 1)
            wide_key = intern.setdefault(self.kin_key, len(intern) + 1)
            for sql, rest in self.where.rest_of.items() if self.merged else ():
                rest_key = intern.setdefault(rest, len(intern) + 1)  # a set is slow to compare
                narrow = intern.setdefault((own_key, sql, rest_key), len(intern) + 1)
                wide = intern.setdefault((wide_key, sql, rest_key), len(intern) + 1)
                options.append((narrow, wide, sql))
            self.__dict__["_options"] = options
        return options

    @cached_property
    def slot_ids(self) -> tuple[str, ...]:
        """The ids of its slots."""
        return tuple(slot.id for slot in self.slots)

    @cached_property
    def family_key(self) -> tuple[object, ...]:
        """What all selections of a family have in common besides predicates."""
        return *self.kin_key, tuple(key.sql for key in self.keys)

    @cached_property
    def grid_key(self) -> tuple[object, ...]:
        """What all selections of a grid family have in common."""
        return *self.family_key, frozenset(self.where.scalars)

    @cached_property
    def kin_key(self) -> tuple[object, ...]:
        """What all selections of kin families have in common: everything but the groups."""
        return self.clock, self.joins, self.merged, self.is_session


MemberRanges = tuple[Ints, Ints, Ints]  # member, from, to
# Members by the sheet they are kept on, with the places of their slots among the family's.
ByLayout = tuple[tuple[Layout, Ints, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Family:
    """Selections over the same groups, in the arrays that the kernel computes with.

    All members require `rest`. With an `axis`, `ranges` are the codes that each member selects; with a `grid`, its
    boxes are what each member selects; with `ranges` alone, the members have sessions over the same tuples, and differ
    in their gaps; with `conjuncts`, `needs` are the conjuncts that each member requires; with
    none of them there is one member. Families of the same
    `kin` read the same rows in other groups.
    """

    clock: Clock
    keys: tuple[Scalar, ...]
    merged: bool
    ids: Ints
    queries: Ints  # how many queries each member has
    slots: tuple[Slot, ...]  # all slots of its members, each once
    by_layout: ByLayout
    cut: Progressions  # the members' edges
    gaps: tuple[tuple[WindowSpec, ...], ...] | None  # the members' windows, if some do not cover all of time
    rest: tuple[Predicate, ...] = ()
    axis: Axis | None = None
    ranges: MemberRanges | None = None
    grid: Grid | None = None
    conjuncts: tuple[Predicate, ...] = ()
    needs: tuple[tuple[int, ...], ...] = ()
    kin: int | None = None
    session_gap: int | None = None  # the smallest of its members' gaps; None: they have slices
    members: tuple[Selection, ...] = ()  # on the driver only: tasks do not need them

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__} | {"members": ()}

    @cached_property
    def rest_texts(self) -> tuple[str, ...]:
        """The texts of what all members require: families with equal ones read the same rows."""
        return tuple(map(predicate_text, self.rest))

    @property
    def signed(self) -> bool:
        """Whether fragments are signatures."""
        return bool(self.needs)

    def parts(self, most: int) -> tuple[Family, ...]:
        """A grid family as families of at most so many members."""
        if "_parts" not in self.__dict__:
            self.__dict__["_parts"] = tuple(
                self._part(start, min(start + most, len(self))) for start in range(0, len(self), most)
            )
        found: tuple[Family, ...] = self.__dict__["_parts"]
        return found

    @cached_property
    def without_grid(self) -> Family:
        """The same members, for tuples that have fragments in place of boxes."""
        return replace(self, grid=None)

    def _part(self, start: int, stop: int) -> Family:
        assert self.grid is not None
        by_layout = (
            (layout, own[(own >= start) & (own < stop)] - start, slots)
            for layout, own, slots in self.by_layout
        )
        return replace(
            self,
            ids=self.ids[start:stop],
            queries=self.queries[start:stop],
            by_layout=tuple(each for each in by_layout if len(each[1])),
            cut=self.cut.of_owners(start, stop),
            gaps=None if self.gaps is None else self.gaps[start:stop],
            grid=self.grid.of_members(start, stop),
            members=self.members[start:stop],
        )

    @cached_property
    def layout_of(self) -> NDArray[np.unsignedinteger[Any]]:
        """The place of each member's layout in `by_layout`."""
        places = np.zeros(len(self), np.min_scalar_type(len(self.by_layout)))  # short numbers are sorted fast
        for place, (_, own, _) in enumerate(self.by_layout):
            places[own] = place
        return places

    @property
    def layouts(self) -> list[Layout]:
        return [layout for layout, _, _ in self.by_layout]


def family_of(members: Sequence[Selection], paned: bool, **kind: Any) -> Family:
    """A family of some members."""
    alike = {member.slot_ids: member.slots for member in members}
    slots = {slot.id: slot for own in alike.values() for slot in own}
    places = {key: i for i, key in enumerate(slots)}
    by_layout: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for i, member in enumerate(members):
        by_layout[member.layout.id, member.slot_ids].append(i)  # a layout is slow to hash
    windows = tuple(member.windows for member in members)
    has_gaps = any(ids.has_gaps(window) for specs in windows for window in specs)
    return Family(
        members[0].clock,
        members[0].keys,
        members[0].merged,
        np.array([member.id for member in members], np.int64),
        np.array([len(member.queries) for member in members], np.int64),
        tuple(slots.values()),
        tuple(
            (members[own[0]].layout, np.array(own), tuple(places[slot] for slot in slot_ids))
            for (_, slot_ids), own in by_layout.items()
        ),
        progressions(windows, paned),
        windows if has_gaps else None,
        session_gap=min((one.layout.gap for one in members if one.layout.gap is not None), default=None),
        members=tuple(members),
        **kind,
    )


def family_kind(family: Family) -> str:
    """How a family distinguishes its selections' tuples: range, grid, gaps, signature or alone."""
    if family.axis is not None:
        return "range"
    if family.ranges is not None:
        return "gaps"
    if family.grid is not None:
        return "grid"
    return "signature" if len(family) > 1 else "alone"


def family_numbers(families: Sequence[Family]) -> list[int]:
    """The numbers of families in EXPLAIN, from 1: those that answer most queries come first."""
    sizes = [int(family.queries.sum()) for family in families]
    numbers = [0] * len(families)
    for number, place in enumerate(sorted(range(len(families)), key=lambda place: -sizes[place]), 1):
        numbers[place] = number
    return numbers
