"""Roll-ups: tuples are added up once for several GROUP BY lists, and each list is computed from the sums.

Kin are families that select the same rows and group them differently. A cell has the tuples that all kin put
into the same group, slice and fragment; each family then reads cells in place of tuples. Where there are
nearly as many cells as tuples, fewer families share cells, and in the end none do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transom.aggregates.numeric import lift_where_numeric
from transom.columns.arrays import Ints, Mask
from transom.columns.groups import Encoded, Groups, group
from transom.kernel.rows import RollUpCells, Rows, count_codes, selection_key
from transom.plan.axis import Axis
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.plan.limits import Limits
from transom.windows.slices import Progressions, slices


def families_by_roll_up(families: Sequence[Family]) -> list[list[Family]]:
    """Families in the roll-ups that the planner chose; a family that is in none is alone."""
    together: dict[object, list[Family]] = {}
    for family in families:
        roll_up_id = ("alone", id(family)) if family.kin is None else family.kin
        together.setdefault(roll_up_id, []).append(family)
    return list(together.values())


def roll_up(
    rows: Rows, families: Sequence[Family], clock: str, accepted: Mask, limits: Limits
) -> Iterator[tuple[Sequence[Family], RollUpCells | None]]:
    """Kin in parts, each with the cells that its families read; None: they read the rows themselves."""
    lists = dict.fromkeys(tuple(key.sql for key in family.keys) for family in families)
    if len(lists) < 2:
        yield families, None
        return
    cells = _cells(rows, families, clock, accepted, limits)
    if cells is not None:
        yield families, cells
        return
    finest = max(map(frozenset, lists), key=len)
    inside = [family for family in families if finest >= {key.sql for key in family.keys}]
    if len(inside) < len(families):
        outside = [family for family in families if family not in inside]
        yield from roll_up(rows, inside, clock, accepted, limits)
        yield from roll_up(rows, outside, clock, accepted, limits)
        return
    top = [family for family in families if finest == {key.sql for key in family.keys}]
    yield top, None
    if len(top) < len(families):
        coarser = [family for family in families if family not in top]
        yield from roll_up(rows, coarser, clock, accepted, limits)


def _cells(
    rows: Rows, families: Sequence[Family], clock: str, accepted: Mask, limits: Limits
) -> RollUpCells | None:
    """The cells of kin; None if there would be too many of them."""
    at, times = rows.chosen(families[0], clock, accepted)
    slots = {slot.id: slot for family in families for slot in family.slots}
    least = _tuples_per_cell(slots.values(), limits)
    grouped = _grouped(rows, families, clock, at, times, least, limits.cell_sample) if len(at) else None
    if grouped is None:
        return None
    cache_key = selection_key(families[0], clock)
    states = {
        key: lift_where_numeric(
            slot.accumulator,
            rows.values(slot, at, cache_key),
            rows.shown(slot, at),
            grouped.codes,
            grouped.count,
        )
        for key, slot in slots.items()
    }
    counts = count_codes(grouped.codes, grouped.count, rows.multiplicity_of(at))
    return RollUpCells(at[grouped.firsts], times[grouped.firsts], at, grouped.codes, counts, states)


def _tuples_per_cell(slots: Iterable[Slot], limits: Limits) -> int:
    sketched = any(slot.accumulator.traits.is_sketch for slot in slots)
    return limits.tuples_per_sketch if sketched else limits.tuples_per_cell


def _grouped(
    rows: Rows,
    families: Sequence[Family],
    clock: str,
    at: Ints,
    times: Ints,
    least: int,
    sample: int,
) -> Groups | None:
    """Tuples by cell; None if cells have fewer than `least` tuples on average.

    The number of cells is estimated from about `sample` tuples first: as with birthdays, `n` tuples that lie in
    `d` cells suggest about `n * n / 2 / (n - d)` cells in all.
    """
    cut = _edges(families)
    low, high = int(times.min()), int(times.max())
    if cut.count(low, high) > 8 * len(times) + (1 << 16):
        return None
    sliced = slices(cut, 1, low, high)
    axes = [family.axis for family in families if family.axis is not None]
    axis = Axis.merged(axes) if axes else None
    keys = list({key.sql: key for family in families for key in family.keys}.values())

    def by_cell(at: Ints, times: Ints, in_order: bool) -> Groups:
        columns = [Encoded(sliced.of(times, in_order), sliced.fine)]
        if axis is not None:
            columns.append(Encoded(rows.placed(axis, at), axis.size))
        return group([*columns, *(rows.encode(key, at) for key in keys)], len(at))

    step = len(at) // sample
    if step > 1:
        some = at[::step]
        repeats = len(some) - by_cell(some, times[::step], False).count
        if least * len(some) ** 2 > 2 * repeats * len(at):
            return None
    found = by_cell(at, times, rows.in_order(clock))
    return found if found.count * least <= len(at) else None


def _edges(families: Sequence[Family]) -> Progressions:
    """The edges of all members of all families, with one owner."""
    return Progressions.of_one([family.cut for family in families])
