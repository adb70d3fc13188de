"""TimeGram: its intervals contain the exact answers, whatever the values; and are as narrow as promised."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.ondemand.structures.tuples import Tuples
from transom.aggregates.table import aggregate_function
from transom.ondemand.structures.runs import Run, TupleBatch
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.timegram import TimeGram

FLOAT, LONG, MONEY = pa.float64(), pa.int64(), pa.decimal128(12, 2)
ANSWERS = ("count", "sum", "avg", "min", "max")
GROUPS, ROWS, LOOKUPS = 1000, 12_000, 25
Draw = Callable[[np.random.Generator, np.ndarray], Any]


def _signs(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], count)


def _odd(rng: np.random.Generator, times: np.ndarray, values: list[float]) -> np.ndarray:
    return np.where(
        rng.random(len(times)) < 0.02, rng.choice(values, len(times)), rng.normal(0, 9, len(times))
    )


STREAMS: dict[str, tuple[pa.DataType, Draw]] = {
    "uniform": (FLOAT, lambda rng, t: rng.uniform(-10, 10, len(t))),
    "drifting": (FLOAT, lambda rng, t: t * 0.37 + rng.normal(0, 1, len(t))),
    "a growing scale": (FLOAT, lambda rng, t: 1.02 ** (t % 30_000) * _signs(rng, len(t))),
    "huge beside tiny": (FLOAT, lambda rng, t: rng.choice([1e300, 1e-300, -1e-300, 7.0], len(t))),
    "huge with both signs": (FLOAT, lambda rng, t: rng.choice([1.7e308, -1.7e308, 1.0, -3.5], len(t))),
    "denormals": (FLOAT, lambda rng, t: rng.choice([5e-324, -5e-324, 2.3e-308, 1e-310, 0.0, -0.0], len(t))),
    "nearly cancelling": (FLOAT, lambda rng, t: _signs(rng, len(t)) * (1e16 + rng.integers(0, 9, len(t)))),
    "infinities": (FLOAT, lambda rng, t: _odd(rng, t, [np.inf])),
    "all that floats are": (FLOAT, lambda rng, t: _odd(rng, t, [np.inf, -np.inf, np.nan, 1.7e308])),
    "singles": (pa.float32(), lambda rng, t: rng.normal(3, 1e-3, len(t)).astype(np.float32)),
    "small integers": (pa.int32(), lambda rng, t: rng.integers(-20, 20, len(t))),
    "integers beyond doubles": (LONG, lambda rng, t: 2**53 + rng.integers(0, 99, len(t))),
    "integers that wrap": (LONG, lambda rng, t: rng.choice([2**63 - 1, -(2**63), 2**62, -5, 2**40], len(t))),
    "decimals": (MONEY, lambda rng, t: rng.integers(-10**9, 10**9, len(t))),
}  # fmt: skip
GRIDS: dict[str, dict[str, Any]] = {
    "following": {},
    "two": {"buckets": 2},
    "between": {"buckets": 16, "between": (-5, 5)},
    "bounds": {"bounds": (-10, -6, -2, 4, 6, 10)},
    "within": {"within": 0.05},
    "sliced": {"slice": 1000},
    "sliced bounds": {"bounds": (-1, 0, 1), "slice": 4000},
    "sliced within": {"within": 0.5, "slice": 700},
}


@cache
def drawn(name: str, groups: int) -> tuple[Tuples, list[TupleBatch], list[int]]:
    """A stream in batches that overlap, and where windows begin."""
    rng = np.random.default_rng(sum(map(ord, name)))
    type, draw = STREAMS[name]
    times = np.sort(rng.integers(0, 20_000, ROWS)) + rng.integers(-500, 500, ROWS)
    if pa.types.is_decimal(type):
        values = pa.array(draw(rng, times)).cast(pa.decimal128(19, 0)).view(pa.decimal128(19, 2)).cast(type)
    else:
        values = pa.array(draw(rng, times)).cast(type, safe=False)
    values = pa.array(values.to_pylist(), type, mask=rng.random(ROWS) < 0.02)
    tuples = Tuples(times, (pa.array(rng.integers(0, groups, ROWS)),), values)
    return tuples, tuples.batches(rng, 12), [-1000, *rng.integers(-500, 20_500, LOOKUPS - 1).tolist()]


@cache
def plain(name: str, groups: int, since: int) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Which groups have values in a window, and their answers; those of doubles for two orders of adding."""
    tuples, _, _ = drawn(name, groups)
    valid = tuples.values.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[union-attr]
    rows = np.flatnonzero((tuples.times >= since) & valid)
    keys = tuples.keys[0].to_numpy()[rows]
    found: dict[str, list[np.ndarray]] = {answer: [] for answer in ANSWERS}
    for order in (np.arange(len(rows)), np.argsort(-np.abs(_doubles(tuples.values.take(pa.array(rows)))))):  # type: ignore[union-attr]
        own = tuples.values.take(pa.array(rows[order]))  # type: ignore[union-attr]
        codes = np.unique(keys[order], return_inverse=True)[1]
        for answer in ANSWERS:
            found[answer].append(_answered(answer, own, codes, int(codes.max(initial=-1)) + 1))
    return np.unique(keys), found


def _answered(answer: str, values: pa.Array, codes: np.ndarray, groups: int) -> np.ndarray:
    function = aggregate_function(answer)
    states = [a.lift(values, codes, groups) for a in function.accumulators(values.type, ())]
    type = states[0][0].type
    if answer == "avg":
        type = pa.decimal128(16, 6) if pa.types.is_decimal(values.type) else FLOAT
    return _doubles(function.lower(states, type, ()), exact_structure=True)


def _doubles(column: pa.Array, exact_structure: bool = False) -> np.ndarray:
    if exact_structure and pa.types.is_integer(column.type):
        return column.cast(LONG).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(column.type):
        return np.array([float(v) for v in column.to_pylist()])
    return column.cast(FLOAT, safe=False).to_numpy(zero_copy_only=False)


def _up_to(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`<=` in SQL's order."""
    if low.dtype.kind == high.dtype.kind == "i":
        return low <= high
    return np.isnan(high) | (low <= high)


def kept(structure: TimeGram, batches: list[TupleBatch]) -> tuple[Run, ...]:
    known = RunTiers()
    for batch_id in batches:
        known = known.with_run(structure, structure.run(batch_id), -(10**9))
    return known.runs


def assert_contained(structure: TimeGram, runs: tuple[Run, ...], name: str, groups: int, since: int) -> int:
    """Every answer lies within its interval; how many there were."""
    found = structure.lookup(runs, since)
    keys, answers = plain(name, groups, since)
    order = np.argsort(found.keys[0].to_numpy()) if found.count else np.zeros(0, np.int64)
    assert found.count == len(keys)
    assert not found.count or (found.keys[0].to_numpy()[order] == keys).all()
    for answer in ANSWERS:
        low, high = (
            found.columns[f"{answer}_{side}"].to_numpy(zero_copy_only=False)[order]
            for side in ("low", "high")
        )
        for exact_structure in answers[answer]:
            good = _up_to(low, exact_structure) & _up_to(exact_structure, high)
            assert good.all(), (answer, since, low[~good][:3], exact_structure[~good][:3], high[~good][:3])
    return found.count * len(ANSWERS)


@pytest.mark.parametrize("stream", STREAMS)
def test_every_interval_contains_the_exact_answer(stream: str) -> None:
    type, _ = STREAMS[stream]
    _, batches, sinces = drawn(stream, GROUPS)
    answered = 0
    for options in GRIDS.values():
        structure = TimeGram(type, **options)
        runs = kept(structure, batches)
        whole = (
            Run.unpacked(
                structure.merged([structure.run(batch_id) for batch_id in batches[::-1]], -(10**9)).packed()
            ),
        )
        for i, since in enumerate(sinces):
            answered += assert_contained(structure, whole if i % 3 else runs, stream, GROUPS, since)
    # Over all streams more than ten million answers, of more than two million lookups of a group.
    assert answered > 750_000


@pytest.mark.parametrize("stream", STREAMS)
def test_intervals_contain_the_answer_for_thousands_of_tuples_with_eviction(stream: str) -> None:
    type, _ = STREAMS[stream]
    _, batches, _ = drawn(stream, 3)
    for options in GRIDS.values():
        structure, known = TimeGram(type, **options), RunTiers()
        for batch in batches:
            high = int(batch.times.max(initial=0))
            known = known.with_run(structure, structure.run(batch), high - 9000)
        for since in (high - 9000, high - 8999, high - 4321, high - 100, high):
            assert_contained(structure, known.runs, stream, 3, since)


def one_group(values: list[Any], type: pa.DataType | None) -> TupleBatch:
    count = len(values)
    column = None if type is None else pa.array(values, type)
    return TupleBatch(np.arange(1, count + 1), np.zeros(count, np.int64), (), column)


def interval(structure: TimeGram, run: Run, since: int, answer: str) -> tuple[Any, Any]:
    found = structure.lookup([run], since).columns
    low, high = (found[f"{answer}_{side}"].to_pylist() for side in ("low", "high"))
    return low[0], high[0]


def test_the_papers_example() -> None:
    """Section 3.2.4, with T5 (value 2) where it belongs, in [-2, 4]; windows of 4, 3 and 2 rows."""
    structure = TimeGram(pa.int32(), bounds=(-10, -6, -2, 4, 6, 10))
    run = structure.run(one_group([3, -10, -9, 5, 2, 7, -3], pa.int32()))
    # Buckets know the values that they have seen: in the window of 4 rows, T1's 3 widens that of T5.
    assert interval(structure, run, 4, "sum") == (11, 12)
    assert interval(structure, run, 5, "max") == (7, 7)
    low, high = interval(structure, run, 6, "avg")  # divided by 2; the paper divides by the 4 that are kept
    assert low == pytest.approx(2) and high == pytest.approx(2)
    assert interval(structure, run, 6, "count") == (2, 2)


def test_a_bucket_of_many_values_answers_with_its_hull() -> None:
    structure = TimeGram(pa.int32(), bounds=(0, 100))
    run = structure.run(one_group([10, 90, 20, 30], pa.int32()))
    assert interval(structure, run, 3, "max") == (10, 90)
    assert interval(structure, run, 3, "sum") == (20, 180)


@pytest.mark.parametrize("options", [{}, {"slice": 10}])
def test_there_are_at_most_as_many_buckets_as_requested(options: dict[str, int]) -> None:
    rng = np.random.default_rng(2)
    structure = TimeGram(FLOAT, buckets=16, **options)
    runs = [structure.run(one_group(rng.normal(i, 1, 500).tolist(), FLOAT)) for i in range(9)]
    merged = structure.merged(runs, 0)
    assert all(8 <= run.groups <= 16 for run in [*runs, merged])


def test_an_outlier_costs_one_bucket_and_no_precision() -> None:
    rng = np.random.default_rng(4)
    values = rng.uniform(0, 64, 10_000)
    structure = TimeGram(FLOAT, buckets=64)
    with_outlier = structure.run(one_group([*values[:-1], 1e300], FLOAT))
    widths = np.sort(with_outlier.heads["high"].to_numpy() - with_outlier.heads["low"].to_numpy())
    assert widths[-1] <= 2
    assert interval(structure, with_outlier, 10_000, "max") == (1e300, 1e300)


def test_buckets_follow_values_that_drift() -> None:
    rng = np.random.default_rng(5)
    structure, kept_ = TimeGram(FLOAT, buckets=64), RunTiers()
    for batch_id in range(100):
        times = np.arange(batch_id * 1000, batch_id * 1000 + 1000)
        values = pa.array(batch_id * 50 + rng.uniform(0, 10, 1000))
        part = TupleBatch(times, np.zeros(1000, np.int64), (), values)
        kept_ = kept_.with_run(structure, structure.run(part), batch_id * 1000 - 5000)
    found = structure.lookup(kept_.runs, 99_000).columns
    assert found["max_high"][0].as_py() - found["max_low"][0].as_py() < 10
    assert 99 * 50 <= found["avg_low"][0].as_py() <= found["avg_high"][0].as_py() <= 99 * 50 + 10


@pytest.mark.parametrize("within", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("type", [FLOAT, LONG])
def test_within_a_part_of_the_answer(within: float, type: pa.DataType) -> None:
    rng = np.random.default_rng(6)
    values = (10 ** rng.uniform(0, 9, 20_000)).astype(np.int64)
    tuples = Tuples(np.arange(20_000), (pa.array(rng.integers(0, 300, 20_000)),), pa.array(values).cast(type))
    structure = TimeGram(type, within=within)
    runs = kept(structure, tuples.batches(rng, 30))
    for since in (0, 7000, 19_000, 19_990):
        found = structure.lookup(runs, since).columns
        for answer in ("count", "sum", "avg", "min", "max"):
            low, high = (found[f"{answer}_{side}"].to_numpy() for side in ("low", "high"))
            assert (high - low <= within * low).all()


@pytest.mark.parametrize("since", [0, 7000, 13_337, 19_990])
def test_within_a_part_of_the_greatest_and_the_least_also_with_slices(since: int) -> None:
    rng = np.random.default_rng(6)
    values = pa.array(10 ** rng.uniform(0, 9, 20_000))
    tuples = Tuples(np.arange(20_000), (pa.array(rng.integers(0, 300, 20_000)),), values)
    structure = TimeGram(FLOAT, within=0.05, slice=700)
    found = structure.lookup(kept(structure, tuples.batches(rng, 30)), since).columns
    for answer in ("min", "max"):
        low, high = (found[f"{answer}_{side}"].to_numpy() for side in ("low", "high"))
        assert (high - low <= 0.05 * low).all()


def test_within_also_holds_for_negative_values_and_zero_is_exact() -> None:
    structure = TimeGram(FLOAT, within=0.05)
    run = structure.run(one_group([-100.0, -104.0, 0.0, -3.0], FLOAT))
    assert interval(structure, run, 3, "max") == (0.0, 0.0)
    low, high = interval(structure, run, 1, "min")
    assert low == -104.0 and high - low <= 0.05 * 104


def test_a_window_that_begins_with_a_slice_is_counted_exactly() -> None:
    structure = TimeGram(None, slice=10)
    run = structure.run(one_group([None] * 100, None))
    assert run.entries == 11
    assert interval(structure, run, 50, "count") == (51, 51)
    assert interval(structure, run, 55, "count") == (42, 50)  # 46, in truth: some of the slice [50, 60)
    assert list(structure.lookup([run], 55).columns) == ["count_low", "count_high"]


def test_answers_can_be_pickled() -> None:
    structure = TimeGram(pa.int32())
    found = structure.lookup([structure.run(one_group([1, 2], pa.int32()))], 1)
    again = pickle.loads(pickle.dumps(found))
    assert dict(again.columns) == dict(found.columns) and len(again.columns) == 10
    assert "median_low" not in again.columns


def test_slices_take_no_more_memory_at_ten_times_the_rate() -> None:
    rng = np.random.default_rng(12)
    sizes = []
    for rate in (1_000, 10_000):
        structure, known = TimeGram(FLOAT, buckets=32, slice=1_000_000), RunTiers()
        for batch_id in range(40):
            times = batch_id * 500_000 + np.sort(rng.integers(0, 500_000, rate // 2))
            part = TupleBatch(
                times, np.zeros(rate // 2, np.int64), (), pa.array(rng.uniform(0, 100, rate // 2))
            )
            known = known.with_run(structure, structure.run(part), 0)
        sizes.append(known.nbytes)
    assert sizes[1] < 1.2 * sizes[0]


def test_a_count_of_values_passes_over_nulls() -> None:
    structure = TimeGram(None)
    run = structure.run(one_group(["a", None, "b"], pa.string()))
    assert interval(structure, run, 1, "count") == (2, 2)


def test_averages_of_a_cut_slice_are_between_the_best_and_the_worst_choice() -> None:
    """Bucket 1 has one to nine 1s in the window, bucket 9 one to nine 9s."""
    structure = TimeGram(pa.int32(), bounds=(0, 5, 10), slice=100)
    run = structure.run(one_group([1, 9] * 10, pa.int32()))
    low, high = interval(structure, run, 5, "avg")
    assert (low, high) == (pytest.approx(1.8), pytest.approx(8.2))
    assert interval(structure, run, 5, "sum") == (10, 90)


@pytest.mark.parametrize("refused", [
    {"type": pa.string()}, {"type": FLOAT, "buckets": 0}, {"type": FLOAT, "slice": 0},
    {"type": FLOAT, "within": 0.0}, {"type": FLOAT, "bounds": (1, 0)}, {"type": FLOAT, "between": (1, 1)},
])  # fmt: skip
def test_invalid_timegrams_are_refused(refused: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"timegram|bounds|width"):
        TimeGram(**refused)
