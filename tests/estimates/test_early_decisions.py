"""Early decisions on generated streams: of the announced windows, as many are confirmed as was asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.estimates import decision_streams
from tests.estimates.decision_streams import TOTAL, Stream, run
from transom.estimates.condition_margins import ConditionValues, certain, margins
from transom.estimates.decision_history import DecisionHistory
from transom.estimates.early_decisions import DecisionOutcome, EarlyDecisions
from transom.sql.query import And, Comparison, Or, Predicate, Scalar

OTHER = Scalar("`a1`", pa.float64())
KEY = Scalar("`k0`", pa.int64())
ABOVE, BELOW, AT_KEY = Comparison(TOTAL, ">", 10), Comparison(OTHER, "<=", 4), Comparison(KEY, "=", 3)


def values(keys: list[int], *columns: tuple[float, float]) -> ConditionValues:
    """Values of estimated leaves as (projected, spread), the same for all rows."""
    projected, spread = np.array(columns).T
    rows = len(keys)
    return ConditionValues(
        lambda scalar: pa.array(keys), np.tile(projected, (rows, 1)), np.tile(spread, (rows, 1))
    )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (ABOVE, 2.0),
        (And((ABOVE, BELOW)), 1.0),
        (Or((ABOVE, BELOW)), 2.0),
        (Comparison(TOTAL, "<", 10), -2.0),
        (Comparison(TOTAL, "=", 10), -2.0),
        (Comparison(TOTAL, "!=", 10), 2.0),
    ],
)
def test_the_margin_of_a_condition(condition: Predicate, expected: float) -> None:
    columns = ((14, 2),) if isinstance(condition, Comparison) else ((14, 2), (3, 1))
    assert margins(condition, values([1], *columns)).tolist() == [expected]


def test_a_group_column_decides_alone_and_what_is_unknown_is_not_decided() -> None:
    both = And((AT_KEY, ABOVE))
    assert margins(both, values([3, 4], (14, 2))).tolist() == [2.0, -np.inf]
    assert margins(Or((AT_KEY, ABOVE)), values([3, 4], (14, 2))).tolist() == [np.inf, 2.0]
    assert margins(ABOVE, values([3], (14, float("nan")))).tolist() == [-np.inf]


def test_a_sum_of_doubles_is_certain_only_when_rounding_does_not_matter() -> None:
    column = pa.array([10.0 + 1e-12, 10.1, 9.0])
    assert certain(ABOVE, lambda scalar: column, lambda sql: 1).tolist() == [False, True, False]
    assert not certain(ABOVE, lambda scalar: column, lambda sql: 0).any()


def history(errors: list[float], held: float, windows: int = 40) -> DecisionHistory:
    """A history of equally many errors in each window, in a part of which the condition held."""
    number = np.arange(len(errors))
    empty, found = DecisionHistory.empty(0.9), np.array(errors)
    for window in range(windows):
        mine = number % windows == window
        empty = empty.with_errors(found[mine], number[mine] < held * len(errors), number[mine] % windows)
    return empty


def test_nothing_is_decided_before_ten_windows() -> None:
    few = history([1.0] * 90, 0.5, windows=9)
    assert few.limit == np.inf
    assert history([1.0] * 100, 0.5, windows=10).limit < np.inf


def test_a_rare_condition_needs_a_larger_margin() -> None:
    errors = np.random.default_rng(1).exponential(1, 400).tolist()
    often, seldom = history(errors, 0.9), history(errors, 0.05)
    assert 1.5 < often.limit < seldom.limit


def test_candidates_show_the_least_limit_that_keeps_the_promise() -> None:
    rng = np.random.default_rng(2)
    margin = rng.random(1000) * 4
    held = rng.random(1000) < np.where(margin > 2, 0.97, 0.5)
    known = DecisionHistory.empty(0.9)
    for window in range(20):
        mine = slice(window * 50, window * 50 + 50)
        known = known.with_candidates(margin[mine], held[mine], np.full(50, window))
    announced = margin >= known.limit
    assert (~held[announced]).mean() <= 0.1
    assert known.limit < 2, "a few worse ones are within the promise"


def test_withdrawn_decisions_raise_the_limit_and_confirmed_ones_lower_it_again() -> None:
    before = DecisionHistory.empty(0.9)
    after = before.with_outcomes(0, 3)
    assert after.miss < before.miss
    assert after.with_outcomes(100, 0).miss > after.miss
    assert before.with_outcomes(0, 10_000).miss > 0


@pytest.mark.parametrize(
    ("stream", "limit"),
    [
        (decision_streams.varying, 115),
        (decision_streams.bursty, 110),
        (decision_streams.diurnal, 130),
        (decision_streams.heavy, 95),
        (decision_streams.skewed, 40),
        (decision_streams.rare, 80),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_of_the_announced_windows_as_many_are_confirmed_as_promised(stream: Stream, limit: float) -> None:
    score = run(stream, limit, 0.9, windows=160, seed=11).report.total
    announced = score.confirmed + score.withdrawn
    # Three standard deviations of as many decisions, each of which is wrong with the promised probability.
    assert announced >= 20
    assert score.withdrawn <= 0.1 * announced + 3 * np.sqrt(0.09 * announced)
    assert score.miss_rate < 0.4, "it learns to announce most windows"
    assert score.lead_slides > 0


def test_outcomes_are_counted_once_and_the_state_is_restored_exactly() -> None:
    done = run(decision_streams.skewed, 40, 0.9, windows=40, seed=3)
    counts = Counter(outcome for _, _, outcome in done.outcomes)
    total = done.report.total
    assert (counts[DecisionOutcome.CONFIRMED], counts[DecisionOutcome.WITHDRAWN], counts[DecisionOutcome.MISSED]) == (
        total.confirmed, total.withdrawn, total.missed
    )  # fmt: skip
    assert not len(done.decisions.tracks) and not len(done.decisions.looks.window), "nothing is left behind"
    restored = EarlyDecisions.loads(done.decisions.dumps())
    assert restored.dumps() == done.decisions.dumps()
    assert restored.report() == done.report and restored.history.limit == done.decisions.history.limit
