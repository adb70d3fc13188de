"""Queries that are edited while they run, against the oracle: a query that was there from the start.

Where an edit says that open windows are kept, the new text has the results of a query that was there from the start.
Where it says that some are not, the new text reports no window that such a query would report otherwise.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.results.pure_batches import SCALARS
from transom import oracle
from transom.durations import parse_instant
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed
from transom.sql import Catalog, Relation
from transom.sql.binding.bind import bind_one

SCHEMA = "site int, price double, ts timestamp"
COLUMNS = {"site": pa.int32(), "price": pa.float64(), "ts": pa.timestamp("us", tz="UTC")}
START = datetime(2013, 1, 1, 12, tzinfo=UTC)
BATCHES = 14
CATALOG = Catalog({"bids": Relation("bids", COLUMNS, "ts")}, {})

WINDOWS = [
    "[RANGE 60 seconds SLIDE 60 seconds]",
    "[RANGE 90 seconds SLIDE 30 seconds]",
    "[RANGE 50 seconds SLIDE 20 seconds]",
    "[SESSION 15 seconds]",
    "[ROWS 12 SLIDE 4]",
    "[PARTITION BY site ROWS 4 SLIDE 2]",
]
CONDITIONS = ["", "WHERE price > 3", "WHERE price > 3 AND site < 3", "WHERE site = 1"]
ITEMS = ["count(*)", "sum(price)", "avg(price)", "max(price)", "min(price)", "sum(price) / count(*)"]
HAVINGS = ["", "HAVING count(*) > 1", "HAVING sum(price) > 8"]
STRATEGIES: list[dict[str, Any]] = [
    {},
    {"strategy": "naive"},
    {"strategy": "unshared_paired"},
    {"strategy": "shared_paned"},
    {"state": "executors"},
]


def text_of(dice: Random, window: str, where: str, is_grouped: bool) -> str:
    """A query with one value; the other parts are given."""
    keys = "site, " if is_grouped else ""
    group = " GROUP BY site" if is_grouped else ""
    having = "" if "PARTITION" in window else dice.choice(HAVINGS)
    return f"SELECT {keys}{dice.choice(ITEMS)} AS x FROM bids {window} {where}{group} {having}"


def rows_of(dice: Random, number: int) -> list[dict[str, Any]]:
    """The rows of a batch: some are out of order, few are late."""
    seconds = [20 * number + dice.randint(-12, 20) for _ in range(dice.randint(0, 9))]
    return [
        {
            "site": dice.randint(1, 4),
            "price": float(dice.randint(0, 8)),
            "ts": START + timedelta(seconds=second),
        }
        for second in seconds
    ]


def comparable(rows: list[dict[str, Any]], since: int) -> list[tuple[Any, ...]]:
    """The final results of batches from one on, in any order."""
    kept = [row for row in rows if row["batch"] >= since and row.get("kind", "final") == "final"]
    values = [
        tuple(
            parse_instant(value) if isinstance(value, datetime) else value
            for value in (
                row["window_start"],
                row["window_end"],
                row.get("site"),
                round(row["x"], 6),
                row["rows"],
            )
        )
        for row in kept
    ]
    return sorted(values, key=lambda row: tuple((value is None, value) for value in row))


def open_engine(make_engine: EngineFactory, place: Path, options: dict[str, Any]) -> tuple[Engine, Feed]:
    engine = make_engine(str(place), **options)
    return engine, engine.feed("bids", SCHEMA, time="ts", slack="10 seconds")


@pytest.mark.parametrize("number", range(24))
def test_an_edited_query_has_the_results_of_one_that_was_there_from_the_start(
    make_engine: EngineFactory, tmp_path: Path, seed: int, number: int
) -> None:
    dice = Random(1_000 * seed + number)
    window, where, is_grouped = dice.choice(WINDOWS), dice.choice(CONDITIONS), dice.random() < 0.5
    is_grouped = is_grouped or "PARTITION" in window
    first = text_of(dice, window, where, is_grouped)
    changes_where = dice.random() < 0.25
    second = text_of(dice, window, dice.choice(CONDITIONS) if changes_where else where, is_grouped)
    others = {f"other{i}": text_of(dice, window, dice.choice(CONDITIONS), is_grouped) for i in range(3)}
    edit_at, rename_at = dice.randrange(2, BATCHES - 2), dice.randrange(1, BATCHES)
    batches = [rows_of(dice, at) for at in range(BATCHES)]
    options, place = dice.choice(STRATEGIES), tmp_path / "checkpoint"

    engine, feed = open_engine(make_engine, place, options)
    engine.register_all({"rule": first, **others})
    name, outcome, edited = "rule", None, 0
    for at, rows in enumerate(batches):
        if at == edit_at:
            outcome = engine.query(name).edit(second)
        if at == rename_at:
            engine.query(name).rename("renamed")
            name = "renamed"
        if at != edit_at and dice.random() < 0.2:  # what an edit keeps depends on the queries that are there
            other = engine.query(dice.choice(list(others)))
            other.resume() if other.paused else other.pause()
        feed.push(rows)
        engine.step(empty=True)
        if at == edit_at:
            edited = engine.progress().batch_id
        if dice.random() < 0.2:
            engine.stop()
            engine, feed = open_engine(make_engine, place, options)
    engine.drain()
    query = engine.query(name)
    assert outcome is not None
    assert query.text == second

    rules = oracle.OracleStreamRules("ts", columns=COLUMNS, slack=10_000_000)
    given = [oracle.OracleBatch("bids", rows) for rows in batches]
    given.append(oracle.OracleBatch("bids", end_of_stream=True))
    bound = {name: bind_one(text, CATALOG, SCALARS) for name, text in (("a", first), ("b", second))}
    expected = oracle.answer(bound, given, {"bids": rules}, SCALARS)
    ours = query.results().to_pylist()
    theirs = comparable(expected.results["b"], edit_at)
    if outcome.kept:
        assert comparable(ours, edited) == theirs, (first, second, outcome)
    elif "PARTITION" not in window:  # such a query numbers the rows of a key from when it joins
        assert set(comparable(ours, edited)) <= set(theirs), (first, second, outcome)
    if outcome.results_continue:
        before = [row for row in ours if row["batch"] < edited]
        of_first = [row for row in expected.results["a"] if row["batch"] < edit_at]
        assert comparable(before, 0) == comparable(of_first, 0), "results of the first text are still there"
        account = query.account
        counts = expected.accounts["b"]
        assert (account.counted, account.late) == (counts["counted"], counts["late"])
    else:
        assert all(row["batch"] >= edited for row in ours)
