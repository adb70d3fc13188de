"""Nexmark: persons, auctions and bids of an auction site, and the benchmark's queries over windows.

    python -m benchmarks.nexmark [--events 200000] [--queries q5 q7 ...] [--backend local]

The generator is our own: of 50 events one is a person, three are auctions and 46 are bids, as in Nexmark. Half of the
bids are for the hot auction of the moment, and half of the auctions are by its hot seller. The same seed gives the same
rows. The tests compare the queries with plain Python (`tests/benchmarks/test_nexmark.py`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

import transom

PERSONS, AUCTIONS, BIDS = 1, 3, 46  # of 50 events
EVENTS = PERSONS + AUCTIONS + BIDS
START = int(datetime(2026, 1, 1, 23, 57, tzinfo=UTC).timestamp() * 1_000_000)
CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "direct")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
HOT = 20  # one of so many consecutive auctions (or persons) is hot

SCHEMAS = {
    "persons": "id bigint, name string, state string, ts timestamp",
    "auctions": "id bigint, seller bigint, category bigint, initial_bid bigint, ts timestamp",
    "bids": "auction bigint, bidder bigint, price bigint, channel string, ts timestamp, arrived timestamp",
}

# Nexmark's queries over windows, by their numbers. docs/reference/spark-and-flink.md says what differs from Nexmark.
QUERIES = {
    "q5": "SELECT auction, count(*) AS num FROM bids [RANGE 10 seconds SLIDE 2 seconds] GROUP BY auction "
    "ORDER BY num DESC LIMIT 1 WITH TIES",
    "q7": "SELECT max(price) AS price, max_by(auction, price) AS auction, max_by(bidder, price) AS bidder "
    "FROM bids [RANGE 10 seconds SLIDE 10 seconds]",
    "q8": "SELECT p.id, p.name, count(*) AS auctions FROM persons p JOIN auctions a ON p.id = a.seller "
    "AND a.ts BETWEEN p.ts - INTERVAL 10 seconds AND p.ts + INTERVAL 10 seconds [RANGE 10 seconds SLIDE 10 seconds] "
    "WHERE unix_seconds(p.ts) DIV 10 = unix_seconds(a.ts) DIV 10 GROUP BY p.id, p.name",
    "q11": "SELECT bidder, count(*) AS bid_count FROM bids [SESSION 10 seconds] GROUP BY bidder",
    "q12": "SELECT bidder, count(*) AS bid_count FROM bids [RANGE 10 seconds SLIDE 10 seconds WATTR arrived] "
    "GROUP BY bidder",
    "q15": "SELECT count(*) AS total_bids, count_if(price < 10000) AS rank1_bids, "
    "count_if(price >= 10000 AND price < 1000000) AS rank2_bids, count_if(price >= 1000000) AS rank3_bids, "
    "count(DISTINCT bidder) AS total_bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders, "
    "count(DISTINCT auction) AS total_auctions FROM bids [RANGE 1 day SLIDE 1 day]",
    "q16": "SELECT channel, max(hour(ts) * 60 + minute(ts)) AS minute, count(*) AS total_bids, "
    "count_if(price < 10000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders, "
    "count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions "
    "FROM bids [RANGE 1 day SLIDE 1 day] GROUP BY channel",
    "q17": "SELECT auction, count(*) AS total_bids, count_if(price < 10000) AS rank1_bids, min(price) AS min_price, "
    "max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price "
    "FROM bids [RANGE 1 day SLIDE 1 day] GROUP BY auction",
    "q18": "SELECT bidder, auction, last(price) AS price, max(ts) AS ts FROM bids [RANGE 1 day SLIDE 1 day] "
    "GROUP BY bidder, auction",
}


@dataclass(frozen=True)
class Site:
    """The rows of the three streams, by time."""

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table


def generate(events: int, seed: int = 7, gap: int = 50_000) -> Site:
    """The rows of about `events` events that are `gap` microseconds apart."""
    dice = np.random.default_rng(seed)
    numbers = np.arange(events)
    epoch, place = numbers // EVENTS, numbers % EVENTS
    times = START + numbers * gap
    is_person, is_auction = place < PERSONS, (place >= PERSONS) & (place < PERSONS + AUCTIONS)
    is_bid = ~is_person & ~is_auction
    person_ids, auction_ids = epoch[is_person], epoch[is_auction] * AUCTIONS + place[is_auction] - PERSONS
    sellers = _chosen(dice, epoch[is_auction], 1)
    bid_auctions = _chosen(dice, epoch[is_bid] * AUCTIONS + AUCTIONS - 1, AUCTIONS)
    prices = np.round(10 ** (dice.random(int(is_bid.sum())) * 6) * 100).astype(np.int64)
    bids = int(is_bid.sum())
    return Site(
        pa.table(
            {
                "id": person_ids,
                "name": pa.array([f"person {number}" for number in person_ids.tolist()]),
                "state": _of(STATES, dice.integers(0, len(STATES), len(person_ids))),
                "ts": _times(times[is_person]),
            }
        ),
        pa.table(
            {
                "id": auction_ids,
                "seller": sellers,
                "category": dice.integers(10, 15, len(auction_ids)),
                "initial_bid": np.round(10 ** (dice.random(len(auction_ids)) * 6) * 100).astype(np.int64),
                "ts": _times(times[is_auction]),
            }
        ),
        pa.table(
            {
                "auction": bid_auctions,
                "bidder": _chosen(dice, epoch[is_bid], 1),
                "price": prices,
                "channel": _of(CHANNELS, dice.integers(0, len(CHANNELS), bids)),
                "ts": _times(times[is_bid]),
                "arrived": _times(times[is_bid] + 500_000),
            }
        ),
    )


def _chosen(dice: np.random.Generator, newest: np.ndarray, hot_steps: int) -> np.ndarray:
    """One of the ids up to the newest of each moment: in half of the cases the hot one, else one of the last 100."""
    hot = newest - newest % (HOT * hot_steps)
    recent = newest - dice.integers(0, 100, len(newest))
    return np.where(dice.random(len(newest)) < 0.5, hot, np.maximum(recent, 0))


def _of(words: tuple[str, ...], places: np.ndarray) -> pa.Array:
    return pa.array(words).take(pa.array(places))


def _times(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.timestamp("us", "UTC"))


def run(engine: transom.Engine, site: Site, queries: list[str], batches: int = 20) -> None:
    """Register queries, and push the rows of all streams in batches."""
    feeds = {name: engine.feed(name, schema, time="ts", slack="1 second") for name, schema in SCHEMAS.items()}
    engine.register_all({name: QUERIES[name] for name in queries})
    tables = {name: getattr(site, name) for name in SCHEMAS}
    for batch in range(batches):
        for name, table in tables.items():
            start, stop = (table.num_rows * part // batches for part in (batch, batch + 1))
            feeds[name].push(table.slice(start, stop - start))
            engine.step()
    engine.drain()


def main() -> None:
    """Run the queries together, and print how long that took and how many results each has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--queries", nargs="+", default=list(QUERIES), choices=list(QUERIES))
    parser.add_argument("--backend", default="local")
    options = parser.parse_args()
    site = generate(options.events)
    with tempfile.TemporaryDirectory() as place:
        engine = transom.Engine(None, place, backend=options.backend, sync=False)
        started = time.perf_counter()
        run(engine, site, options.queries)
        print(f"{options.events:,} events in {time.perf_counter() - started:.1f} s")
        for name in options.queries:
            print(f"{name:>5}: {engine.query(name).results().num_rows:,} results")
        engine.stop()


if __name__ == "__main__":
    main()
