"""Even samples are drawn from all tuples that a selection may select, whatever a summary expects in their cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory

SECOND = 1_000_000
NOON = 1_767_268_800 * SECOND
ROUNDS, ROWS, ITEMS = 60, 200, 400
FEW, SOME = "item = 30", "item > 30"


def batch(rng: np.random.Generator, start: int) -> pa.Table:
    """Tuples of many items, most of them rare."""
    item = np.minimum(rng.zipf(1.3, ROWS), ITEMS)
    times = NOON + start * SECOND + np.sort(rng.integers(0, 10 * SECOND, ROWS))
    stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"item": item.astype(np.int32), "ts": stamps})


@pytest.mark.parametrize("kind", ["HISTOGRAM", "COUNTSKETCH(3, 4)"])
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_the_counts_of_even_samples_have_no_bias_where_few_tuples_are_expected(
    state: str, kind: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    """In most cells the summary expects less than one selected tuple of a batch, or none because its sketch errs.

    Cells without an expected tuple were not looked into. The counts were 9 % too low with `SOME`, 20 % with `FEW`.
    """
    engine = make_engine(str(tmp_path / "checkpoint"), state=state)
    feed = engine.feed("s", "item int, ts timestamp", time="ts")
    engine.execute(f"CREATE SUMMARY items ON s(item) WITH GRANULARITY '10 minutes' AND BUCKETS 16 AND {kind}")
    samples = {
        where: engine.register(
            f"SELECT count(*) AS n FROM s WHERE {where}"
            " WITH PREFERENCE weighted SUMMARY.Estimate.Count(item) WINDOW '10 seconds' BUDGET 40 PROBES"
        )
        for where in (FEW, SOME)
    }
    rng = np.random.default_rng(1)
    exact = {FEW: 0, SOME: 0}
    for number in range(ROUNDS):
        rows = batch(rng, number * 12)
        item = rows["item"].to_numpy()
        exact[FEW] += int((item == 30).sum())
        exact[SOME] += int((item > 30).sum())
        feed.push(rows)
        engine.step()
    ratios = {}
    for where, sample in samples.items():
        results = sample.results().to_pylist()
        assert len(results) == ROUNDS
        ratios[where] = sum(row["n"] for row in results) / exact[where]
    engine.stop()
    assert ratios[FEW] == 1, "a budget suffices for the cells that may have the value"
    assert abs(ratios[SOME] - 1) < 0.05, ratios  # the standard error is 0.015
