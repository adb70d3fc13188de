"""Exact structures against reading all tuples: every recipe, many types, batches in and out of order."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.ondemand.structures.tuples import Tuples, found_by_key, random_tuples
from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Moments, Sum
from transom.aggregates.extreme_rows import ExtremeRow
from transom.aggregates.multisets import Multiset
from transom.aggregates.sketches import Distinct, Quantiles
from transom.ondemand.structures.block_tree import BlockTree
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.prefix_sums import PrefixSums
from transom.ondemand.structures.runs import Run, Structure, TupleBatch
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.value_structures import RawTuples

FLOAT, INT, LONG, TEXT = pa.float64(), pa.int32(), pa.int64(), pa.string()
MONEY = pa.decimal128(12, 2)

CASES: dict[str, tuple[pa.DataType | None, Accumulator]] = {
    "count of rows": (None, CountRows()),
    "count of values": (FLOAT, Count()),
    "sum of ints": (INT, Sum(INT)),
    "sum of longs that wraps": (LONG, Sum(LONG)),
    "sum of doubles": (FLOAT, Sum(FLOAT)),
    "sum of floats": (pa.float32(), Sum(pa.float32())),
    "sum of decimals": (MONEY, Sum(MONEY)),
    "sum of longs that does not wrap": (LONG, Sum(pa.decimal128(19, 0))),
    "moments": (MONEY, Moments()),
    "greatest double": (FLOAT, Extreme(FLOAT, "max")),
    "least double": (FLOAT, Extreme(FLOAT, "min")),
    "greatest float": (pa.float32(), Extreme(pa.float32(), "max")),
    "greatest long": (LONG, Extreme(LONG, "max")),
    "least int": (INT, Extreme(INT, "min")),
    "greatest text": (TEXT, Extreme(TEXT, "max")),
    "least text": (TEXT, Extreme(TEXT, "min")),
    "greatest decimal": (MONEY, Extreme(MONEY, "max")),
    "least date": (pa.date32(), Extreme(pa.date32(), "min")),
    "greatest truth": (pa.bool_(), Extreme(pa.bool_(), "max")),
    "quantiles": (FLOAT, Quantiles(FLOAT, 200)),
    "distinct": (TEXT, Distinct(TEXT, 10)),
}
SKETCHES = (Quantiles, Distinct)


def recipes(accumulator: Accumulator) -> list[Structure]:
    small = (
        [BlockTree(accumulator, block=2), BlockTree(accumulator, block=5)]
        if isinstance(exact_structure(accumulator), BlockTree)
        else []
    )
    return [exact_structure(accumulator), RawTuples(accumulator), *small]


@pytest.mark.parametrize(
    "accumulator", [Sum(FLOAT), ExtremeRow(LONG, FLOAT, "last"), Multiset(TEXT)], ids=lambda one: one.id
)
def test_a_lookup_before_the_first_tuple_has_no_groups(accumulator: Accumulator) -> None:
    for structure in recipes(accumulator):
        assert structure.lookup([], since=0).count == 0


def alike(accumulator: Accumulator, mine: dict[Any, Any], plain: dict[Any, Any]) -> bool:
    if isinstance(accumulator, SKETCHES):
        mine, plain = (
            {key: _estimate(accumulator, state) for key, state in known.items()} for known in (mine, plain)
        )
    return mine.keys() == plain.keys() and all(_near(mine[key], plain[key]) for key in plain)


def _estimate(accumulator: Accumulator, state: tuple[Any, ...]) -> tuple[Any, ...]:
    column = pa.array([state[0]], pa.binary())
    if isinstance(accumulator, Distinct):
        return (accumulator.estimates(column)[0].as_py(),)
    assert isinstance(accumulator, Quantiles)
    found = accumulator.percentiles(column, (0.0, 0.5, 1.0))[0]
    assert found is not None
    return tuple(found)


def _near(mine: tuple[Any, ...], plain: tuple[Any, ...]) -> bool:
    pairs = zip(mine, plain, strict=True)
    return all(
        (a != a and b != b)
        or a == b
        or (isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
        for a, b in pairs
    )


def kept(structure: Structure, batches: list[TupleBatch]) -> tuple[Run, ...]:
    known = RunTiers()
    for batch_id in batches:
        known = known.with_run(structure, structure.run(batch_id), -(10**9))
    return known.runs


@pytest.mark.parametrize("grouped", ["", "some", "many"])
@pytest.mark.parametrize("jitter", [0, 50])
@pytest.mark.parametrize("name", CASES)
def test_any_window_has_the_answer_of_a_scan(name: str, jitter: int, grouped: str) -> None:
    type, accumulator = CASES[name]
    seed = hash_of(name, jitter, grouped)
    rng = np.random.default_rng(seed)
    count = 60 if isinstance(accumulator, SKETCHES) else 400
    tuples = random_tuples(rng, count, type, grouped, jitter)
    batches = tuples.batches(rng, 12)
    for structure in recipes(accumulator):
        names = [f"s{i}" for i in range(len(accumulator.types()))]
        several = kept(structure, batches)
        single = structure.merged([structure.run(batch_id) for batch_id in batches[::-1]], -(10**9))
        for since in [-2000, 5000, *rng.choice(tuples.times, 6).tolist()]:
            plain = tuples.answers(accumulator, since)
            for runs in (several, (single,), (Run.unpacked(single.packed()),)):
                mine = found_by_key(structure.lookup(runs, since), names)
                assert alike(accumulator, finite_sums(mine), finite_sums(plain)), (
                    f"seed {seed}, {structure}, {since}"
                )


def hash_of(*parts: object) -> int:
    return sum(ord(letter) * (i + 1) for i, letter in enumerate(repr(parts)))


def finite_sums(answers: dict[Any, Any]) -> dict[Any, Any]:
    """1e300 beside -1e300 leaves what the order of adding makes of it: no sum is compared to that."""
    return {
        key: tuple(0.0 if isinstance(v, float) and 1e250 < abs(v) < math.inf else v for v in state)
        for key, state in answers.items()
    }


def test_a_huge_value_outside_of_the_window_does_not_affect_sums() -> None:
    times = np.arange(100)
    tuples = Tuples(times, (), pa.array([1e300] * 60 + [7.0] * 40))
    structure = exact_structure(Sum(FLOAT))
    found = structure.lookup([structure.run(tuples.batch(times))], 61)
    assert found.columns["s0"].to_pylist() == [7.0 * 39]


@pytest.mark.parametrize(("accumulator", "kind"), [
    (CountRows(), PrefixSums), (Count(), PrefixSums), (Sum(INT), PrefixSums), (Sum(FLOAT), BlockTree),
    (Sum(MONEY), BlockTree), (Extreme(TEXT, "min"), Staircase), (Moments(), BlockTree),
    (Quantiles(FLOAT, 200), BlockTree),
])  # fmt: skip
def test_each_aggregate_has_its_structure(accumulator: Accumulator, kind: type[Structure]) -> None:
    assert isinstance(exact_structure(accumulator), kind)


def test_of_equal_values_a_staircase_keeps_the_latest() -> None:
    structure = Staircase(Extreme(INT, "max"))
    run = structure.run(
        TupleBatch(np.arange(7), np.zeros(7, np.int64), (), pa.array([3, 9, 4, 9, 2, None, 1], INT))
    )
    assert run.times.tolist() == [3, 4, 6]
    assert run.columns["value"].to_pylist() == [9, 2, 1]


def test_a_staircase_of_random_values_is_short_and_of_falling_ones_is_not() -> None:
    structure, times, none = Staircase(Extreme(FLOAT, "max")), np.arange(100_000), np.zeros(100_000, np.int64)
    rng = np.random.default_rng(3)
    assert structure.run(TupleBatch(times, none, (), pa.array(rng.random(100_000)))).entries < 50
    assert structure.run(TupleBatch(times, none, (), pa.array(-times.astype(float)))).entries == 100_000


def test_a_group_without_tuples_in_the_window_has_no_answer() -> None:
    for accumulator in (CountRows(), Sum(INT), Sum(FLOAT), Extreme(TEXT, "max"), Moments()):
        structure = exact_structure(accumulator)
        type = getattr(accumulator, "input", FLOAT)
        batch = TupleBatch(np.array([5]), np.array([0]), (pa.array(["a"]),), pa.nulls(1, type))
        assert structure.lookup([], 0).count == 0
        assert structure.lookup([structure.run(batch)], 6).count == 0
        if not isinstance(accumulator, CountRows):
            assert structure.lookup([structure.run(batch)], 0).count == 0


def test_averages_of_decimals_come_from_exact_sums() -> None:
    structure = exact_structure(Sum(MONEY))
    cents = pa.array([Decimal("0.01")] * 1000, MONEY)
    run = structure.run(TupleBatch(np.arange(1000), np.zeros(1000, np.int64), (), cents))
    assert structure.lookup([run], 1).columns["s0"].to_pylist() == [Decimal("9.99")]
