"""The benchmark of small batches runs, and its queries are those that it describes."""

from __future__ import annotations

import random

from benchmarks.small_batches import LOADS, main, text


def test_a_short_run() -> None:
    rows = main(["--short", "--no-sync"])
    assert [row["measurement"] for row in rows] == list(LOADS)
    assert all(row["cpu_p50"] > 0 for row in rows)
    assert "cpu_per_query_and_slide" in rows[2]


def test_syncs_are_counted() -> None:
    (row,) = main(["small", "--short", "--batches", "2"])
    assert row["syncs"] > 0


def test_early_queries_slide_with_every_batch() -> None:
    dice = random.Random(1)
    assert all("SLIDE 1 seconds" in text(dice, "EMIT EARLY AT 50% OF SLIDE") for _ in range(20))
