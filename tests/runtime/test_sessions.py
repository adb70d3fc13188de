"""Session windows in an engine: merged across batches and disorder, early, late, shared, over queries and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import (
    BIDS,
    SettableClock,
    answers,
    at,
    bids,
    bids_engine,
    bids_files,
    short,
)
from transom.errors import CostError, SettingError
from transom.plan.limits import Limits

VISITS = "SELECT site, count(*) AS n, sum(price) AS s FROM bids [SESSION 10 minutes] GROUP BY site"
LAST_TWO = "SELECT site, sum(price) AS s FROM bids [PARTITION BY site ROWS 2 SLIDE 1] GROUP BY site"


def step(engine: transom.Engine, feed: Any, *rows: tuple[Any, Any, str]) -> None:
    feed.push(bids(*rows))
    engine.step()


@ON_BOTH
def test_rows_of_several_batches_become_one_session(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="10 minutes")
    query = engine.register(VISITS, "visits")
    step(engine, feed, (1, 1.0, "12:00"), (2, 1.0, "12:03"), (1, 2.0, "12:18"))  # two sessions of site 1
    step(engine, feed, (1, 4.0, "12:14"), (1, 8.0, "12:09"))  # which these join
    assert answers(query) == []
    step(engine, feed, (3, 1.0, "12:39"))
    assert answers(query) == [("12:00", "12:28", 1, 4, 15.0), ("12:03", "12:13", 2, 1, 1.0)]
    assert (query.account.rows, query.account.counted) == (6, 6)


@ON_BOTH
def test_sessions_over_files(make_engine: EngineFactory, tmp_path: Path) -> None:
    batches = [
        [(1, 1.0, "12:00"), (2, 2.0, "12:05"), (1, 4.0, "12:10")],
        [(1, 8.0, "12:20"), (2, 16.0, "12:40"), (2, 32.0, "12:00")],
    ]
    engine = make_engine(tmp_path / "checkpoint")
    place = str(bids_files(tmp_path / "bids", *batches))
    engine.stream("bids", place, time="ts", schema=BIDS, slack="1 minute", files_per_batch=1)
    query = engine.register(VISITS, "visits")
    engine.drain()
    assert answers(query) == [
        ("12:00", "12:15", 2, 2, 34.0),
        ("12:00", "12:30", 1, 3, 13.0),
        ("12:40", "12:50", 2, 1, 16.0),
    ]


def test_rows_one_gap_apart_are_in_one_session(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(VISITS, "visits")
    for time in ("12:00", "12:10", "12:20"):  # in each batch, the watermark is at the last row
        step(engine, feed, (1, 1.0, time))
    step(engine, feed, (1, 1.0, "12:30:01"))
    assert answers(query, "n") == [("12:00", "12:30", 3)]


def test_a_late_row_belongs_to_no_open_session(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 minute")
    query, every = (
        engine.register(VISITS, "visits"),
        engine.register(VISITS.replace("10 min", "60 min"), "hours"),
    )
    step(engine, feed, (1, 1.0, "12:20"), (1, 1.0, "12:29"), (2, 1.0, "12:38"), (1, 1.0, "12:38"))
    step(engine, feed, (1, 1.0, "12:11"), (2, 1.0, "12:11"))  # 12:11 of site 1 extends its open session
    late = engine.late("bids").to_pylist()
    assert [(row["site"], row["missed_by"]) for row in late] == [(2, ["visits"])]
    assert [(row["site"]) for row in query.late(rows=True).to_pylist()] == [2]
    assert [short(value) for value in query.late().to_pylist()[0].values()] == ["12:11", "12:21", 1]
    account = query.account
    assert (account.rows, account.counted, account.late, account.unwanted) == (6, 5, 1, 0)
    assert every.account.late == 0
    step(engine, feed, (3, 1.0, "14:00"))
    assert answers(query, "site", "n", "complete", "late") == [
        ("12:11", "12:48", 1, 4, True, 1),
        ("12:38", "12:48", 2, 1, True, 1),
    ]


def test_late_rows_that_are_in_one_session_with_rows_in_time_are_counted(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(VISITS, "visits")
    step(engine, feed, (1, 1.0, "12:30"))
    step(engine, feed, (2, 1.0, "12:12"), (2, 1.0, "12:21"), (3, 1.0, "12:12"))
    assert (query.account.counted, query.account.late) == (3, 1)
    engine.flush("bids")
    engine.step(empty=True)
    assert answers(query, "site", "n") == [("12:12", "12:31", 2, 2), ("12:30", "12:40", 1, 1)]


def test_sessions_survive_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(VISITS, "visits")
    step(engine, feed, (1, 1.0, "12:00"), (2, 1.0, "12:01"))
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    step(engine, feed, (1, 2.0, "12:05"), (1, 4.0, "12:30"))
    assert answers(engine.query("visits")) == [("12:00", "12:15", 1, 2, 3.0), ("12:01", "12:11", 2, 1, 1.0)]


def test_punctuations_close_sessions_of_their_group(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(VISITS, "visits")
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00")))
    feed.punctuate(at("12:10"), where={"site": 1})
    engine.step()
    assert answers(query) == []  # a row at 12:10 would still belong to the session
    feed.punctuate(at("12:10:01"), where={"site": 1})
    engine.step(empty=True)
    assert answers(query, "site") == [("12:00", "12:10", 1)]


def test_the_end_of_a_stream_closes_sessions(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 hour")
    query = engine.register(VISITS, "visits")
    step(engine, feed, (1, 1.0, "12:00"))
    engine.flush("bids")
    engine.step(empty=True)
    assert answers(query, "n") == [("12:00", "12:10", 1)]
    step(
        engine, feed, (1, 1.0, "12:00"), (1, 1.0, "12:05")
    )  # the first is late, unless the second were there
    engine.flush("bids")
    engine.step(empty=True)
    assert answers(query, "n") == [("12:00", "12:10", 1), ("12:00", "12:15", 2)]
    step(engine, feed, (1, 1.0, "12:05"))
    assert query.account.late == 1


def test_early_results_show_sessions_so_far(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    query = engine.register(f"{VISITS} EMIT EARLY EVERY '1 minute'", "visits")
    step(engine, feed, (1, 1.0, "12:00"))
    clock.advance(1)
    step(engine, feed, (1, 1.0, "12:07"), (2, 1.0, "12:09"))
    clock.advance(1)
    step(engine, feed, (2, 1.0, "12:18"))
    columns = ("site", "n", "kind", "n_projected", "n_low")
    assert answers(query, *columns) == [
        ("12:00", "12:10", 1, 1, "early", None, None),
        ("12:00", "12:17", 1, 2, "early", None, None),
        ("12:00", "12:17", 1, 2, "final", None, None),
        ("12:09", "12:19", 2, 1, "early", None, None),
        ("12:09", "12:28", 2, 2, "early", None, None),
    ]
    assert answers(query.prod(where={"site": 2}), "site", "n") == [("12:09", "12:28", 2, 2)]
    assert answers(query.prod(until=at("12:20")), "site", "n") == []
    with pytest.raises(SettingError, match="no common slide"):
        query.tune(0.5)


def test_a_query_that_joins_reports_sessions_that_others_kept_for_it(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(VISITS, "first")
    step(engine, feed, (1, 1.0, "12:00"), (2, 1.0, "12:05"))
    shared = engine.register(VISITS, "second")
    alone = engine.register(VISITS.replace("10 min", "9 min"), "alone")
    step(engine, feed, (1, 1.0, "12:08"))
    assert "same WHERE, joins and GROUP BY as 1 other query" in engine.explain(verbose=True)
    step(engine, feed, (3, 1.0, "12:40"))
    assert answers(shared, "site", "n") == [("12:00", "12:18", 1, 2), ("12:05", "12:15", 2, 1)]
    assert answers(alone, "site", "n") == []  # it saw these sessions only in part


def test_rows_are_added_once_for_all_gaps(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    for gap in range(1, 9):
        engine.register(VISITS.replace("10 min", f"{gap} min"), f"q{gap}")
        engine.register(VISITS.replace("GROUP BY", f"WHERE price > {gap} GROUP BY"), f"w{gap}")
    step(engine, feed, *((1, float(price), "12:00") for price in range(10)))
    text = engine.explain()
    assert "done: 18 partial (unshared: 116)" in text, text
    assert "sessions: rows at most 3 minutes apart; open sessions are kept on the driver" in text
    assert "kept on the driver (open sessions are merged there" in engine.explain(verbose=True)


@ON_BOTH
def test_joins_conditions_and_queries_over_sessions(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", [{"site": 1, "name": "one"}, {"site": 2, "name": "two"}])
    named = engine.register(
        "SELECT name, max(price) AS m FROM bids [SESSION 10 minutes] JOIN sites USING (site) "
        "WHERE price > 1 GROUP BY name HAVING count(*) > 1",
        "named",
    )
    engine.register(VISITS, "visits")
    over = engine.register(
        "SELECT count(*) AS visits, max(n) AS most FROM visits [RANGE 1 hour SLIDE 1 hour]", "over"
    )
    step(
        engine,
        feed,
        (1, 2.0, "12:00"),
        (1, 1.0, "12:05"),
        (1, 3.0, "12:09"),
        (2, 5.0, "12:20"),
        (9, 5.0, "12:20"),
    )
    step(engine, feed, (1, 2.0, "12:55"), (2, 2.0, "13:40"))
    assert answers(named) == [("12:00", "12:19", "one", 3.0)]
    assert answers(over) == [("12:00", "13:00", 3, 3)]


def test_absurd_gaps_are_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(
        CostError, match=r"in the gap of its sessions, and the limit is 2,678,400,000,000.*session_gap"
    ):
        engine.register(VISITS.replace("10 minutes", "60 days"))
    other, _ = bids_engine(make_engine, tmp_path / "other", limits=Limits(session_gap=10**15))
    assert other.register(VISITS.replace("10 minutes", "60 days"), "q").name == "q"


def test_sessions_are_not_looked_up(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    query = engine.register(VISITS, "visits")
    with pytest.raises(SettingError, match="its results are pushed"):
        query.lookup()
    with pytest.raises(transom.TransomError):
        engine.lookup(VISITS)


@ON_BOTH
def test_tasks_find_sessions_and_their_late_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    """As with many rows: not on the driver, and in several tasks."""
    engine, feed = bids_engine(make_engine, tmp_path, limits=Limits(pushed_rows=0))
    query, last = engine.register(VISITS, "visits"), engine.register(LAST_TWO, "last")
    first = [(site, 1.0, f"12:{minute:02}") for site in (1, 2) for minute in range(0, 30, 3)]
    step(engine, feed, *first)
    step(engine, feed, (1, 1.0, "12:18:30"), (3, 1.0, "12:01"), (3, 1.0, "12:02"), (4, 1.0, "12:50"))
    assert [(row["site"], row["missed_by"]) for row in engine.late("bids").to_pylist()] == [
        (3, ["visits"])
    ] * 2
    assert answers(query) == [("12:00", "12:37", 1, 11, 11.0), ("12:00", "12:37", 2, 10, 10.0)]
    assert (query.account.counted, query.account.late) == (22, 2)
    assert len(answers(last)) == 24
