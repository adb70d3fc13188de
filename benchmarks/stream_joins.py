"""A join of two streams that many queries share: processor time of a batch, by the number of queries.

    python -m benchmarks.stream_joins [--queries 1 10 100] [--rows 5000] [--batches 12]
    python -m benchmarks.stream_joins --partners 1 10 100 1000

Each batch brings rows of one stream; rows of the other stream are up to ten minutes apart. Queries differ in WHERE.
With --partners, one query counts and adds up the pairs of 60,000 rows a stream that have so many partners each, without
the pairs and with them; those beyond the limit of pairs in a batch are left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

import transom

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
CARDS = 20_000
QUERY = (
    "SELECT count(*) AS n, sum(s.amount) AS total FROM auth a JOIN settle s ON a.card = s.card "
    "AND s.ts BETWEEN a.ts AND a.ts + INTERVAL 10 minutes [RANGE 5 minutes SLIDE 1 minute] WHERE a.amount > {limit}"
)


def rows(dice: np.random.Generator, count: int, minute: int) -> pa.Table:
    times = START + minute * 60_000_000 + dice.integers(0, 60_000_000, count)
    return pa.table(
        {
            "card": pa.array(dice.integers(0, CARDS, count)),
            "amount": pa.array(dice.random(count)),
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        }
    )


def measure(queries: int, count: int, batches: int) -> str:
    dice = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as place:
        engine = transom.Engine(None, place, backend="local", sync=False)
        schema = "card bigint, amount double, ts timestamp"
        feeds = [engine.feed(name, schema, time="ts", slack="1 minute") for name in ("auth", "settle")]
        engine.register_all({f"q{i}": QUERY.format(limit=i / queries) for i in range(queries)})
        spent = []
        for minute in range(batches):
            for feed in feeds:
                feed.push(rows(dice, count, minute))
                started = time.process_time()
                engine.step()
                spent.append(time.process_time() - started)
        (kept,) = engine._loop.state.joins.values()
        pairs = engine.query("q0").account.rows
        engine.stop()
    later = sorted(spent[len(spent) // 2 :])
    return (
        f"{queries:>6,} queries: {1000 * later[len(later) // 2]:6.1f} ms of processor time a batch of {count:,} rows, "
        f"{pairs:,} pairs in all, {sum(kept.rows):,} rows kept"
    )


PARTNER_ROWS, PARTNER_BATCHES = 60_000, 6
PARTNER_QUERY = (
    "SELECT a.card, count(*) AS n, sum({value}) AS total FROM auth a JOIN settle s ON a.card = s.card "
    "AND s.ts BETWEEN a.ts - INTERVAL 20 minutes AND a.ts + INTERVAL 20 minutes "
    "[RANGE 5 minutes SLIDE 5 minutes] GROUP BY a.card"
)


def measure_partners(partners: int, value: str) -> str:
    """The processor time of a query over rows with many partners."""
    dice, count = np.random.default_rng(7), PARTNER_ROWS // PARTNER_BATCHES
    with tempfile.TemporaryDirectory() as place:
        engine = transom.Engine(None, place, backend="local", sync=False)
        schema = "card bigint, amount double, ts timestamp"
        feeds = [engine.feed(name, schema, time="ts", slack="1 minute") for name in ("auth", "settle")]
        query = engine.register(PARTNER_QUERY.format(value=value))
        spent = 0.0
        for minute in range(PARTNER_BATCHES):
            for feed in feeds:
                batch = rows(dice, count, minute)
                cards = pa.array(dice.integers(0, max(1, PARTNER_ROWS // partners), count))
                feed.push(batch.set_column(0, "card", cards))
                started = time.process_time()
                engine.step()
                spent += time.process_time() - started
        started = time.process_time()
        engine.drain()
        spent += time.process_time() - started
        is_suspended = query.suspended is not None
        pairs = 0 if is_suspended else sum(query.results()["n"].to_pylist())
        engine.stop()
    what = "suspended" if is_suspended else f"{spent:5.2f} s of processor time, {pairs:,} pairs"
    return f"{partners:>6,} partners, sum({value}): {what}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--partners", type=int, nargs="+", default=[])
    options = parser.parse_args()
    for partners in options.partners:
        for value in ("s.amount", "s.amount + 0 * a.amount"):
            print(measure_partners(partners, value), flush=True)
    if options.partners:
        return
    for queries in options.queries:
        print(measure(queries, options.rows, options.batches))


if __name__ == "__main__":
    main()
