"""Roll-ups: tuples are added once, in the groups of several GROUP BY lists, and each list is made of those.

Families that are kin ask for the same rows in other groups. Cells that tell the groups of all of them apart,
their slices and their fragments, are then like tuples to each family, only fewer. Where they are hardly
fewer, families are tried with less kin, and at last by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from transom.aggregates.numeric import added_up
from transom.aggregates.sketches import Distinct, Quantiles
from transom.columns.grouping import Encoded, Groups, group
from transom.kernel.rows import Rows, alike
from transom.kernel.tuples import Cells, Mask, Numbers
from transom.plan.axis import Axis
from transom.plan.compiled import Slot
from transom.plan.families import Family
from transom.windows.slices import Progressions, slices

# Cells must be fewer than tuples by so much to be worth it; merging a sketch costs as much as adding dozens.
TUPLES_PER_CELL = 4
TUPLES_PER_SKETCH = 64
SAMPLE = 1 << 13  # tuples by which many are judged before they are all looked at


def kinships(families: Sequence[Family]) -> list[list[Family]]:
    """Families by the roll-up that the planner numbered them for; those without a number are by themselves."""
    together: dict[object, list[Family]] = {}
    for family in families:
        kin = ("alone", id(family)) if family.kin is None else family.kin
        together.setdefault(kin, []).append(family)
    return list(together.values())


def rolled_up(
    rows: Rows, families: Sequence[Family], clock: str, accepted: Mask
) -> Iterator[tuple[Sequence[Family], Cells | None]]:
    """Kin in parts, each with the cells that it is made of; None: of the rows themselves."""
    lists = dict.fromkeys(tuple(key.sql for key in family.keys) for family in families)
    if len(lists) < 2:
        yield families, None
        return
    cells = _cells(rows, families, clock, accepted)
    if cells is not None:
        yield families, cells
        return
    finest = max(map(frozenset, lists), key=len)
    inside = [family for family in families if finest >= {key.sql for key in family.keys}]
    if len(inside) < len(families):
        yield from rolled_up(rows, inside, clock, accepted)
        yield from rolled_up(rows, [family for family in families if family not in inside], clock, accepted)
        return
    top = [family for family in families if finest == {key.sql for key in family.keys}]
    yield top, None
    if len(top) < len(families):
        yield from rolled_up(rows, [family for family in families if family not in top], clock, accepted)


def _cells(rows: Rows, families: Sequence[Family], clock: str, accepted: Mask) -> Cells | None:
    """The tuples of kin added up as far as none of them tells them apart; None if that does not pay."""
    at, times = rows.chosen(families[0], clock, accepted)
    slots = {slot.id: slot for family in families for slot in family.slots}
    least = _tuples_per_cell(slots.values())
    found = _grouped(rows, families, clock, at, times, least) if len(at) else None
    if found is None:
        return None
    known = alike(families[0], clock)
    states = {
        key: added_up(
            slot.accumulator, rows.values(slot, at, known), rows.shown(slot, at), found.codes, found.count
        )
        for key, slot in slots.items()
    }
    counts = np.bincount(found.codes, minlength=found.count)
    return Cells(at[found.firsts], times[found.firsts], at, found.codes, counts, states)


def _tuples_per_cell(slots: Iterable[Slot]) -> int:
    sketched = any(isinstance(slot.accumulator, Distinct | Quantiles) for slot in slots)
    return TUPLES_PER_SKETCH if sketched else TUPLES_PER_CELL


def _grouped(
    rows: Rows, families: Sequence[Family], clock: str, at: Numbers, times: Numbers, least: int
) -> Groups | None:
    """Tuples by cell; None if there are not at least so many in one.

    Of many tuples some are looked at first: as on birthdays, `n` tuples in `d` cells make one expect about
    `n * n / 2 / (n - d)` cells in all.
    """
    cut = _edges(families)
    low, high = int(times.min()), int(times.max())
    if cut.count(low, high) > 8 * len(times) + (1 << 16):
        return None
    sliced = slices(cut, 1, low, high)
    axes = [family.axis for family in families if family.axis is not None]
    axis = Axis.merged(axes) if axes else None
    keys = list({key.sql: key for family in families for key in family.keys}.values())

    def by_cell(at: Numbers, times: Numbers, in_order: bool) -> Groups:
        columns = [Encoded(sliced.of(times, in_order), sliced.fine)]
        if axis is not None:
            columns.append(Encoded(rows.placed(axis, at), axis.size))
        return group([*columns, *(rows.encoded(key, at) for key in keys)], len(at))

    step = len(at) // SAMPLE
    if step > 1:
        some = at[::step]
        repeats = len(some) - by_cell(some, times[::step], False).count
        if least * len(some) ** 2 > 2 * repeats * len(at):
            return None
    found = by_cell(at, times, rows.in_order(clock))
    return found if found.count * least <= len(at) else None


def _edges(families: Sequence[Family]) -> Progressions:
    """The edges of all members of all families, as if they were one's."""
    bases, steps = (
        np.concatenate([getattr(family.cut, name) for family in families]) for name in ("bases", "steps")
    )
    bases, steps = np.unique(np.stack([bases, steps]), axis=1)
    return Progressions(bases, steps, np.zeros(len(bases), np.int64))
