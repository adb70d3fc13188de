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

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from transom.columns.arrays import Ints
from transom.elements import Clock, WindowSpec
from transom.plan.axis import Axis, is_searchable
from transom.plan.boxes import Grid, OwnBoxes, own_boxes
from transom.plan.compiled_query import Slot
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.plan.predicate_text import predicate_text
from transom.plan.strategy import FragmentSharing, Strategy
from transom.sql.query import And, Predicate, Scalar, scalars_of
from transom.windows import ids
from transom.windows.slices import Progressions, progressions

MANY = 1 << 62
# What the selections of a grid have in common: the texts of conjuncts that all of them have, and the scalars that
# their other conjuncts read.
GridFrame = tuple[frozenset[str], tuple[Scalar, ...]]


@dataclass(frozen=True, eq=False)
class Selection:
    """The tuples that some queries read, and the windows of these queries.

    `id` is its number in the state; `joins` are the ids of the joins that it reads.
    """

    id: int
    name: str
    clock: Clock
    joins: tuple[str, ...]
    conjuncts: tuple[Predicate, ...]
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

    @cached_property
    def by_scalar(self) -> tuple[dict[str, Predicate], tuple[Predicate, ...]]:
        """The conjuncts that an axis can evaluate, by scalar, and the others."""
        searchable: dict[str, list[Predicate]] = {}
        others = []
        for part in self.conjuncts:
            if is_searchable(part):
                searchable.setdefault(next(iter(scalars_of(part))).sql, []).append(part)
            else:
                others.append(part)
        joined = {
            sql: parts[0] if len(parts) == 1 else And(tuple(parts)) for sql, parts in searchable.items()
        }
        return joined, tuple(others)

    def options(self, intern: dict[object, int]) -> list[tuple[int, int, str]]:
        """The range families that the selection fits: the number of the family, that of its kin, and the scalar."""
        options = self.__dict__.get("_options")
        if options is None:
            searchable, others = self.by_scalar
            texts = {sql: predicate_text(part) for sql, part in searchable.items()}
            texts |= {text: text for text in map(predicate_text, others)}
            options, all_texts = [], frozenset(texts.values())
            own_key = intern.setdefault(self.family_key, len(intern) + 1)
            wide_key = intern.setdefault(self.kin_key, len(intern) + 1)
            for sql in searchable if self.merged else ():
                rest = all_texts - {texts[sql]}
                narrow = intern.setdefault((own_key, sql, rest), len(intern) + 1)
                wide = intern.setdefault((wide_key, sql, rest), len(intern) + 1)
                options.append((narrow, wide, sql))
            self.__dict__["_options"] = options
        return options

    @cached_property
    def slot_ids(self) -> tuple[str, ...]:
        """The ids of its slots."""
        return tuple(slot.id for slot in self.slots)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts of its conjuncts."""
        return tuple(map(predicate_text, self.conjuncts))

    @cached_property
    def scalars(self) -> dict[str, Scalar]:
        """The scalars that its conjuncts read, by their SQL."""
        return {scalar.sql: scalar for part in self.conjuncts for scalar in scalars_of(part)}

    def own_boxes(self, frame: GridFrame, most: int) -> OwnBoxes | None:
        """The boxes of the conjuncts that not all selections of a grid have; None if these are not few boxes."""
        known = self.__dict__.get("_own_boxes")
        if known is None or known[0] != frame:
            varying = [
                part for part, text in zip(self.conjuncts, self.texts, strict=True) if text not in frame[0]
            ]
            known = frame, own_boxes(varying, frame[1], most)
            self.__dict__["_own_boxes"] = known
        boxes: OwnBoxes | None = known[1]
        return boxes

    def own_ranges(self, sql: str) -> OwnBoxes:
        """The ranges of one scalar, given by its SQL, that it selects."""
        known: dict[str, OwnBoxes] = self.__dict__.setdefault("_own_ranges", {})
        if sql not in known:
            found = own_boxes((self.by_scalar[0][sql],), (self.scalars[sql],), MANY)
            assert found is not None
            known[sql] = found
        return known[sql]

    @cached_property
    def family_key(self) -> tuple[object, ...]:
        """What all selections of a family have in common besides predicates."""
        return *self.kin_key, tuple(key.sql for key in self.keys)

    @cached_property
    def grid_key(self) -> tuple[object, ...]:
        """What all selections of a grid family have in common."""
        return *self.family_key, frozenset(self.scalars)

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

    @property
    def layouts(self) -> list[Layout]:
        return [layout for layout, _, _ in self.by_layout]


def _made_of(members: Sequence[Selection], paned: bool, **kind: Any) -> Family:
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


def into_families(
    selections: Sequence[Selection],
    strategy: Strategy,
    earlier: Mapping[object, Family] | None = None,
    intern: dict[object, int] | None = None,
    apart: Collection[int] = (),
    on_executors: Collection[int] = (),
) -> dict[object, Family]:
    """Selections put into families; those made earlier are used again where nothing changed.

    `intern` numbers what selections could have in common; it lives as long as the selections do. `apart` are
    selections for which a signature family did not pay. Selections that are `on_executors` are in no grid: shards
    need fragments.
    """
    intern = {} if intern is None else intern
    fragments, paned, rolls = strategy.fragments, strategy.paned, strategy.rolls_up
    grouped: dict[object, list[Selection]] = defaultdict(list)
    singles: dict[object, list[Selection]] = defaultdict(list)
    if fragments is not FragmentSharing.UNSHARED:
        alike = _alike_but_for_gaps(selections)
        grouped.update(alike)
        together_already = {one.id for members in alike.values() for one in members}
        selections = [one for one in selections if one.id not in together_already]
    if fragments is FragmentSharing.FAMILIES:
        gridded = _gridded(selections, intern, strategy.limits, on_executors)
        ranged, rest = _ranged([one for one in selections if one.id not in gridded], intern, rolls)
        grouped.update(ranged)
        for selection in rest:
            singles[selection.family_key].append(selection)
        for selection in selections:
            if selection.id in gridded:
                grouped["grid", gridded[selection.id]].append(selection)
    else:
        for selection in selections:
            singles[selection.family_key].append(selection)
    for family_key, members in singles.items():
        together = [m for m in members if m.conjuncts and m.merged and m.id not in apart]
        if fragments is FragmentSharing.UNSHARED or len(together) < 2:
            together = []
        elif fragments is FragmentSharing.JOINT:
            together = [m for m in members if m.merged]
        size = len(together) if fragments is FragmentSharing.JOINT else strategy.limits.signature_members
        for start in range(0, len(together), max(size, 1)):
            grouped["signed", family_key, start] = together[start : start + size]
        alone = {m.id for m in members} - {m.id for m in together}
        for member in members:
            if member.id in alone:
                grouped["alone", member.id] = [member]
    made: dict[object, Family] = {}
    for key, members in grouped.items():
        identity = key, paned, tuple(members)
        old = (earlier or {}).get(identity)
        made[identity] = (
            old
            if old is not None
            else _family(key, members, paned, intern if rolls else None, strategy.limits)
        )
    return made


def _alike_but_for_gaps(selections: Sequence[Selection]) -> dict[object, list[Selection]]:
    """Selections of sessions over the same tuples and groups: they differ only in their gaps."""
    alike: dict[object, list[Selection]] = defaultdict(list)
    for one in selections:
        if one.is_session:
            alike["gaps", one.family_key, frozenset(one.texts)].append(one)
    return {key: members for key, members in alike.items() if len(members) > 1}


def _gridded(
    selections: Sequence[Selection], intern: dict[object, int], limits: Limits, on_executors: Collection[int]
) -> dict[int, tuple[object, ...]]:
    """The selections for which a grid is better than a range family, with the key of their grid.

    A grid serves selections over the same scalars that differ in two of them or more. It is better where no range
    family has two of its selections, or where there are many range families of few.
    """
    ranges = Counter(option[0] for one in selections for option in one.options(intern))
    by_scalars: dict[tuple[object, ...], list[Selection]] = defaultdict(list)
    for selection in selections:
        can_be_box = selection.merged and not selection.is_session and selection.id not in on_executors
        if can_be_box and len(selection.scalars) > 1:
            by_scalars[selection.grid_key].append(selection)
    gridded: dict[int, tuple[object, ...]] = {}
    for key, members in by_scalars.items():
        sizes = [max((ranges[option[0]] for option in one.options(intern)), default=0) for one in members]
        chosen = [
            member
            for member, size in zip(members, sizes, strict=True)
            if size < 2 or (size < limits.range_members and len(members) >= limits.grids_per_range * size)
        ]
        frame = _grid_frame(chosen)
        if 2 <= len(frame[1]) <= limits.grid_axes:
            boxed = [one.id for one in chosen if one.own_boxes(frame, limits.grid_boxes) is not None]
            if len(boxed) > 1:
                gridded |= dict.fromkeys(boxed, (*key, frame))
    return gridded


def _grid_frame(members: Sequence[Selection]) -> GridFrame:
    common = frozenset.intersection(*(frozenset(one.texts) for one in members)) if members else frozenset()
    varying = {
        scalar.sql: scalar
        for member in members
        for part, text in zip(member.conjuncts, member.texts, strict=True)
        if text not in common
        for scalar in scalars_of(part)
    }
    return common, tuple(varying[sql] for sql in sorted(varying))


def _ranged(
    selections: Sequence[Selection], intern: dict[object, int], rolls: bool
) -> tuple[dict[object, list[Selection]], list[Selection]]:
    """Range families, each selection in the largest that it fits; and the selections that fit none.

    A family has at least two members, or one member and kin, so that all of them share one axis.
    """
    options = [selection.options(intern) for selection in selections]
    sizes = Counter(
        number for member_options in options for numbers in member_options for number in numbers[:2]
    )
    ranged: dict[tuple[int, int, str], list[Selection]] = defaultdict(list)
    left = []
    for selection, member_options in zip(selections, options, strict=True):
        best = max(
            member_options, key=lambda option: (sizes[option[0]], sizes[option[1]]), default=(0, 0, "")
        )
        if sizes[best[0]] < 2 and (sizes[best[1]] < 2 or not rolls):
            left.append(selection)
        else:
            ranged[best].append(selection)
    kin = Counter(wide for _, wide, _ in ranged)
    return {
        ("range" if len(members) > 1 or (rolls and kin[wide] > 1) else "alone", number, sql): members
        for (number, wide, sql), members in ranged.items()
    }, left


def _family(
    key: object,
    members: Sequence[Selection],
    paned: bool,
    intern: dict[object, int] | None,
    limits: Limits,
) -> Family:
    """A family of a kind; `intern` numbers what kin have in common, None: families have no kin."""
    kind = key[0] if isinstance(key, tuple) else key

    def kin(rest: Sequence[Predicate]) -> int | None:
        if intern is None or not members[0].merged or members[0].is_session:
            return None
        common = "kin", members[0].kin_key, frozenset(map(predicate_text, rest))
        return intern.setdefault(common, len(intern) + 1)

    if kind == "grid":
        assert isinstance(key, tuple)
        return _grid_family(members, key[1][-1], limits, paned)
    if kind == "signed" and len(members) > 1:
        parts = {text: part for one in members for text, part in zip(one.texts, one.conjuncts, strict=True)}
        places = {text: i for i, text in enumerate(parts)}
        needs = tuple(tuple(places[text] for text in member.texts) for member in members)
        return _made_of(members, paned, conjuncts=tuple(parts.values()), needs=needs)
    if kind == "gaps":
        owners = np.arange(len(members))
        ranges = owners, np.zeros(len(members), np.int64), np.ones(len(members), np.int64)
        return _made_of(members, paned, rest=members[0].conjuncts, ranges=ranges)
    if kind != "range":
        return _made_of(members, paned, rest=members[0].conjuncts, kin=kin(members[0].conjuncts))
    assert isinstance(key, tuple)
    sql = key[2]
    searchable, others = members[0].by_scalar
    rest = (*(part for about, part in searchable.items() if about != sql), *others)
    grid = Grid.of([member.own_ranges(sql) for member in members])
    ranges = grid.owners, grid.starts[:, 0].copy(), grid.stops[:, 0].copy()
    return _made_of(members, paned, rest=rest, axis=grid.axes[0], ranges=ranges, kin=kin(rest))


def _grid_family(members: Sequence[Selection], frame: GridFrame, limits: Limits, paned: bool) -> Family:
    """A family whose members are boxes of the scalars that they differ in."""
    first, common = members[0], frame[0]
    rest = tuple(part for part, text in zip(first.conjuncts, first.texts, strict=True) if text in common)
    boxes = [member.own_boxes(frame, limits.grid_boxes) for member in members]
    return _made_of(members, paned, rest=rest, grid=Grid.of([own for own in boxes if own is not None]))


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
