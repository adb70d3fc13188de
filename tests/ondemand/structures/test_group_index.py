"""Lookups of few groups among many: the same answers as those of a lookup of all groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.ondemand.structures.tuples import NAN, Tuples, found_by_key
from transom.aggregates.accumulators import Extreme, Moments, Sum
from transom.columns.hashes import Hashes
from transom.ondemand.structures import group_index
from transom.ondemand.structures.block_tree import BlockTree
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.group_index import GroupIndex
from transom.ondemand.structures.grouped_ordered_sharing import GroupedOrderedSharing
from transom.ondemand.structures.runs import GroupPattern, Run, Structure
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.timegram import TimeGram
from transom.ondemand.structures.value_structures import RawTuples

FLOAT, LONG = pa.float64(), pa.int64()
SCANNED_GROUPS = 64
STRUCTURES: dict[str, tuple[Structure, list[str]]] = {
    "staircase": (exact_structure(Extreme(FLOAT, "max")), ["s0"]),
    "prefix sums": (exact_structure(Sum(LONG)), ["s0"]),
    "block tree": (BlockTree(Moments(), block=2), ["s0", "s1"]),
    "raw tuples": (RawTuples(Sum(FLOAT)), ["s0"]),
    "timegram": (TimeGram(FLOAT, 4), ["count_low", "sum_low", "max_high"]),
    "sliced timegram": (TimeGram(FLOAT, 4, slice=70), ["count_low", "count_high", "sum_high"]),
}
PATTERNS: dict[str, GroupPattern] = {
    "one group": ((0, (7,)), (1, (1.5,))),
    "one column": ((0, (7, 8, 199)),),
    "the other column": ((1, (NAN, -0.0)),),
    "nulls": ((0, (None,)), (1, (None, 0.0, NAN))),
    "a group that there is not": ((0, (10**9,)), (1, (1.5,))),
    "no value": ((0, ()),),
    "too many combinations": ((0, tuple(range(150))), (1, (0.0, 1.5, NAN, None))),
}


@pytest.fixture(autouse=True)
def few_groups_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_index, "SCANNED_GROUPS", SCANNED_GROUPS)
    monkeypatch.setattr(group_index, "MAX_COMBINATIONS", 100)


def many_groups(type: pa.DataType) -> Tuples:
    rng, count = np.random.default_rng(3), 2_000
    keys = (
        pa.array(rng.integers(0, 200, count), mask=rng.random(count) < 0.1),
        pa.array(rng.choice([0.0, -0.0, NAN, 1.5], count), mask=rng.random(count) < 0.1, from_pandas=False),
    )
    return Tuples(np.arange(count), keys, pa.array(np.round(rng.normal(0, 50, count))).cast(type))


def runs_of(structure: Structure, type: pa.DataType) -> tuple[Run, ...]:
    tiers = RunTiers()
    for batch in many_groups(type).batches(np.random.default_rng(4), 5):
        tiers = tiers.with_run(structure, structure.run(batch), -1)
    return tiers.runs


def is_wanted(key: tuple[Any, ...], pattern: GroupPattern) -> bool:
    plain = [["NaN" if value != value else value for value in values] for _, values in pattern]
    return all(key[place] in values for (place, _), values in zip(pattern, plain, strict=True))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_few_groups_have_the_answers_that_they_have_among_all(name: str, pattern: GroupPattern) -> None:
    structure, columns = STRUCTURES[name]
    runs = runs_of(structure, LONG if name == "prefix sums" else FLOAT)
    assert max(run.groups for run in runs) > SCANNED_GROUPS and len(runs) > 1
    for since in (0, 1_200, 1_990, 5_000):
        everything = found_by_key(structure.lookup(runs, since), columns)
        expected = {key: answer for key, answer in everything.items() if is_wanted(key, pattern)}
        assert found_by_key(structure.lookup(runs, since, pattern), columns) == expected


def test_ordered_sharing_answers_few_groups() -> None:
    accumulator = Extreme(FLOAT, "max")
    runs = runs_of(RawTuples(accumulator), FLOAT)
    answers = GroupedOrderedSharing(accumulator, [500])
    for run in runs:
        answers.insert(run)
    expected = found_by_key(RawTuples(accumulator).lookup(runs, 1_500), ["s0"])
    found = found_by_key(answers.lookup(runs, 1_500, 1_999, PATTERNS["one column"]), ["s0"])
    assert found == {key: one for key, one in expected.items() if is_wanted(key, PATTERNS["one column"])}
    assert 0 < answers.counters.recalculations == len(found)


def test_groups_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_equal(keys: Any, rows: int) -> Hashes:
        return np.zeros(rows, np.uint64)

    monkeypatch.setattr(group_index, "row_hashes", all_equal)
    monkeypatch.setattr(group_index, "_wanted_hashes", group_index._wanted_hashes.__wrapped__)
    structure, columns = STRUCTURES["staircase"]
    runs = runs_of(structure, FLOAT)
    assert len(found_by_key(structure.lookup(runs, 0, PATTERNS["one group"]), columns)) == 1


def test_an_index_is_made_once_for_a_run_and_not_for_many_combinations() -> None:
    structure, _ = STRUCTURES["staircase"]
    runs = runs_of(structure, FLOAT)
    structure.lookup(runs, 0, PATTERNS["too many combinations"])
    assert not any(isinstance(made, GroupIndex) for run in runs for made in run.derived.values())
    large = [run for run in runs if run.groups > SCANNED_GROUPS]
    structure.lookup(runs, 0, PATTERNS["one column"])
    made = [run.derived[GroupIndex, (0,)] for run in large]
    structure.lookup(runs, 0, PATTERNS["one column"])
    assert [run.derived[GroupIndex, (0,)] for run in large] == made
