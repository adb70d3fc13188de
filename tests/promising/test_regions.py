"""What is left of regions, and how a budget is spent on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.promising.regions import DTYPES, Regions, choose_probes


def regions(size: int, **columns: Any) -> Regions:
    """Regions of one arriving tuple each, of which only some columns matter."""
    plain: dict[str, Any] = {
        "key": np.arange(size),
        "until": np.ones(size),
        "arriving": np.ones(size),
        "cell": np.full(size, 10),
        "expected": np.ones(size),
        "promise": np.ones(size),
        "likely": np.ones(size),
    }
    given = plain | columns
    return Regions(**{n: np.asarray(given.get(n, np.zeros(size))).astype(t) for n, t in DTYPES.items()})


@st.composite
def some_regions(draw: st.DrawFn) -> Regions:
    size = draw(st.integers(0, 12))
    column = lambda of: draw(st.lists(of, min_size=size, max_size=size))  # noqa: E731
    made = regions(
        size,
        batch_id=column(st.integers(0, 3)),
        arriving=column(st.integers(1, 5)),
        cell=column(st.integers(1, 1000)),
        promise=column(st.floats(-10, 1e6) | st.sampled_from((np.inf, -np.inf, np.nan, 1e308))),
        expected=column(st.floats(0, 100)),
        likely=column(st.booleans()),
    )
    done = [draw(st.integers(0, int(probes))) for probes in made.probes]
    return replace(made, done=np.array(done, np.int64))


ORDERS = ("desc", "asc", "weighted")


@given(some_regions(), st.sampled_from(ORDERS), st.integers(0, 10_000))
def test_a_budget_is_spent_to_the_last_probe_and_never_more_than_is_left(
    some: Regions, order: str, budget: int
) -> None:
    taken = choose_probes(some, order, budget)
    assert (taken >= 0).all() and (taken <= some.left).all()
    assert taken.sum() == min(budget, some.left.sum())


@given(some_regions(), st.sampled_from(ORDERS), st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_regions(
    some: Regions, order: str, budget: int, random: Any
) -> None:
    shuffled = np.arange(len(some))
    random.shuffle(shuffled)
    assert (
        choose_probes(some.where(shuffled), order, budget) == choose_probes(some, order, budget)[shuffled]
    ).all()


@given(some_regions(), st.sampled_from(ORDERS), st.lists(st.integers(0, 3000), max_size=6))
def test_budgets_one_after_the_other_make_every_probe_once(
    some: Regions, order: str, budgets: list[int]
) -> None:
    pending, spent = some, 0
    for budget in budgets:
        taken = choose_probes(pending, order, budget)
        spent += int(taken.sum())
        pending = pending.after(taken)
        assert (pending.left > 0).all()
    assert spent + pending.left.sum() == some.left.sum()


@given(some_regions(), st.sampled_from(ORDERS))
def test_no_budget_takes_all_that_is_left(some: Regions, order: str) -> None:
    assert (choose_probes(some, order, None) == some.left).all()


def test_the_highest_promise_comes_first_with_desc() -> None:
    assert choose_probes(regions(3, promise=[1, 3, 2]), "desc", 15).tolist() == [0, 10, 5]


def test_the_lowest_promise_comes_first_with_asc() -> None:
    assert choose_probes(regions(3, promise=[1, 3, 2]), "asc", 15).tolist() == [10, 0, 5]


@pytest.mark.parametrize("order", ORDERS)
def test_unlikely_regions_come_last(order: str) -> None:
    some = regions(3, promise=[1, 0.1, 9], likely=[True, False, False])
    assert choose_probes(some, order, 10).tolist() == [10, 0, 0]


def test_equal_promises_are_ordered_by_batch_and_value() -> None:
    assert choose_probes(regions(3, batch_id=[5, 4, 4], key=[1, 9, 2]), "desc", 12).tolist() == [0, 2, 10]


def test_weighted_gives_output_in_the_ratio_of_promises() -> None:
    """Twice the promise, half as many matches a probe: four times the probes."""
    some = regions(2, cell=[1000, 1000], promise=[100, 200], expected=[100, 50])
    assert choose_probes(some, "weighted", 500).tolist() == [100, 400]


def test_weighted_gives_the_rest_of_an_exhausted_region_to_the_others() -> None:
    some = regions(3, cell=[10, 1000, 1000], promise=[50, 50, 50], expected=[1, 50, 50])
    assert choose_probes(some, "weighted", 210).tolist() == [10, 100, 100]


def test_weighted_accounts_for_earlier_probes() -> None:
    some = regions(2, cell=[1000, 1000], promise=[50, 50], expected=[50, 50], done=[100, 0])
    assert choose_probes(some, "weighted", 60).tolist() == [0, 60]
    assert choose_probes(some, "weighted", 300).tolist() == [100, 200]


def test_weighted_gives_small_shares_their_turn() -> None:
    """A hundred regions that are to get a tenth of a probe each: ten get one, and the next batch takes others."""
    some = regions(100, cell=np.full(100, 10), expected=np.full(100, 2.0))
    taken, later = (choose_probes(replace(some, batch_id=some.batch_id + n), "weighted", 10) for n in (0, 1))
    assert sorted(taken.tolist()) == sorted(later.tolist()) == [0] * 90 + [1] * 10
    assert taken.tolist() != later.tolist()


@given(some_regions(), st.integers(0, 10_000))
def test_weighted_is_within_a_probe_of_one_water_level(some: Regions, budget: int) -> None:
    some = replace(
        some,
        likely=np.ones(len(some), bool),
        promise=np.abs(np.nan_to_num(some.promise, posinf=9, neginf=9)) % 1e6 + 1,
    )
    some = replace(some, expected=some.expected + 1)
    rate = some.promise * some.probes / some.expected
    made = some.done + choose_probes(some, "weighted", budget)
    taken = made > some.done
    open_to_more = made < some.probes
    if taken.any() and open_to_more.any():
        level = ((made - 1.001) / rate)[taken].max()
        assert level <= ((made + 1.001) / rate)[open_to_more].min() * (1 + 1e-6)


def test_regions_with_evicted_tuples_are_dropped() -> None:
    some = regions(4, since=[5, 10, 10, 10], until=[20, 20, 20, 12], low=[30, 30, 25, 30])
    assert some.reachable(floor=10, own_floor=30, since=12).key.tolist() == [1]
    assert some.reachable() is some


@given(some_regions())
def test_regions_round_trip_through_a_table(some: Regions) -> None:
    back = Regions.of_table(some.table())
    for name, dtype in DTYPES.items():
        np.testing.assert_array_equal(getattr(back, name), getattr(some, name))
        assert getattr(back, name).dtype == dtype


@given(some_regions(), some_regions())
def test_regions_are_concatenated(one: Regions, two: Regions) -> None:
    both = Regions.concatenated([one, Regions.none(), two])
    assert both.left.tolist() == one.left.tolist() + two.left.tolist()
    assert both.expected_left.sum() == pytest.approx(one.expected_left.sum() + two.expected_left.sum())


def test_weighted_does_not_favour_the_same_rare_values_in_every_batch() -> None:
    """A thousand values occur once in each of ten batches; each batch may take a tenth of them."""
    size, chosen = 1_000, set[int]()
    for batch_id in range(10):
        zeros, ones = np.zeros(size, np.int64), np.ones(size, np.int64)
        regions = Regions(
            key=np.arange(size, dtype=np.uint64),
            bucket=zeros,
            batch_id=np.full(size, batch_id),
            since=zeros,
            until=ones,
            low=zeros,
            arriving=ones,
            cell=ones,
            done=zeros,
            promise=np.ones(size),
            expected=np.ones(size),
            likely=np.ones(size, bool),
            by_key=np.ones(size, bool),
        )
        taken = choose_probes(regions, "weighted", size // 10)
        assert taken.sum() == size // 10
        chosen |= set(np.flatnonzero(taken).tolist())
    assert 600 < len(chosen) < 700  # 1 - 0.9 ** 10 of them
