"""Whether queries over the same rows share slices is weighed with every batch, and EXPLAIN says how."""

from __future__ import annotations

from random import Random
from sys import modules
from typing import Any

import pyarrow as pa
import pytest

from tests.results.pure_batches import Pure
from transom.elements import WindowSpec
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.cost import is_better, shared, unshared
from transom.plan.passes.reshare import reshare
from transom.plan.strategy import Strategy

reshare_pass = modules[reshare.__module__]  # the package has the pass under the module's name

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


def test_queries_are_compared_again_only_when_some_join_or_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    pure = Pure(TEXTS, {"v": pa.int64()}, strategy=Strategy(adapts=True))
    pure.batch([(time, 1) for time in range(100)])
    compared: list[int] = []
    original = reshare_pass._candidates

    def candidates(queries: list[CompiledQuery], *states: Any) -> Any:
        compared.append(len(queries))
        return original(queries, *states)

    monkeypatch.setattr(reshare_pass, "_candidates", candidates)
    both = list(pure.living.values())
    for queries in (both, both, both[:1], both[:1]):
        pure.planner.begin(pure.state, Membership(pure.living), queries)
    for _ in range(2):
        pure.planner.begin(pure.state, Membership(pure.living), both)
    assert compared == [2, 1, 1, 2]  # lists are compared as objects: every slice is another one
    (choice,) = dict(pure.planner.decisions("s"))["reshare"]
    assert choice.chosen == "shared slices for 2 kinds of window"


def paper_windows(count: int) -> list[WindowSpec]:
    """Ranges of 10 to 15 minutes and slides of 5 to 10 minutes, in seconds: the workload of the paper's figure 4."""
    rng = Random(count)
    return [WindowSpec.ending(rng.randint(600, 900), rng.randint(300, 600)) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 16, 82, 256])
@pytest.mark.parametrize("rate", [375, 0.0005], ids=["as the paper measured", "1.8 rows an hour"])
def test_sharing_is_cheaper_for_the_papers_windows(rate: float, count: int) -> None:
    """Figure 4; at the low rate the paper's formula counts empty slices, which are not stored."""
    windows = paper_windows(count)
    assert shared(windows, rate).total < unshared(windows, rate).total


def test_with_many_tuples_the_costs_are_those_of_the_papers_table_3() -> None:
    windows = [WindowSpec.ending(18, 15), WindowSpec.ending(12, 9)]
    edges = 2 / 15 + 2 / 9
    assert unshared(windows, 1000).final == pytest.approx(2 * 18 / 15**2 + 2 * 12 / 9**2)
    assert shared(windows, 1000).final == pytest.approx(edges * (18 / 15 + 12 / 9), rel=0.2)


def test_with_few_tuples_for_windows_that_overlap_much_sharing_costs_more() -> None:
    windows = [WindowSpec.ending(10 * slide, slide) for slide in range(300, 400)]
    assert is_better(unshared(windows, 0.1), shared(windows, 0.1), 0.5)


def test_three_windows_at_1_8_rows_an_hour_stay_shared() -> None:
    texts = {
        f"q{size}": f"SELECT count(*) AS n FROM s [RANGE {size} SLIDE {slide}]"
        for size, slide in ((611, 307), (733, 419), (887, 593))
    }
    pure = Pure(texts, {"v": pa.int64()}, strategy=Strategy(adapts=True))
    for hour in range(5):
        pure.batch([(hour * 3600 + second, 1) for second in (100, 2100)])
        pure.state = pure.planner.begin(pure.state, Membership(pure.living), list(pure.living.values()))
        (choice,) = dict(pure.planner.decisions("s"))["reshare"]
        assert choice.chosen == "shared slices for 3 kinds of window"
