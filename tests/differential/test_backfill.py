"""Queries that ask for the past, against the oracle: a query that was there from the start.

A query that is registered with `since` has all results of the oracle's query whose windows begin after the last row
that was not replayed: because it is older than `since`, or because the stream does not retain it any more. It has
no others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.case_counts import case_seeds
from tests.engine_factory import EngineFactory
from tests.results.pure_batches import SCALARS
from transom import oracle
from transom.durations import parse_duration, parse_instant
from transom.elements import Clock, ClockKind, Punctuation
from transom.plan.limits import Limits
from transom.runtime import batch_replay, row_history, slice_tiers, slice_work
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed
from transom.sql import Catalog, Relation
from transom.sql.binding.bind import bind_one

SCHEMA = "site int, price double, ts timestamp"
COLUMNS = {"site": pa.int32(), "price": pa.float64(), "ts": pa.timestamp("us", tz="UTC")}
START = datetime(2013, 1, 1, 12, tzinfo=UTC)
BATCHES = 24
GAP = 15  # seconds, of sessions
SLACK = 10  # seconds
CATALOG = Catalog({"bids": Relation("bids", COLUMNS, "ts")}, {})
CLOCK = Clock("bids", "ts", ClockKind.TIME)

WINDOWS = [
    "[RANGE 60 seconds SLIDE 60 seconds]",
    "[RANGE 90 seconds SLIDE 30 seconds]",
    "[RANGE 50 seconds SLIDE 20 seconds]",
    "[RANGE 10 seconds SLIDE 45 seconds]",
    "[RANGE UP TO 4 minutes SLIDE 20 seconds]",
    f"[SESSION {GAP} seconds]",
]
CONDITIONS = ["", "WHERE price > 3", "WHERE price > 3 AND site < 3", "WHERE site = 1"]
ITEMS = [
    "count(*)",
    "sum(price)",
    "avg(price)",
    "max(price)",
    "count(DISTINCT price)",
    "sum(price) FILTER (WHERE site > 1)",
]
WIDE = {  # slices of these answer for queries over fewer groups
    f"wide{i}": "SELECT site, sum(price) AS s, max(price) AS m FROM bids [RANGE 1 hour SLIDE 1 minute] "
    f"{where} GROUP BY site"
    for i, where in enumerate(CONDITIONS[:2])
}
STRATEGIES: list[dict[str, Any]] = [
    {},
    {"strategy": "naive"},
    {"strategy": "unshared_paired"},
    {"strategy": "shared_paned"},
    {"state": "executors"},
]


def text_of(dice: Random) -> str:
    keys, group = dice.choice([("", ""), ("site, ", " GROUP BY site")])
    having = dice.choice(["", "HAVING count(*) > 1"])
    where = dice.choice(CONDITIONS)
    return f"SELECT {keys}{dice.choice(ITEMS)} AS x FROM bids {dice.choice(WINDOWS)} {where}{group} {having}"


def corrected(dice: Random, text: str, options: dict[str, Any]) -> str:
    """A query that also corrects results, or not."""
    if dice.random() < 0.6 or "SESSION" in text or options.get("state") == "executors":
        return text
    return f"{text} EMIT CORRECTIONS WITHIN '{dice.choice([5, 30, 300])} seconds'"


def rows_of(dice: Random, number: int) -> list[dict[str, Any]]:
    """The rows of a batch: many are out of order, and some are late."""
    disorder = dice.choice([5, 15, 15, 40])
    seconds = [20 * number + dice.randint(-disorder, 20) for _ in range(dice.randint(0, 9))]
    return [
        {
            "site": dice.randint(1, 4),
            "price": float(dice.randint(0, 8)),
            "ts": START + timedelta(seconds=second),
        }
        for second in seconds
    ]


@dataclass
class Program:
    """An engine that is restarted now and then, and the batches that it was given."""

    make_engine: EngineFactory
    place: Path
    options: dict[str, Any]
    retain: str
    now: int = parse_instant("2013-01-01 12:00")
    given: list[oracle.OracleBatch] = field(default_factory=list)
    engine: Engine = field(init=False)
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.engine = self.make_engine(str(self.place), clock=lambda: self.now, **self.options)
        self.feed = self.engine.feed(
            "bids", SCHEMA, time="ts", slack=f"{SLACK} seconds", idle="1 minute", retain=self.retain
        )

    def restart(self) -> None:
        self.engine.stop()
        self.open()

    def batch(self, rows: list[dict[str, Any]], closed: Punctuation | None) -> None:
        """Run one batch of rows, and a punctuation at its end; retained rows are replayed in little time."""
        self.feed.push(rows)
        if closed is not None:
            where = dict(closed.where)
            self.engine.punctuate("bids", datetime.fromtimestamp(closed.until / 1e6, UTC), where=where)
        self.engine.step(1)
        if rows or closed is not None:
            self.given.append(oracle.OracleBatch("bids", rows, after=[closed] if closed else []))

    def seal(self) -> None:
        """Make slices of all retained rows."""
        while self.engine._loop.tend_history():
            pass

    def fall_idle(self) -> None:
        self.now += parse_duration("2 minutes")
        self.engine.step(1)
        self.given.append(oracle.OracleBatch("bids", end_of_stream=True))


def comparable(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Results in any order."""
    names = ("window_start", "window_end", "site", "x", "rows", "kind", "revision")
    values = [
        tuple(
            parse_instant(value)
            if isinstance(value, datetime)
            else round(value, 6)
            if isinstance(value, float)
            else value
            for value in map((row if "revision" in row else {**row, "kind": None}).get, names)
        )
        for row in rows
    ]
    return sorted(values, key=lambda row: tuple((value is None, value) for value in row))


def newest_time(engine: Engine) -> datetime:
    """The time of the newest row of a committed batch; the last of all times before the first row."""
    state = engine._loop.state.stream("bids")
    newest = state.clock(engine._loop.declared.stream("bids").rules.clock).newest
    if newest is None:
        return datetime.max.replace(tzinfo=UTC)
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=newest)


@pytest.mark.parametrize("number", case_seeds(0, 60))
def test_a_query_that_asks_for_the_past_has_the_results_of_one_that_was_there(
    make_engine: EngineFactory, tmp_path: Path, seed: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(1_000 * seed + number)
    monkeypatch.setattr(row_history, "MERGED_FILES", dice.choice([2, 4, 16]))
    monkeypatch.setattr(batch_replay, "JOINED_ROWS", dice.choice([20_000, 20_000, 4]))
    monkeypatch.setattr(slice_work, "FEWEST_ROWS", 1)
    monkeypatch.setattr(slice_work, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(slice_tiers, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(row_history, "LARGEST_MERGE", dice.choice([1 << 24, 1 << 24, 4_000, 1]))
    limits = Limits(backfill_share=dice.choice([0.0, 0.001, 0.1, 2.0]))
    options = {**dice.choice(STRATEGIES), "limits": limits}
    retain = dice.choice(["1 hour", "1 hour", "5 minutes", "2 minutes", "40 seconds"])
    program = Program(make_engine, tmp_path / "checkpoint", options, retain)
    texts = [corrected(dice, text_of(dice), options) for _ in range(4)]
    program.engine.register_all({f"live{i}": text for i, text in enumerate(texts[:2])})
    if dice.random() < 0.5:
        program.engine.register_all(WIDE)
    newcomers = {"past0": texts[1], "past1": texts[2], "past2": texts[3]}
    joins = {name: dice.randrange(1, BATCHES) for name in newcomers}
    since = {
        name: dice.choice(["1 hour ago", "100 seconds ago", START + timedelta(seconds=dice.randrange(600))])
        for name in newcomers
    }
    starts: dict[str, int] = {}
    oldest: dict[str, int] = {}  # of the rows that are surely retained when the query is registered
    newest = program.now
    for at in range(BATCHES):
        rows = rows_of(dice, at)
        newest = max([newest, *(parse_instant(row["ts"]) for row in rows)])
        for name in [name for name, batch in joins.items() if batch == at]:
            wanted = since[name]
            if isinstance(wanted, datetime):  # a time after the newest row is refused
                wanted = since[name] = min(wanted, newest_time(program.engine))
            if dice.random() < 0.3:
                text = wanted if isinstance(wanted, str) else wanted.isoformat()
                program.engine.register(f"{newcomers[name]} BACKFILL SINCE '{text}'", name)
            else:
                program.engine.register(newcomers[name], name, since=wanted)
            starts[name] = program.engine._loop.directory.waiting.control[-1].since  # type: ignore[union-attr]
            oldest[name] = newest - parse_duration(retain)
        closed = None
        if dice.random() < 0.15:
            site = dice.randint(1, 4)
            closed = Punctuation(CLOCK, newest + 5_000_000, None, (("site", site),))
        elif dice.random() < 0.05:
            closed = Punctuation(CLOCK, newest + 1_000_000)
        program.batch(rows, closed)
        if dice.random() < 0.3:
            program.seal()
        if dice.random() < 0.1:
            program.fall_idle()
        if dice.random() < 0.15:
            program.restart()
        if dice.random() < 0.05:
            program.engine.step()  # all that there is to replay
    program.engine.drain(close=True)
    program.given.append(oracle.OracleBatch("bids", end_of_stream=True))

    rules = oracle.OracleStreamRules("ts", columns=COLUMNS, slack=SLACK * 1_000_000)
    bound = {name: bind_one(text, CATALOG, SCALARS) for name, text in newcomers.items()}
    bound["live1"] = bound["past0"]
    expected = oracle.answer(bound, program.given, {"bids": rules}, SCALARS)
    live = program.engine.query("live1").results().to_pylist()
    assert comparable(live) == comparable(expected.results["live1"]), (
        "what is retained changes no other query"
    )
    for name, text in newcomers.items():
        query = program.engine.query(name)
        assert query.suspended is None
        unseen = program.engine._loop.state.queries[name].unseen
        assert unseen is not None
        cut = max((stop for _, stop in unseen), default=0)
        assert cut <= max(starts[name], oldest[name]), "no window is missing whose rows are retained"
        reach = GAP * 1_000_000 if "SESSION" in text else 0
        ours, theirs = query.results().to_pylist(), expected.results[name]
        wanted = [row for row in theirs if row["window_start"] - reach >= cut]
        assert comparable(ours) == comparable(wanted), (text, since[name], retain)
        assert all(row["complete"] for row in ours)
        if not cut or cut <= parse_instant(START) - 60_000_000:
            account, counts = query.account, expected.accounts[name]
            assert (account.counted, account.late) == (counts["counted"], counts["late"])
