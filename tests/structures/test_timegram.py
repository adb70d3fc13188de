"""TimeGram: its intervals contain the exact answers, whatever the values; and are as narrow as promised."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.structures.tuples import Tuples
from transom.aggregates.functions import FUNCTIONS
from transom.algorithms.grouping import group
from transom.structures.kept import Kept
from transom.structures.runs import Batch, Run
from transom.structures.timegram import TimeGram

FLOAT, LONG, MONEY = pa.float64(), pa.int64(), pa.decimal128(12, 2)
ANSWERS = ("count", "sum", "avg", "min", "max")
GROUPS, ROWS, LOOKUPS = 1000, 12_000, 25
Draw = Callable[[np.random.Generator, np.ndarray], Any]


def _signs(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], count)


STREAMS: dict[str, tuple[pa.DataType, Draw]] = {
    "uniform": (FLOAT, lambda rng, t: rng.uniform(-10, 10, len(t))),
    "drifting": (FLOAT, lambda rng, t: t * 0.37 + rng.normal(0, 1, len(t))),
    "a growing scale": (FLOAT, lambda rng, t: 1.02 ** (t % 30_000) * _signs(rng, len(t))),
    "huge beside tiny": (FLOAT, lambda rng, t: rng.choice([1e300, 1e-300, -1e-300, 7.0], len(t))),
    "huge with both signs": (FLOAT, lambda rng, t: rng.choice([1.7e308, -1.7e308, 1.0, -3.5], len(t))),
    "denormals": (FLOAT, lambda rng, t: rng.choice([5e-324, -5e-324, 2.3e-308, 1e-310, 0.0, -0.0], len(t))),
    "nearly cancelling": (FLOAT, lambda rng, t: _signs(rng, len(t)) * (1e16 + rng.integers(0, 9, len(t)))),
    "infinities": (FLOAT, lambda rng, t: np.where(rng.random(len(t)) < 0.01, np.inf, rng.normal(0, 1, len(t)))),
    "all that floats are": (FLOAT, lambda rng, t: np.where(
        rng.random(len(t)) < 0.02, rng.choice([np.inf, -np.inf, np.nan, 1.7e308], len(t)), rng.normal(0, 9, len(t))
    )),
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


def drawn(name: str) -> tuple[Tuples, list[Batch], list[int]]:
    """A stream in pages that overlap, and where windows begin."""
    rng = np.random.default_rng(sum(map(ord, name)))
    type, draw = STREAMS[name]
    times = np.sort(rng.integers(0, 20_000, ROWS)) + rng.integers(-500, 500, ROWS)
    if pa.types.is_decimal(type):
        values = pa.array(draw(rng, times)).cast(pa.decimal128(19, 0)).view(pa.decimal128(19, 2)).cast(type)
    else:
        values = pa.array(draw(rng, times)).cast(type, safe=False)
    values = pa.array(values.to_pylist(), type, mask=rng.random(ROWS) < 0.02)
    tuples = Tuples(times, (pa.array(rng.integers(0, GROUPS, ROWS)),), values)
    return tuples, tuples.pages(rng, 12), [-1000, *rng.integers(-500, 20_500, LOOKUPS - 1).tolist()]


@cache
def plain(name: str, since: int) -> tuple[np.ndarray, dict[str, list[np.ndarray]]]:
    """Which groups have values in a window, and their answers; those of doubles for two orders of adding."""
    tuples, _, _ = drawn_once(name)
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


drawn_once = cache(drawn)


def _answered(answer: str, values: pa.Array, codes: np.ndarray, groups: int) -> np.ndarray:
    function = FUNCTIONS[answer]
    states = [a.lift(values, codes, groups) for a in function.accumulators(values.type, ())]
    type = states[0][0].type
    if answer == "avg":
        type = pa.decimal128(16, 6) if pa.types.is_decimal(values.type) else FLOAT
    return _doubles(function.lower(states, type, ()), exact=True)


def _doubles(column: pa.Array, exact: bool = False) -> np.ndarray:
    if exact and pa.types.is_integer(column.type):
        return column.cast(LONG).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(column.type):
        return np.array([float(v) for v in column.to_pylist()])
    return column.cast(FLOAT, safe=False).to_numpy(zero_copy_only=False)


def _up_to(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`<=` in SQL's order."""
    if low.dtype.kind == high.dtype.kind == "i":
        return low <= high
    return np.isnan(high) | (low <= high)


def kept(recipe: TimeGram, pages: list[Batch]) -> tuple[Run, ...]:
    known = Kept()
    for page in pages:
        known = known.taken(recipe, recipe.run(page), -(10**9))
    return known.runs


def assert_contained(recipe: TimeGram, runs: tuple[Run, ...], name: str, since: int) -> int:
    """Every answer lies within its interval; how many there were."""
    found = recipe.lookup(runs, since)
    keys, answers = plain(name, since)
    order = np.argsort(found.keys[0].to_numpy()) if found.count else np.zeros(0, np.int64)
    assert found.count == len(keys)
    assert not found.count or (found.keys[0].to_numpy()[order] == keys).all()
    for answer in ANSWERS:
        low, high = (
            found.columns[f"{answer}_{side}"].to_numpy(zero_copy_only=False)[order]
            for side in ("low", "high")
        )
        for exact in answers[answer]:
            good = _up_to(low, exact) & _up_to(exact, high)
            assert good.all(), (answer, since, low[~good][:3], exact[~good][:3], high[~good][:3])
    return found.count * len(ANSWERS)


@pytest.mark.parametrize("stream", STREAMS)
def test_every_interval_contains_the_exact_answer(stream: str) -> None:
    type, _ = STREAMS[stream]
    _, pages, sinces = drawn_once(stream)
    answered = 0
    for options in GRIDS.values():
        recipe = TimeGram(type, **options)
        runs = kept(recipe, pages)
        whole = (Run.unpacked(recipe.merged([recipe.run(page) for page in pages[::-1]], -(10**9)).packed()),)
        for i, since in enumerate(sinces):
            answered += assert_contained(recipe, whole if i % 3 else runs, stream, since)
    # Over all streams more than four million.
    assert answered > 300_000
