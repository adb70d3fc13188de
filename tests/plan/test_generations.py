"""Young selections: queries that join are planned apart from the others, and the plan follows from the state alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.plan.bids import compiled
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.families import Family
from transom.plan.limits import Limits
from transom.plan.planner import Planner, SharedPlan
from transom.plan.strategy import Strategy
from transom.state.state import State

WHERES = (
    "price > {0}",
    "price < {0}",
    "price > {0} AND site = 1",
    "price > {0} AND kind < 'k{0}'",
    "site = {0}",
)
REST = ("", "GROUP BY site", "GROUP BY kind")
WINDOWS = ("[RANGE 10 SLIDE 10 WATTR seq]", "[RANGE 6 SLIDE 4 WATTR seq]")


def query(number: int, dice: random.Random) -> CompiledQuery:
    aggregate = dice.choice(("sum(price)", "count(*)", "max(seq)"))
    where = dice.choice(WHERES).format(dice.randrange(30))
    text = f"SELECT {aggregate} FROM bids {dice.choice(WINDOWS)} WHERE {where} {dice.choice(REST)}"
    return compiled(text, f"q{number}")


def numbers(queries: Sequence[int]) -> list[CompiledQuery]:
    window = "[RANGE 10 SLIDE 10 WATTR seq]"
    return [compiled(f"SELECT sum(price) FROM bids {window} WHERE price > {i}", f"q{i}") for i in queries]


def joined(
    planner: Planner, state: State, living: Sequence[CompiledQuery], joining: Sequence[CompiledQuery]
) -> State:
    return planner.begin(state, Membership({each.name: each for each in living}, joining))


def content(value: Any) -> Any:
    """A value as something that compares by what it holds."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [content(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return [type(value).__name__, *(content(getattr(value, each.name)) for each in fields(value))]
    return value


def shown(plan: SharedPlan) -> list[Any]:
    """All that the kernel reads of a plan, with the families that are rolled up together."""
    kin = {
        number: place for place, number in enumerate(dict.fromkeys(family.kin for family in plan.families))
    }
    families = [
        [
            kin[family.kin],
            *(
                content(getattr(family, each.name))
                for each in fields(Family)
                if each.name not in ("kin", "members")
            ),
        ]
        for family in plan.families
    ]
    return [families, content(plan.interests), content(plan.index)]


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_follows_from_the_state_and_not_from_earlier_plans(seed: int) -> None:
    dice = random.Random(seed)
    strategy = Strategy(
        limits=Limits(young_selections=dice.choice((1, 5, 20)), old_per_young=dice.choice((0, 2)))
    )
    planner, state, living = Planner(strategy), State(), dict[str, CompiledQuery]()
    generations = set()
    for batch in range(25):
        leaving = [name for name in living if dice.random() < 0.1]
        joining = [query(100 * batch + i, dice) for i in range(dice.choice((0, 1, 6)))]
        living = {name: each for name, each in living.items() if name not in leaving}
        living |= {each.name: each for each in joining}
        state = planner.begin(state, Membership(dict(living), joining, leaving))
        generations.add(state.young_after)
        queries = list(living.values())
        assert shown(planner.plan(state, queries)) == shown(Planner(strategy).plan(state, queries)), (
            f"batch {batch}"
        )
    assert len(generations) > 1


def test_a_query_that_joins_leaves_the_families_of_the_others_as_they_are() -> None:
    strategy = Strategy(limits=Limits(young_selections=3, old_per_young=2))
    planner, old = Planner(strategy), numbers(range(10))
    state = joined(planner, State(), old, old)
    (before,) = planner.plan(state, old).families
    young = numbers(range(50, 53))
    for count in (1, 2, 3):
        every = [*old, *young[:count]]
        state = joined(planner, state, every, young[count - 1 : count])
        first, second = planner.plan(state, every).families
        assert first is before and len(second) == count
    reasons = [choice.reason for choice in dict(planner.decisions("bids"))["families"]]
    assert [reason.endswith("planned apart, because queries opened it lately") for reason in reasons] == [
        False,
        True,
    ]


def test_too_many_young_selections_are_planned_with_the_others() -> None:
    strategy = Strategy(limits=Limits(young_selections=3, old_per_young=2))
    planner, old, young = Planner(strategy), numbers(range(10)), numbers(range(50, 54))
    state = joined(planner, State(), old, old)
    every = [*old, *young]
    state = joined(planner, state, every, young)
    (family,) = planner.plan(state, every).families
    assert len(family) == 14 and state.young_after == state.last_selection


def test_few_selections_are_planned_together() -> None:
    planner, old = Planner(), numbers(range(10))
    state = joined(planner, State(), old, old)
    every = [*old, *numbers([50])]
    (family,) = planner.plan(joined(planner, state, every, every[-1:]), every).families
    assert len(family) == 11


def test_a_family_whose_members_get_other_windows_keeps_its_axis() -> None:
    strategy = Strategy(limits=Limits(young_selections=3, old_per_young=2))
    planner, old = Planner(strategy), numbers(range(10))
    state = joined(planner, State(), old, old)
    (before,) = planner.plan(state, old).families
    window = "[RANGE 6 SLIDE 4 WATTR seq]"
    other = compiled(f"SELECT max(seq) FROM bids {window} WHERE price > 3", "other")
    every = [*old, other]
    state = joined(planner, state, every, [other])
    (after,) = planner.plan(state, every).families
    assert after is not before and after.axis is before.axis and len(after.slots) == 2
    assert shown(planner.plan(state, every)) == shown(Planner(strategy).plan(state, every))
