"""Runs: built and merged in any order, cut at a floor, packed, dealt; the same laws for every recipe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ondemand.structures.tuples import Tuples, found_by_key, random_tuples
from transom.aggregates.accumulators import Count, CountRows, Extreme, Sum
from transom.ondemand.structures.build_runs import sorted_run
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import Run, Structure, TupleBatch, first_not_below
from transom.ondemand.structures.timegram import TimeGram
from transom.ondemand.structures.value_structures import RawTuples

FLOAT, LONG, MONEY, TEXT = pa.float64(), pa.int64(), pa.decimal128(12, 2), pa.string()
ALWAYS = -(10**12)

RECIPES: dict[str, tuple[Structure, pa.DataType | None]] = {
    "counts": (exact_structure(CountRows()), None),
    "counts of values": (exact_structure(Count()), TEXT),
    "prefix sums": (exact_structure(Sum(LONG)), LONG),
    "staircase of doubles": (exact_structure(Extreme(FLOAT, "max")), FLOAT),
    "staircase of texts": (exact_structure(Extreme(TEXT, "min")), TEXT),
    "tree of decimals": (exact_structure(Sum(MONEY)), MONEY),
    "raw": (RawTuples(Extreme(LONG, "min")), LONG),
    "timegram": (TimeGram(FLOAT, buckets=4), FLOAT),
    "timegram of integers": (TimeGram(LONG), LONG),
    "timegram within": (TimeGram(FLOAT, within=0.1), FLOAT),
    "timegram bounds": (TimeGram(MONEY, bounds=(-10, 0, 10)), MONEY),
    "timegram of slices": (TimeGram(FLOAT, buckets=4, slice=50), FLOAT),
    "timegram of slices that only counts": (TimeGram(None, slice=50), None),
}
GROUPED = ["", "some", "many"]


def drawn(name: str, grouped: str) -> tuple[Structure, Tuples, list[TupleBatch], np.random.Generator]:
    structure, type = RECIPES[name]
    rng = np.random.default_rng(len(name) * 10 + len(grouped))
    tuples = random_tuples(rng, 300, type, grouped, jitter=40)
    return structure, tuples, tuples.batches(rng, 9), rng


def answers(structure: Structure, runs: list[Run], since: int) -> dict[Any, Any]:
    """Answers by group; doubles as they are but for the order in which they were added."""
    found = structure.lookup(runs, since)
    plain = found_by_key(found, list(found.columns))
    return {key: [f"{v:.9g}" if isinstance(v, float) else v for v in row] for key, row in plain.items()}


def contents(run: Run) -> list[Any]:
    """All that a run holds, whatever the order of its groups and of tuples at the same time."""
    heads = [run.heads[name].to_pylist() for name in sorted(run.heads)]
    rows = [
        repr(row)
        for row in zip(run.times.tolist(), *(c.to_pylist() for c in run.columns.values()), strict=True)
    ]
    found = []
    for g, (start, stop) in enumerate(zip(run.bounds[:-1].tolist(), run.bounds[1:].tolist(), strict=True)):
        keys = repr([key[g].as_py() for key in run.keys] + [head[g] for head in heads])
        found.append((keys.replace("-0.0", "0.0"), sorted(rows[start:stop])))
    return sorted(found)


def assert_sound(run: Run) -> None:
    assert run.bounds[0] == 0 and run.bounds[-1] == run.entries
    assert (np.diff(run.bounds) > 0).all()
    inside = np.ones(max(run.entries - 1, 0), bool)
    inside[run.bounds[1:-1] - 1] = False
    assert (np.diff(run.times)[inside] >= 0).all()
    assert all(len(column) == run.entries for column in run.columns.values())
    assert all(len(part) == run.groups for part in (*run.heads.values(), *run.keys))
    if run.entries:
        assert (run.base, run.high) == (run.times.min(), run.times.max())


@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", RECIPES)
def test_merged_parts_in_any_order_equal_the_whole(name: str, grouped: str) -> None:
    structure, tuples, batches, rng = drawn(name, grouped)
    runs = [structure.run(batch_id) for batch_id in batches]
    whole = structure.run(tuples.batch(np.arange(300)))
    halves = structure.merged(
        [structure.merged(runs[4:], ALWAYS), structure.merged(runs[:4], ALWAYS)], ALWAYS
    )
    shuffled = structure.merged([runs[i] for i in rng.permutation(9)], ALWAYS)
    for run in (*runs, whole, halves, shuffled):
        assert_sound(run)
    assert contents(halves) == contents(shuffled) == contents(whole)
    for since in rng.choice(tuples.times, 8).tolist():
        plain = answers(structure, [whole], since)
        assert answers(structure, [halves], since) == answers(structure, [shuffled], since) == plain
        if "timegram" not in name:  # of whom several runs have more buckets, and narrower intervals
            assert answers(structure, runs, since) == plain


@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", RECIPES)
def test_a_run_round_trips_through_bytes(name: str, grouped: str) -> None:
    structure, _, batches, _ = drawn(name, grouped)
    for run in [structure.run(batch_id) for batch_id in batches]:
        again = Run.unpacked(run.packed())
        assert_sound(again)
        assert contents(again) == contents(run)
        assert [key.type for key in again.keys] == [key.type for key in run.keys]
        assert again.nbytes == pytest.approx(run.nbytes, abs=64)
        assert contents(structure.merged([again, run], ALWAYS)) == contents(
            structure.merged([run, run], ALWAYS)
        )


@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", RECIPES)
def test_a_merge_removes_exactly_the_entries_below_the_floor(name: str, grouped: str) -> None:
    structure, tuples, batches, _ = drawn(name, grouped)
    runs = [structure.run(batch_id) for batch_id in batches]
    whole = structure.merged(runs, ALWAYS)
    for floor in [*np.quantile(tuples.times, [0.2, 0.5, 0.99]).astype(int).tolist(), 10**6]:
        cut = structure.merged(runs, floor)
        assert_sound(cut)
        assert (cut.times >= floor).all()
        for since in (floor, floor + 30):
            mine, plain = answers(structure, [cut], since), answers(structure, [whole], since)
            assert mine.keys() == plain.keys()
            if "timegram" not in name:  # whose hulls may be narrower without evicted entries
                assert mine == plain


@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", RECIPES)
def test_a_group_is_in_the_same_partition_of_every_run(name: str, grouped: str) -> None:
    structure, _, batches, _ = drawn(name, grouped)
    shares: dict[int, list[Run]] = {}
    for batch_id in batches:
        for place, part in structure.run(batch_id).by_partition(5):
            assert_sound(part)
            shares.setdefault(place, []).append(part)
    found: dict[Any, Any] = {}
    for parts in shares.values():
        mine = answers(structure, [structure.merged(parts, ALWAYS)], -600)
        assert not mine.keys() & found.keys()
        found |= mine
    assert found
    assert found == answers(
        structure, [structure.merged([structure.run(batch_id) for batch_id in batches], ALWAYS)], -600
    )
    assert grouped != "many" or len(shares) == 5


def test_tuples_in_order_are_not_sorted() -> None:
    values = pa.array([1.0, 2.0, 3.0])
    run = sorted_run(TupleBatch(np.array([1, 1, 5]), np.zeros(3, np.int64), (), values))
    assert run.columns["value"] is values


def test_times_of_a_short_range_take_half_the_memory() -> None:
    close = sorted_run(TupleBatch(np.array([10**15, 10**15 + 2**32 - 1]), np.zeros(2, np.int64)))
    wide = sorted_run(TupleBatch(np.array([10**15, 10**15 + 2**32]), np.zeros(2, np.int64)))
    assert (close.ticks.nbytes, wide.ticks.nbytes) == (8, 16)
    for run in (close, wide):
        assert run.times.tolist() == [10**15, run.high]
        assert [run.starts(since).tolist() for since in (0, 10**15 + 1, run.high + 1)] == [[0], [1], [2]]


def test_a_batch_without_tuples_is_an_empty_run() -> None:
    for structure, type in RECIPES.values():
        none = np.zeros(0, np.int64)
        empty = structure.run(
            TupleBatch(none, none, (pa.array([], TEXT),), None if type is None else pa.array([], type))
        )
        assert (empty.groups, empty.entries) == (0, 0)
        assert Run.unpacked(empty.packed()).entries == 0
        assert structure.lookup([empty], -5).count == structure.merged([empty, empty], 0).entries == 0


@pytest.mark.parametrize("grouped", GROUPED)
@pytest.mark.parametrize("name", RECIPES)
def test_empty_runs_merge_with_others_and_with_themselves(name: str, grouped: str) -> None:
    structure, _, batches, _ = drawn(name, grouped)
    runs = [structure.run(batch_id) for batch_id in batches]
    empty_run = structure.merged(runs, 10**6)
    assert_sound(empty_run)
    assert empty_run.groups == 0
    for empty in (
        empty_run,
        Run.unpacked(empty_run.packed()),
        *[part for _, part in empty_run.by_partition(3)],
    ):
        assert structure.merged([empty, empty], ALWAYS).groups == 0
        assert structure.lookup([empty], ALWAYS).count == 0
        assert answers(structure, [structure.merged([empty, *runs, empty], ALWAYS)], -600) == answers(
            structure, [structure.merged(runs, ALWAYS)], -600
        )
        assert answers(structure, [empty, *runs], -600) == answers(structure, runs, -600)
    if RECIPES[name][1] is not None:
        nulls = [
            TupleBatch(p.times, p.codes, p.keys, pa.nulls(len(p.times), RECIPES[name][1])) for p in batches
        ]
        assert structure.merged([structure.run(batch_id) for batch_id in nulls], ALWAYS).entries == 0


@given(st.lists(st.lists(st.integers(0, 20), min_size=1), max_size=6), st.integers(-1, 22))
def test_first_not_below_equals_a_bisection_of_each_stretch(stretches: list[list[int]], least: int) -> None:
    numbers = np.array([n for stretch in stretches for n in sorted(stretch)], np.int64)
    bounds = np.cumsum([0, *map(len, stretches)])
    expected = [
        int(np.searchsorted(sorted(s), least)) + start for s, start in zip(stretches, bounds, strict=False)
    ]
    assert first_not_below(numbers, bounds[:-1], bounds[1:], least).tolist() == expected
