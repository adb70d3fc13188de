"""Whether queries over the same rows share slices is weighed with every batch, and EXPLAIN says how."""

from __future__ import annotations

import pyarrow as pa

from tests.results.pure_batches import Pure
from transom.plan.context import Membership
from transom.plan.strategy import Strategy

TEXTS = {f"q{slide}": f"SELECT count(*) AS n FROM s [RANGE {2 * slide} SLIDE {slide}]" for slide in (10, 15)}


def test_the_costs_of_both_plans_are_the_reason() -> None:
    pure = Pure(TEXTS, {"v": pa.int64()}, strategy=Strategy(adapts=True))
    pure.batch([(time, 1) for time in range(100)])
    pure.planner.begin(pure.state, Membership(pure.living), list(pure.living.values()))
    (choice,) = dict(pure.planner.decisions("s"))["reshare"]
    assert (str(choice.about), choice.chosen) == ("selection 1", "shared slices for 2 kinds of window")
    start, _, rule = choice.reason.partition("; ")
    assert start.startswith("at the measured rate unshared slices cost ") and start.endswith(" times as much")
    assert rule == "a change must cost less than 0.5 times as much"


def test_a_strategy_that_does_not_adapt_weighs_nothing() -> None:
    pure = Pure(TEXTS, {"v": pa.int64()})
    pure.batch([(time, 1) for time in range(100)])
    pure.planner.begin(pure.state, Membership(pure.living), list(pure.living.values()))
    assert dict(pure.planner.decisions("s"))["reshare"] == []
