"""OrderedSharing over runs, group by group, against reading all tuples; and how seldom it reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.ondemand.structures.tuples import Tuples, found_by_key, random_tuples
from transom.aggregates.accumulators import Extreme
from transom.ondemand.structures.grouped_ordered_sharing import GroupedOrderedSharing
from transom.ondemand.structures.runs import Run, TupleBatch
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.value_structures import RawTuples

TYPES: dict[str, pa.DataType] = {
    "doubles": pa.float64(),
    "floats": pa.float32(),
    "longs": pa.int64(),
    "dates": pa.date32(),
    "truths": pa.bool_(),
    "texts": pa.string(),
    "decimals": pa.decimal128(12, 2),
}


def alike(mine: dict[Any, tuple[Any]], plain: dict[Any, tuple[Any]]) -> bool:
    return mine.keys() == plain.keys() and all(
        mine[key] == plain[key] or (mine[key][0] != mine[key][0] and plain[key][0] != plain[key][0])
        for key in plain
    )


def first(tuples: Tuples, rows: int) -> Tuples:
    keys = tuple(key.slice(0, rows) for key in tuples.keys)
    return Tuples(tuples.times[:rows], keys, tuples.values.slice(0, rows))


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("function", ["max", "min"])
@pytest.mark.parametrize("grouped", ["", "some", "many"], ids=lambda what: what or "none")
@pytest.mark.parametrize("jitter", [0, 60], ids=["in order", "out of order"])
def test_interleaved_batches_and_lookups(kind: pa.DataType, function: str, grouped: str, jitter: int) -> None:
    seed = 5
    print("seed", seed)
    rng = np.random.default_rng(seed)
    accumulator = Extreme(kind, function)
    structure, kept, answers = (
        RawTuples(accumulator),
        RunTiers(),
        GroupedOrderedSharing(accumulator, [30, 100, 100, 250]),
    )
    tuples, rows = random_tuples(rng, 150, kind, grouped, jitter), 0
    for batch in tuples.batches(rng, 8):
        rows += len(batch.times)
        if not len(batch.times):
            continue
        seen = first(tuples, rows)
        now = int(seen.times.max())
        run = structure.run(batch)
        answers.insert(run)
        kept = kept.with_run(structure, run, now - 250)
        for size in (30, 250, int(rng.integers(1, 251))):
            found = answers.lookup(kept.runs, now + 1 - size, now)
            assert alike(found_by_key(found, ["s0"]), seen.answers(accumulator, now + 1 - size)), (now, size)
            assert found.columns["s0"].type == kind
        answers.expire(now - 250)
    counters = answers.counters
    assert counters.inserts == len(tuples.values) - tuples.values.null_count
    assert counters.lookups == counters.hits + counters.recalculations
    assert 0 < counters.recalculations < counters.lookups


def run_of(times: list[int], values: list[float], keys: list[str] | None = None) -> Run:
    groups = sorted(set(keys or [""]))
    codes = np.array([groups.index(key) for key in keys or [""] * len(times)])
    columns = () if keys is None else (pa.array(groups),)
    return RawTuples(MAX).run(TupleBatch(np.array(times), codes, columns, pa.array(values, pa.float64())))


def looked_up(answers: GroupedOrderedSharing, runs: list[Run], size: int, now: int) -> dict[Any, Any]:
    found = answers.lookup(runs, now + 1 - size, now)
    names = found.keys[0].to_pylist() if found.keys else [""] * found.count
    return dict(zip(names, found.columns["s0"].to_pylist(), strict=True))


MAX = Extreme(pa.float64(), "max")


def test_only_groups_whose_answer_has_left_the_window_are_rescanned() -> None:
    first = run_of([0, 1, 2, 3], [9, 2, 5, 4], ["a", "a", "b", "b"])
    answers = GroupedOrderedSharing(MAX, [4])
    answers.insert(first)
    assert looked_up(answers, [first], 4, now=3) == {"a": 9, "b": 5}
    assert (answers.counters.recalculations, answers.counters.scanned) == (2, 4)
    second = run_of([4], [1], ["b"])
    answers.insert(second)
    assert looked_up(answers, [first, second], 4, now=4) == {"a": 2, "b": 5}
    assert answers.counters.hits == 1, "b's answer still lies in the window"
    assert answers.counters.scanned == 4 + 1, "of a, one tuple is left"
    assert looked_up(answers, [first, second], 4, now=4) == {"a": 2, "b": 5}
    assert (answers.counters.lookups, answers.counters.recalculations) == (6, 3)


def test_existing_runs_may_be_inserted_in_any_order() -> None:
    runs = [run_of([5, 6], [1, 7]), run_of([0, 3], [9, 8])]
    answers = GroupedOrderedSharing(MAX, [10])
    for run in runs:
        answers.insert(run)
    assert looked_up(answers, runs, 10, now=6) == {"": 9}
    assert looked_up(answers, runs, 4, now=6) == {"": 8}


def test_groups_without_tuples_in_the_window_are_omitted_and_evicted() -> None:
    runs = [run_of([0, 5], [9, 1], ["a", "b"])]
    answers = GroupedOrderedSharing(MAX, [10])
    answers.insert(runs[0])
    assert looked_up(answers, runs, 3, now=5) == {"b": 1}
    assert looked_up(answers, runs, 10, now=5) == {"a": 9, "b": 1}
    assert answers.entries == 2
    answers.expire(before=1)
    assert answers.entries == 1
    more = run_of([7, 8], [3, 4], ["c", "a"])
    answers.insert(more)
    assert looked_up(answers, [*runs, more], 4, now=8) == {"b": 1, "c": 3, "a": 4}


def test_an_empty_structure_has_no_answers() -> None:
    answers = GroupedOrderedSharing(MAX)
    answers.insert(run_of([], []))
    assert looked_up(answers, [], 10, now=5) == {}


def test_windows_are_added_and_removed_for_all_groups() -> None:
    runs = [run_of([0, 1, 2, 3], [9, 7, 8, 1], ["a", "b", "a", "b"])]
    answers = GroupedOrderedSharing(MAX, [4])
    answers.insert(runs[0])
    answers.windows.add(2)
    assert looked_up(answers, runs, 4, now=3) == {"a": 9, "b": 7}
    assert answers.entries == 4
    assert looked_up(answers, runs, 2, now=3) == {"a": 8, "b": 1}
    assert answers.counters.recalculations == 2, "with the larger windows the smaller ones became known"
    answers.windows.remove(2)
    assert answers.windows.largest(3) == 0
