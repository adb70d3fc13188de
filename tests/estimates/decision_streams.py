"""Streams as a query WITH CONFIDENCE sees them: sums of groups at looks and at the end, made by plain rescans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.estimates.streams import Floats
from transom.columns.arrays import Ints
from transom.durations import HOUR
from transom.elements import Emit
from transom.estimates import Estimator, ItemKind
from transom.estimates.condition_margins import ConditionValues, margins
from transom.estimates.decision_score import DecisionReport
from transom.estimates.early_decisions import ClosedRows, EarlyDecisions, LookRows
from transom.estimates.estimator import split_stack, stack_of
from transom.estimates.estimator_stack import EarlyRows, FinalRows
from transom.estimates.marks import marks
from transom.sql.query import Comparison, Predicate, Scalar

Window = tuple[Floats, Ints, Floats]  # of the rows of a window: parts of the slide, groups, values
Stream = Callable[[np.random.Generator, int], Window]
LOOKS = 10
TOTAL = Scalar("`a0`", pa.float64())


def _rows(rng: np.random.Generator, counts: Ints, signed: bool = True) -> Window:
    group = np.repeat(np.arange(len(counts)), counts)
    values = rng.normal(1, 1, len(group)) if signed else rng.gamma(2, 0.5, len(group))
    return rng.random(len(group)), group, values


def steady(rng: np.random.Generator, window: int) -> Window:
    """One group; a window differs from another by chance alone."""
    return _rows(rng, np.array([rng.poisson(100)]))


def varying(rng: np.random.Generator, window: int) -> Window:
    """One group; busy and quiet windows."""
    return _rows(rng, np.array([rng.poisson(100 * rng.lognormal(0, 0.3))]))


def bursty(rng: np.random.Generator, window: int) -> Window:
    """Half of the rows come in bursts anywhere in the window, or not at all."""
    time, group, values = _rows(rng, np.array([rng.poisson(60)]))
    for _ in range(rng.poisson(1.0)):
        start, size = rng.random() * 0.9, rng.poisson(40)
        time = np.r_[time, start + rng.random(size) * 0.1]
        group, values = np.r_[group, np.zeros(size, np.int64)], np.r_[values, rng.normal(1, 1, size)]
    return time, group, values


def diurnal(rng: np.random.Generator, window: int) -> Window:
    """A day of 24 windows."""
    rate = 100 * (1 + 0.8 * np.sin(2 * np.pi * window / 24))
    return _rows(rng, np.array([rng.poisson(rate * rng.lognormal(0, 0.15))]))


def drifting(rng: np.random.Generator, window: int) -> Window:
    """The rate doubles in 500 windows."""
    return _rows(rng, np.array([rng.poisson(100 * (1 + 0.002 * window) * rng.lognormal(0, 0.2))]))


def heavy(rng: np.random.Generator, window: int) -> Window:
    """Values with a tail so heavy that single rows decide, of either sign."""
    count = rng.poisson(60)
    values = (rng.pareto(2.2, count) + 1) * np.where(rng.random(count) < 0.9, 1, -1)
    return rng.random(count), np.zeros(count, np.int64), values


def skewed(rng: np.random.Generator, window: int) -> Window:
    """Twenty groups, the first of which is twenty times as large as the last."""
    rates = 180 / (1 + np.arange(20)) * rng.lognormal(0, 0.3, 20)
    return _rows(rng, rng.poisson(rates))


def rare(rng: np.random.Generator, window: int) -> Window:
    """Thirty groups, each of which has a busy window now and then."""
    rates = 40 * rng.lognormal(0, 0.2, 30) * np.where(rng.random(30) < 0.02, 3, 1)
    return _rows(rng, rng.poisson(rates))


def shocked(rng: np.random.Generator, window: int) -> Window:
    """Ten groups that are busy and quiet together, and some windows that break off in the middle."""
    time, group, values = _rows(rng, rng.poisson(np.full(10, 50 * rng.lognormal(0, 0.3))))
    kept = time < (0.5 if rng.random() < 0.05 else 1.0)
    return time[kept], group[kept], values[kept]


@dataclass
class Run:
    """What came of a query over some windows."""

    report: DecisionReport
    decisions: EarlyDecisions
    outcomes: list[tuple[int, int, int]]  # window, group and outcome


def run(
    stream: Stream,
    limit: float,
    confidence: float,
    windows: int,
    seed: int,
    looks: int = LOOKS,
    op: str = ">",
    learned: int = 0,
    ends: Ints | None = None,
) -> Run:
    """A query `HAVING sum(x) op limit WITH CONFIDENCE` over tumbling windows; the first `learned` are not counted.

    `ends` are those of the windows, in microseconds; without, a window lasts an hour.
    """
    ends = (np.arange(windows) + 1) * HOUR if ends is None else ends
    rng = np.random.default_rng(seed)
    condition: Predicate = Comparison(TOTAL, op, limit)
    estimator = Estimator.of(Emit(confidence=confidence), [ItemKind("v", True, grows=True)], 1.0)
    decisions, outcomes = EarlyDecisions.empty(confidence, 1), list[tuple[int, int, int]]()
    points = np.arange(1, looks + 1) / looks
    for window in range(windows):
        time, group, values = stream(rng, window)
        last = np.full(int(group.max(initial=-1)) + 1, -1)
        for point in points:
            came = time < point
            sums, some = _sums(group[came], values[came])
            if not len(some):
                continue
            left = np.full(len(some), 1 - point)
            rows = EarlyRows(
                np.zeros(len(some), np.int64), some, np.full(len(some), window), left, sums[:, None], window,
                np.zeros(len(some), np.bool_), end=np.full(len(some), ends[window]),
            )  # fmt: skip
            stack = stack_of([estimator])
            estimates = stack.estimate(rows)
            estimator = next(split_stack(stack.with_early(rows, estimates)))
            margin = _margins(condition, estimates.projected, estimates.spread)
            certain = np.zeros(len(some), np.bool_)
            look = LookRows(rows.window, some, left, marks(left), margin, certain, estimates.spread)
            decisions, _ = decisions.with_looks(look, window * looks)
            last[some] = 1
        sums, some = _sums(group, values)
        finals = FinalRows(
            np.zeros(len(some), np.int64),
            some,
            np.full(len(some), window),
            sums[:, None],
            window,
            end=np.full(len(some), ends[window]),
        )
        estimator = next(split_stack(stack_of([estimator]).with_finals(finals)))
        held = _holds(condition, sums)

        def final_margin(at: Ints, spread: Floats, sums: Floats = sums) -> Floats:
            return _margins(condition, sums[at][:, None], spread)

        decisions, outcome = decisions.with_finals(
            ClosedRows(finals.window, some, held), final_margin, (window + 1) * looks
        )
        if window >= learned:
            outcomes += zip([window] * len(some), some.tolist(), outcome.tolist(), strict=True)
    return Run(decisions.report(), decisions, outcomes)


def _sums(group: Ints, values: Floats) -> tuple[Floats, Ints]:
    some = np.unique(group)
    return np.bincount(group, values)[some] if len(group) else np.empty(0), some


def _margins(condition: Predicate, projected: Floats, spread: Floats) -> Floats:
    return margins(condition, ConditionValues(lambda scalar: pa.nulls(len(projected)), projected, spread))


def _holds(condition: Predicate, sums: Floats) -> np.ndarray:
    assert isinstance(condition, Comparison)
    return sums > condition.value if condition.op == ">" else sums < condition.value
