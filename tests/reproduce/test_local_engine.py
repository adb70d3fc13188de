"""The engine without Spark answers as the oracle does, with prods and punctuations."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reproduce.local_engine import INSTANT, LocalEngine
from transom.elements import Prod
from transom.errors import SettingError, SQLError

SECOND = 1_000_000
COLUMNS = {"site": pa.int64(), "value": pa.float64(), "ts": INSTANT}
PER_SITE = "SELECT site, sum(value) AS s FROM bids [RANGE 20 seconds SLIDE 10 seconds] GROUP BY site"


def rows(*given: tuple[int, float, int]) -> pa.Table:
    sites, values, seconds = zip(*given, strict=True)
    times = pa.array([second * SECOND for second in seconds]).cast(INSTANT)
    return pa.table({"site": pa.array(sites), "value": pa.array(values), "ts": times})


def told(engine: LocalEngine, name: str) -> list[tuple[object, ...]]:
    return [
        (row["kind"], round(row["window_end"].timestamp()), row["site"], row["s"], row["latency"])
        for row in engine.results(name).to_pylist()
    ]


def test_batches_prods_and_punctuations() -> None:
    engine = LocalEngine("bids", COLUMNS, "ts", {"q": PER_SITE}, slack=None)
    engine.batch(rows((1, 2.0, 1), (2, 5.0, 3)), clock=3 * SECOND)
    engine.batch(clock=8 * SECOND, prods=[Prod(engine.time, 10 * SECOND, exactly=True)])
    engine.batch(
        rows((1, 3.0, 9), (1, 4.0, 12)), clock=12 * SECOND, punctuations=[engine.punctuation(10 * SECOND)]
    )
    assert told(engine, "q") == [
        ("early", 10, 1, 2.0, 5.0),
        ("early", 10, 2, 5.0, 5.0),
        ("final", 10, 1, 5.0, 9.0),
        ("final", 10, 2, 5.0, 9.0),
    ]
    engine.batch(clock=40 * SECOND, ended=True)
    assert sorted(row[:4] for row in told(engine, "q")[4:]) == [
        ("final", 20, 1, 9.0),
        ("final", 20, 2, 5.0),
        ("final", 30, 1, 4.0),
    ]


def test_one_group_s_punctuation_closes_that_group() -> None:
    engine = LocalEngine("bids", COLUMNS, "ts", {"q": PER_SITE}, slack=None)
    engine.batch(
        rows((1, 2.0, 1), (2, 5.0, 3)), punctuations=[engine.punctuation(10 * SECOND, (("site", 2),))]
    )
    assert [row[:4] for row in told(engine, "q")] == [("final", 10, 2, 5.0)]


def test_a_live_stream_s_marks_are_passed_by_the_clock() -> None:
    query = f"{PER_SITE} EMIT EARLY AT 50% OF SLIDE"
    engine = LocalEngine("bids", COLUMNS, "ts", {"q": query}, slack=None, live=True)
    engine.batch(rows((1, 2.0, 1)), clock=SECOND)
    assert told(engine, "q") == []
    engine.batch(clock=5 * SECOND)
    assert told(engine, "q") == [("early", 10, 1, 2.0, 4.0)]


def test_a_wrong_query_is_told() -> None:
    with pytest.raises(SQLError):
        LocalEngine("bids", COLUMNS, "ts", {"q": "SELECT nope FROM bids [RANGE 1 second SLIDE 1 second]"})


def test_windows_of_rows_are_refused() -> None:
    with pytest.raises(SettingError, match="ROWS windows need the whole engine"):
        LocalEngine("bids", COLUMNS, "ts", {"q": "SELECT count(*) AS n FROM bids [ROWS 10 SLIDE 5]"})


def test_queries_without_slide_are_looked_up() -> None:
    queries = {
        "top": "SELECT site, max(value) AS top FROM bids [RANGE 20 seconds] GROUP BY site",
        "mean": "SELECT avg(value) AS mean FROM bids [RANGE 1 minute] USING timegram(8)",
        "q": PER_SITE,
    }
    engine = LocalEngine("bids", COLUMNS, "ts", queries, slack=None)
    assert engine.lookup("top").num_rows == 0
    engine.batch(rows((1, 9.0, 1), (1, 2.0, 15), (2, 5.0, 25)))
    engine.batch(rows((2, 7.0, 28), (1, 3.0, 19)))
    found = {length: engine.lookup("top", length).to_pylist() for length in (None, "5 seconds")}
    assert [(row["site"], row["top"]) for row in found[None]] == [(1, 3.0), (2, 7.0)]
    assert [(row["site"], row["top"]) for row in found["5 seconds"]] == [(2, 7.0)]
    assert engine.lookup("top", where={"site": 1})["top"].to_pylist() == [3.0]
    (mean,) = engine.lookup("mean").to_pylist()
    assert mean["mean_low"] <= 5.2 <= mean["mean_high"] and mean["complete"]
    engine.batch(ended=True)
    assert engine.results("q").num_rows > 0


def test_a_lookup_is_for_no_longer_window_than_the_query_s() -> None:
    engine = LocalEngine("bids", COLUMNS, "ts", {"top": "SELECT max(value) FROM bids [RANGE 20 seconds]"})
    engine.batch(rows((1, 9.0, 1)))
    with pytest.raises(SettingError, match="top has a window of 20 seconds: it can't be looked up for 1 min"):
        engine.lookup("top", "1 minute")
