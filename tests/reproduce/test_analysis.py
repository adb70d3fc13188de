"""Accuracy and latency gain as the thesis defines them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reproduce.prodding.analysis import accuracies, best_constant, mean, paired
from reproduce.prodding.data import INSTANT


def results(*given: tuple[str, int, int, float, float, float | None]) -> pa.Table:
    """Results with a kind, a window end and a time of emission (in seconds), a value, a latency, an estimate."""
    kinds, ends, made, values, latencies, projected = zip(*given, strict=True)

    def instants(seconds: tuple[int, ...]) -> pa.Array:
        return pa.array([second * 1_000_000 for second in seconds]).cast(INSTANT)

    return pa.table(
        {
            "window_end": instants(ends),
            "v": pa.array(values, pa.float64()),
            "v_projected": pa.array(projected, pa.float64()),
            "v_low": pa.array([None if p is None else p - 5 for p in projected], pa.float64()),
            "v_high": pa.array([None if p is None else p + 5 for p in projected], pa.float64()),
            "kind": pa.array(kinds),
            "made": instants(made),
            "latency": pa.array(latencies, pa.float64()),
        }
    )


TABLE = results(
    ("early", 10, 5, 50.0, 5.0, None),
    ("final", 10, 10, 100.0, 10.0, None),
    ("early", 20, 19, 90.0, 14.0, 101.0),
    ("early", 30, 25, 10.0, 5.0, 50.0),
    ("final", 20, 20, 100.0, 15.0, None),
    ("final", 30, 31, 40.0, 11.0, None),
    ("early", 40, 35, 1.0, 5.0, 1.0),
)


def test_early_results_are_paired_with_the_finals_of_their_windows() -> None:
    pairs = paired(TABLE, "v", 10)
    assert pairs.aggressiveness.tolist() == [50.0, 10.0, 50.0]
    assert pairs.early.tolist() == [50.0, 90.0, 10.0]
    assert pairs.final.tolist() == [100.0, 100.0, 40.0]
    assert pairs.accuracies.tolist() == [50.0, 90.0, 25.0]
    assert pairs.gain == pytest.approx((5 + 1 + 6) / 3)
    assert pairs.gain_percent == pytest.approx(100 * 12 / 36)


def test_pairs_are_selected_by_level_and_by_whether_an_estimate_exists() -> None:
    pairs = paired(TABLE, "v", 10)
    assert pairs.at(50).final.tolist() == [100.0, 40.0]
    assert pairs.learned.projected.tolist() == [101.0, 50.0]
    assert pairs.coverage == 50.0


def test_without_estimates_there_is_no_coverage() -> None:
    plain = TABLE.drop_columns(["v_projected", "v_low", "v_high"])
    assert np.isnan(paired(plain, "v", 10).coverage)


def test_no_other_constant_is_better_than_the_best_constant() -> None:
    seed = 11
    draw = np.random.default_rng(seed)
    final = draw.uniform(50, 150, 101)
    early = final * draw.uniform(0.6, 0.95, 101)
    best = mean(accuracies(best_constant(early, final) * early, final))
    tried = [mean(accuracies(factor * early, final)) for factor in np.linspace(1, 2, 501)]
    assert best >= max(tried) - 1e-9, f"seed {seed}"
