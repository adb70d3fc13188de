"""TimeGram: the paper's worked example, and intervals that contain the exact answer for any input."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reproduce.algorithms.timegram import Interval, TimeGram

BOUNDS = [-10, -6, -2, 4, 6, 10]
STREAM = {1: 3, 2: -10, 3: -9, 4: 5, 5: 2, 6: 7, 7: -3}  # T1 to T7 of section 3.2.4
AFTER = {
    1: [[], [], [1], [], []],
    2: [[2], [], [1], [], []],
    3: [[2, 3], [], [1], [], []],
    4: [[2, 3], [], [1], [4], []],
    # T5 has the value 2, which belongs in bucket 3; the paper puts it in bucket 4, [4, 6].
    5: [[2, 3], [], [5], [4], []],
    6: [[3], [], [5], [4], [6]],
    7: [[], [7], [5], [4], [6]],
}
FUNCTIONS = ("max", "min", "count", "sum", "avg")


def exact(function: str, values: list[Any]) -> Any:
    """The exact answer as in Spark; None for an empty window."""
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in ("max", "min"):
        pick = max if function == "max" else min
        return pick(values, key=lambda value: (value != value, value))
    total = sum(values)
    return total if function == "sum" else total / len(values)


def holds(found: Interval | None, answer: Any) -> bool:
    return found is None if answer is None else found is not None and found.holds(answer)


@pytest.fixture
def gram() -> TimeGram:
    gram = TimeGram(BOUNDS)
    for time, value in STREAM.items():
        gram.insert(time, value)
    return gram


def test_the_worked_example_tuple_by_tuple() -> None:
    gram = TimeGram(BOUNDS)
    for time, value in STREAM.items():
        gram.insert(time, value)
        assert gram.contents(since=time - 3) == AFTER[time], "the largest window holds four tuples"


@pytest.mark.parametrize(
    ("name", "function", "window", "interval", "answer"),
    [
        ("query 1: sum over 4, [4 - 2 + 6 - 6, 6 + 4 + 10 - 2]", "sum", 4, (2, 18), 11),
        ("query 2: max over 3, as the paper has it", "max", 3, (6, 10), 7),
        ("query 3: avg over 2, divided by 2 and not by 4", "avg", 2, (0, 4), 2),
        ("min over 4", "min", 4, (-6, -2), -3),
        ("count over 3", "count", 3, (3, 3), 3),
        ("max over 1", "max", 1, (-6, -2), -3),
    ],
)
def test_lookups_of_the_worked_example(
    gram: TimeGram, name: str, function: str, window: int, interval: tuple[int, int], answer: int
) -> None:
    assert getattr(gram, function)(since=8 - window) == interval, name
    assert exact(function, list(STREAM.values())[-window:]) == answer
    assert interval[0] <= answer <= interval[1]


def test_lookups_in_the_middle_of_the_worked_example() -> None:
    gram = TimeGram(BOUNDS)
    queries = {"sum": 4, "max": 3, "avg": 2}
    found: dict[str, list[Interval | None]] = {function: [] for function in queries}
    for time, value in STREAM.items():
        gram.insert(time, value)
        for function, window in queries.items():
            found[function].append(getattr(gram, function)(since=time - window + 1))
    assert found["max"] == [(-2, 4), (-2, 4), (-2, 4), (4, 6), (4, 6), (6, 10), (6, 10)]
    assert found["sum"] == [(-2, 4), (-12, -2), (-22, -8), (-18, -2), (-18, -2), (-2, 14), (2, 18)]
    assert found["avg"] == [(-2, 4), (-6, -1), (-10, -6), (-3, 0), (1, 5), (2, 7), (0, 4)]


@pytest.mark.parametrize(
    ("value", "interval"),
    [
        pytest.param(-6, (-6, -2), id="a bound belongs to the bucket above it"),
        pytest.param(10, (6, 10), id="the last bucket is closed"),
        pytest.param(11, (11, 11), id="above all bounds, what was seen there"),
        pytest.param(-1e300, (-1e300, -1e300), id="below all bounds"),
        pytest.param(math.inf, (math.inf, math.inf), id="infinity has a bucket"),
        pytest.param(-math.inf, (-math.inf, -math.inf), id="and so has the other"),
        pytest.param(2**80, (2**80, 2**80), id="an integer that no double holds"),
    ],
)
def test_each_value_is_in_its_bucket(value: float, interval: tuple[float, float]) -> None:
    gram = TimeGram(BOUNDS)
    gram.insert(0, value)
    assert gram.max(since=0) == gram.min(since=0) == interval


def test_nan_is_greater_than_every_number() -> None:
    gram = TimeGram(BOUNDS)
    gram.insert(0, math.nan)
    assert math.isnan(gram.min(since=0).low), "there is nothing else"
    gram.insert(1, math.inf)
    for function in ("max", "sum", "avg"):
        assert math.isnan(getattr(gram, function)(since=0).high)
    assert gram.min(since=0) == (math.inf, math.inf)
    assert gram.count(since=0) == (2, 2)


def test_infinities_of_both_signs_add_up_to_nan() -> None:
    gram = TimeGram(BOUNDS)
    for time, value in enumerate([-math.inf, math.inf, 3.0]):
        gram.insert(time, value)
    assert math.isnan(gram.sum(since=0).low)
    assert gram.sum(since=1) == gram.avg(since=1) == (math.inf, math.inf)
    assert gram.sum(since=2).holds(3.0)


def test_a_huge_value_that_has_left_the_window_widens_no_interval() -> None:
    gram = TimeGram([0.0, 1.0])
    gram.insert(0, 1e300)
    gram.insert(1, 0.5)
    found = gram.sum(since=1)
    assert found.holds(0.5) and found.high - found.low < 1.1


def test_sums_beyond_the_range_of_doubles_have_infinite_bounds() -> None:
    gram = TimeGram([0.0, 1.0])
    for time in range(3):
        gram.insert(time, 1.7e308)
    assert gram.sum(since=0) == (-math.inf, math.inf)


def test_an_interval_contains_the_sum_in_every_rounding() -> None:
    gram, values = TimeGram([-2.0, -1.0]), [0.1] * 1000
    for time, value in enumerate(values):
        gram.insert(time, value)
    found = gram.sum(since=0)
    assert sum(values) != math.fsum(values)
    assert found.holds(sum(values)) and found.holds(math.fsum(values))
    assert found.high - found.low < 1e-9


def test_an_average_that_is_no_double_lies_between_two_doubles() -> None:
    gram = TimeGram(BOUNDS)
    for time, value in enumerate([11, 11, -12]):
        gram.insert(time, value)
    assert gram.sum(since=0) == (10, 10)
    low, high = gram.avg(since=0)
    assert low < Fraction(10, 3) < high
    assert high - low < 1e-14


@pytest.mark.parametrize("bounds", [[], [1], [1, 1], [2, 1], [0, math.nan]])
def test_invalid_bounds_are_refused(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        TimeGram(bounds)
    with pytest.raises(ValueError, match="different bounds"):
        TimeGram([1, 2]).merge(TimeGram([1, 3]))


DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1e300, -1e300, 1e16, 0.1, -6.0, 10.0])
TUPLES = st.lists(st.tuples(st.integers(0, 20), DOUBLES | st.integers(-(10**17), 10**17)), max_size=30)


@given(TUPLES, TUPLES, st.integers(0, 21), st.integers(0, 20))
@example([(0, 1e308), (0, -1e308), (0, 1e308)], [], 0, 0)
def test_intervals_contain_the_exact_answer(
    tuples: list[tuple[int, float]], others: list[tuple[int, float]], since: int, floor: int
) -> None:
    grams = TimeGram(BOUNDS), TimeGram(BOUNDS)
    for gram, part in zip(grams, (tuples, others), strict=True):
        for time, value in part:
            gram.insert(time, value)
        gram.expire(floor)
    since = max(since, floor)
    for gram, part in ((grams[0], tuples), (grams[0].merge(grams[1]), tuples + others)):
        values = [value for time, value in part if time >= since]
        for function in FUNCTIONS:
            answer = exact(function, values)
            if function in ("sum", "avg") and sum(map(abs, values)) == math.inf > max(map(abs, values)):
                continue  # sums that overflow doubles depend on the order
            assert holds(getattr(gram, function)(since), answer), function


def _spikes(rng: random.Random, step: int) -> float:
    return rng.choice([1e300, -1e300, 1e-300, 0.1]) if rng.random() < 0.01 else rng.gauss(0, 10)


STREAMS: dict[str, Callable[[random.Random, int], float]] = {
    "uniform": lambda rng, step: rng.uniform(-20, 20),
    "gaussian": lambda rng, step: rng.gauss(0, 10),
    "drifting far out of the range": lambda rng, step: rng.gauss(step / 5, 3),
    "on the bounds": lambda rng, step: rng.choice([-20.0, -17.5, 0.0, 17.5, 20.0]),
    "next to the bounds": lambda rng, step: math.nextafter(rng.choice([-20.0, 20.0]), rng.choice([-99, 99])),
    "tiny": lambda rng, step: rng.choice([5e-324, -5e-324, 1e-310, 2.3e-308]),
    "huge and tiny": _spikes,
    "all digits of doubles": lambda rng, step: rng.random() * 10 ** rng.randrange(-20, 20),
    "whole numbers": lambda rng, step: rng.randrange(-(10**15), 10**15),
}  # fmt: skip


@pytest.mark.parametrize("draw", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("late", [0, 30], ids=["in order", "out of order"])
def test_long_streams(draw: Callable[[random.Random, int], float], late: int) -> None:
    seed = 17
    print("seed", seed)
    rng = random.Random(seed)
    gram = TimeGram.evenly(-20.0, 20.0, 16)
    tuples: list[tuple[int, float]] = []
    for step in range(1200):
        tuples.append((step - rng.randrange(late + 1), draw(rng, step)))
        gram.insert(*tuples[-1])
        gram.expire(step - 150)
        assert len(gram) <= 2 * (150 + 2 * late) + 64
        if step % 5 == 0:
            since = step - rng.randrange(150)
            values = [value for time, value in tuples[-200:] if time >= since]
            for function in FUNCTIONS:
                assert holds(getattr(gram, function)(since), exact(function, values)), (step, since, function)
            if values:
                assert gram.sum(since).holds(math.fsum(values))
                rng.shuffle(values)
                assert gram.sum(since).holds(sum(values)), "in whatever order they are added"


def test_sixteen_buckets_of_equal_width() -> None:
    gram = TimeGram.evenly(-20, 20, 16)
    assert len(gram.bounds) == 17
    assert (gram.bounds[0], gram.bounds[-1]) == (-20, 20)
    gram.insert(0, 0.1)
    assert gram.max(since=0) == (0, 2.5)
