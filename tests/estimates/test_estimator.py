"""The laws of the estimator, and its treatment of odd values, groups and windows."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.columns.arrays import Ints
from transom.durations import HOUR
from transom.elements import Emit
from transom.errors import StateError
from transom.estimates import EarlyValues, EstimateLimits, Estimates, Estimator, FinalValues, ItemKind
from transom.estimates.estimator import stack_of
from transom.estimates.estimator_stack import EarlyRows, FinalRows

KINDS = (ItemKind("n", True, grows=True), ItemKind("x", True), ItemKind("who", False))
LEFT = (0.75, 0.5, 0.25, 0.0)
AT = Emit(at=(0.5,))


def table(n: list[Any], x: list[Any], who: list[Any] | None = None) -> pa.Table:
    texts = pa.array(["a"] * len(n) if who is None else who, pa.string())
    return pa.table({"n": pa.array(n, pa.int64()), "x": pa.array(x, pa.float64()), "who": texts})


def ends(count: int, window: int) -> Ints:
    """The end of a window that lasts seven hours."""
    return np.full(count, (window + 1) * 7 * HOUR)


def early_values(
    groups: list[int], window: int, left: float, items: pa.Table, emitted: bool = True, made: int = 0
) -> EarlyValues:
    count = len(groups)
    return EarlyValues(
        np.array(groups, np.int64),
        np.full(count, window),
        np.full(count, left),
        np.ones(count, np.int64),
        items,
        made,
        np.full(count, emitted),
        ends(count, window),
    )


def finals(groups: list[int], window: int, items: pa.Table, made: int = 0) -> FinalValues:
    count = len(groups)
    return FinalValues(
        np.array(groups, np.int64),
        np.full(count, window),
        np.ones(count, np.int64),
        items,
        made,
        ends(count, window),
    )


def observe(estimator: Estimator, seen: EarlyValues) -> tuple[Estimator, Estimates]:
    estimates = estimator.estimate(seen)
    return estimator.with_observation(seen, estimates), estimates


def taught(windows: int, groups: int = 1, emit: Emit = AT, seed: int = 1) -> Estimator:
    """An estimator after some windows with tuples that arrive evenly, a hundred per slide."""
    random = np.random.default_rng(seed)
    estimator = Estimator.of(emit, KINDS, 1.0)
    names = list(range(groups))
    for window in range(windows):
        for left in LEFT:
            counts = random.poisson(100 * (1 - left) + 1, groups)
            items = table(counts.tolist(), random.normal(5, 1, groups).tolist())
            estimator, _ = observe(estimator, early_values(names, window, left, items, left == 0.5))
        counts = random.poisson(100, groups)
        estimator = estimator.with_finals(
            finals(names, window, table(counts.tolist(), random.normal(5, 1, groups).tolist()))
        )
    return estimator


def same(one: Estimates, other: Estimates) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
        for name in ("projected", "low", "high", "spread")
    )


NUMBERS = st.one_of(
    st.none(),
    st.floats(-100, 100),
    st.sampled_from([0.0, -0.0, 1e-300, 1e300, -1e308, float("inf"), float("-inf"), float("nan")]),
)
ROW = st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(-3, 50)), NUMBERS)
ROWS = st.lists(ROW, max_size=5, unique_by=lambda row: row[0])
BATCH = st.tuples(
    st.lists(st.tuples(st.sampled_from([2.5, 1.0, 0.5, 0.47, 0.0, -0.3, -7.0]), ROWS), max_size=3), ROWS
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(BATCH, min_size=1, max_size=12), st.sampled_from([0.5, 0.9]), st.randoms(use_true_random=False)
)
def test_bounds_enclose_values_and_neither_restarts_nor_order_change_estimates(
    batches: list[Any], confidence: float, random: Any
) -> None:
    emit = Emit(accuracy=0.9, confidence=confidence)
    estimator = shuffled = Estimator.of(emit, KINDS, 3.0)
    for window, (observations, closing) in enumerate(batches):
        for left, rows in observations:
            order = random.sample(range(len(rows)), len(rows))
            seen, mixed = (
                early_values(
                    [r[0] for r in some], window, left, table([r[1] for r in some], [r[2] for r in some])
                )
                for some in (rows, [rows[at] for at in order])
            )
            restarted = Estimator.loads(estimator.dumps())
            estimator, found = observe(estimator, seen)
            again, from_restart = observe(restarted, seen)
            assert same(found, from_restart) and again.dumps() == estimator.dumps()
            shuffled, other = observe(shuffled, mixed)
            taken = found.take(np.array(order, np.int64))
            assert same(taken, other)
            known = ~np.isnan(found.low)
            assert np.array_equal(known, ~np.isnan(found.high))
            assert (found.low[known] <= found.projected[known]).all()
            assert (found.projected[known] <= found.high[known]).all()
            assert not np.isinf(found.projected).any()
        args = [([r[0] for r in some], window, table([r[1] for r in some], [r[2] for r in some]))
                for some in (closing, random.sample(closing, len(closing)))]  # fmt: skip
        restarted = Estimator.loads(estimator.dumps()).with_finals(finals(*args[0]))
        estimator, shuffled = estimator.with_finals(finals(*args[0])), shuffled.with_finals(finals(*args[1]))
        assert restarted.dumps() == estimator.dumps()
        assert 0.05 <= estimator.point <= 1.0
        estimator.accuracy()


def test_values_are_never_changed_in_place() -> None:
    estimator = taught(5)
    before = estimator.dumps()
    later, _ = observe(estimator, early_values([0, 1], 9, 0.5, table([40, 50], [1.0, 2.0])))
    later.with_finals(finals([0, 1], 9, table([90, 100], [1.0, 2.0])))
    assert estimator.dumps() == before


def test_before_anything_is_learned_growing_values_are_stretched_and_others_are_not() -> None:
    seen = early_values([7], 0, 0.5, table([100], [5.0]))
    found = Estimator.of(AT, KINDS, 3.0).estimate(seen)
    assert found.projected.tolist() == [[120.0, 5.0]]
    assert np.isnan(found.low).all() and np.isnan(found.high).all()


def test_one_closed_window_already_helps() -> None:
    """Nine tuples in ten come in the second half, which was unknown before."""
    estimator, _ = observe(Estimator.of(AT, KINDS, 1.0), early_values([0], 0, 0.5, table([10], [5.0])))
    estimator = estimator.with_finals(finals([0], 0, table([100], [5.0])))
    found = estimator.estimate(early_values([0, 1], 1, 0.5, table([12, 50], [5.0, 5.0])))
    assert found.projected[0, 0] == pytest.approx(102)  # the group's increment
    assert found.projected[1, 0] == pytest.approx(500)  # a new group: the ratio of all groups


def test_bounds_come_with_enough_history_and_say_from_when_on() -> None:
    seen = early_values([0], 99, 0.5, table([50], [5.0]))
    (least,) = taught(0).bounds.least.tolist()
    assert least == 10
    assert np.isnan(taught(least).estimate(seen).low).all()  # the first window taught, the others were scored
    assert not np.isnan(taught(least + 1).estimate(seen).low).any()
    assert taught(0, emit=Emit(confidence=0.99)).bounds.least.tolist() == [100]
    assert taught(0, emit=Emit(confidence=0.5)).bounds.least.tolist() == [8]


def test_more_confidence_makes_wider_bounds() -> None:
    seen = early_values([0], 99, 0.5, table([50], [5.0]))
    widths = []
    for confidence in (0.5, 0.8, 0.95):
        found = taught(40, emit=Emit(at=(0.5,), confidence=confidence)).estimate(seen)
        widths.append(found.high - found.low)
    assert all((wide >= narrow).all() for narrow, wide in pairwise(widths))


def test_nulls_and_texts_have_no_estimates_and_are_not_learned_from() -> None:
    estimator = taught(20)
    found = estimator.estimate(early_values([0, 0], 99, 0.5, table([None, 50], [float("nan"), float("inf")])))
    assert np.isnan(found.projected[0]).all() and np.isnan(found.projected[1, 1])
    assert np.isfinite(found.projected[1, 0])
    odd, _ = observe(estimator, early_values([0], 99, 0.5, table([50], [5.0])))
    odd = odd.with_finals(finals([0], 99, table([None], [float("inf")])))
    seen = early_values([0], 100, 0.5, table([50], [5.0]))
    assert same(odd.estimate(seen), estimator.estimate(seen))
    assert odd.accuracy().total.pairs == estimator.accuracy().total.pairs


def test_finals_of_nothing_are_learned_like_others() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0)
    for window in range(30):
        estimator, _ = observe(estimator, early_values([0], window, 0.5, table([0], [0.0])))
        estimator = estimator.with_finals(finals([0], window, table([0], [0.0])))
    found = estimator.estimate(early_values([0], 99, 0.5, table([0], [0.0])))
    assert found.projected.tolist() == found.low.tolist() == found.high.tolist() == [[0.0, 0.0]]
    assert estimator.accuracy().total.projected == 1.0


def test_values_below_zero_are_projected_away_from_zero() -> None:
    estimator = Estimator.of(AT, (ItemKind("n", True, grows=True),), 1.0)
    for window in range(5):
        estimator, found = observe(
            estimator, early_values([0], window, 0.5, pa.table({"n": [-50.0 - window]}))
        )
        estimator = estimator.with_finals(finals([0], window, pa.table({"n": [-100.0 - window]})))
    assert found.projected[0, 0] == pytest.approx(-104, rel=0.01)
    assert estimator.accuracy().recent.projected > 0.97


def test_windows_that_never_close_are_evicted_oldest_first() -> None:
    limits = EstimateLimits(pending_rows=50)
    estimator = Estimator.of(AT, KINDS, 1.0, limits)
    for window in range(200):
        estimator, _ = observe(estimator, early_values([0, 1], window, 0.5, table([1, 2], [1.0, 2.0])))
    assert len(estimator.pending) == 50
    assert len(estimator.pending.parts) <= limits.pending_parts
    assert min(int(part.window.min()) for part in estimator.pending.parts) == 175


def test_windows_without_a_final_are_evicted_when_others_are_far_ahead() -> None:
    """One group's finals don't pass HAVING."""
    estimator = Estimator.of(AT, KINDS, 1.0)
    for window in range(300):
        estimator, _ = observe(estimator, early_values([0, 1], window, 0.5, table([1, 2], [1.0, 2.0])))
        estimator = estimator.with_finals(finals([0], window, table([3], [1.0])))
    assert len(estimator.pending) == 257
    assert len(estimator.since(299).pending) == 1


def test_windows_and_groups_without_a_final_can_be_removed() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0)
    for window in range(3):
        estimator, _ = observe(estimator, early_values([5, 6], window, 0.5, table([1, 2], [1.0, 2.0])))
    assert len(estimator.without(np.array([1])).pending) == 4
    one = estimator.without(np.array([1, 2]), np.array([5, 6]))
    left = [(int(w), int(g)) for s in one.pending.parts for w, g in zip(s.window, s.group, strict=True)]
    assert left == [(0, 5), (0, 6), (1, 6), (2, 5)]


def test_the_number_of_groups_is_bounded_and_the_oldest_are_evicted() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0, EstimateLimits(groups=10))
    for window in range(20):
        names = [1000, *range(window * 3, window * 3 + 3)]  # one that stays, and three that appear once
        estimator, _ = observe(estimator, early_values(names, window, 0.5, table([50] * 4, [1.0] * 4)))
        estimator = estimator.with_finals(finals(names, window, table([100] * 4, [1.0] * 4)))
    assert len(estimator.groups.key) == 10
    assert set(estimator.groups.key.tolist()) >= {1000, 57, 58, 59, 54, 55, 56}
    found = estimator.estimate(early_values([424242], 99, 0.5, table([60], [1.0])))
    assert found.projected[0, 0] == pytest.approx(120)


def test_very_many_groups_cost_no_more_than_some() -> None:
    random = np.random.default_rng(4)
    names = random.integers(-(2**63), 2**63 - 1, 20_000).tolist()
    limits = EstimateLimits(groups=2_048)
    estimator = Estimator.of(AT, KINDS, 1.0, limits)
    for window in range(3):
        counts = random.poisson(50, len(names))
        items = table(counts.tolist(), [1.0] * len(names))
        estimator, found = observe(estimator, early_values(names, window, 0.5, items, emitted=window > 0))
        more = table((2 * counts).tolist(), [1.0] * len(names))
        estimator = estimator.with_finals(finals(names, window, more))
    assert found.projected.shape == (len(names), 2)
    assert np.median(np.abs(found.projected[:, 0] / (2 * counts) - 1)) < 0.1
    assert len(estimator.groups.key) <= limits.groups
    assert estimator.accuracy().items[0].total.pairs == 2 * limits.groups
    assert len(estimator.dumps()) < 1_000_000


def test_ten_thousand_groups_have_a_history_of_their_own() -> None:
    random = np.random.default_rng(4)
    names, sizes = list(range(10_000)), random.lognormal(3, 1.5, 10_000)
    estimator = Estimator.of(AT, KINDS, 1.0)
    for window in range(6):
        counts = random.poisson(sizes) + 1
        early = random.binomial(counts, 0.05) + 1  # little has come: the group's history says more
        items = table(early.tolist(), [1.0] * len(names))
        estimator, found = observe(estimator, early_values(names, window, 0.95, items))
        estimator = estimator.with_finals(finals(names, window, table(counts.tolist(), [1.0] * len(names))))
    assert len(estimator.groups.key) == len(names)
    assert np.abs(found.projected[:, 0] - counts).sum() / counts.sum() < 0.2


@pytest.mark.parametrize("late", [0, 3])
def test_a_group_whose_rows_arrive_late_has_its_own_increment(late: int) -> None:
    """Half of what all others get has come at half time; of one group, a tenth."""
    random = np.random.default_rng(late)
    estimator = Estimator.of(AT, KINDS, 1.0)
    names = list(range(5))
    for window in range(60):
        final = random.poisson(1000, 5)
        early = np.where(np.arange(5) == late, final // 10, final // 2)
        estimator, found = observe(
            estimator, early_values(names, window, 0.5, table(early.tolist(), [1.0] * 5))
        )
        estimator = estimator.with_finals(finals(names, window, table(final.tolist(), [1.0] * 5)))
    assert np.abs(found.projected[:, 0] / final - 1).max() < 0.1


def test_a_rate_that_jumps_is_followed() -> None:
    random = np.random.default_rng(2)
    estimator = Estimator.of(AT, KINDS, 1.0)
    errors, inside = [], []
    for window in range(240):
        rate = 100 if window < 120 else 1000
        first, second = random.poisson(rate / 2, 2).tolist()
        estimator, found = observe(estimator, early_values([0], window, 0.5, table([first], [1.0])))
        estimator = estimator.with_finals(finals([0], window, table([first + second], [1.0])))
        errors.append(abs(found.projected[0, 0] / (first + second) - 1))
        inside.append(found.low[0, 0] <= first + second <= found.high[0, 0])
    assert np.mean(errors[140:]) < 0.05
    assert np.mean(inside[20:]) > 0.85 and np.mean(inside[160:]) > 0.85


def test_without_numeric_items_nothing_is_estimated() -> None:
    estimator = Estimator.of(AT, (ItemKind("who", False),), 1.0)
    seen = early_values([1], 0, 0.5, pa.table({"who": ["a"]}))
    estimator, found = observe(estimator, seen)
    assert found.projected.shape == (1, 0)
    estimator = estimator.with_finals(finals([1], 0, pa.table({"who": ["b"]})))
    assert estimator.accuracy().total.pairs == 0
    assert Estimator.loads(estimator.dumps()).dumps() == estimator.dumps()


def test_a_checkpoint_of_another_format_is_refused() -> None:
    data = Estimator.of(AT, KINDS, 1.0).dumps()
    with pytest.raises(StateError, match="format 0"):
        Estimator.loads(data.replace(b'"version": 2', b'"version": 0'))


def test_an_aggregate_of_decimals_is_a_number_too() -> None:
    kinds = (ItemKind("d", True, grows=True),)
    seen = early_values([1], 0, 0.5, pa.table({"d": [Decimal("10.50")]}))
    assert Estimator.of(AT, kinds, 1.0).estimate(seen).projected.tolist() == [[21.0]]


def coverage_of_one_look_a_window(
    confidence: float, windows: int, seeds: int
) -> list[tuple[int | None, float]]:
    """After how many finals there are bounds, and the part of finals within them, if batches end anywhere.

    Each window is seen once, at a moment of its last slide that is never the same: so few windows have been seen at
    each mark. Each seed is a query with a stream of its own; as in a batch, all queries are one stack.
    """
    emit, kinds = Emit(at=(0.5,), confidence=confidence), (ItemKind("n", True, grows=True),)
    stack = stack_of([Estimator.of(emit, kinds, 1.0) for _ in range(seeds)])
    streams = [np.random.default_rng(seed) for seed in range(seeds)]
    query, group, is_emitted = np.arange(seeds), np.zeros(seeds, np.int64), np.ones(seeds, np.bool_)
    is_bounded, is_inside = np.zeros((windows, seeds), bool), np.zeros((windows, seeds), bool)
    for number in range(windows):
        left = np.array([random.uniform(0, 1) for random in streams])
        counts = [
            (random.poisson(200 * (1 - own)), random.poisson(200 * own))
            for random, own in zip(streams, left, strict=True)
        ]
        early, final = np.array(counts, float)[:, :1], np.array(counts, float).sum(axis=1, keepdims=True)
        window = np.full(seeds, number)
        seen = EarlyRows(query, group, window, left, early, 0, is_emitted)
        found = stack.estimate(seen)
        is_bounded[number] = ~np.isnan(found.low[:, 0])
        is_inside[number] = ((found.low <= final) & (final <= found.high))[:, 0]
        stack = stack.with_early(seen, found).with_finals(FinalRows(query, group, window, final, 0))
    return [
        (int(np.argmax(own)) if own.any() else None, float(np.mean(inside[own])))
        for own, inside in zip(is_bounded.T, is_inside.T, strict=True)
    ]


def test_bounds_come_soon_where_batches_end_anywhere_in_a_slide() -> None:
    for first, _ in coverage_of_one_look_a_window(0.9, 40, seeds=4):
        assert first is not None and 10 <= first <= 23


@pytest.mark.parametrize("confidence", [0.8, 0.9])
def test_bounds_from_neighbouring_moments_contain_as_many_finals_as_they_say(confidence: float) -> None:
    parts = [part for _, part in coverage_of_one_look_a_window(confidence, 120, seeds=10)]
    assert confidence - 0.05 <= np.mean(parts) <= confidence + 0.08
