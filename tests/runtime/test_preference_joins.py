"""Joins WITH PREFERENCE beyond plain pairs: ties, self joins, groups and aggregates, compared with all pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.preference_helpers import sale, stores
from transom.promising.structure_review import ChosenStructure, StructureReview

NUMBERED = (
    "SELECT a.price AS one, b.price AS other FROM store1 a, store2 b WHERE a.item = b.item "
    "WITH PREFERENCE {} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item) WINDOW '1 minute'"
)


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_partners_of_the_same_time_are_found_once_after_their_runs_are_merged(
    order: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    """All sales have the same time, so only their batches say in which order the partners of a line are."""
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(f"{NUMBERED.format(order)} BUDGET 7 PROBES", "cut")
    rng, number, sold = np.random.default_rng(seed), 0, dict[int, list[Any]]({1: [], 2: []})
    for _ in range(12):
        for store, feed in feeds.items():
            rows = [sale(int(rng.integers(2)), 1, float(number + i)) for i in range(int(rng.integers(1, 5)))]
            number += len(rows)
            sold[store] += rows
            feed.push(rows)
            engine.step()
    while engine.step():
        pass
    exact = Counter((a[1], b[1]) for a in sold[1] for b in sold[2] if a[0] == b[0])
    assert Counter((row["one"], row["other"]) for row in query.results().to_pylist()) == exact
    engine.stop()


SELF_JOIN = (
    "SELECT a.price AS one, b.price AS other FROM store1 a JOIN store1 b ON a.item = b.item WHERE a.price > 3 "
    "WITH PREFERENCE {} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item) WINDOW '20 seconds'"
)


def self_joined(rows: list[Any], seconds: float = 20) -> Counter[Any]:
    """All pairs of a stream's sales with each other; a sale is also its own partner."""
    return Counter(
        (a[1], b[1])
        for a in rows
        for b in rows
        if a[0] == b[0] and a[1] > 3 and abs((a[2] - b[2]).total_seconds()) <= seconds
    )


def numbered_sales(rng: np.random.Generator, first: int, batch: int, rows: int = 25) -> list[Any]:
    """Sales out of order, each with a price of its own, some of items that occur once."""
    items = np.minimum(rng.zipf(1.5, rows), 30).tolist()
    times = rng.integers(5 * batch, 5 * batch + 12, rows).tolist()
    return [
        sale(item, time, float(first + i)) for i, (item, time) in enumerate(zip(items, times, strict=True))
    ]


@pytest.mark.parametrize("budget", ["", "BUDGET 60 PROBES"])
@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_stream_can_be_joined_with_itself(
    state: str, order: str, budget: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 4", state=state)
    query = engine.register(f"{SELF_JOIN.format(order)} {budget}", "self")
    rng, sold = np.random.default_rng(seed), list[Any]()
    for batch in range(6 if state == "driver" else 3):
        rows = numbered_sales(rng, len(sold), batch)
        sold += rows
        feeds[1].push(rows)
        engine.step()
        if not budget:
            found = Counter((row["one"], row["other"]) for row in query.results().to_pylist())
            assert found == self_joined(sold)
    if budget:
        while engine.step():
            pass
        found = Counter((row["one"], row["other"]) for row in query.results().to_pylist())
        exact = self_joined(sold)
        assert not found - exact, "nothing wrong, and nothing twice"
        if state == "driver":  # where pairs are counted before they are found
            assert found.total() + round(query.coverage().skipped) == exact.total()
    engine.stop()


def test_two_columns_of_a_stream_can_be_joined(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    """The two summaries keep the same tuples, each by its own column."""
    engine = make_engine(str(tmp_path / "checkpoint"))
    feed = engine.feed("mail", "id int, sender int, recipient int, ts timestamp", time="ts")
    for column in ("sender", "recipient"):
        engine.execute(
            f"CREATE SUMMARY by_{column} ON mail({column}) WITH GRANULARITY '1 minute' AND COLLAPSE(2, 2)"
        )
    query = engine.register(
        "SELECT a.id AS question, b.id AS answer FROM mail a JOIN mail b ON a.recipient = b.sender WHERE a.ts < b.ts "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.recipient) WINDOW '1 minute'"
    )
    rng, sent = np.random.default_rng(seed), list[Any]()
    for batch in range(5):
        rows = [
            (
                len(sent) + i,
                *rng.integers(0, 6, 2).tolist(),
                sale(0, int(rng.integers(batch * 9, batch * 9 + 15)))[2],
            )
            for i in range(20)
        ]
        sent += rows
        feed.push(rows)
        engine.step()
    exact = Counter(
        (a[0], b[0])
        for a in sent
        for b in sent
        if a[2] == b[1] and a[3] < b[3] and (b[3] - a[3]).total_seconds() <= 60
    )
    assert Counter((row["question"], row["answer"]) for row in query.results().to_pylist()) == exact
    engine.stop()


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_deferred_tuples_are_found_after_the_structure_of_their_summary_has_changed(
    order: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    """With desc and weighted, a query defers one line for all values of a batch, which is in no bucket."""
    engine, feeds = stores(make_engine, tmp_path, "AND STRUCTURE auto AND BUCKETS 8")
    promising: Any = engine._loop.promising
    limits = promising.review.limits
    structures = cycle(["cells", "none", "time"])
    promising.review = StructureReview(
        replace(limits, first_review=1, longest_review=1),
        choose=lambda *_: ChosenStructure(next(structures), "each in turn"),
        is_judged=False,
    )
    selection = engine.register(
        f"SELECT price FROM store1 WHERE item > 2 WITH PREFERENCE {order} SUMMARY.Estimate.Count(item) BUDGET 2 PROBES"
    )
    pairs = engine.register(f"{NUMBERED.format(order)} BUDGET 3 PROBES")
    number, sold = 0, dict[int, list[Any]]({1: [], 2: []})
    for batch in range(4):
        for store, feed in feeds.items():
            rows = [sale((number + i) % 6, batch, float(number + i)) for i in range(12)]
            number += len(rows)
            sold[store] += rows
            feed.push(rows)
            engine.step()
    while engine.step():
        pass
    assert sorted(selection.results()["price"].to_pylist()) == sorted(row[1] for row in sold[1] if row[0] > 2)
    exact = Counter((a[1], b[1]) for a in sold[1] for b in sold[2] if a[0] == b[0])
    assert Counter((row["one"], row["other"]) for row in pairs.results().to_pylist()) == exact
    engine.stop()


def test_a_condition_on_the_joined_column_holds_for_no_tuple_of_an_empty_summary(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """The columns of a summary without tuples have no type yet."""
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT a.item FROM store1 a JOIN store2 b ON a.item = b.item WHERE b.item <> 1"
        " WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item)"
    )
    feeds[1].push([sale(1, 1), sale(2, 1)])
    engine.step()
    assert query.suspended is None
    feeds[2].push([sale(1, 1), sale(2, 1)])
    engine.step()
    assert query.results()["item"].to_pylist() == [2]
    engine.stop()
