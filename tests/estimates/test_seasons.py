"""What is learned of the hours of a week: better estimates on streams with days, no worse ones without."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.estimates.streams import Floats
from transom.columns.array_bytes import pack, unpack
from transom.columns.arrays import Ints, Mask
from transom.durations import HOUR
from transom.elements import Emit
from transom.estimates import Estimator, ItemKind
from transom.estimates.estimator import split_stack, stack_of
from transom.estimates.estimator_stack import EarlyRows, EstimatorStack, FinalRows
from transom.estimates.experts import Expert
from transom.estimates.seasons import HOURS_OF_DAY, NO_TIME, HourFactors, HourPairs, Seasons

KINDS = (ItemKind("n", True, grows=True), ItemKind("mean", True))
SEEDS = 6
HOURS_RUN = 12 * HOURS_OF_DAY


def rates(hour: int, is_daily: bool) -> float:
    """Rows in an hour: ten times as many at noon as at midnight, or always as many."""
    return 110 * (1 - 0.82 * np.cos(2 * np.pi * hour / HOURS_OF_DAY)) if is_daily else 110


@cache
def run(is_daily: bool, tells_time: bool) -> tuple[Floats, Floats, Floats, Floats, EstimatorStack]:
    """Projections, bounds and finals at a quarter of each window: hours x streams x items; and what was learned.

    Each stream is that of a query; all queries are one stack.
    """
    stack = stack_of([Estimator.of(Emit(at=(0.5,)), KINDS, 1.0) for _ in range(SEEDS)])
    query, group, left = np.arange(SEEDS), np.zeros(SEEDS, np.int64), np.full(SEEDS, 0.75)
    random = np.random.default_rng(7)
    found = []
    for hour in range(HOURS_RUN):
        rate = rates(hour, is_daily) * random.lognormal(0, 0.08, SEEDS)
        level = 20 + (rates(hour, is_daily) - 110) / 10
        counts = random.poisson([rate / 4, 3 * rate / 4]) + 1
        means = [random.normal(level, 4 / np.sqrt(part)) for part in counts]
        early = np.column_stack([counts[0], means[0]]).astype(np.float64)
        final = np.column_stack([counts.sum(axis=0), (counts * means).sum(axis=0) / counts.sum(axis=0)])
        window = np.full(SEEDS, hour)
        end = np.full(SEEDS, (hour + 1) * HOUR) if tells_time else None
        seen = EarlyRows(query, group, window, left, early, 0, np.ones(SEEDS, np.bool_), end=end)
        estimates = stack.estimate(seen)
        stack = stack.with_early(seen, estimates)
        stack = stack.with_finals(FinalRows(query, group, window, final, 0, end=end))
        found.append((estimates.projected, estimates.low, estimates.high, final))
    projected, low, high, finals = (np.stack(column) for column in zip(*found, strict=True))
    return projected, low, high, finals, stack


def errors(is_daily: bool, tells_time: bool) -> Floats:
    """By item, the average error after a week, as a part of the average final."""
    projected, _, _, final, _ = run(is_daily, tells_time)
    late = slice(5 * HOURS_OF_DAY, None)
    error: Floats = np.abs(projected - final)[late].mean(axis=(0, 1)) / np.abs(final[late]).mean(axis=(0, 1))
    return error


def covered(tells_time: bool, is_night: bool) -> float:
    """The part of finals within their bounds, at night or in the middle of the day."""
    _, low, high, final, _ = run(True, tells_time)
    hour = np.arange(HOURS_RUN) % HOURS_OF_DAY
    chosen = (hour < 4) | (hour >= 20) if is_night else (hour >= 8) & (hour < 16)
    chosen &= np.arange(HOURS_RUN) >= 5 * HOURS_OF_DAY
    inside = (low <= final) & (final <= high)
    return float(inside[chosen][..., 0].mean())


def test_the_hour_improves_projections_of_a_stream_with_days() -> None:
    counts, means = errors(True, True) / errors(True, False)
    assert counts < 0.9 and means < 1


def test_the_hour_does_not_worsen_projections_of_a_stream_without_days() -> None:
    assert (errors(False, True) <= 1.02 * errors(False, False)).all()


@pytest.mark.parametrize("is_night", [True, False], ids=["night", "day"])
def test_bounds_hold_at_night_and_by_day(is_night: bool) -> None:
    assert 0.86 <= covered(True, is_night) <= 0.98
    assert (
        abs(covered(False, is_night) - 0.9) > 0.05
    )  # without the hour: too wide at night, too narrow by day


def test_a_clock_that_does_not_tell_the_time_teaches_nothing_about_hours() -> None:
    *_, stack = run(True, False)
    assert not stack.seasons.days.any() and not stack.seasons.actual.any()


def learned(days: int, night: float = 0.5) -> Seasons:
    """After some days in which the last hour brought a part of the expected increment, the others all of it."""
    seasons, grows = Seasons.empty(1), np.array([[True]])
    for hour in range(days * HOURS_OF_DAY):
        end = np.array([(hour + 1) * HOUR])
        one = np.ones((1, 1))
        increment = one * (night if hour % HOURS_OF_DAY == 23 else 1.0)
        before = HourFactors(seasons, np.zeros(1, np.int64), end, grows)
        pairs = HourPairs(one, one, increment, one, one, 0.1 * increment, one)
        seasons = seasons.with_pairs(before, np.ones(1, np.int64), pairs)
    return seasons


def factors(seasons: Seasons, end: list[int]) -> HourFactors:
    grows: Mask = np.array([[True]])
    ends: Ints = np.array(end)
    return HourFactors(seasons, np.zeros(len(end), np.int64), ends, grows)


@pytest.mark.parametrize(
    ("days", "least", "most"),
    [
        pytest.param(0, 1.0, 1.0, id="nothing is known"),
        pytest.param(1, 0.65, 0.8, id="after a day an hour differs by half of it"),
        pytest.param(5, 0.53, 0.62, id="after five days by most of it"),
        pytest.param(40, 0.5, 0.52, id="after weeks by nearly all of it"),
    ],
)
def test_what_is_learned_of_an_hour_is_shrunk_while_few_days_were_seen(
    days: int, least: float, most: float
) -> None:
    midnight = 400 * HOURS_OF_DAY * HOUR
    of_hours = factors(learned(days), [midnight, midnight - 12 * HOUR, NO_TIME])
    late, noon, timeless = of_hours.usual[:, 0]
    assert least <= late <= most
    assert noon == timeless == 1
    assert of_hours.width[0, 0] <= 1 or not days


def test_a_window_that_ends_at_midnight_belongs_to_the_hour_before() -> None:
    seasons = learned(14)
    midnight = 50 * HOURS_OF_DAY * HOUR
    assert factors(seasons, [midnight]).usual < 0.8 < factors(seasons, [midnight + 1]).usual


def test_an_estimator_of_a_version_without_hours_is_read_and_goes_on_learning() -> None:
    *_, stack = run(True, True)
    estimator = next(split_stack(stack))
    meta, arrays = unpack(estimator.dumps())
    old = {
        name: array for name, array in arrays.items() if not name.startswith(("seasons.", "experts.hour_"))
    }
    old["experts.loss"] = arrays["experts.loss"][: Expert.HOUR_ADDED]
    restored = Estimator.loads(pack(meta, old))
    assert not restored.seasons.days.any()
    one, end = np.zeros(1, np.int64), np.array([(HOURS_RUN + 1) * HOUR])
    seen = EarlyRows(
        one,
        one,
        one + HOURS_RUN,
        np.array([0.75]),
        np.array([[25.0, 20.0]]),
        0,
        np.ones(1, np.bool_),
        end=end,
    )
    continued = stack_of([restored])
    estimates = continued.estimate(seen)
    assert np.isfinite(estimates.low).all()
    final = FinalRows(one, one, one + HOURS_RUN, np.array([[100.0, 20.0]]), 0, end=end)
    assert continued.with_early(seen, estimates).with_finals(final).seasons.days.sum() == 1
