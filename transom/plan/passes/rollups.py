"""Roll-ups: which families that differ only in GROUP BY add their tuples once, to groups of all their lists.

The pass decides which families may be rolled up together. Whether the finer groups are clearly fewer than
tuples depends on the rows, so each task measures that before it rolls up (`transom.kernel.rollups`).
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.plan.context import PlanContext
from transom.plan.decisions import Choice, Decision, LazyChoices
from transom.plan.families import Family, family_numbers
from transom.plan.subject import Subject


def rollups(context: PlanContext) -> Decision | None:
    """Number the families so that those with one number are rolled up together."""
    if context.selections is None or not context.strategy.rolls_up or not context.families:
        return None
    memory = context.memory
    numbers = _numbers(context.families, memory.families.intern)
    rolled_up = tuple(
        memory.rolled_up(family, number) for family, number in zip(context.families, numbers, strict=True)
    )
    stream = rolled_up[0].clock.stream
    choices = LazyChoices(lambda: _choices(stream, rolled_up))
    return Decision(choices, replaces=stream, derived=True, families=rolled_up)


def rollup_groups(families: Sequence[Family]) -> list[list[int]]:
    """The places of families that are rolled up together: those of one number, over several GROUP BY lists."""
    together: dict[int, list[int]] = {}
    for place, family in enumerate(families):
        if family.kin is not None:
            together.setdefault(family.kin, []).append(place)
    return [
        places
        for places in together.values()
        if len({tuple(key.sql for key in families[place].keys) for place in places}) > 1
    ]


def _numbers(families: Sequence[Family], intern: dict[object, int]) -> list[int | None]:
    """For each family the number of its roll-up; None: it is not rolled up.

    Families with different axes are apart; those without an axis are with the first that has one.
    """
    first: dict[int, str] = {}
    for family in families:
        if family.kin is not None and family.axis is not None:
            first.setdefault(family.kin, family.axis.scalar.sql)
    numbers: list[int | None] = []
    for family in families:
        if family.kin is None:
            numbers.append(None)
            continue
        axis = first.get(family.kin) if family.axis is None else family.axis.scalar.sql
        numbers.append(intern.setdefault(("rollup", family.kin, axis), len(intern) + 1))
    return numbers


def _choices(stream: str, families: Sequence[Family]) -> list[Choice]:
    numbers, choices = family_numbers(families), []
    for places in rollup_groups(families):
        about = Subject.families(sorted(numbers[place] for place in places))
        keys = dict.fromkeys(key.sql for place in places for key in families[place].keys)
        chosen = (
            f"rolled up from groups by {', '.join(keys)} where a task finds these clearly fewer than tuples"
        )
        reason = "they read the same tuples and differ only in GROUP BY"
        choices.append(Choice(stream, about, chosen, reason, "rolled_up"))
    return choices
