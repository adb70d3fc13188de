"""The soak: what it calls growth, and a short run."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import LEAVING, Sample, Soak, findings

STEADY = {
    "memory": 4e8,
    "open_files": 20,
    "threads": 20,
    "checkpoint_files": 60,
    "checkpoint_bytes": 8e6,
    "batch_seconds": 0.1,
}


def growing(changes: dict[str, float]) -> set[str]:
    """What the findings call growth in a noisy run in which some values grow by a part in all."""
    noise = np.random.default_rng(7)
    samples = []
    for second in range(600):
        values = {
            name: value * (1 + changes.get(name, 0.0) * second / 600) * noise.normal(1, 0.01)
            for name, value in STEADY.items()
        }
        samples.append(Sample(seconds=float(second), **values))
    return {finding.measure for finding in findings(samples) if not finding.is_fine}


def test_a_steady_run_is_fine() -> None:
    assert growing({}) == set()


@pytest.mark.parametrize("measure", STEADY)
def test_what_grows_is_reported(measure: str) -> None:
    assert growing({measure: 3.0}) == {measure}


def test_a_short_run(tmp_path: Path) -> None:
    arguments = argparse.Namespace(minutes=0.08, backend="local", queries=10, rate=50.0, seed=1)
    soak = Soak(arguments, tmp_path)
    samples = soak.run()
    assert soak.rounds >= 1 and soak.registered == 10 + LEAVING * (soak.rounds - 1)
    assert all(sample.memory > 0 and sample.checkpoint_files > 0 for sample in samples)
