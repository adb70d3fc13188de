"""LAG and EMIT EMPTY in an engine: alerts, restarts, groups on executors, queries over them, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import at, bids_engine
from transom import CostError
from transom.plan.limits import Limits

SCHEMA = "item string, price int, ts timestamp"
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
MINUTES = {0: ["a", "a", "b"], 1: ["a", "b"], 2: ["b", "b", "b"], 3: ["b"], 5: ["a"], 6: ["b"]}


def pushed(minutes: dict[int, list[str]]) -> list[tuple[Any, ...]]:
    return [(item, 10, at(f"12:0{minute}:10")) for minute, items in minutes.items() for item in items]


def shown(query: Any, *names: str) -> list[tuple[Any, ...]]:
    rows = query.results().to_pylist()
    finals = [row for row in rows if row["kind"] == "final"]
    return sorted((row["window_start"].minute, *(row[name] for name in names)) for row in finals)


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_silent_group_is_reported_and_windows_are_compared(
    make_engine: EngineFactory, tmp_path: Path, state: str
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA, state=state)
    per_item = f"SELECT item, count(*) AS n FROM bids {WINDOW} GROUP BY item"
    silent = engine.register(f"{per_item} HAVING n = 0 EMIT EMPTY FOR 2 WINDOWS", name="silent")
    tripled = engine.register(f"{per_item} HAVING n >= 3 * LAG(n) OVER WINDOWS")
    text = (
        f"SELECT item, count(*) AS n, LAG(n, 2, -1) OVER (INTERVAL '1' MINUTE) AS earlier FROM bids {WINDOW}"
    )
    earlier = engine.register(f"{text} GROUP BY item")
    in_all = engine.register(f"SELECT count(*) AS n FROM bids {WINDOW} EMIT EMPTY")
    above = engine.register(f"SELECT count(*) AS silent_items FROM silent {WINDOW}")
    for minutes in ({0: MINUTES[0], 1: MINUTES[1]}, {m: MINUTES[m] for m in (2, 3, 5)}, {6: MINUTES[6]}):
        feed.push(pushed(minutes))
        engine.step()
    engine.drain()
    # Of `a` the windows 2 and 3 are empty, and then it is forgotten; `b` has none in 4 and 5.
    assert shown(silent, "item") == [(2, "a"), (3, "a"), (4, "b"), (5, "b"), (6, "a")]
    assert shown(tripled, "item", "n") == [(2, "b", 3)]
    assert shown(earlier, "item", "n", "earlier") == [
        (0, "a", 2, -1), (0, "b", 1, -1), (1, "a", 1, -1), (1, "b", 1, -1), (2, "b", 3, 1), (3, "b", 1, 1),
        (5, "a", 1, -1), (6, "b", 1, -1),
    ]  # fmt: skip
    assert shown(in_all, "n") == [(0, 3), (1, 2), (2, 3), (3, 1), (4, 0), (5, 1), (6, 1)]
    assert shown(above, "silent_items") == [(2, 1), (3, 1), (4, 1), (5, 1), (6, 1)]


def test_batches_of_one_stream_keep_what_is_remembered_for_queries_of_another(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    other = engine.feed("asks", SCHEMA, time="ts")
    queries = [
        engine.register(
            f"SELECT item, count(*) AS n, LAG(n) OVER WINDOWS AS earlier FROM {name} {WINDOW} GROUP BY item"
        )
        for name in ("bids", "asks")
    ]
    for minute in range(3):
        for each in (feed, other):
            each.push(pushed({minute: ["a"]}))
            engine.step()
    engine.drain()
    for query in queries:
        assert shown(query, "n", "earlier")[1:] == [(1, 1, 1), (2, 1, 1)]


def test_lag_of_a_comparison_is_null_without_an_earlier_result(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    # Null-safe equality of two missing values is true, so null has to come from the missing window.
    text = f"SELECT LAG(min(price) <=> max(price)) OVER WINDOWS AS was_constant FROM bids {WINDOW}"
    query = engine.register(text)
    feed.push(pushed({0: ["a"], 1: ["a"], 3: ["b"]}))
    engine.drain()
    assert shown(query, "was_constant") == [(0, None), (1, True), (3, None)]


def test_what_is_remembered_survives_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    text = f"SELECT item, count(*) AS n, LAG(n) OVER WINDOWS AS before FROM bids {WINDOW} GROUP BY item EMIT EMPTY"
    engine.register(text, name="q")
    feed.push(pushed({0: ["a", "a"], 1: ["b"]}))
    engine.step()
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    feed.push(pushed({3: ["b"]}))
    engine.step()
    assert shown(engine.query("q"), "item", "n", "before") == [
        (0, "a", 2, None), (1, "a", 0, 2), (1, "b", 1, None), (2, "a", 0, 0), (2, "b", 0, 1),
    ]  # fmt: skip


def test_an_early_result_shows_finals_of_earlier_windows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA, slack="2 minutes")
    text = f"SELECT count(*) AS n, LAG(n, 1, 0) OVER WINDOWS AS before FROM bids {WINDOW}"
    query = engine.register(text)
    feed.push(pushed({0: ["a", "a"], 1: ["b"], 3: ["b"]}))
    engine.step()
    rows = sorted((row["window_start"].minute, row["n"], row["before"]) for row in query.prod().to_pylist())
    assert rows == [(1, 1, 2), (3, 1, None)]  # window 0 is closed; whether 2 has rows is not known yet


def test_the_plan_says_what_is_remembered(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    text = f"SELECT item, LAG(sum(price), 3) OVER WINDOWS AS x FROM bids {WINDOW} GROUP BY item EMIT EMPTY"
    engine.register(text, name="q")
    feed.push(pushed({0: ["a"]}))
    engine.step()
    explained = engine.query("q").explain()
    assert "remembers sum(price) of the last 3 windows of each group" in explained
    assert "the last window with rows of each group, for 100 windows" in explained


def test_a_query_that_looks_back_too_far_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    text = f"SELECT LAG(count(*), 2000000) OVER WINDOWS AS x FROM bids {WINDOW}"
    with pytest.raises(CostError, match="past windows to look back at"):
        engine.register(text)


def test_a_query_with_too_many_empty_windows_is_suspended_and_no_other(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA, limits=Limits(past_windows=5))
    per_item = f"SELECT item, count(*) AS n FROM bids {WINDOW} GROUP BY item"
    many = engine.register(f"{per_item} EMIT EMPTY FOR 5 WINDOWS", name="many")
    few = engine.register(f"{per_item} EMIT EMPTY FOR 1 WINDOWS", name="few")
    feed.push(pushed({0: ["a", "b", "c"], 8: ["a"]}))
    engine.step()
    assert len(shown(few)) == 6
    assert "empty windows in a batch" in str(many.suspended)


def test_days_of_a_calendar_and_windows_that_grow(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    days = "[RANGE 1 day SLIDE 1 day IN TIME ZONE 'America/New_York']"
    text = "SELECT count(*) AS n, LAG(n) OVER WINDOWS AS before FROM bids"
    per_day = engine.register(f"{text} {days} EMIT EMPTY")
    growing = engine.register(f"{text} [RANGE UP TO 1 hour SLIDE 20 minutes] EMIT EMPTY FOR 2 WINDOWS")
    # The clock goes forward on March 10: that day has 23 hours.
    times = [
        "2013-03-09 12:00",
        "2013-03-10 04:59",
        "2013-03-10 05:01",
        "2013-03-11 03:59",
        "2013-03-12 05:00",
    ]
    feed.push([("a", 1, time) for time in times])
    engine.step()
    rows = [
        (row["window_start"].isoformat()[5:16], row["n"], row["before"])
        for row in per_day.results().to_pylist()
    ]
    assert rows == [("03-09T05:00", 2, None), ("03-10T05:00", 2, 2), ("03-11T04:00", 0, 2)]
    grown = [
        (row["window_end"].isoformat()[5:16], row["n"], row["before"])
        for row in growing.results().to_pylist()
    ]
    assert grown[:6] == [
        ("03-09T12:20", 1, None), ("03-09T12:40", 1, 1), ("03-09T13:00", 1, 1), ("03-09T13:20", 0, 1),
        ("03-09T13:40", 0, 0), ("03-10T05:00", 1, None),
    ]  # fmt: skip
