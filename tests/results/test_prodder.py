"""The thesis's worked examples, and what prods may and may not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.results.pure_batches import Pure
from transom.elements import WindowSpec
from transom.plan.strategy import Strategy
from transom.results import close as closing
from transom.windows import ids as windows

TRAFFIC = {"sensor": pa.int64(), "speed": pa.int64(), "volume": pa.int64()}
SUM = "SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50]"
MAX = "SELECT max(volume) AS v FROM s [RANGE 30 SLIDE 10]"
BY_SENSOR = "SELECT sensor, sum(volume) AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor"
FIRST = [(11, 1, 45, 40), (23, 2, 46, 20), (32, 3, 44, 30), (45, 4, 45, 20)]
STRATEGIES = {
    "shared": Strategy(),
    "panes": Strategy(paned=True),
    "unshared": Strategy(shared=False),
    "adaptive": Strategy(adapts=True),
}


def shown(told: list[tuple[str, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    return [(row["window_end"], row["v"], row["kind"], row["rows"]) for _, row in told]


def test_wids_of_time_211_are_10_to_12() -> None:
    spec, time = WindowSpec.ending(60, 20), np.array([211, 230])
    assert windows.wid_from(spec, time).tolist() == [10, 11]
    assert windows.wid_to(spec, time).tolist() == [12, 13]


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_window_sum_is_110_early_and_135_finally(strategy: Strategy, restart: bool) -> None:
    """Figure 3.1; the thesis calls the window 1, its formula 0."""
    engine = Pure({"q": SUM}, TRAFFIC, strategy=strategy, restart=restart)
    assert shown(engine.batch(FIRST, [engine.prod(50)])) == [(50, 110, "early", 4)]
    assert engine.batch([(52, 1, 48, 26), (47, 4, 40, 25)]) == []
    assert shown(engine.batch(until=50)) == [(50, 135, "final", 5)]
    assert shown(engine.batch(prods=[engine.prod()])) == [(100, 26, "early", 1)]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_paned_window_max_is_55_early_and_58_finally(strategy: Strategy) -> None:
    """Figure 3.4, with pane 10, which the thesis forgets: it says 54, which is pane 12's own."""
    pane = "SELECT max(volume) AS v FROM s [RANGE 10 SLIDE 10]"
    engine = Pure({"window": MAX, "pane": pane}, TRAFFIC, strategy=strategy)
    engine.batch([(102, 1, 50, 55), (107, 2, 51, 40), (113, 1, 48, 52), (119, 2, 49, 31), (125, 2, 46, 45)])
    assert shown(engine.batch(until=110)) == [(110, 55, "final", 2), (110, 55, "final", 2)]
    assert shown(engine.batch(until=120)) == [(120, 55, "final", 4), (120, 52, "final", 2)]
    told = engine.batch([(126, 1, 50, 54)], [engine.prod(130)])
    assert shown(told) == [(130, 55, "early", 6), (130, 54, "early", 2)]
    assert shown(engine.batch([(126, 1, 40, 58)], until=130)) == [
        (130, 58, "final", 7),
        (130, 58, "final", 3),
    ]


def test_a_prod_for_a_group_returns_that_group() -> None:
    engine = Pure({"q": BY_SENSOR, "all": SUM, "pinned": f"{SUM} WHERE sensor = 1"}, TRAFFIC)
    told = engine.batch(FIRST, [engine.prod(50, sensor=1)])
    assert [(name, row["v"]) for name, row in told] == [("q", 40), ("pinned", 40)]


def test_the_windows_at_a_time_are_not_those_up_to_it() -> None:
    engine = Pure({"q": "SELECT sum(volume) AS v FROM s [RANGE 30 SLIDE 10]"}, TRAFFIC)
    rows = [(t, 1, 0, t) for t in (5, 15, 25, 35)]
    assert shown(engine.batch(rows, [engine.prod(29, exactly=True)])) == [(20, 20, "early", 2)]
    ends = [end for end, *_ in shown(engine.batch(prods=[engine.prod(29)]))]
    assert ends == [10, 20]
    ends = [end for end, *_ in shown(engine.batch(prods=[engine.prod()]))]
    assert ends == [10, 20, 30, 40, 50, 60]


def test_prods_for_the_same_group_tell_of_it_once() -> None:
    engine = Pure({"q": BY_SENSOR}, TRAFFIC)
    prods = [engine.prod(50, sensor=1), engine.prod(50, True, sensor=1), engine.prod(60, sensor=1)]
    assert len(engine.batch(FIRST, prods)) == 1


@pytest.mark.parametrize("until", [10, 49], ids=["long before", "just before"])
def test_a_prod_that_is_too_early_passes(until: int) -> None:
    engine = Pure({"q": SUM}, TRAFFIC)
    assert engine.batch(FIRST, [engine.prod(until)]) == []
    assert engine.batch(prods=[engine.prod(100, exactly=True)]) == []  # the window holds nothing yet
    assert shown(engine.batch(until=50)) == [(50, 110, "final", 4)]


def test_a_prod_that_is_too_late_passes() -> None:
    engine = Pure({"q": SUM}, TRAFFIC)
    engine.batch(FIRST, until=50)
    assert engine.batch(prods=[engine.prod(50), engine.prod(50, exactly=True), engine.prod()]) == []


def test_a_prod_on_another_clock_passes() -> None:
    engine = Pure({"q": "SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50 WATTR speed]"}, TRAFFIC)
    assert engine.batch(FIRST, [engine.prod(500)]) == []
    assert len(engine.batch(prods=[engine.prod()])) == 1


# --- the Prodder --------------------------------------------------------------------------


def emitting(clause: str, range_: int = 20, slide: int = 20) -> str:
    return f"SELECT sum(volume) AS v FROM s [RANGE {range_} SLIDE {slide}] EMIT EARLY {clause}"


def one(t: int) -> tuple[int, int, int, int]:
    return t, 1, 1, t


def test_a_window_is_emitted_once_when_its_mark_is_passed() -> None:
    engine = Pure({"q": emitting("AT 75% OF SLIDE")}, TRAFFIC, slack=0)
    told = [shown(engine.batch([one(t)])) for t in (1, 14, 15, 16, 19, 20, 36)]
    assert told == [[], [], [(20, 30, "early", 3)], [], [], [(20, 65, "final", 5)], [(40, 56, "early", 2)]]


def test_several_marks_passed_at_once_emit_one_result() -> None:
    engine = Pure({"q": emitting("AT 25%, 50%, 75% OF SLIDE")}, TRAFFIC, slack=0)
    told = [shown(engine.batch([one(t)])) for t in (5, 16, 17)]
    assert [len(each) for each in told] == [1, 1, 0]


def test_sliding_windows_are_emitted_in_their_last_slide() -> None:
    engine = Pure({"q": emitting("AT 50% OF SLIDE", 30, 10)}, TRAFFIC, slack=0)
    told = [
        end for t in range(0, 40, 5) for end, _, kind, _ in shown(engine.batch([one(t)])) if kind == "early"
    ]
    assert told == [10, 20, 30, 40]


def test_a_window_that_waits_for_its_slack_is_emitted_past_its_end() -> None:
    engine = Pure({"q": emitting("AT 100% OF SLIDE")}, TRAFFIC, slack=15)
    assert shown(engine.batch([one(3)])) == []
    assert shown(engine.batch([one(24)])) == [(20, 3, "early", 1)]
    assert shown(engine.batch([one(19)])) == []
    assert shown(engine.batch([one(35)])) == [(20, 22, "final", 2)]


def test_every_so_much_time_all_open_windows_are_told_if_something_came() -> None:
    engine = Pure({"q": emitting("EVERY '1 second'", 40, 20)}, TRAFFIC, slack=0)
    second = 1_000_000
    assert len(engine.batch([one(3)], now=10 * second)) == 2
    assert engine.batch([one(4)], now=10 * second + 999_999) == []
    assert [row["rows"] for _, row in engine.batch(now=11 * second)] == [2, 2]
    assert engine.batch(now=13 * second) == []


def test_on_demand_only_prods_return_results_with_estimates() -> None:
    engine = Pure({"q": emitting("ON DEMAND")}, TRAFFIC, slack=0)
    for t in range(0, 400, 2):
        assert all(row["kind"] == "final" for _, row in engine.batch([one(t)]))
    told = engine.batch([one(401), one(405), one(410)], [engine.prod()])
    (row,) = (row for _, row in told if row["kind"] == "early")
    assert row["v"] < row["v_low"] <= row["v_projected"] <= row["v_high"]


@pytest.mark.parametrize("clause", ["AT 50% OF SLIDE", "EVERY '1 second'", "WITH ACCURACY 90%", "ON DEMAND"])
def test_finals_are_the_same_with_and_without(clause: str) -> None:
    plain = "SELECT sum(volume) AS v, avg(speed) AS a FROM s [RANGE 30 SLIDE 10]"
    told = {}
    for text in (plain, f"{plain} EMIT EARLY {clause}"):
        engine = Pure({"q": text}, TRAFFIC, slack=3)
        rng = np.random.default_rng(7)
        for t in range(0, 200, 4):
            rows = [(int(t + d), 1, int(s), int(v)) for d, s, v in rng.integers(0, 6, (5, 3))]
            engine.batch(rows, [engine.prod()] if t % 12 == 0 else [], now=t * 500_000)
        engine.batch(ended=True)
        told[text] = [
            (row["window_end"], row["v"], row["a"], row["rows"], row["batch"], row["latency"])
            for _, row in engine.results
            if row["kind"] == "final"
        ]
    first, second = told.values()
    assert first == second and first


def test_the_latency_is_counted_from_the_arrival_of_the_windows_first_tuple() -> None:
    """Section 4.1: arrived at 7, told at 11, so 4."""
    engine = Pure({"q": "SELECT sum(volume) AS v FROM s [RANGE 5 SLIDE 5]"}, TRAFFIC)
    engine.batch([one(6)], now=7_000_000)
    ((_, early),) = engine.batch([one(8)], [engine.prod(10)], now=9_000_000)
    ((_, final),) = engine.batch(until=10, now=11_000_000)
    assert (early["latency"], final["latency"]) == (2.0, 4.0)
    assert early["made"].timestamp() == 9 and final["made"].timestamp() == 11


def test_the_accuracy_loop_moves_towards_its_target_and_stays() -> None:
    engine = Pure({"q": emitting("WITH ACCURACY 94% BETWEEN 10% AND 100% OF SLIDE")}, TRAFFIC, slack=0)
    rng = np.random.default_rng(1)
    points = []
    for t in range(0, 2000, 2):
        rows = [(t, 1, 1, int(v)) for v in rng.integers(0, 100, int(rng.poisson(4)) + 1)]
        engine.batch(rows, now=t * 1_000_000)
        points.append(engine.state.estimators["q"].point if engine.state.estimators else 1.0)
    accuracy = engine.state.estimators["q"].accuracy()
    assert 0.1 < accuracy.point < 1.0
    assert abs(accuracy.recent.projected - 0.94) < 0.02
    assert max(points[-300:]) - min(points[-300:]) <= 0.25


# --- what went wrong once -----------------------------------------------------------------


def test_a_query_over_a_query_can_be_prodded_before_any_batch_touched_it() -> None:
    engine = Pure(
        {"per": "SELECT sensor, sum(volume) AS v FROM s [RANGE 20 SLIDE 20] GROUP BY sensor"}, TRAFFIC
    )
    engine.batch([one(3)])
    engine.register({"outer": "SELECT max(v) AS v FROM per [RANGE 60 SLIDE 60]"})
    assert [name for name, _ in engine.batch(prods=[engine.prod()])] == ["per", "outer"]


def test_what_an_outer_query_missed_is_not_told_as_if_it_were_whole() -> None:
    inner = "SELECT sum(volume) AS v FROM s [RANGE 20 SLIDE 20]"
    engine = Pure({"per": inner, "o1": "SELECT sum(v) AS v FROM per [RANGE 60 SLIDE 60]"}, TRAFFIC, slack=0)
    for t in (5, 25, 45, 61):
        engine.batch([one(t)])
    engine.register({"o2": "SELECT sum(v) AS v FROM per [RANGE 60 SLIDE 20]"})
    told = engine.batch(prods=[engine.prod()])
    assert all(row["v"] == 86 for name, row in told if name == "o2" and row["window_end"] == 80)
    ends = {row["window_end"] for name, row in told if name == "o2"}
    assert not ends & {60, 80, 100}, "windows of which it missed results"


def test_windows_that_close_without_a_final_leave_nothing_behind() -> None:
    text = "SELECT sum(volume) AS v FROM s [RANGE 20 SLIDE 20] HAVING count(*) < 1 EMIT EARLY AT 50% OF SLIDE"
    engine = Pure({"q": text.replace("< 1", "< 3")}, TRAFFIC, slack=0)
    for t in range(0, 1200, 4):
        engine.batch([one(t)])
    assert sum(map(len, engine.state.estimators["q"].pending.parts)) < 20


def test_prods_for_one_group_do_not_keep_a_query_from_learning() -> None:
    text = "SELECT sensor, sum(volume) AS v FROM s [RANGE 20 SLIDE 20] GROUP BY sensor EMIT EARLY ON DEMAND"
    engine = Pure({"q": text}, TRAFFIC, slack=0)
    for t in range(0, 600, 4):
        engine.batch([one(t)], [engine.prod(sensor=7)])
    told = engine.batch([one(603)], [engine.prod()])
    assert [row["v_low"] is not None for _, row in told if row["kind"] == "early"] == [True]


def test_what_a_prod_was_told_of_a_query_that_left_is_no_lesson_for_another_of_its_name() -> None:
    engine = Pure({"q": emitting("ON DEMAND")}, TRAFFIC, slack=0)
    for t in range(0, 100, 4):
        engine.batch([one(t)])
    assert engine.state.estimators
    engine.drop("q")
    assert not engine.state.estimators and not engine.state.prodders


def test_many_exact_prods_of_groups_are_answered_together() -> None:
    engine = Pure({f"q{i}": f"{BY_SENSOR} HAVING count(*) > {-i}" for i in range(5)}, TRAFFIC)
    rows = [(t, t % 50, 1, t) for t in range(50)]
    prods = [engine.prod(50, True, sensor=g) for g in range(50)]
    told = engine.batch(rows, prods)
    assert len(told) == 250 and len({(name, row["sensor"]) for name, row in told}) == 250


def test_a_mark_costs_hundreds_of_queries_one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open windows are read in one run for all, as closing ones are: never query by query."""

    def one_by_one(*given: Any) -> None:
        raise AssertionError("a query's windows were read by themselves")

    engine = Pure({f"q{i}": emitting("AT 50% OF SLIDE") for i in range(30)}, TRAFFIC, slack=0)
    monkeypatch.setattr(closing._Sheet, "one", one_by_one)
    assert len([each for t in (3, 9, 12, 17) for each in engine.batch([one(t)])]) == 30


def test_a_query_of_texts_alone_can_be_emitted_early() -> None:
    text = (
        "SELECT sensor, max(code) AS v FROM s [RANGE 20 SLIDE 20] GROUP BY sensor EMIT EARLY AT 50% OF SLIDE"
    )
    engine = Pure({"q": text}, {"sensor": pa.int64(), "code": pa.string()}, slack=0)
    for t in range(0, 200, 4):
        engine.batch([(t, g, f"code {t % 7}") for g in range(12)])
    kinds = {row["kind"] for _, row in engine.results}
    assert kinds == {"early", "final"}


def test_a_lesson_that_fails_harms_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from transom.estimates import Estimator

    def broken(*given: Any) -> None:
        raise ValueError("out of order")

    engine = Pure({"q": emitting("AT 50% OF SLIDE"), "other": SUM}, TRAFFIC, slack=0)
    monkeypatch.setattr(Estimator, "with_finals", broken)
    monkeypatch.setattr(Estimator, "estimate", broken)
    told = [name for t in range(0, 120, 5) for name, _ in engine.batch([one(t)])]
    assert told.count("q") == 11 and told.count("other") == 2
