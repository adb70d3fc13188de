"""The exact structures compared with recomputation: any order of arrival, any window that ends now."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduce.algorithms.prefix_sums import PrefixSums
from reproduce.algorithms.staircase import Staircase
from reproduce.algorithms.suffix_tree import SuffixTree

Tuples = list[tuple[int, Any]]


def spark_max(values: list[Any]) -> Any:
    return max(values, key=lambda value: (value != value, value), default=None)


def spark_min(values: list[Any]) -> Any:
    return min(values, key=lambda value: (value != value, value), default=None)


def total(values: list[Any]) -> tuple[int, int]:
    return len(values), sum(values)


def joined(values: list[Any]) -> Any:
    """Concatenation, which shows whether values are combined in the right order."""
    return "".join(map(str, values)) if len(values) > 1 else values[0] if values else None


STRUCTURES: dict[str, tuple[Callable[[], Any], Callable[[list[Any]], Any]]] = {
    "a staircase of the greatest": (Staircase, spark_max),
    "a staircase of the least": (lambda: Staircase(greatest=False), spark_min),
    "running sums": (PrefixSums, total),
    "a tree that joins texts": (lambda: SuffixTree("{}{}".format), joined),
}
each_structure = pytest.mark.parametrize(
    ("make", "plain"), [pytest.param(*case, id=name) for name, case in STRUCTURES.items()]
)
ORDERS = {
    "in order": lambda rng, time: time,
    "a little out of order": lambda rng, time: time - rng.choice([0, 0, 0, 1, 5]),
    "in any order": lambda rng, time: rng.randrange(300),
    "all at once": lambda rng, time: 7,
}
TUPLES = st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5)), max_size=40)


def filled(make: Callable[[], Any], tuples: Tuples) -> Any:
    structure = make()
    for time, value in tuples:
        structure.insert(time, value)
    return structure


def values_since(tuples: Tuples, since: int) -> list[Any]:
    """The values from `since` on, by time; for equal times, in order of arrival."""
    return [value for time, value in sorted(tuples, key=operator.itemgetter(0)) if time >= since]


@each_structure
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_interleaved_inserts_lookups_and_expiry(
    make: Callable[[], Any], plain: Callable[[list[Any]], Any], order: Callable[..., int], seed: int
) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    structure, tuples, floor = make(), [], 0
    for step in range(300):
        time, value = order(rng, step), rng.randrange(-9, 10)
        structure.insert(time, value)
        tuples.append((time, value))
        if rng.random() < 0.3:
            floor = max(floor, step - 50)
            structure.expire(floor)
        since = rng.randrange(floor, 310)
        assert structure.lookup(since) == plain(values_since(tuples, since)), (step, since)


@each_structure
@given(tuples=TUPLES, others=TUPLES, since=st.integers(-1, 32))
def test_merged_structures_answer_like_a_structure_of_all_tuples(
    make: Callable[[], Any], plain: Callable[[list[Any]], Any], tuples: Tuples, others: Tuples, since: int
) -> None:
    merged = filled(make, tuples).merge(filled(make, others))
    assert merged.lookup(since) == plain(values_since(tuples + others, since)), (
        "ours first, if times are equal"
    )
    merged.insert(31, 4)
    assert merged.lookup(since) == plain(values_since([*tuples, *others, (31, 4)], since))


@each_structure
@given(tuples=TUPLES, floor=st.integers(0, 31))
def test_expiry_changes_no_answer(
    make: Callable[[], Any], plain: Callable[[list[Any]], Any], tuples: Tuples, floor: int
) -> None:
    structure = filled(make, tuples)
    structure.expire(floor)
    for since in range(floor, 32):
        assert structure.lookup(since) == plain(values_since(tuples, since))
    assert len(structure) <= max(1, 2 * sum(time >= floor for time, _ in tuples))


@given(st.lists(st.tuples(st.integers(0, 9), st.floats()), max_size=20), st.integers(0, 10), st.booleans())
def test_nan_is_greater_than_every_number(tuples: Tuples, since: int, greatest: bool) -> None:
    found = filled(lambda: Staircase(greatest), tuples).lookup(since)
    expected = (spark_max if greatest else spark_min)(values_since(tuples, since))
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_a_huge_value_does_not_affect_a_window_that_it_has_left() -> None:
    tree = filled(lambda: SuffixTree(operator.add), [(0, 1e300), (1, 7.0), (2, math.inf), (3, 0.5)])
    assert (tree.lookup(3), tree.lookup(1), tree.count(1)) == (0.5, math.inf, 3)
    tree.insert(4, 6.5)
    assert tree.lookup(3) == 7.0


def test_prefix_sums_refuse_floats() -> None:
    with pytest.raises(TypeError, match="whole numbers"):
        PrefixSums().insert(0, 0.5)  # type: ignore[arg-type]


@given(TUPLES, st.booleans())
def test_times_ascend_and_values_descend(tuples: Tuples, greatest: bool) -> None:
    stairs = filled(lambda: Staircase(greatest), tuples)
    assert all(one < other for one, other in pairwise(stairs.times))
    assert all((one > other) is greatest and one != other for one, other in pairwise(stairs.values))


@pytest.mark.parametrize(
    ("name", "values", "steps"),
    [
        ("a descending stream is kept whole", range(100, 0, -1), 100),
        ("of an ascending stream one tuple is enough", range(100), 1),
        ("of equal values the newest is enough", [5] * 100, 1),
    ],
)
def test_how_many_steps_a_staircase_has(name: str, values: list[int], steps: int) -> None:
    assert len(filled(Staircase, list(enumerate(values)))) == steps, name


class Counting:
    """A `combine` function that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, one: int, other: int) -> int:
        self.count += 1
        return one + other


def test_a_tree_combines_once_per_insert_and_logarithmically_per_lookup() -> None:
    combine = Counting()
    tree = filled(lambda: SuffixTree(combine), [(time, 1) for time in range(4096)])
    assert combine.count < 4096
    for since in range(0, 4096, 7):
        combine.count = 0
        assert tree.lookup(since) == 4096 - since
        assert combine.count < 2 * 12
    combine.count = 0
    tree.insert(4000, 1)
    assert combine.count < 96 + 2 * 13, "out of order, one for each later tuple and a few on top"


def test_expiry_costs_one_combination_per_tuple() -> None:
    combine = Counting()
    tree = SuffixTree(combine)
    for time in range(10_000):
        tree.insert(time, 1)
        tree.expire(time - 99)
        assert len(tree) <= 201
    assert combine.count < 2.5 * 10_000
