"""Which selections form a family, and the families of those that are planned together or apart.

Putting all selections of a stream into groups costs more than making the few families that a newcomer touches. So
selections that were opened lately are young: they are put into groups by themselves, and the groups of all others are
used again as long as these selections are the same. The pass `generations` decides which selections are young. A plan
depends on the state and not on earlier plans: a batch that is replayed after a restart has the same families.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from transom.plan.boxes import Grid
from transom.plan.conjunction import GridFrame
from transom.plan.families import Family, Selection, family_of
from transom.plan.limits import Limits
from transom.plan.predicate_text import predicate_text
from transom.plan.strategy import FragmentSharing, Strategy
from transom.sql.query import Predicate, scalars_of

GroupedSelections = dict[object, list[Selection]]  # by what the selections of a family have in common


@dataclass(frozen=True)
class Grouping:
    """The groups of all selections that are not young, with their families.

    `selections` are their ids and the texts of their conjuncts. Nothing else decides about the groups, except `apart`
    and `on_executors`.
    """

    selections: tuple[tuple[int, tuple[str, ...]], ...]
    apart: Collection[int]
    on_executors: Collection[int]
    groups: tuple[tuple[object, tuple[int, ...]], ...]
    families: Mapping[object, Family] = field(default_factory=dict)  # by the key of their group


@dataclass
class FamilyMemory:
    """The families of the last plan of a stream; where nothing changed, they are used again."""

    families: dict[object, Family] = field(default_factory=dict)  # by their members
    grouping: Grouping | None = None
    intern: dict[object, int] = field(default_factory=dict)  # numbers of what selections can have in common

    def copy(self) -> FamilyMemory:
        """An independent copy."""
        return FamilyMemory(dict(self.families), self.grouping, dict(self.intern))

    def clear(self) -> None:
        """Forget all families."""
        self.families, self.grouping, self.intern = {}, None, {}


def families_of(
    selections: Sequence[Selection],
    young_after: int,
    strategy: Strategy,
    memory: FamilyMemory,
    apart: Collection[int] = (),
    on_executors: Collection[int] = (),
) -> tuple[Family, ...]:
    """The families of a stream's selections; those with ids above `young_after` are planned apart from the others.

    `apart` are selections for which a signature family did not pay. Selections that are `on_executors` are in no grid:
    shards need fragments.
    """
    old = [selection for selection in selections if selection.id <= young_after]
    young = [selection for selection in selections if selection.id > young_after]
    given = tuple([(selection.id, selection.where.texts) for selection in old])
    last = memory.grouping
    if last is None or (last.selections, last.apart, last.on_executors) != (given, apart, on_executors):
        groups = _groups(old, strategy, memory.intern, apart, on_executors)
        ids = tuple((key, tuple(member.id for member in members)) for key, members in groups.items())
        last = Grouping(given, apart, on_executors, ids)
    else:
        by_id = {selection.id: selection for selection in old}
        groups = {key: [by_id[member] for member in ids] for key, ids in last.groups}
    made: dict[object, Family] = {}
    families: dict[object, Family] = {}
    for key, members in groups.items():
        families[key] = _reused(key, members, strategy, memory, made, last.families.get(key))
    for key, members in _groups(young, strategy, memory.intern, apart, on_executors).items():
        _reused(key, members, strategy, memory, made)
    memory.families, memory.grouping = made, replace(last, families=families)
    return tuple(made.values())


def _reused(
    key: object,
    members: Sequence[Selection],
    strategy: Strategy,
    memory: FamilyMemory,
    made: dict[object, Family],
    similar: Family | None = None,
) -> Family:
    """The family of a group: the last one if its members are the same objects; it is added to those that are `made`.

    `similar` is a family whose members have the same conditions, and perhaps other windows or aggregates.
    """
    paned = strategy.paned
    identity = key, paned, tuple(members)
    family = memory.families.get(identity)
    if family is None and similar is not None:
        family = family_of(
            members,
            paned,
            rest=similar.rest,
            axis=similar.axis,
            ranges=similar.ranges,
            grid=similar.grid,
            conjuncts=similar.conjuncts,
            needs=similar.needs,
            kin=similar.kin,
        )
    elif family is None:
        family = _family(key, members, paned, memory.intern if strategy.rolls_up else None, strategy.limits)
    made[identity] = family
    return family


def _groups(
    selections: Sequence[Selection],
    strategy: Strategy,
    intern: dict[object, int],
    apart: Collection[int],
    on_executors: Collection[int],
) -> GroupedSelections:
    """Selections in groups, of which each is a family."""
    fragments, rolls = strategy.fragments, strategy.rolls_up
    grouped: GroupedSelections = defaultdict(list)
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
        together = [m for m in members if m.where.parts and m.merged and m.id not in apart]
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
    return grouped


def _alike_but_for_gaps(selections: Sequence[Selection]) -> dict[object, list[Selection]]:
    """Selections of sessions over the same tuples and groups: they differ only in their gaps."""
    alike: dict[object, list[Selection]] = defaultdict(list)
    for one in selections:
        if one.is_session:
            alike["gaps", one.family_key, frozenset(one.where.texts)].append(one)
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
        if can_be_box and len(selection.where.scalars) > 1:
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
            boxed = [one.id for one in chosen if one.where.own_boxes(frame, limits.grid_boxes) is not None]
            if len(boxed) > 1:
                gridded |= dict.fromkeys(boxed, (*key, frame))
    return gridded


def _grid_frame(members: Sequence[Selection]) -> GridFrame:
    common = (
        frozenset.intersection(*(frozenset(one.where.texts) for one in members)) if members else frozenset()
    )
    varying = {
        scalar.sql: scalar
        for member in members
        for text, part in member.where.by_text()
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
        parts = {text: part for one in members for text, part in one.where.by_text()}
        places = {text: i for i, text in enumerate(parts)}
        needs = tuple(tuple(places[text] for text in member.where.texts) for member in members)
        return family_of(members, paned, conjuncts=tuple(parts.values()), needs=needs)
    if kind == "gaps":
        owners = np.arange(len(members))
        ranges = owners, np.zeros(len(members), np.int64), np.ones(len(members), np.int64)
        return family_of(members, paned, rest=members[0].where.parts, ranges=ranges)
    if kind != "range":
        return family_of(members, paned, rest=members[0].where.parts, kin=kin(members[0].where.parts))
    assert isinstance(key, tuple)
    sql = key[2]
    searchable, others = members[0].where.by_scalar
    rest = (*(part for about, part in searchable.items() if about != sql), *others)
    grid = Grid.of([member.where.own_ranges(sql) for member in members])
    ranges = grid.owners, grid.starts[:, 0].copy(), grid.stops[:, 0].copy()
    return family_of(members, paned, rest=rest, axis=grid.axes[0], ranges=ranges, kin=kin(rest))


def _grid_family(members: Sequence[Selection], frame: GridFrame, limits: Limits, paned: bool) -> Family:
    """A family whose members are boxes of the scalars that they differ in."""
    first, common = members[0], frame[0]
    rest = tuple(part for text, part in first.where.by_text() if text in common)
    boxes = [member.where.own_boxes(frame, limits.grid_boxes) for member in members]
    return family_of(members, paned, rest=rest, grid=Grid.of([own for own in boxes if own is not None]))
