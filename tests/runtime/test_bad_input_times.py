"""Rows with wrong times: far in the future, without a time, beyond what Python can show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_MINUTE, SettableClock, accounted, answers, at, bids, bids_engine
from transom.durations import parse_instant

ON_DEMAND = "SELECT count(*) AS n FROM bids [RANGE 1 hour]"
INSTANT = pa.timestamp("us", tz="UTC")
AHEAD = "ahead of the engine's clock by more than 1 day (max_ahead)"


def test_a_row_of_the_year_9999_alone_in_its_batch_makes_no_later_row_late(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    lookup = engine.register(ON_DEMAND, "recent")
    feed.push(bids((1, 1.0, "12:00:10")))
    engine.step()
    feed.push(bids((9, 1.0, "9999-12-31 00:00")))
    engine.step()
    assert lookup.lookup()["n"].to_pylist() == [1]
    feed.push(bids(*[(1, 1.0, f"12:00:{second}") for second in range(20, 50)]))
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 31)]
    assert accounted(engine) == {"rows": 32, "counted": 31, "unwanted": 0, "late": 0, "rejected": 1}
    assert [(row["site"], row["reason"]) for row in engine.rejected("bids").to_pylist()] == [(9, AHEAD)]


def test_the_first_row_of_a_stream_may_be_the_wrong_one(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    feed.push(bids((9, 1.0, "9999-12-31 00:00")))
    engine.step()
    feed.push(bids((1, 1.0, "12:00:10")))
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)] and accounted(engine)["rejected"] == 1


def test_a_replayed_batch_rejects_by_the_clock_of_its_first_attempt(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock(at("12:00"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    query = engine.register(PER_MINUTE)

    def fail(report: object) -> None:
        raise OSError("the power failed")

    engine._loop.listeners.append(fail)
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "2013-01-03 12:00")))
    with pytest.raises(OSError, match="power"):
        engine.step()
    clock.advance(2 * 24 * 60)  # by now the second row is not ahead any more
    again, _ = bids_engine(make_engine, tmp_path, clock=clock)
    again.drain()
    assert answers(again.query(query.name)) == [("12:00", "12:01", 1)]
    assert [row["site"] for row in again.rejected("bids").to_pylist()] == [2]


@pytest.mark.parametrize(
    "options, accepted",
    [
        ({}, 1),
        ({"max_ahead": "40 days"}, 2),
        ({"max_ahead": None}, 3),
        ({"horizon": None}, 3),
        ({"horizon": None, "max_ahead": "2 days"}, 1),
    ],
)
def test_a_stream_of_future_times_says_how_far_they_reach(
    make_engine: EngineFactory, tmp_path: Path, options: dict[str, str | None], accepted: int
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, clock=SettableClock(at("12:00")), **options)
    engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "2013-02-01 12:00"), (1, 1.0, "2013-12-24 12:00")))
    engine.step()
    assert accounted(engine)["rejected"] == 3 - accepted


def test_integers_are_not_compared_with_the_clock(make_engine: EngineFactory) -> None:
    with pytest.raises(
        transom.SettingError, match="max_ahead compares times with the clock, and at is int64"
    ):
        make_engine().feed("s", "at bigint", time="at", max_ahead="1 day")


def test_a_punctuation_of_the_year_9999_closes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine()
    feed = engine.feed("s", "mark boolean, ts timestamp", time="ts", slack=None, punctuation="mark")
    query = engine.register("SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]")
    feed.push([(True, "9999-01-01 00:00:00")])
    engine.step()
    feed.push([(False, "2013-01-01 12:00:20"), (True, "2013-01-01 12:01:00")])
    engine.step()
    assert query.results()["n"].to_pylist() == [1] and engine.late("s").num_rows == 0


def test_a_punctuation_with_an_absurd_time_in_its_pattern_closes_nothing(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed(
        "s", "mark boolean, seen timestamp, ts timestamp", time="ts", slack=None, punctuation="mark"
    )
    query = engine.register("SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]")
    noon = parse_instant(at("12:00"))
    times = pa.array([noon, noon + 60_000_000], pa.int64()).cast(INSTANT)
    seen = pa.array([noon, 2**61], pa.int64()).cast(INSTANT)
    feed.push(pa.table({"mark": [False, True], "seen": seen, "ts": times}))
    engine.step()
    assert query.results().num_rows == 0
