"""Streams whose groups have clocks of their own: `watermark_by="site"`."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom import oracle
from transom.elements import Clock, ClockKind, Punctuation
from transom.errors import SettingError
from transom.sql import Catalog, Relation, bind_one

SCHEMA = "site string, n int, ts timestamp"
BY_SITE = "SELECT site, count(*) AS n FROM rows [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
ALL = "SELECT count(*) AS n FROM rows [RANGE 1 minute SLIDE 1 minute]"
PINNED = "SELECT count(*) AS n FROM rows [RANGE 1 minute SLIDE 1 minute] WHERE site = 'b'"
START = datetime(2024, 1, 1, 12)
SECOND = 1_000_000


def at(seconds: float) -> str:
    return str(START + timedelta(seconds=seconds))


def finals(query: Any) -> list[tuple[Any, ...]]:
    rows = query.results().to_pylist()
    return sorted((row.get("site", ""), f"{row['window_end']:%H:%M}", row["n"]) for row in rows)


@ON_BOTH
def test_windows_close_group_by_group(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, time="ts", watermark_by="site", partition_idle=None)
        by_site, everything, pinned = map(engine.register, (BY_SITE, ALL, PINNED))
        feed.push([("a", 1, at(0)), ("b", 1, at(5)), (None, 1, at(0))])
        engine.step()
        feed.push([("a", 1, at(130))])  # a is two minutes ahead
        engine.step()
        assert finals(by_site) == [("a", "12:01", 1)] and finals(everything) == finals(pinned) == []
        feed.push([("b", 1, at(50)), ("a", 1, at(30)), ("b", 1, at(70))])  # one row of a is late, none of b
        engine.step()
        assert finals(by_site) == [("a", "12:01", 1), ("b", "12:01", 2)]
        assert finals(pinned) == [("", "12:01", 2)]  # at the pace of b
        assert finals(everything) == []  # rows without a site have come to 12:00
        assert (by_site.account.late, everything.account.late, pinned.account.late) == (1, 0, 0)
        feed.push([(None, 1, at(61))])
        engine.step()
        assert finals(everything) == [("", "12:01", 5)]  # the row of a that was late for its site counts
        assert all(row["complete"] for row in by_site.results().to_pylist())


@pytest.mark.parametrize(
    ("kind", "values"), [("string", ["a", "b"]), ("date", [date(2024, 1, 1), date(1969, 5, 5)])]
)
def test_alerts_follow_the_clock_of_their_group(
    make_engine: EngineFactory, kind: str, values: list[Any]
) -> None:
    with make_engine() as engine:
        schema = f"site {kind}, n int, ts timestamp"
        feed = engine.feed("rows", schema, time="ts", watermark_by="site", partition_idle=None)
        engine.register(f"{BY_SITE} HAVING count(*) > 0 ALERT")
        seen = []
        for site, seconds in ((0, 0), (1, 0), (0, 70), (0, 185), (1, 500)):
            feed.push([(values[site], 1, at(seconds))])
            engine.step()
            seen.append([f"{each.state} {each.window_end[11:16]}" for each in engine.alerting.events()[0]])
        fired = ["firing 12:01", "resolved 12:03"]
        assert seen[:4] == [[], [], fired[:1], fired]
        assert sorted(seen[4]) == sorted([*fired, "firing 12:01", "resolved 12:02"])


def test_a_clock_and_a_punctuation_close_the_windows_of_two_sites(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, time="ts", watermark_by="site", partition_idle=None)
        query = engine.register(PINNED.replace("= 'b'", "IN ('a', 'b')"))
        feed.push([("a", 1, at(0)), ("b", 1, at(0)), ("a", 1, at(60))])
        feed.punctuate(at(60), where={"site": "b"})
        engine.step()
        assert finals(query) == [("", "12:01", 2)]


def test_idle_groups_do_not_hold_the_others_back(make_engine: EngineFactory) -> None:
    now = [0]
    with make_engine(clock=lambda: now[0]) as engine:
        feed = engine.feed(
            "rows", SCHEMA, time="ts", watermark_by="site", partition_idle="30 seconds", max_ahead=None
        )
        everything, by_site = engine.register(ALL), engine.register(BY_SITE)
        feed.push([("a", 1, at(0)), ("b", 1, at(0))])
        engine.step()
        now[0] = 31 * SECOND
        feed.push([("a", 1, at(100))])
        engine.step()
        assert finals(everything) == [("", "12:01", 2)]
        assert finals(by_site) == [
            ("a", "12:01", 1),
            ("b", "12:01", 1),
        ]  # what is closed for all is closed for b
        feed.push([("b", 1, at(10)), ("b", 1, at(70))])  # b is back
        engine.step()
        assert by_site.account.late == everything.account.late == 1
        clocks = engine.progress().streams["rows"].clocks
        assert [(clock.name, clock.is_live) for clock in clocks.slowest] == [("b", True), ("a", True)]
        assert engine.explain().count("slack 0 seconds for each site") == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [1, -2]),
        ("long", [2**40, 7]),
        ("boolean", [True, False]),
        ("date", [date(2024, 1, 1), date(1969, 5, 5)]),
        ("string", ["", "=x"]),
    ],
)
def test_columns_of_these_types_have_groups(
    make_engine: EngineFactory, tmp_path: Path, kind: str, values: list[Any]
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    for restart in (False, True):
        with make_engine(checkpoint=checkpoint) as engine:
            schema = f"site {kind}, n int, ts timestamp"
            feed = engine.feed("rows", schema, time="ts", watermark_by="site", partition_idle=None)
            if not restart:
                query = engine.register(BY_SITE, "q")
                feed.push([(values[0], 1, at(0)), (values[1], 1, at(0))])
                engine.step()
                feed.push([(values[0], 1, at(60))])
                engine.step()
                assert [row["site"] for row in query.results().to_pylist()] == [values[0]]
            else:
                query = engine.query("q")
                feed.push([(values[1], 1, at(60)), (values[0], 1, at(1))])
                engine.step()
                assert {row["site"] for row in query.results().to_pylist()} == set(values)
                assert query.account.late == 1


def test_groups_beyond_the_limit_share_a_clock(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed(
            "rows", SCHEMA, time="ts", watermark_by="site", watermark_clocks=2, partition_idle=None
        )
        query = engine.register(BY_SITE)
        feed.push([("a", 1, at(0)), ("b", 1, at(0)), ("c", 1, at(0))])
        engine.step()
        feed.push([("a", 1, at(60)), ("b", 1, at(60))])
        engine.step()
        # b and c share a clock, which follows the newest of their rows.
        assert finals(query) == [("a", "12:01", 1), ("b", "12:01", 1), ("c", "12:01", 1)]
        feed.push([("c", 1, at(30))])
        engine.step()
        assert query.account.late == 1


def test_a_budget_is_refused(make_engine: EngineFactory) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match="can't have a budget"):
        engine.feed("rows", SCHEMA, time="ts", watermark_by="site", overload="shed", budget=10)


TEXTS = {
    "by_site": "SELECT site, sum(n) AS n FROM rows [RANGE 50 SLIDE 20] GROUP BY site",
    "all": "SELECT sum(n) AS n, count(*) AS c FROM rows [RANGE 30 SLIDE 30]",
    "pinned": "SELECT max(n) AS n FROM rows [RANGE 40 SLIDE 10] WHERE site = 1",
    "two": "SELECT n % 2 AS m, count(*) AS c FROM rows [RANGE 40 SLIDE 40] WHERE site IN (1, 2) GROUP BY n % 2",
    "fine": "SELECT site, n, count(*) AS c FROM rows [RANGE 7 SLIDE 7] GROUP BY site, n",
}


@pytest.mark.parametrize("restarts", [False, True])
def test_any_speeds_and_batches_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, restarts: bool, seed: int
) -> None:
    """The oracle is told what is closed after each batch: for each site, and for all."""
    columns = {"site": pa.int32(), "n": pa.int32(), "t": pa.int64()}
    for number in range(seed, seed + 3):
        draw, checkpoint = random.Random(number), str(tmp_path / str(number))
        slack, ids = draw.choice([0, 5, 30]), list[int]()
        batches, expected = list[list[dict[str, Any]]](), list[oracle.OracleBatch]()
        speeds, clocks = {site: draw.choice([1, 4, 15]) for site in range(5)}, dict.fromkeys(range(5), 0)
        newest: dict[int, int] = {}
        for _ in range(14):
            rows = []
            for _ in range(draw.randrange(1, 15)):
                site = draw.randrange(5)
                clocks[site] += draw.randrange(speeds[site] + 1)
                rows.append({"site": site, "n": draw.randrange(4), "t": clocks[site] - draw.randrange(12)})
            batches.append(rows)
            for row in rows:
                newest[row["site"]] = max(newest.get(row["site"], row["t"]), row["t"])
            clock = Clock("rows", "t", ClockKind.INTEGER)
            closings = [Punctuation(clock, min(newest.values()) - slack, None, ())]
            closings += [
                Punctuation(clock, time - slack, None, (("site", site),)) for site, time in newest.items()
            ]
            expected.append(oracle.OracleBatch("rows", rows, [], closings, False))
        rules = oracle.OracleStreamRules("t", ClockKind.INTEGER, slack=None, columns=columns)

        def started(checkpoint: str = checkpoint, slack: int = slack) -> tuple[Any, Any]:
            engine = make_engine(checkpoint=checkpoint)
            options = {"time": "t", "slack": slack, "watermark_by": "site", "partition_idle": None}
            return engine, engine.feed("rows", "site int, n int, t long", **options)

        engine, feed = started()
        catalog = Catalog({"rows": Relation("rows", columns, "t")})
        bound = {name: bind_one(text, catalog, engine._backend.scalars) for name, text in TEXTS.items()}
        for name, text in TEXTS.items():
            engine.register(text, name)
        for place, rows in enumerate(batches):
            feed.push(rows)
            engine.step()
            ids.append(engine.progress().batch_id)
            if restarts and place % 3 == 1:
                engine.stop()
                engine, feed = started()
        answer = oracle.answer(bound, expected, {"rows": rules}, engine._backend.scalars)
        totals = engine.progress().streams["rows"]
        assert (totals.late, totals.counted) == tuple(
            answer.counts["rows"][each] for each in ("late", "counted")
        )
        for name in TEXTS:
            account = engine.query(name).account
            assert account.late == answer.accounts[name]["late"], (number, name)
            found = [reported(row) for row in engine.query(name).results().to_pylist()]
            wanted = [reported({**row, "batch": ids[row["batch"]]}) for row in answer.results[name]]
            assert sorted(found) == sorted(wanted), (number, name)
        engine.stop()


def reported(row: dict[str, Any]) -> tuple[Any, ...]:
    """A result with its batch."""
    columns = ("batch", "window_start", "window_end", "rows", "complete", "site", "m", "n", "c")
    return tuple(row[name] for name in columns if name in row)
