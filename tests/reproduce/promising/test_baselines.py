"""Symmetric hash join and simple selection under a budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduce.promising.baselines import (
    Stream,
    SymmetricHashJoin,
    equal_shares,
    first_matches,
    simple_selection,
)


def stream(*tuples: tuple[int, int, int]) -> Stream:
    """A stream of (batch, time, key) tuples, all in one bucket."""
    batch_id, time, key = np.array(tuples, np.int64).reshape(-1, 3).T
    return Stream(batch_id, time, key.astype(np.uint64), np.zeros(len(batch_id), np.int64))


@given(st.lists(st.integers(0, 20), max_size=20), st.integers(0, 200))
def test_the_unused_part_of_a_share_passes_to_later_tuples(need: list[int], budget: int) -> None:
    spent, used = 0, []
    for i, wanted in enumerate(need, 1):
        used.append(min(wanted, budget * i // len(need) - spent))
        spent += used[-1]
    assert equal_shares(np.array(need, np.int64), budget).tolist() == used


def test_a_tuple_scans_from_the_oldest_tuple_in_the_window_until_its_share_is_used() -> None:
    earlier = stream((0, 0, 5), (0, 10, 5), (0, 20, 6), (0, 30, 5))
    arriving = stream((1, 31, 5), (1, 32, 5))
    join = SymmetricHashJoin((arriving, earlier), window=25)
    assert join.needs == {0: 0, 1: 6}
    found = join.run(lambda batch_id: 4)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(0, 1), (1, 1)]
    assert found.probes == {0: 0, 1: 4} and found.cost == 4 and found.batch_id.tolist() == [1, 1]


def test_tuples_out_of_order_are_scanned_in_order_of_arrival() -> None:
    earlier = stream((0, 30, 5), (0, 0, 5), (0, 40, 5))
    join = SymmetricHashJoin((stream((1, 41, 5)), earlier), window=15)
    assert join.needs[1] == 3
    assert join.run(lambda batch_id: 2).right.tolist() == [0]
    assert join.run().right.tolist() == [0, 2]


@pytest.mark.parametrize("streams", [(stream(), stream()), (stream((0, 1, 1)), stream())])
def test_a_stream_without_tuples_has_no_partners(streams: tuple[Stream, Stream]) -> None:
    assert len(SymmetricHashJoin(streams, None).run()) == 0


def test_a_hundred_thousand_tuples_are_joined_quickly() -> None:
    random = np.random.default_rng(1)
    sides = []
    for side in (0, 1):
        times = np.sort(random.integers(0, 10_000_000, 50_000))
        key = random.integers(0, 5_000, 50_000).astype(np.uint64)
        sides.append(Stream(2 * (times // 10_000) + side, times, key, (key % 64).astype(np.int64)))
    join = SymmetricHashJoin((sides[0], sides[1]), 100_000)
    assert len(join.run(lambda batch_id: join.needs.get(batch_id, 0) // 10)) < len(join.run())


def test_all_queries_probe_a_tuple_before_the_next_one() -> None:
    assert simple_selection(rows=2, queries=3, budget=100).tolist() == [2, 2, 2]
    assert simple_selection(rows=9, queries=0, budget=100).tolist() == []
    assert first_matches(np.array([True, False, True, True]), 3).tolist() == [0, 2]
