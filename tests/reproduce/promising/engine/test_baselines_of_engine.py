"""The baselines of the experiments through the engine, compared with loops over all tuples."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduce.promising.engine.key_chains import ChainPairs, Scan, chain_join
from reproduce.promising.engine.predicate_index import (
    first_selected,
    indexed_selection,
    masked_selection,
    window_aggregates,
)
from reproduce.promising.engine.runs import StoreBatch
from reproduce.promising.selection import Ranges

Tuple = tuple[int, int]  # item, time


def batch(store: int, tuples: list[Tuple], first: int = 0) -> StoreBatch:
    items, times = np.array(tuples, np.int64).reshape(-1, 2).T
    return StoreBatch(store, items, times, np.arange(first, first + len(tuples)))


@st.composite
def two_stores(draw: st.DrawFn) -> list[StoreBatch]:
    """Batches of two stores in turn, in order of time: each is ten units long."""
    made, rows = [], [0, 0]
    for number in range(draw(st.integers(1, 8))):
        store, began = number % 2, 1_000 + 10 * (number // 2)
        tuples = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=8))
        ordered = sorted(((item, began + offset) for item, offset in tuples), key=lambda each: each[1])
        made.append(batch(store, ordered, rows[store]))
        rows[store] += len(ordered)
    return made


def nested_loops(batches: list[StoreBatch], window: int | None) -> Counter[tuple[int, int]]:
    tuples = {
        store: [
            tuple_
            for one in batches
            if one.store == store
            for tuple_ in zip(one.items.tolist(), one.times.tolist(), one.rows.tolist(), strict=True)
        ]
        for store in (0, 1)
    }
    return Counter(
        (here[2], there[2])
        for here in tuples[0]
        for there in tuples[1]
        if here[0] == there[0] and (window is None or abs(here[1] - there[1]) <= window)
    )


def pairs(found: ChainPairs) -> Counter[tuple[int, int]]:
    return Counter(zip(found.left.tolist(), found.right.tolist(), strict=True))


@settings(max_examples=60)
@given(two_stores(), st.none() | st.integers(0, 30), st.sampled_from(get_args(Scan)))
def test_key_chains_without_a_budget_give_the_exact_answer(
    batches: list[StoreBatch], window: int | None, scan: Scan
) -> None:
    found = chain_join(batches, window, None, scan)
    assert pairs(found) == nested_loops(batches, window)
    assert sum(found.needs) == len(found)


@settings(max_examples=60)
@given(two_stores(), st.none() | st.integers(0, 30), st.integers(0, 20), st.sampled_from(get_args(Scan)))
def test_key_chains_keep_to_their_budget(
    batches: list[StoreBatch], window: int | None, budget: int, scan: Scan
) -> None:
    found = chain_join(batches, window, budget, scan)
    assert pairs(found) <= nested_loops(batches, window)
    assert len(found) <= sum(min(budget, need) for need in found.needs)


@pytest.mark.parametrize(("scan", "partners"), [("oldest first", [1, 2]), ("newest first", [2, 3])])
def test_a_chain_is_scanned_from_its_oldest_or_its_newest_tuple_in_the_window(
    scan: Scan, partners: list[int]
) -> None:
    earlier = batch(1, [(5, 1_000), (5, 1_010), (5, 1_020), (5, 1_030), (6, 1_031)])
    found = chain_join([earlier, batch(0, [(5, 1_032)])], 25, 2, scan)
    assert found.right.tolist() == partners
    assert found.needs == (0, 3)


RANGES = Ranges(np.array([0, 3, 9]), np.array([4, 7, 9]))  # the last one selects nothing


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_the_index_and_masks_select_the_same_rows(tuples: list[Tuple]) -> None:
    batches = [batch(0, tuples)]
    (indexed,), (masked,) = indexed_selection(batches, RANGES), masked_selection(batches, RANGES)
    (whole,) = first_selected(batches, RANGES, 100)
    for query, (low, high) in enumerate(zip(RANGES.low, RANGES.high, strict=True)):
        expected = [row for row, (item, _) in enumerate(tuples) if low <= item < high]
        for found in (indexed, masked, whole):
            assert sorted(found.rows[query].tolist()) == expected


def test_simple_selection_takes_the_first_tuples() -> None:
    (found,) = first_selected(
        [batch(0, [(1, n) for n in range(10)])], Ranges(np.array([0]), np.array([2])), 30
    )
    assert found.rows[0].tolist() == [0, 1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=30), st.integers(0, 60)
)
def test_aggregates_cover_the_selected_tuples_of_the_window(tuples: list[Tuple], window: int) -> None:
    ordered = sorted(tuples, key=lambda each: each[1])
    parts = [ordered[at : at + 7] for at in range(0, len(ordered), 7)]
    found = window_aggregates(indexed_selection([batch(0, part) for part in parts], RANGES), window)
    for number in range(len(parts)):
        arrived = [each for part in parts[: number + 1] for each in part]
        newest = max(time for _, time in arrived)
        for query, (low, high) in enumerate(zip(RANGES.low, RANGES.high, strict=True)):
            items = [item for item, time in arrived if low <= item < high and time > newest - window]
            assert (found.sums[number, query], found.counts[number, query]) == (sum(items), len(items))


def test_sums_are_scaled_up_and_averages_are_not() -> None:
    found = window_aggregates(
        first_selected([batch(0, [(1, n) for n in range(10)])], Ranges(np.array([0]), np.array([2])), 50),
        100,
        0.5,
    )
    assert (found.sums[0, 0], found.averages[0, 0]) == (10, 1)
