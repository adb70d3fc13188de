"""Static tables joined to a stream, and queries that join a stream under way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_MINUTE, accounted, answers, bids, bids_engine, bids_table

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SITES = [{"site": 1, "city": "Portland"}, {"site": 2, "city": "Boston"}, {"site": None, "city": "Nowhere"}]
ROWS = [(1, 1.0, "12:00"), (2, 2.0, "12:00"), (2, 4.0, "12:00"), (3, 8.0, "12:00"), (None, 16.0, "12:00")]
INNER = [("Boston", 6.0), ("Portland", 1.0)]

JOINS = {
    "an inner join": ("JOIN sites ON bids.site = sites.site", INNER),
    "a left join": ("LEFT JOIN sites s ON bids.site = s.site", [*INNER, (None, 24.0)]),
    "using": ("JOIN sites USING (site)", INNER),
    "a comma and WHERE": (", sites s WHERE bids.site = s.site", INNER),
    "a join with one more condition": (
        "JOIN sites ON bids.site = sites.site AND city LIKE 'P%'",
        [("Portland", 1.0)],
    ),
    "WHERE on the table's column": (
        "JOIN sites ON bids.site = sites.site WHERE city = 'Boston'",
        [("Boston", 6.0)],
    ),
    "what has no match": ("LEFT JOIN sites s ON bids.site = s.site WHERE city IS NULL", [(None, 24.0)]),
}


@ON_BOTH
@pytest.mark.parametrize("pushed", [True, False], ids=["a feed", "a batch DataFrame"])
def test_joins_with_a_static_table(make_engine: EngineFactory, tmp_path: Path, pushed: bool) -> None:
    if pushed:
        engine, feed = bids_engine(make_engine, tmp_path)
        feed.push(bids(*ROWS))
    else:
        engine = make_engine(str(tmp_path))
        engine.stream("bids", make_engine.rows(bids_table(*ROWS)), time="ts")
    engine.table("sites", SITES)
    queries = {
        name: engine.register(f"SELECT city, sum(price) AS p FROM bids {WINDOW} {join} GROUP BY city")
        for name, (join, _) in JOINS.items()
    }
    plain = engine.register(PER_MINUTE)
    engine.drain()
    for name, (_, expected) in JOINS.items():
        assert [row[2:] for row in answers(queries[name])] == expected, name
    assert answers(plain) == [("12:00", "12:01", 5)]  # nobody's join drops or repeats a row of another
    assert accounted(engine)["counted"] == 5


def test_queries_that_read_different_columns_of_one_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table(
        "sites", [{"site": 1, "city": "Portland", "size": 3}, {"site": 2, "city": "Boston", "size": 5}]
    )
    joined = f"FROM bids {WINDOW} JOIN sites ON bids.site = sites.site"
    by_city = engine.register(f"SELECT count(*) AS n {joined} WHERE city = 'Boston'")
    by_size = engine.register(f"SELECT count(*) AS n {joined} WHERE size < 5")
    feed.push(bids(*ROWS))
    engine.drain()
    assert [row[2:] for row in answers(by_city)] == [(2,)]
    assert [row[2:] for row in answers(by_size)] == [(1,)]


def test_a_chain_of_tables(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", SITES)
    engine.table("cities", pa.table({"name": ["Portland", "Boston"], "state": ["Maine", "Massachusetts"]}))
    chained = engine.register(
        f"SELECT state, count(*) AS n FROM bids {WINDOW} JOIN sites s ON bids.site = s.site "
        "LEFT JOIN cities c ON s.city = c.name GROUP BY state"
    )
    by_comma = engine.register(
        f"SELECT state, count(*) AS n FROM bids {WINDOW}, sites s, cities c "
        "WHERE bids.site = s.site AND s.city = c.name GROUP BY state"
    )
    feed.push(bids(*ROWS))
    engine.drain()
    assert (
        answers(chained)
        == answers(by_comma)
        == [
            ("12:00", "12:01", "Maine", 1),
            ("12:00", "12:01", "Massachusetts", 2),
        ]
    )


@ON_BOTH
@pytest.mark.parametrize("pushed", [True, False], ids=["a feed", "a batch DataFrame"])
def test_duplicate_keys_repeat_rows_for_that_query_only(
    make_engine: EngineFactory, tmp_path: Path, pushed: bool
) -> None:
    if pushed:
        engine, feed = bids_engine(make_engine, tmp_path)
        feed.push(bids(*ROWS))
    else:
        engine = make_engine(str(tmp_path))
        engine.stream("bids", make_engine.rows(bids_table(*ROWS), partitions=3), time="ts")
    engine.table("tags", [{"site": 2, "tag": "a"}, {"site": 2, "tag": "b"}, {"site": 3, "tag": "a"}])
    engine.table("sites", SITES)
    tagged = engine.register(
        f"SELECT tag, sum(price) AS p FROM bids {WINDOW} JOIN tags USING (site) GROUP BY tag"
    )
    all_rows = engine.register(
        f"SELECT sum(price) AS p, count(tag) AS n FROM bids {WINDOW} LEFT JOIN tags USING (site)"
    )
    single = engine.register(f"SELECT sum(price) AS p FROM bids {WINDOW} JOIN sites USING (site)")
    few = engine.register(f"SELECT sum(price) AS p FROM bids {WINDOW} WHERE site = 1")
    engine.drain()
    assert [row[2:] for row in answers(tagged)] == [("a", 14.0), ("b", 6.0)]
    assert [row[2:] for row in answers(all_rows)] == [(37.0, 5)]
    assert [row[2:] for row in answers(single)] == [(7.0,)] and [row[2:] for row in answers(few)] == [(1.0,)]
    assert accounted(engine) == {"rows": 5, "counted": 5, "unwanted": 0, "late": 0, "rejected": 0}


def test_late_rows_are_found_once_though_a_join_repeats_them(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("tags", [{"site": 2, "tag": "a"}, {"site": 2, "tag": "b"}])
    tagged = engine.register(
        f"SELECT tag, count(*) AS n FROM bids {WINDOW} JOIN tags USING (site) GROUP BY tag"
    )
    first = engine.register(f"SELECT count(*) AS n FROM bids {WINDOW} WHERE site = 1")
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:10")))
    engine.step()
    feed.push(bids((1, 5.0, "12:00"), (2, 6.0, "12:00"), (3, 7.0, "12:00"), (2, 8.0, "12:10")))
    engine.step()
    late = {row["price"]: row["missed_by"] for row in engine.late("bids").to_pylist()}
    assert late == {5.0: [first.name], 6.0: [tagged.name]} and engine.late("bids").num_rows == 2
    assert (tagged.account.late, first.account.late) == (2, 1), (
        "the join repeats the row in the account of its query"
    )
    assert tagged.late(rows=True).num_rows == 1 and engine.progress().unaccounted == 0
    assert accounted(engine) == {"rows": 6, "counted": 3, "unwanted": 1, "late": 2, "rejected": 0}


KEYS: dict[str, tuple[Any, list[int]]] = {
    "an integer and text": (["1", "2", "x"], [1, 1]),
    "an integer and text in which two are the same number": (["1", "01", "2"], [2, 1]),
    "an integer and a double": ([1.0, 2.5, 2.0], [1, 1]),
    "an integer and a wider one": ([1, 2, 2**40], [1, 1]),
}


@pytest.mark.parametrize(("keys", "counts"), KEYS.values(), ids=KEYS.keys())
def test_keys_of_different_types(
    make_engine: EngineFactory, tmp_path: Path, keys: list[Any], counts: list[int]
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", [{"id": key, "city": f"city {i}"} for i, key in enumerate(keys)])
    query = engine.register(
        f"SELECT site, count(*) AS n FROM bids {WINDOW} JOIN sites ON site = id GROUP BY site"
    )
    plain = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00")))
    engine.drain()
    assert [row[2:] for row in answers(query)] == [(1, counts[0]), (2, counts[1])]
    assert answers(plain) == [("12:00", "12:01", 2)]
    assert accounted(engine)["counted"] == 2


def test_a_new_version_of_a_table_takes_effect_with_the_next_batch(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", SITES)
    query = engine.register(
        f"SELECT city, count(*) AS n FROM bids {WINDOW} JOIN sites USING (site) GROUP BY city"
    )
    feed.push(bids((1, 1.0, "12:00:00")))
    engine.step()
    engine.table("sites", [{"site": 1, "city": "Salem"}, {"site": 1, "city": "Bend"}])
    feed.push(bids((1, 1.0, "12:00:30")))
    engine.step()
    engine.drain()
    assert [row[2:] for row in answers(query)] == [("Bend", 1), ("Portland", 1), ("Salem", 1)]


@pytest.mark.parametrize(
    "rows",
    [[{"site": 1}], [{"site": 1, "city": 5}]],
    ids=["lacks a column", "has a column of another type"],
)
def test_a_new_version_that_queries_cannot_read_is_refused(
    make_engine: EngineFactory, tmp_path: Path, rows: Any
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", SITES)
    query = engine.register(
        f"SELECT city, count(*) AS n FROM bids {WINDOW} JOIN sites USING (site) GROUP BY city"
    )
    feed.push(bids((1, 1.0, "12:00:00")))
    engine.step()
    with pytest.raises(transom.TransomError, match="city"):
        engine.table("sites", rows)
    feed.push(bids((1, 1.0, "12:00:30")))
    engine.drain()
    assert [row[2:] for row in answers(query)] == [("Portland", 2)]


def test_a_stream_is_not_a_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SQLError, match="city"):
        engine.register(f"SELECT citty, count(*) FROM bids {WINDOW} JOIN sites USING (site) GROUP BY city")
    with pytest.raises(transom.SQLError, match="sites"):
        engine.register(f"SELECT count(*) FROM bids {WINDOW} JOIN sites USING (site)")


# --- joining a stream under way --------------------------------------------------------------


def test_a_query_that_joins_reports_what_it_saw_whole(make_engine: EngineFactory, tmp_path: Path) -> None:
    #   rows  12:00  12:01:30 |  12:01:40  12:03:30  12:10
    #                         the queries join
    engine, feed = bids_engine(make_engine, tmp_path, slack="5 minutes")
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:01:30")))
    engine.step()
    text = "SELECT count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute]"
    whole, partial = engine.register(text), engine.register(text, partial=True)
    feed.push(bids((1, 1.0, "12:01:40"), (1, 1.0, "12:03:30"), (1, 1.0, "12:10")))
    engine.step()
    assert answers(whole, "n", "complete") == [("12:02", "12:04", 1, True), ("12:03", "12:05", 1, True)]
    assert answers(partial, "n", "complete") == [
        ("12:00", "12:02", 1, False),
        ("12:01", "12:03", 1, False),
        ("12:02", "12:04", 1, True),
        ("12:03", "12:05", 1, True),
    ]


def test_a_query_of_rows_that_joins_reports_whole_windows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:01"), (1, 1.0, "12:02")))
    engine.step()
    query = engine.register("SELECT count(*) AS n FROM bids [ROWS 2 SLIDE 2]")
    feed.push(bids(*((1, 1.0, f"12:1{i}") for i in range(5))))
    engine.step()
    assert answers(query, "n", "complete") == [(4, 6, 2, True), (6, 8, 2, True)]


def test_a_query_on_an_empty_engine_sees_the_first_window(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_MINUTE)
    engine.step()
    engine.step()
    second = engine.register("SELECT count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute]")
    feed.push(bids((1, 1.0, "12:00")))
    engine.drain()
    assert answers(second, "n", "complete") == [("11:59", "12:01", 1, True), ("12:00", "12:02", 1, True)]


def test_a_newcomer_reports_the_short_windows_of_a_cumulative_range_between_rows_from_before(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path), strategy="unshared_paired")
    feed = engine.feed("bids", BIDS, time="ts", slack="1 minute")
    engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:21"), (1, 1.0, "12:00:29")))
    engine.step()
    late = engine.register("SELECT count(*) AS n FROM bids [RANGE UP TO 12 seconds SLIDE 4 seconds]")
    feed.push(bids((1, 1.0, "12:00:25"), (1, 1.0, "12:00:37")))
    engine.drain()
    # Of the windows from 12:00:24, only the first has no row from before the query joined.
    found = [(str(row["window_end"])[14:19], row["n"]) for row in late.results().to_pylist()]
    assert found == [("00:28", 1), ("00:40", 1), ("00:44", 1), ("00:48", 1)]
