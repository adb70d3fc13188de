"""approx_top_k, histogram_numeric and hll_sketch_agg keep the bounds that the reference states."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.aggregates.frequent_items import FrequentItems
from transom.aggregates.histograms import Histogram
from transom.aggregates.sketches import Distinct, sketched_count
from transom.aggregates.table import aggregate_function

ITEM = pa.struct([("x", pa.int64())])


def combined_from_parts(accumulator, values: pa.Array, parts: int):
    """The state of one group, lifted in parts and combined in two steps."""
    codes = np.arange(len(values)) % parts
    states = accumulator.lift(values, codes, parts)
    states = accumulator.combine(states, np.arange(parts) % 2, 2)
    return accumulator.combine(states, np.zeros(2, np.int64), 1)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 40), max_size=300), st.integers(1, 12), st.integers(1, 5))
def test_counts_of_frequent_items_are_within_their_bound(values: list[int], tracked: int, parts: int) -> None:
    rows = pa.array([{"x": value} for value in values], ITEM)
    items, counts, lost = combined_from_parts(FrequentItems(pa.int64(), tracked), rows, parts)
    exact, most = Counter(values), len(values) / (tracked + 1)
    assert lost[0].as_py() <= most
    found = dict(zip(items[0].as_py() or [], counts[0].as_py() or [], strict=True))
    assert len(found) <= tracked
    for value, count in exact.items():
        assert count - lost[0].as_py() <= found.get(value, 0) <= count
    top = aggregate_function("approx_top_k")
    kind = top.result_type(ITEM, (tracked, tracked))
    assert isinstance(kind, pa.DataType)
    shown = top.lower([[items, counts, lost]], kind, (tracked, tracked))[0].as_py()
    assert all(exact[each["item"]] <= each["count"] <= exact[each["item"]] + most for each in shown)
    assert {value for value, count in exact.items() if count > most} <= {each["item"] for each in shown}


@settings(max_examples=40)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(2, 12), st.integers(1, 5))
def test_a_histogram_has_the_number_and_the_mean_of_its_values(
    values: list[float], bins: int, parts: int
) -> None:
    means, counts = combined_from_parts(Histogram(bins), pa.array(values), parts)
    x, y = np.array(means[0].as_py()), np.array(counts[0].as_py())
    assert len(x) <= bins and y.sum() == len(values)
    assert (np.diff(x) > 0).all() and min(values) - 1e-6 <= x[0] and x[-1] <= max(values) + 1e-6
    assert np.isclose((x * y).sum() / y.sum(), np.mean(values), rtol=1e-9, atol=1e-4)


def test_quartiles_of_a_histogram_of_many_values_are_near(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=20_000)
    means, counts = combined_from_parts(Histogram(64), pa.array(values), 4)
    x, y = np.array(means[0].as_py()), np.array(counts[0].as_py())
    for fraction in (0.25, 0.5, 0.75):
        near = x[np.searchsorted(np.cumsum(y), fraction * len(values))]
        assert abs((values < near).mean() - fraction) < 0.1


def test_sketches_estimate_distinct_values(seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 50_000, 100_000)
    (state,) = combined_from_parts(Distinct(pa.int64(), 12), pa.array(values), 3)
    estimate = sketched_count(state[0].as_py())
    assert estimate is not None and abs(estimate / len(set(values.tolist())) - 1) < 5 * 0.0163


@pytest.mark.parametrize("garbage", [b"", b"\x02", b"\xff" * 40, bytes(range(200))])
def test_bytes_that_are_no_sketch_have_no_estimate(garbage: bytes) -> None:
    assert sketched_count(garbage) is None


def test_a_sketch_has_the_bytes_of_sparks() -> None:
    # SELECT hll_sketch_agg(x) FROM VALUES (1), (2), (2), (null) t(x), with Spark 4.3
    expected = bytes.fromhex("0201070c030002082bf2fb06862ff90d") + bytes(24)
    function = aggregate_function("hll_sketch_agg")
    assert function.over(pa.array([1, 2, 2, None], pa.int32()), pa.binary(), (12,)) == expected
    assert len(function.over(pa.array([], pa.int32()), pa.binary(), (12,))) == 40
