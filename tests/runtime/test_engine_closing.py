"""How windows close on Spark: punctuations of all kinds, idleness, the horizon, other clocks than time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from tests.runtime.engine_helpers import (
    BIDS,
    PER_MINUTE,
    PER_SITE,
    SettableClock,
    accounted,
    answers,
    at,
    bids,
    bids_engine,
    bids_table,
)

TUMBLING = "SELECT site, count(*) AS n FROM bids [RANGE 5 minutes SLIDE 5 minutes] GROUP BY site"
OVER_ALL = "SELECT count(*) AS n FROM bids [RANGE 5 minutes SLIDE 5 minutes]"


# --- punctuations from the program -----------------------------------------------------------


def test_a_punctuation_closes_what_ends_at_it_while_no_data_comes(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:30"), (1, 1.0, "12:01:30"), (1, 1.0, "12:30")))
    assert engine.step() == 1
    assert answers(query) == []  # without slack only punctuations close
    engine.punctuate("bids", until=at("12:01"))
    assert engine.step() == 1
    assert answers(query) == [("12:00", "12:01", 1)]
    engine.punctuate("bids", until=at("12:01:59"))
    engine.step()
    assert answers(query) == [("12:00", "12:01", 1)]
    feed.push(bids((1, 1.0, "12:00:40"), (1, 1.0, "12:01:40")))
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 1), ("12:01", "12:02", 2), ("12:30", "12:31", 1)]
    assert engine.late("bids").num_rows == 1


@pytest.mark.parametrize("beyond", [2**63, -(2**63), 10**30])
def test_a_punctuation_beyond_64_bits_is_refused_and_hurts_no_query(
    make_engine: EngineFactory, tmp_path: Path, beyond: int
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    queries = [
        engine.register(OVER_ALL),
        engine.register("SELECT count(*) AS n FROM bids [SESSION 1 minute]"),
    ]
    feed.push(bids((1, 1.0, "12:00:30")))
    engine.step()
    for words in ({"until": beyond}, {"until": at("12:01"), "since": beyond}):
        for punctuate in (feed.punctuate, lambda **words: engine.punctuate("bids", **words)):
            with pytest.raises(transom.SettingError, match="too large a number of microseconds"):
                punctuate(**words)
    engine.drain()
    assert [query.suspended for query in queries] == [None, None]
    assert [len(answers(query)) for query in queries] == [1, 1]


def test_a_part_of_a_number_closes_no_group(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(TUMBLING)
    feed.push(bids((1, 1.0, "12:00:30")))
    with pytest.raises(transom.SettingError, match=r"site can't be 1\.5: it is no whole number"):
        feed.punctuate(until=at("12:05"), where={"site": 1.5})
    engine.step()
    assert answers(query) == []
    feed.punctuate(until=at("12:05"), where={"site": 1.0})
    engine.step()
    assert len(answers(query)) == 1


@pytest.mark.parametrize("option", ["idle", "partition_idle"])
def test_a_negative_idle_time_is_refused(make_engine: EngineFactory, option: str) -> None:
    with make_engine() as engine, pytest.raises(transom.SettingError, match=f"{option} can't be negative"):
        engine.feed("bids", BIDS, time="ts", partition="site", **{option: "-5 seconds"})


def test_a_feed_cuts_batches_at_its_punctuations(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:30")))
    feed.push(bids((1, 1.0, "12:00:35")))
    feed.punctuate(until=at("12:01"))
    feed.push(bids((1, 1.0, "12:00:40"), (1, 1.0, "12:01:40")))
    feed.punctuate(until=at("12:02"))
    assert engine.step() == 2
    assert answers(query, "n", "batch") == [("12:00", "12:01", 2, 1), ("12:01", "12:02", 1, 2)]
    assert accounted(engine)["late"] == 1


def test_a_punctuation_of_a_group_closes_that_group_only(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    by_site, over_all = engine.register(TUMBLING), engine.register(OVER_ALL)
    pinned = engine.register(f"{OVER_ALL} WHERE site = 3 AND price > 0")
    listed = engine.register(f"{OVER_ALL} WHERE site IN (3, 4)")
    feed.push(bids((3, 1.0, "12:01"), (4, 1.0, "12:02"), (None, 1.0, "12:03")))
    feed.punctuate(until=at("12:05"), where={"site": 3})
    engine.step()
    assert answers(by_site, "site", "n") == [("12:00", "12:05", 3, 1)]
    assert answers(pinned) == [("12:00", "12:05", 1)]
    assert answers(over_all) == answers(listed) == []
    feed.push(
        bids((3, 1.0, "12:01"), (4, 1.0, "12:04"))
    )  # the first counts over all, and is late for its site
    feed.punctuate(until=at("12:05"), where={"site": 4})
    engine.step()
    assert answers(listed) == [("12:00", "12:05", 4)]
    assert answers(by_site, "site", "n") == [("12:00", "12:05", 3, 1), ("12:00", "12:05", 4, 2)]
    engine.drain()
    assert answers(over_all) == [("12:00", "12:05", 5)]
    assert answers(by_site, "site", "n")[-1] == ("12:00", "12:05", None, 1)
    assert accounted(engine) == {"rows": 5, "counted": 4, "unwanted": 0, "late": 1, "rejected": 0}
    assert answers(by_site.late(), "late") == answers(pinned.late(), "late") == [("12:00", "12:05", 1)]
    assert not over_all.late().num_rows and not listed.late().num_rows


def test_a_punctuation_of_a_range_closes_the_windows_within(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 5 minutes SLIDE 1 minute]")
    feed.push(bids((1, 1.0, "12:02"), (1, 1.0, "12:07"), (1, 1.0, "12:12")))
    feed.punctuate(since=at("12:05"), until=at("12:11"))
    engine.step()
    assert answers(query) == [("12:05", "12:10", 1), ("12:06", "12:11", 1)]
    feed.push(bids((1, 1.0, "12:04"), (1, 1.0, "12:10:30")))
    engine.step()
    feed.punctuate(since=at("12:03"), until=at("12:05"))
    engine.step()  # the stretches that are closed cover 12:03 to 12:11 together
    assert answers(query) == [
        ("12:03", "12:08", 2),
        ("12:04", "12:09", 2),
        ("12:05", "12:10", 1),
        ("12:06", "12:11", 1),
    ]


@pytest.mark.parametrize(
    ("column", "kind", "value", "other"),
    [
        ("k", "string", "ü 'x", "y"),
        ("k", "decimal(6, 2)", Decimal("1.50"), Decimal("2")),
        ("k", "date", date(2013, 5, 1), date(2013, 5, 2)),
        ("k", "timestamp", datetime(2013, 5, 1, 12, tzinfo=UTC), datetime(2013, 5, 2, tzinfo=UTC)),
        ("k", "boolean", True, False),
        ("K", "double", 0.5, 1.5),
    ],
    ids=["text", "a decimal", "a date", "a timestamp", "a boolean", "a double, in another case"],
)
def test_patterns_keep_their_types_over_a_restart(
    make_engine: EngineFactory, tmp_path: Path, column: str, kind: str, value: Any, other: Any
) -> None:
    def engine_of() -> tuple[transom.Engine, Any]:
        return bids_engine(make_engine, tmp_path, schema=f"k {kind}, ts timestamp", slack=None)

    rows = [(value, at("12:01")), (other, at("12:02"))]
    engine, feed = engine_of()
    text = "SELECT k, count(*) AS n FROM bids [RANGE 5 minutes SLIDE 5 minutes] GROUP BY k"
    engine.register(text, name="q")
    feed.push(rows)
    feed.punctuate(until=at("12:05"), where={column: value})
    engine.step()
    assert answers(engine.query("q"), "n") == [("12:00", "12:05", 1)]
    engine, feed = engine_of()
    feed.push(rows)
    engine.drain()
    assert answers(engine.query("q"), "n") == [("12:00", "12:05", 1), ("12:00", "12:05", 2)]
    assert engine.late("bids").num_rows == 1


# --- punctuations in the stream --------------------------------------------------------------


def test_rows_that_are_punctuations(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(
        make_engine,
        tmp_path,
        schema="site int, kind string, ts timestamp",
        slack=None,
        punctuation="kind = 'end'",
    )
    by_site, over_all = engine.register(TUMBLING), engine.register(OVER_ALL)
    feed.push(
        [
            (3, "bid", at("12:01")),
            (4, "bid", at("12:02")),
            (3, "end", at("12:05")),  # for site 3; it takes effect at the batch's end
            (3, None, at("12:03")),
            (4, "end", None),  # a punctuation without a time says nothing, and is a row without a time
        ]
    )
    engine.step()
    assert answers(by_site, "site", "n") == [("12:00", "12:05", 3, 2)] and answers(over_all) == []
    feed.push([(None, "end", at("12:05"))])  # null: for any site
    engine.step()
    assert answers(by_site, "site", "n") == [("12:00", "12:05", 3, 2), ("12:00", "12:05", 4, 1)]
    assert answers(over_all) == [("12:00", "12:05", 3)]
    assert accounted(engine) == {"rows": 4, "counted": 3, "unwanted": 0, "late": 0, "rejected": 1}


# --- idleness --------------------------------------------------------------------------------


def test_an_idle_source_closes_its_windows(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack="1 hour", idle="10 minutes")
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:30"), (1, 1.0, "12:20:30")))
    engine.step()
    clock.advance(minutes=9)
    assert engine.step() == 0 and answers(query) == []
    clock.advance(minutes=1)
    assert engine.step() == 1  # a control batch
    assert answers(query) == [("12:00", "12:01", 1), ("12:20", "12:21", 1)]
    clock.advance(minutes=60)
    assert engine.step() == 0  # once is enough
    feed.push(bids((1, 1.0, "12:20:40"), (1, 1.0, "12:21:30")))
    engine.step()
    assert engine.late("bids").num_rows == 1
    clock.advance(minutes=10)
    engine.step()
    assert answers(query)[2:] == [("12:21", "12:22", 1)]


def test_an_idle_source_is_given_its_time_again_after_a_restart(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    options = {"clock": clock, "slack": "1 hour", "idle": "10 minutes"}
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    engine.register(PER_MINUTE, name="q")
    feed.push(bids((1, 1.0, "12:00:30")))
    engine.step()
    clock.advance(minutes=60)  # while nobody was there to hear the source
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    assert engine.step() == 0 and answers(engine.query("q")) == []
    clock.advance(minutes=10)
    engine.step()
    assert answers(engine.query("q")) == [("12:00", "12:01", 1)]


# --- the future ------------------------------------------------------------------------------


def test_one_row_far_in_the_future_closes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, max_ahead=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:10"), (9, 1.0, "2113-01-01 00:00"), (1, 1.0, "12:00:20")))
    engine.step()
    feed.push(bids((9, 1.0, "2113-01-01 00:00"), (1, 1.0, "12:00:30"), (1, 1.0, "12:01:30")))
    engine.step()
    assert answers(query) == [("12:00", "12:01", 3)]
    reasons = [(row["site"], row["reason"]) for row in engine.rejected("bids").to_pylist()]
    assert reasons == [(9, "ahead of the stream by more than the horizon")] * 2
    assert accounted(engine) == {"rows": 6, "counted": 4, "unwanted": 0, "late": 0, "rejected": 2}


def test_a_jump_of_most_of_a_batch_is_followed(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, horizon="1 day")
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "2013-01-04 18:00"), (1, 1.0, "2013-01-04 18:00:10")))
    engine.step()
    feed.push(
        bids(
            (1, 1.0, "2013-01-04 18:00:20"),
            (1, 1.0, "2013-01-07 08:00"),
            (1, 1.0, "2013-01-07 08:00:30"),
            (9, 1.0, "2013-02-01 00:00"),
            (1, 1.0, "2013-01-07 08:01"),
        )
    )
    engine.step()
    assert answers(query) == [
        ("2013-01-04 18:00", "2013-01-04 18:01", 3),
        ("2013-01-07 08:00", "2013-01-07 08:01", 2),
    ]
    assert [row["site"] for row in engine.rejected("bids").to_pylist()] == [9]


def test_a_live_stream_is_not_ahead_of_the_clock(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock(at("12:00"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, horizon="1 hour", live=True)
    query = engine.register(PER_MINUTE)
    feed.push(bids((9, 1.0, "2013-01-02 12:00"), (9, 1.0, "2013-01-02 12:01"), (1, 1.0, "12:59")))
    engine.step()
    assert accounted(engine)["rejected"] == 2
    engine.drain()
    assert answers(query) == [("12:59", "13:00", 1)]


def test_without_a_horizon_any_row_is_followed(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, horizon=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:00"), (1, 1.0, "2113-01-01 00:00")))
    engine.step()
    assert answers(query) == [("12:00", "12:01", 2)] and accounted(engine)["rejected"] == 0


# --- other clocks ----------------------------------------------------------------------------


def test_windows_along_an_integer_column(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="seq bigint, ts timestamp", slack={"ts": "1 hour", "seq": 3}
    )
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 10 SLIDE 5 WATTR seq]")
    feed.push([(-3, at("12:00")), (1, at("12:00")), (None, at("12:00")), (12, at("12:00"))])
    engine.step()
    assert answers(query) == [(-10, 0, 1), (-5, 5, 2)]  # up to the watermark 9
    assert query.results().schema.types[:2] == [pa.int64(), pa.int64()]
    feed.punctuate(until=10, on="seq")
    engine.step()
    assert answers(query)[-1] == (0, 10, 1)
    engine.drain()
    assert {row[:2] for row in answers(query)} == {(-10, 0), (-5, 5), (0, 10), (5, 15), (10, 20)}
    assert accounted(engine) == {"rows": 4, "counted": 3, "unwanted": 1, "late": 0, "rejected": 0}


def test_a_stream_whose_time_is_an_integer(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("s", "seq int, x int", time="seq", slack=2)
    query = engine.register("SELECT sum(x) AS x FROM s [RANGE 5 SLIDE 5]")
    feed.push([(1, 1), (4, 1), (6, 1), (None, 5), (10**9, 1)])
    engine.step()
    assert answers(query) == [(0, 5, 2), (5, 10, 1)]
    feed.push([(3, 1)])
    engine.step()
    (late,) = engine.late("s").to_pylist()
    assert late["seq"] == 3 and str(10**9 - 2) in late["reason"]
    assert engine.rejected("s").num_rows == 1


def test_a_second_time_column_has_a_watermark_of_its_own(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(
        make_engine,
        tmp_path,
        schema="ts timestamp, shipped timestamp",
        slack={"ts": "1 minute", "shipped": "10 minutes"},
    )
    ordered = engine.register(PER_MINUTE)
    shipped = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute WATTR shipped]")
    feed.push([(at("12:00"), at("14:00")), (at("12:03"), at("14:05")), (at("12:02"), None)])
    engine.step()
    assert answers(ordered) == [("12:00", "12:01", 1)] and answers(shipped) == []
    feed.push([(at("12:03"), at("14:00:30")), (at("12:03"), at("14:11:30"))])
    engine.step()
    assert answers(shipped) == [("14:00", "14:01", 2)]
    assert accounted(engine)["late"] == 0


# --- windows of rows -------------------------------------------------------------------------


def test_windows_of_rows_count_accepted_rows_before_where(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(
        "SELECT site, sum(price) AS p FROM bids [ROWS 4 SLIDE 2] WHERE price > 0 GROUP BY site"
    )
    feed.push(
        bids((1, 4.0, "12:03"), (1, 1.0, "12:00"), (9, 9.0, None), (2, -3.0, "12:02"), (1, 2.0, "12:01"))
    )
    engine.step()
    # numbered by time:   0: 1.0   1: 2.0   2: -3.0   3: 4.0
    assert answers(query, "p") == [(-2, 2, 3.0), (0, 4, 7.0)]
    feed.push(bids((2, 5.0, "11:00"), (2, 6.0, "11:30")))  # never late
    engine.step()
    assert answers(query, "site", "p")[-2:] == [(2, 6, 1, 4.0), (2, 6, 2, 11.0)]
    assert accounted(engine)["late"] == 0


@ON_BOTH
def test_windows_of_rows_do_not_depend_on_partitions(make_engine: EngineFactory, tmp_path: Path) -> None:
    rows = [(i % 3, float(i * 7 % 11), f"12:0{i * 3 % 5}") for i in range(40)]
    found = []
    for number, order in enumerate((rows, rows[::-1])):
        engine = make_engine(str(tmp_path / str(number)))
        frame = make_engine.rows(bids_table(*order), partitions=1 + number * 3)
        engine.stream("bids", frame, time="ts")
        query = engine.register("SELECT sum(price) AS p, max(site) AS top FROM bids [ROWS 7 SLIDE 3]")
        engine.drain()
        found.append(answers(query))
    assert found[0] == found[1] and len(found[0]) == 15


@on_spark("the expected windows are those of Spark's own window function")
def test_a_query_along_another_form_of_window(make_engine: EngineFactory, tmp_path: Path) -> None:
    #  starts on the grid, not ends: 12 minutes, every 5, from 1 past
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(
        "SELECT site, count(*) AS n FROM bids "
        "GROUP BY window(ts, '12 minutes', '5 minutes', '1 minute'), site"
    )
    rows = [(1, 1.0, "12:02"), (1, 1.0, "12:07:30"), (2, 1.0, "12:11")]
    feed.push(bids(*rows))
    engine.drain()
    spark_says = (
        make_engine.rows(bids_table(*rows))
        .selectExpr("window(ts, '12 minutes', '5 minutes', '1 minute') AS w", "site")
        .groupBy("w", "site")
        .count()
        .selectExpr("w.start AS window_start", "w.end AS window_end", "site", "count AS n")
    )
    assert answers(query, "site", "n") == answers(spark_says.toArrow(), "site", "n")


def test_the_naive_strategy_gives_the_same_answers(make_engine: EngineFactory, tmp_path: Path) -> None:
    found = []
    for strategy in ("shared_paired", "naive"):
        engine = make_engine(str(tmp_path / strategy), strategy=strategy)
        feed = engine.feed("bids", BIDS, time="ts", slack="1 minute")
        query = engine.register(PER_SITE)
        feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:01:30"), (1, 1.0, "12:04")))
        engine.step()
        feed.push(bids((1, 1.0, "12:01"), (2, 1.0, "12:03:10")))
        engine.drain()
        found.append((answers(query), engine.late("bids").num_rows))
    assert found[0] == found[1] and len(found[0][0]) > 4
