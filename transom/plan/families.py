"""Families: selections whose predicates are told together, by one binary search or one signature a tuple.

A selection's WHERE is a conjunction. Selections that agree in all of it but for what they ask of one scalar
form a range family: their fragments are intervals of that scalar (the grouped filter). Those that agree
in nothing form a signature family: the truth of every conjunct, bit by bit, is a tuple's fragment, and only
fragments that occur exist. One signature family of all is the paper's Shared Data Fragments; one family
per selection is the unshared plan. A family is over one GROUP BY list; families that differ in nothing else
are kin, and may be rolled up from groups of all their lists together.
Paper: On-the-Fly Sharing, sections 4 (fragments) and 5 (shards).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.elements import Clock, WindowSpec
from transom.plan.axis import Axis, is_searchable
from transom.plan.compiled import Slot
from transom.plan.layout import Layout
from transom.plan.predicate_text import predicate_text
from transom.plan.strategy import Fragments, Strategy
from transom.sql.query import And, Predicate, Scalar, scalars_of
from transom.windows import ids
from transom.windows.slices import Progressions, progressions


@dataclass(frozen=True, eq=False)
class Selection:
    """Tuples that some queries ask for alike, and the windows that they cut them into.

    `id` is its number in the state; `joins` are those whose tables' rows it reads.
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
        """Whether tuples are put together in slices: naively they are not."""
        return self.layout.merged

    @cached_property
    def by_scalar(self) -> tuple[dict[str, Predicate], tuple[Predicate, ...]]:
        """The conjuncts that an axis can tell, by scalar, and the others."""
        told: dict[str, list[Predicate]] = {}
        others = []
        for part in self.conjuncts:
            if is_searchable(part):
                told.setdefault(next(iter(scalars_of(part))).sql, []).append(part)
            else:
                others.append(part)
        joined = {sql: parts[0] if len(parts) == 1 else And(tuple(parts)) for sql, parts in told.items()}
        return joined, tuple(others)

    def options(self, intern: dict[object, int]) -> list[tuple[int, int, str]]:
        """The range families it could be in: a number for all that the members agree in, one for all that
        kin of them agree in, and the scalar."""
        known = self.__dict__.get("_options")
        if known is None:
            told, others = self.by_scalar
            texts = {sql: predicate_text(part) for sql, part in told.items()}
            texts |= {text: text for text in map(predicate_text, others)}
            known, all_texts = [], frozenset(texts.values())
            own_ground = intern.setdefault(self.ground, len(intern) + 1)
            wide_ground = intern.setdefault(self.common_ground, len(intern) + 1)
            for sql in told if self.merged else ():
                rest = all_texts - {texts[sql]}
                own = intern.setdefault((own_ground, sql, rest), len(intern) + 1)
                wide = intern.setdefault((wide_ground, sql, rest), len(intern) + 1)
                known.append((own, wide, sql))
            self.__dict__["_options"] = known
        return known

    @property
    def ground(self) -> tuple[object, ...]:
        """What selections of one family must have in common beside predicates."""
        return *self.common_ground, tuple(key.sql for key in self.keys)

    @property
    def common_ground(self) -> tuple[object, ...]:
        """What selections of kin families must have in common: all but the groups."""
        return self.clock, self.joins, self.merged


Numbers = NDArray[np.int64]
Ranges = tuple[Numbers, Numbers, Numbers]  # whose, from, to
# Members by the sheet they are kept on, with the places of their slots among the family's.
ByLayout = tuple[tuple[Layout, Numbers, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Family:
    """Selections over the same groups, as the kernel computes them; what it needs of each is in arrays.

    `rest` holds for all. With an `axis`, `ranges` are the codes that each member asks for; with `conjuncts`,
    `needs` are those that must be true for each; with neither there is one member. Families of the same `kin`
    ask for the same rows in other groups.
    """

    clock: Clock
    keys: tuple[Scalar, ...]
    merged: bool
    ids: Numbers
    queries: Numbers  # how many each member answers
    slots: tuple[Slot, ...]  # all that its members accumulate, each once
    by_layout: ByLayout
    cut: Progressions  # the members' edges
    gaps: tuple[tuple[WindowSpec, ...], ...] | None  # the members' windows, if some do not cover all of time
    rest: tuple[Predicate, ...] = ()
    axis: Axis | None = None
    ranges: Ranges | None = None
    conjuncts: tuple[Predicate, ...] = ()
    needs: tuple[tuple[int, ...], ...] = ()
    kin: int | None = None
    members: tuple[Selection, ...] = ()  # stay at home: tasks don't need them

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"members": ()}

    @property
    def signed(self) -> bool:
        """Whether fragments are signatures."""
        return bool(self.needs)

    @property
    def layouts(self) -> list[Layout]:
        return [layout for layout, _, _ in self.by_layout]


def _made_of(members: Sequence[Selection], paned: bool, **kind: Any) -> Family:
    """A family of some members."""
    slots = {slot.id: slot for member in members for slot in member.slots}
    places = {key: i for i, key in enumerate(slots)}
    by_layout: dict[tuple[Layout, tuple[int, ...]], list[int]] = defaultdict(list)
    for i, member in enumerate(members):
        by_layout[member.layout, tuple(places[slot.id] for slot in member.slots)].append(i)
    windows = tuple(member.windows for member in members)
    has_gaps = any(ids.has_gaps(window) for own in windows for window in own)
    return Family(
        members[0].clock,
        members[0].keys,
        members[0].merged,
        np.array([member.id for member in members], np.int64),
        np.array([len(member.queries) for member in members], np.int64),
        tuple(slots.values()),
        tuple((layout, np.array(own), places) for (layout, places), own in by_layout.items()),
        progressions(windows, paned),
        windows if has_gaps else None,
        members=tuple(members),
        **kind,
    )


def into_families(
    selections: Sequence[Selection],
    strategy: Strategy,
    earlier: Mapping[object, Family] | None = None,
    intern: dict[object, int] | None = None,
    apart: Collection[int] = (),
) -> dict[object, Family]:
    """Selections put into families; those made earlier are used again where nothing changed.

    `intern` numbers what selections could have in common; it lives as long as the selections do. `apart` are
    selections for which a signature family did not pay.
    """
    intern = {} if intern is None else intern
    fragments, paned, rolls = strategy.fragments, strategy.paned, strategy.rolls_up
    grouped: dict[object, list[Selection]] = defaultdict(list)
    singles: dict[object, list[Selection]] = defaultdict(list)
    if fragments is Fragments.FAMILIES:
        ranged, rest = _ranged(selections, intern, rolls)
        grouped.update(ranged)
        for selection in rest:
            singles[selection.ground].append(selection)
    else:
        for selection in selections:
            singles[selection.ground].append(selection)
    for ground, members in singles.items():
        together = [m for m in members if m.conjuncts and m.merged and m.id not in apart]
        if fragments is Fragments.UNSHARED or len(together) < 2:
            together = []
        elif fragments is Fragments.JOINT:
            together = [m for m in members if m.merged]
        size = len(together) if fragments is Fragments.JOINT else strategy.limits.signature_members
        for start in range(0, len(together), max(size, 1)):
            grouped["signed", ground, start] = together[start : start + size]
        alone = {m.id for m in members} - {m.id for m in together}
        for member in members:
            if member.id in alone:
                grouped["alone", member.id] = [member]
    made: dict[object, Family] = {}
    for key, members in grouped.items():
        identity = key, paned, tuple(members)
        old = (earlier or {}).get(identity)
        made[identity] = old if old is not None else _family(key, members, paned, intern if rolls else None)
    return made


def _ranged(
    selections: Sequence[Selection], intern: dict[object, int], rolls: bool
) -> tuple[dict[object, list[Selection]], list[Selection]]:
    """Range families, each selection in the largest that it fits; and those that fit none.

    A family has at least two members, or one and kin: then all of these are told on one axis.
    """
    options = [selection.options(intern) for selection in selections]
    sizes = Counter(number for own in options for numbers in own for number in numbers[:2])
    found: dict[tuple[int, int, str], list[Selection]] = defaultdict(list)
    left = []
    for selection, own in zip(selections, options, strict=True):
        best = max(own, key=lambda one: (sizes[one[0]], sizes[one[1]]), default=(0, 0, ""))
        if sizes[best[0]] < 2 and (sizes[best[1]] < 2 or not rolls):
            left.append(selection)
        else:
            found[best].append(selection)
    kin = Counter(wide for _, wide, _ in found)
    return {
        ("range" if len(members) > 1 or (rolls and kin[wide] > 1) else "alone", number, sql): members
        for (number, wide, sql), members in found.items()
    }, left


def _family(
    key: object, members: Sequence[Selection], paned: bool, intern: dict[object, int] | None
) -> Family:
    """A family of a kind; `intern` numbers what kin have in common, None: there are none."""
    kind = key[0] if isinstance(key, tuple) else key

    def kin(rest: Sequence[Predicate]) -> int | None:
        if intern is None or not members[0].merged:
            return None
        common = "kin", members[0].common_ground, frozenset(map(predicate_text, rest))
        return intern.setdefault(common, len(intern) + 1)

    if kind == "signed" and len(members) > 1:
        parts = {predicate_text(part): part for member in members for part in member.conjuncts}
        places = {text: i for i, text in enumerate(parts)}
        needs = tuple(tuple(places[predicate_text(p)] for p in member.conjuncts) for member in members)
        return _made_of(members, paned, conjuncts=tuple(parts.values()), needs=needs)
    if kind != "range":
        return _made_of(members, paned, rest=members[0].conjuncts, kin=kin(members[0].conjuncts))
    assert isinstance(key, tuple)
    sql = key[2]
    conditions = [member.by_scalar[0][sql] for member in members]
    told, others = members[0].by_scalar
    rest = (*(part for about, part in told.items() if about != sql), *others)
    axis = Axis.of(next(iter(scalars_of(conditions[0]))), conditions)
    found = [(i, *pair) for i, condition in enumerate(conditions) for pair in axis.true(condition)]
    owners, starts, stops = np.array(found, np.int64).reshape(-1, 3).T
    ranges = owners.copy(), starts.copy(), stops.copy()
    return _made_of(members, paned, rest=rest, axis=axis, ranges=ranges, kin=kin(rest))


def family_kind(family: Family) -> str:
    """How a family distinguishes its selections' tuples: range, signature or alone."""
    return "range" if family.axis is not None else "signature" if len(family) > 1 else "alone"


def family_numbers(families: Sequence[Family]) -> list[int]:
    """The numbers of families in EXPLAIN, from 1: those that answer most queries come first."""
    sizes = [int(family.queries.sum()) for family in families]
    numbers = [0] * len(families)
    for number, place in enumerate(sorted(range(len(families)), key=lambda place: -sizes[place]), 1):
        numbers[place] = number
    return numbers
