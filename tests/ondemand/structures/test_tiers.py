"""What is kept: few runs, each tuple written few times, nothing much older than the floor."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tests.ondemand.structures.tuples import Tuples, found_by_key
from transom.aggregates.accumulators import Accumulator, CountRows, Extreme, Sum
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import TupleBatch
from transom.ondemand.structures.tiers import FANOUT, SMALL_RUN, RunTiers

FLOAT = pa.float64()


def batch(rng: np.random.Generator, start: int, size: int) -> TupleBatch:
    times = np.arange(start, start + size)
    return TupleBatch(times, np.zeros(size, np.int64), (), pa.array(rng.normal(0, 1, size)))


@pytest.mark.parametrize("size", [7, 1000])
def test_there_are_few_runs_and_tuples_are_written_few_times(size: int) -> None:
    rng, structure, kept, written = np.random.default_rng(1), exact_structure(Sum(FLOAT)), RunTiers(), 0
    batches = 1500
    tiers = math.log(max(batches * size / SMALL_RUN, FANOUT), FANOUT) + 1
    for i in range(batches):
        known = kept
        kept = known.with_run(structure, structure.run(batch(rng, i * size, size)), -1)
        written += sum(run.entries for run in kept.runs if run not in known.runs)
        assert len(kept.runs) <= (FANOUT - 1) * (tiers + 1)
    assert kept.entries == batches * size
    # Small runs are all alike: they are written again until they are small no more.
    assert written <= kept.entries * (tiers + 1 + max(0.0, math.log2(SMALL_RUN / size) * 4))


def test_earlier_versions_of_the_tiers_do_not_change() -> None:
    rng, structure = np.random.default_rng(2), exact_structure(CountRows())
    past = [RunTiers()]
    for i in range(40):
        past.append(past[-1].with_run(structure, structure.run(batch(rng, i * 100, 100)), i * 100 - 1000))
    for i, kept in enumerate(past[1:]):
        counts = structure.lookup(kept.runs, i * 100 - 900).columns["s0"].to_pylist()
        assert counts == [min(i * 100 + 100, 1000)]
    shared = set(map(id, past[-1].runs)) & set(map(id, past[-2].runs))
    assert len(shared) >= len(past[-2].runs) - FANOUT


@pytest.mark.parametrize("size", [100, 5000])
def test_at_most_half_more_is_kept_than_windows_need(size: int) -> None:
    rng, structure, kept, window = np.random.default_rng(3), exact_structure(Sum(FLOAT)), RunTiers(), 50_000
    for i in range(300_000 // size):
        now = (i + 1) * size
        kept = kept.with_run(structure, structure.run(batch(rng, i * size, size)), now - window)
        assert min(now, window) <= kept.entries <= 1.5 * window + size
        assert all(run.high >= now - window for run in kept.runs)


def test_a_batch_that_is_too_old_is_not_kept() -> None:
    rng, structure = np.random.default_rng(4), exact_structure(Sum(FLOAT))
    kept = RunTiers().with_run(structure, structure.run(batch(rng, 1000, 10)), 900)
    assert kept.with_run(structure, structure.run(batch(rng, 500, 10)), 900).runs == kept.runs
    assert kept.with_run(structure, structure.run(batch(rng, 893, 10)), 900).entries == 13
    assert kept.with_run(structure, structure.run(batch(rng, 1010, 0)), 900).runs == kept.runs


def test_kept_says_how_much_it_is() -> None:
    rng, structure = np.random.default_rng(5), exact_structure(Sum(FLOAT))
    kept = RunTiers().with_run(structure, structure.run(batch(rng, 0, 1000)), 0)
    assert kept.entries == 1000
    assert kept.nbytes == 1000 * (4 + 8) + 16


@pytest.mark.parametrize("accumulator", [Sum(pa.int64()), Sum(FLOAT), Extreme(FLOAT, "max"), CountRows()])
@pytest.mark.parametrize("seed", range(6))
def test_updates_and_lookups_interleave_freely(accumulator: Accumulator, seed: int) -> None:
    rng, structure, kept = np.random.default_rng(seed), exact_structure(accumulator), RunTiers()
    type = getattr(accumulator, "input", FLOAT)
    times = np.zeros(0, np.int64)
    keys, values = pa.array([], pa.int64()), pa.array([], type)
    high = 0
    for step in range(60):
        count = int(rng.integers(0, 60))
        fresh = high + rng.integers(-300, 100, count)  # some of them older than all that is kept
        high = max(high, int(fresh.max(initial=high)))
        floor = high - 250
        column = pa.array(rng.integers(-50, 50, count)).cast(type)
        own = Tuples(fresh, (pa.array(rng.integers(0, 5, count)),), column)
        kept = kept.with_run(structure, structure.run(own.batch(np.arange(count))), floor)
        times, keys = np.r_[times, fresh], pa.concat_arrays([keys, own.keys[0]])
        values = pa.concat_arrays([values, column])
        for since in rng.integers(floor, high + 2, step % 3).tolist():
            mine = found_by_key(structure.lookup(kept.runs, since), ["s0"])
            assert mine == Tuples(times, (keys,), values).answers(accumulator, since), f"seed {seed}"
