"""OrderedSharing: the paper's figures step by step, and random interleavings against plain recomputation."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.ondemand.structures.ordered_sharing import OrderedSharing, WindowAnswer

A, B, C, D, E, F = WINDOWS = 10, 20, 30, 40, 50, 60
NOW = 100


def tree(ages: dict[int, int], answers: dict[int, int], sign: int = 1) -> OrderedSharing:
    """Windows of which each has the answer given, by a tuple of the age given: all valid."""
    shared = OrderedSharing(WINDOWS, greatest=sign > 0)
    for size in sorted(ages, reverse=True):
        shared.insert(NOW - ages[size], sign * answers[size])
    shared.advance(NOW)
    shared.lookup(F)
    assert shared.counters.recalculations == 1
    assert content(shared) == {size: sign * answer for size, answer in answers.items()}
    return shared


def content(shared: OrderedSharing) -> dict[int, Any]:
    return {entry.size: entry.answer for entry in shared.entries}


# age            60   50   40   30   20   10   0
# window          F----E----D----C----B----A---
# tuple             50   25   20   15   10  5
AGES = {A: 5, B: 15, C: 25, D: 35, E: 45, F: 55}
FIGURE_7 = {A: 5, B: 10, C: 15, D: 20, E: 25, F: 50}  # the text tells the windows, but not these numbers
FIGURE_8 = {A: 5, B: 10, C: 15, D: 20, E: 30, F: 50}
both_ways = pytest.mark.parametrize("sign", [pytest.param(1, id="MAX"), pytest.param(-1, id="MIN")])


@both_ways
def test_figure_7_an_insert_of_30_goes_to_E_and_all_smaller_windows_go(sign: int) -> None:
    shared = tree(AGES, FIGURE_7, sign)
    shared.insert(NOW + 1, sign * 30)
    assert content(shared) == {E: sign * 30, F: sign * 50}
    assert [shared.lookup(size) for size in WINDOWS] == [sign * 30] * 5 + [sign * 50]
    assert shared.counters.recalculations == 1, "30 is an answer for E and for all smaller windows"


@both_ways
def test_figure_7_with_E_invalid_an_insert_of_35_goes_to_D_and_E_goes_as_well(sign: int) -> None:
    ages = {A: 1, B: 11, C: 21, D: 31, E: 49, F: 51}
    shared = tree(ages, FIGURE_8, sign)
    shared.advance(NOW + 3)
    assert [entry.valid(NOW + 3) for entry in shared.entries] == [True] * 4 + [False, True]
    shared.insert(NOW + 4, sign * 35)
    assert content(shared) == {D: sign * 35, F: sign * 50}
    assert [shared.lookup(size) for size in (A, B, C, D, F)] == [sign * 35] * 4 + [sign * 50]
    assert shared.counters.recalculations == 1
    assert shared.lookup(E) == sign * 35, "F's answer is too old for E"
    assert shared.counters.recalculations == 2


@both_ways
def test_figure_7_with_F_invalid_too_both_go(sign: int) -> None:
    shared = tree({A: 1, B: 11, C: 21, D: 31, E: 49, F: 59}, FIGURE_7 | {F: 27}, sign)
    shared.advance(NOW + 3)
    shared.insert(NOW + 4, sign * 35)
    assert content(shared) == {D: sign * 35}


@both_ways
def test_figure_8_a_lookup_of_E_finds_it_in_the_tree(sign: int) -> None:
    shared = tree(AGES, FIGURE_8, sign)
    assert shared.lookup(E) == sign * 30
    assert (shared.counters.recalculations, shared.counters.hits) == (1, 1)


@both_ways
def test_figure_8_a_window_between_E_and_F_uses_the_answer_of_F_if_it_holds_it(sign: int) -> None:
    shared = tree(AGES, FIGURE_8, sign)
    assert shared.lookup(56) == sign * 50
    assert shared.counters.recalculations == 1


@both_ways
def test_figure_8_a_window_between_E_and_F_is_recalculated_if_50_is_outside_of_it(sign: int) -> None:
    shared = tree(AGES, FIGURE_8, sign)
    assert shared.lookup(55) == sign * 30
    assert shared.counters.recalculations == 2
    assert content(shared) == {A: sign * 5, B: sign * 10, C: sign * 15, D: sign * 20} | {
        55: sign * 30,  # of E too: one entry for equal answers
        F: sign * 50,
    }
    assert [shared.lookup(size) for size in (E, F)] == [sign * 30, sign * 50]
    assert shared.counters.recalculations == 2


def test_a_value_below_all_answers_changes_nothing() -> None:
    shared = tree(AGES, FIGURE_8)
    shared.insert(NOW + 1, 4)
    assert content(shared) == FIGURE_8


def test_a_tuple_out_of_order_touches_only_windows_that_reach_back_to_it() -> None:
    shared = tree(AGES, FIGURE_8)
    shared.insert(NOW - 22, 30)
    assert content(shared) == {A: 5, B: 10, E: 30, F: 50}
    assert shared.entries[2] == WindowAnswer(E, 30, NOW - 22), "of equal answers the newer one"
    assert [shared.lookup(size) for size in WINDOWS] == [5, 10, 30, 30, 30, 50]
    assert shared.counters.recalculations == 1


def test_an_older_equal_answer_leaves_the_newer_one_in_its_place() -> None:
    shared = tree(AGES, FIGURE_8)
    shared.insert(NOW - 47, 30)
    assert shared.entries[4] == WindowAnswer(E, 30, NOW - 45)


def test_a_tuple_that_no_window_reaches_touches_none() -> None:
    shared = tree(AGES, FIGURE_8)
    shared.insert(NOW - 60, 99)
    assert content(shared) == FIGURE_8
    assert [shared.lookup(size) for size in WINDOWS] == list(FIGURE_8.values())


def test_an_answer_that_leaves_as_a_greater_one_arrives_gives_way_to_it() -> None:
    shared = tree(AGES, FIGURE_8)
    shared.insert(NOW + 5, 60)  # 50 is 60 old now
    assert content(shared) == {F: 60}


def test_lookups_of_windows_that_hold_nothing() -> None:
    shared = OrderedSharing([5])
    assert shared.lookup(5) is None
    shared.insert(0, 1)
    shared.advance(5)
    assert shared.lookup(5) is None
    assert content(shared) == {}


def test_a_window_beyond_what_is_kept_is_refused() -> None:
    shared = OrderedSharing([10])
    for time in range(1000):
        shared.insert(time, -time)
    with pytest.raises(ValueError, match="a window of 900 reaches back to tuples that are not kept"):
        shared.lookup(900)
    with pytest.raises(ValueError, match="positive"):
        shared.windows.add(0)


def test_the_caller_may_keep_the_tuples() -> None:
    times, values = [0, 1, 2, 3], [9, 3, 5, 1]
    shared = OrderedSharing([2, 4], rescan=lambda since: (times[max(0, since) :], values[max(0, since) :]))
    shared.insert_all(times, values)
    assert (shared.lookup(4), shared.lookup(2), shared.lookup(3)) == (9, 5, 5)
    assert content(shared) == {3: 5, 4: 9}


class Counted(int):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __gt__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)


def test_inserts_and_lookups_compare_with_few_of_many_windows() -> None:
    many = 10_000
    shared = OrderedSharing(range(1, 2 * many, 2))
    shared.insert_all(range(2 * many), range(2 * many, 0, -1))
    shared.lookup(2 * many - 1)
    assert len(shared.entries) == many
    most = math.ceil(math.log2(many)) + 3
    for size in (1, 77, many - 1, 2 * many - 1):
        Counted.comparisons = 0
        shared.lookup(Counted(size))
        assert 0 < Counted.comparisons <= most
    assert shared.counters.recalculations == 1
    for step, value in enumerate((1, 77, many, 2 * many - 2)):
        Counted.comparisons = 0
        shared.insert(2 * many + step, Counted(value))
        assert 0 < Counted.comparisons <= most


class Model:
    """Plain recomputation beside OrderedSharing."""

    def __init__(self, sizes: list[int], greatest: bool) -> None:
        self.shared = OrderedSharing(sizes, greatest)
        self.tuples: list[tuple[int, Any]] = []
        self.now: int | None = None
        self.pick = max if greatest else min

    def arrive(self, times: list[int], values: list[Any]) -> None:
        if len(times) == 1:
            self.shared.insert(times[0], values[0])
        else:
            self.shared.insert_all(times, values)
        self.tuples += zip(times, values, strict=True)
        self.now = max(times) if self.now is None else max(self.now, *times)

    def expected(self, size: int) -> Any:
        if self.now is None:
            return None
        own = [value for time, value in self.tuples if time > self.now - size]
        return self.pick(own, key=lambda value: (value != value, value), default=None)

    def check(self, size: int) -> None:
        found, expected = self.shared.lookup(size), self.expected(size)
        assert found == expected or (found != found and expected != expected), (size, self.now)

    def check_entries(self) -> None:
        entries = list(self.shared.entries)
        for entry in entries:
            if self.now is not None and entry.valid(self.now):
                assert entry.answer == self.expected(entry.size), "every valid entry is right"
        for one, other in pairwise(entries):
            assert one.size < other.size
            assert self.pick(one.answer, other.answer) == other.answer != one.answer, (
                "in order of answers too"
            )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lookup"), st.integers(1, 20)),
        st.tuples(st.just("insert"), st.integers(-12, 4), st.integers(0, 6)),
        st.tuples(st.just("batch"), st.integers(-9, 4), st.lists(st.integers(0, 6), min_size=1, max_size=4)),
        st.tuples(st.just("advance"), st.integers(0, 4)),
        st.tuples(st.sampled_from(["add", "remove"]), st.integers(1, 20)),
    ),
    max_size=60,
)


@given(STEPS, st.booleans())
def test_any_steps_in_any_order(steps: list[tuple[Any, ...]], greatest: bool) -> None:
    model = Model([20], greatest)
    added: list[int] = []
    for what, size, *rest in steps:
        now = model.now or 0
        if what == "lookup":
            model.check(size)
        elif what == "insert":
            model.arrive([now + size], rest)
        elif what == "batch":
            model.arrive([now + size + i // 2 for i in range(len(rest[0]))], rest[0])
        elif what == "advance":
            model.now = now + size
            model.shared.advance(model.now)
        elif what == "add":
            model.shared.windows.add(size)
            added.append(size)
        elif added:
            model.shared.windows.remove(added.pop(size % len(added)))
        model.check_entries()


@pytest.mark.parametrize("late", [0, 1, 40], ids=["in order", "a little out of order", "far out of order"])
@pytest.mark.parametrize("values", ["ties", "gaussian", "drifting", "with NaN"])
@pytest.mark.parametrize("greatest", [True, False], ids=["MAX", "MIN"])
def test_long_streams(late: int, values: str, greatest: bool) -> None:
    seed = 11
    print("seed", seed)
    rng = random.Random(seed)
    draw = {
        "ties": lambda step: rng.randrange(4),
        "gaussian": lambda step: rng.gauss(0, 10),
        "drifting": lambda step: rng.gauss(0, 10) + (step / 10 if greatest else -step / 10),
        "with NaN": lambda step: math.nan if rng.random() < 0.1 else rng.gauss(0, 10),
    }[values]
    model = Model([3, 10, 10, 35, 80], greatest)
    for step in range(1500):
        model.arrive([step - rng.randrange(late + 1)], [draw(step)])
        model.tuples = [one for one in model.tuples if one[0] > step - 130]
        if rng.random() < 0.3:
            model.check(rng.choice([3, 10, 35, 80, rng.randrange(1, 81)]))
    counters = model.shared.counters
    assert counters.inserts == 1500
    assert counters.hits + counters.recalculations == counters.lookups > 300
    assert 0 < counters.recalculations <= counters.lookups
