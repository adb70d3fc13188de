"""Two stores that sell items, and what a join of their sales is when nothing is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import transom
from tests.engine_factory import EngineFactory

SALES = "item int, price double, ts timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BATCHES = 6
SUMMARY = "WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
JOIN = (
    "SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item "
    "WITH PREFERENCE {} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item) WINDOW '1 minute'"
)
Sale = tuple[Any, float, datetime]


def sale(item: Any, seconds: float, price: float = 1.0) -> Sale:
    """A sale so many seconds after noon."""
    return item, price, NOON + timedelta(seconds=seconds)


def sales(rng: np.random.Generator, start: float, rows: int = 40, seconds: float = 10.0) -> list[Sale]:
    """Sales of some seconds; some items sell well, most do not; not in order of time."""
    items = np.minimum(rng.zipf(1.6, rows), 500).tolist()
    times, prices = rng.uniform(start, start + seconds, rows), rng.uniform(0, 100, rows).round(2)
    return [sale(*row) for row in zip(items, times.tolist(), prices.tolist(), strict=True)]


def stores(
    make_engine: EngineFactory, place: Path, options: str = "", **settings: Any
) -> tuple[transom.Engine, dict[int, Any]]:
    """An engine with two stores' sales, summarized by item."""
    engine = make_engine(str(place / "checkpoint"), **settings)
    feeds = {number: engine.feed(f"store{number}", SALES, time="ts") for number in (1, 2)}
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SUMMARY} {options}")
    return engine, feeds


def pairs(query: Any) -> Counter[Any]:
    """What a join of the stores has found."""
    return Counter((row["item"], row["here"], row["there"]) for row in query.results().to_pylist())


def joined(first: Sequence[Sale], second: Sequence[Sale], window: float = 60) -> Counter[Any]:
    """The join of the stores, compared sale by sale."""
    return Counter(
        (item, here, there)
        for item, _, here in first
        for other, _, there in second
        if item is not None and item == other and abs((here - there).total_seconds()) <= window
    )


def sell(
    engine: transom.Engine, feeds: dict[int, Any], seed: int, batches: int = BATCHES
) -> dict[int, list[Any]]:
    """Push sales in turns, a batch each; what was sold by each store."""
    rng, sold = np.random.default_rng(seed), {1: list[Any](), 2: list[Any]()}
    for batch_id in range(batches):
        for number, feed in feeds.items():
            rows = sales(rng, 10.0 * batch_id)
            sold[number] += rows
            feed.push(rows)
            engine.step()
    return sold
