"""The intervals of `weighted` aggregates contain the truth as often as they say, through the engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory

SECOND = 1_000_000
NOON = 1_767_268_800 * SECOND
GROUPS, ROUNDS, ROWS = 16, 30, 1_600
AGGREGATES = {
    "a": "avg(price)",
    "s": "sum(price)",
    "c": "count(price)",
    "n": "count(*)",
    "m": "median(price)",
}


def batch(rng: np.random.Generator, start: float, rows: int) -> pa.Table:
    """Skewed prices that rise with time, a fifth of them NULL; every group has its own."""
    seconds = np.sort(rng.uniform(start, start + 10, rows))
    group = rng.integers(0, GROUPS, rows)
    prices = rng.gamma(2.0, 2.0, rows) * (1 + (seconds - start) / 20) + group
    return pa.table(
        {
            "item": pa.array(group.astype(np.int32)),
            "price": pa.array(prices, mask=rng.random(rows) < 0.2),
            "ts": pa.array(NOON + (seconds * SECOND).astype(np.int64), pa.timestamp("us", tz="UTC")),
        }
    )


def truths(rows: pa.Table, window: float) -> list[dict[str, float]]:
    """The exact aggregates of each group in the window that ends with the newest row."""
    times, item = rows["ts"].cast(pa.int64()).to_numpy(), rows["item"].to_numpy()
    price = rows["price"].to_numpy()  # NULL is NaN
    recent = times > times.max() - window * SECOND
    answers = []
    for group in range(GROUPS):
        mine = price[recent & (item == group)]
        some = mine[~np.isnan(mine)]
        functions = {"a": some.mean(), "s": some.sum(), "c": len(some), "n": len(mine), "m": np.median(some)}
        answers.append({name: float(value) for name, value in functions.items()})
    return answers


@pytest.mark.parametrize(("window", "budget"), [(20, 40), (15, 25)])
def test_intervals_contain_the_truth_95_times_in_a_hundred(
    window: int, budget: int, make_engine: EngineFactory, tmp_path: Path
) -> None:
    """The window contains two batches and the rest, or the half, of a third."""
    engine = make_engine(str(tmp_path / "checkpoint"), state="driver")
    feed = engine.feed("sales", "item int, price double, ts timestamp", time="ts")
    engine.execute("CREATE SUMMARY items ON sales(item) WITH GRANULARITY '10 seconds' AND COLLAPSE(2, 2)")
    items = ", ".join(f"{call} AS {name}" for name, call in AGGREGATES.items())
    queries = [
        engine.register(
            f"SELECT {items} FROM sales WHERE item = {group} WITH PREFERENCE weighted"
            f" SUMMARY.Estimate.Count(item) WINDOW '{window} seconds' BUDGET {budget} PROBES"
        )
        for group in range(GROUPS)
    ]
    rng = np.random.default_rng(7)
    exact: list[list[dict[str, float]]] = []
    for number in range(ROUNDS):
        tables = [batch(rng, 1_000.0 * number + 10 * part, ROWS) for part in range(3)]
        for table in tables:
            feed.push(table)
            engine.step()
        exact.append(truths(pa.concat_tables(tables), window))
    hits = {name: list[bool]() for name in AGGREGATES}
    errors = {name: list[float]() for name in AGGREGATES}
    for group, query in enumerate(queries):
        answers = query.results().to_pylist()[2::3]  # after the third batch of each round
        for answer, truth in zip(answers, exact, strict=True):
            for name, value in truth[group].items():
                hits[name].append(answer[f"{name}_low"] <= value <= answer[f"{name}_high"])
                errors[name].append(answer[name] / value - 1)
    engine.stop()
    shares = {name: float(np.mean(hit)) for name, hit in hits.items()}
    assert shares.pop("n") == 1.0 and max(map(abs, errors["n"])) == 0, "selected tuples are counted"
    # 480 samples: the standard error of a share is a hundredth.
    assert all(0.92 <= share <= 0.98 for share in shares.values()), shares
    means = {name: float(np.mean(error)) for name, error in errors.items()}
    assert all(abs(mean) < 0.02 for mean in means.values()), means
