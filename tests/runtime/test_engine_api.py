"""What a program can say to an engine: streams, feeds, queries, and the errors when it says it wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import transom
from tests.engine_factory import ON_BOTH, STREAMING, EngineFactory
from tests.runtime.engine_helpers import (
    BIDS,
    PER_MINUTE,
    PER_SITE,
    answers,
    at,
    bids,
    bids_engine,
    bids_files,
    bids_table,
    written,
)

ROWS = [(1, 10.0, "12:00:10"), (2, 20.0, "12:00:50"), (1, 30.0, "12:01:20"), (1, 5.0, "12:04:00")]
PER_SITE_ANSWERS = [
    ("11:59", "12:01", 1, 1),
    ("11:59", "12:01", 2, 1),
    ("12:00", "12:02", 1, 2),
    ("12:00", "12:02", 2, 1),
    ("12:01", "12:03", 1, 1),
    ("12:03", "12:05", 1, 1),
    ("12:04", "12:06", 1, 1),
]


# --- sources ---------------------------------------------------------------------------------


def json_file(directory: Path) -> str:
    lines = [json.dumps({"site": site, "price": price, "ts": at(ts)}) for site, price, ts in ROWS]
    (directory / "bids.json").write_text("\n".join(lines))
    return str(directory / "bids.json")


def csv_file(directory: Path) -> str:
    lines = ["site,price,ts", *(f"{site},{price},{at(ts)}" for site, price, ts in ROWS)]
    (directory / "bids.csv").write_text("\n".join(lines) + "\n")
    return str(directory / "bids.csv")


def parquet_file(directory: Path) -> str:
    pq.write_table(bids_table(*ROWS), directory / "bids.parquet")
    return str(directory)


@ON_BOTH
@pytest.mark.parametrize("write", [json_file, csv_file, parquet_file], ids=["json", "csv", "parquet"])
def test_a_stream_of_a_path_ends_with_its_files(
    make_engine: EngineFactory, tmp_path: Path, write: Any
) -> None:
    (tmp_path / "in").mkdir()
    engine = make_engine(str(tmp_path / "checkpoint"))
    engine.stream("bids", write(tmp_path / "in"), time="ts")
    query = engine.register(PER_SITE)
    engine.drain()
    assert answers(query, "site", "n") == PER_SITE_ANSWERS


@ON_BOTH
def test_a_batch_dataframe_is_a_finite_stream(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    engine.stream("bids", make_engine.rows(bids_table(*ROWS)), time="ts", slack="1 hour")
    query = engine.register(PER_SITE)
    engine.drain()
    assert answers(query, "site", "n") == PER_SITE_ANSWERS
    assert engine.step() == 0  # it came once


@STREAMING
def test_a_streaming_dataframe_stays_open_at_the_end_of_a_drain(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    source = bids_files(tmp_path / "in", ROWS[:2], ROWS[2:])
    engine = make_engine(str(tmp_path / "checkpoint"))
    frame = make_engine.session.readStream.schema(BIDS).option("maxFilesPerTrigger", 1).parquet(str(source))
    engine.stream("bids", frame, time="ts", slack="1 minute")
    query = engine.register(PER_SITE)
    engine.drain()
    assert answers(query, "site", "n") == [row for row in PER_SITE_ANSWERS if row[1] <= "12:03"]
    engine.drain(close=True)
    assert answers(query, "site", "n") == PER_SITE_ANSWERS


def test_two_streams_each_with_queries_of_its_own(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    asks = engine.feed("asks", "price double, at timestamp", time="at")
    of_bids = engine.register(PER_MINUTE)
    of_asks = engine.register("SELECT count(*) AS n FROM asks [RANGE 1 minute SLIDE 1 minute]")
    feed.push(bids((1, 1.0, "12:00:10"), (1, 1.0, "12:05")))
    asks.push([(1.0, at("13:00:10")), (2.0, at("13:00:20"))])
    assert engine.step() == 2
    assert answers(of_bids) == [("12:00", "12:01", 1)] and answers(of_asks) == []
    engine.drain()
    assert answers(of_asks) == [("13:00", "13:01", 2)]


# --- pushing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        bids(*ROWS),
        [{"site": s, "price": p, "ts": at(t)} for s, p, t in ROWS],
        [{"ts": at(t), "site": s} for s, _, t in ROWS],
        bids_table(*ROWS),
        bids_table(*ROWS).select(["ts", "price", "site"]),
        bids_table(*ROWS).to_pylist(),
        bids_table(*ROWS).set_column(0, "site", pa.array([1, 2, 1, 1], pa.int64())),
        (row for row in bids(*ROWS)),
    ],
    ids=[
        "tuples in the order of the schema",
        "dicts",
        "dicts without a column, in another order",
        "an Arrow table",
        "an Arrow table with its columns in another order",
        "dicts with datetimes",
        "an Arrow table with a wider integer",
        "a generator of tuples",
    ],
)
def test_rows_are_pushed_as(make_engine: EngineFactory, tmp_path: Path, rows: Any) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_SITE)
    assert feed.push(rows) == 4
    engine.drain()
    assert answers(query, "site", "n") == PER_SITE_ANSWERS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"sight": 1}], "unknown column sight"),
        ([(1, 2.0)], "2 values, its schema 3"),
        ([("one", 2.0, at("12:00"))], "do not fit its schema: column site"),
        ([(1.5, 2.0, at("12:00"))], "column site: 1.5 is not a whole number"),
        ([(10**30, 2.0, at("12:00"))], "column site: a number is beyond 64 bits"),
        ([5], "is a mapping or a tuple, not 5"),
        ({"site": 1}, "takes a list of rows"),
        ([(1, 2.0, "noon")], "noon"),
        (pa.table({"site": [1]}), "no column price"),
    ],
    ids=[
        "an unknown column",
        "too few values",
        "another type",
        "a number that is not whole",
        "a huge number",
        "a row that is a number",
        "a single row",
        "no time",
        "an Arrow table that lacks a column",
    ],
)
def test_rows_that_do_not_fit_are_refused_whole(
    make_engine: EngineFactory, tmp_path: Path, rows: Any, message: str
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SettingError, match=message):
        feed.push(rows)
    assert engine.step() == 0


# --- registering and dropping ----------------------------------------------------------------


def test_a_query_joins_with_the_next_batch_and_leaves_with_the_next(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    first = engine.register(PER_MINUTE, name="first")
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:02")))
    engine.step()
    second = engine.register(PER_SITE, name="second")
    assert set(engine.queries()) == {"first", "second"}
    feed.push(bids((1, 1.0, "12:06")))
    engine.step()
    assert answers(first) == [("12:00", "12:01", 1), ("12:02", "12:03", 1)]
    assert answers(second) == []  # its windows up to here held rows that it did not see
    first.drop()
    assert set(engine.queries()) == {"second"}
    feed.push(bids((1, 1.0, "12:20")))
    engine.step()
    assert answers(first) == [("12:00", "12:01", 1), ("12:02", "12:03", 1)]
    assert answers(second, "n") == [("12:05", "12:07", 1), ("12:06", "12:08", 1)]
    with pytest.raises(transom.StateError, match="no query named first"):
        first.drop()


def test_a_name_is_free_again_after_a_drop(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    old = engine.register(PER_MINUTE, name="q")
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:10")))
    engine.step()
    old.drop()
    new = engine.register("SELECT sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute]", name="q")
    feed.push(bids((1, 7.0, "12:20"), (1, 1.0, "12:30")))
    engine.step()
    assert answers(new) == [("12:20", "12:21", 7.0)]


def test_registering_again_with_the_same_text_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_MINUTE, name="q")
    again = engine.register(PER_MINUTE, name="q")
    assert again.results().num_rows == engine.query("q").results().num_rows == 0
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:02")))
    engine.step()
    assert answers(again) == [("12:00", "12:01", 1)]
    with pytest.raises(transom.StateError, match="q is registered already, with another text"):
        engine.register(PER_SITE, name="q")


def test_queries_without_names_get_some(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    one, two = engine.register(PER_MINUTE), engine.register(PER_MINUTE)
    assert one.name != two.name and set(engine.queries()) == {one.name, two.name}


def test_many_queries_at_once(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    text = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] WHERE price > {}"
    queries = engine.register_all({f"above_{i}": text.format(i) for i in range(60)})
    feed.push(bids((1, 40.5, "12:00:00"), (1, 9.5, "12:00:30"), (1, 0.0, "12:02")))
    engine.step()
    counts = {name: answers(query, "n") for name, query in queries.items()}
    for i in range(60):
        expected = (i < 40.5) + (i < 9.5)
        assert counts[f"above_{i}"] == ([("12:00", "12:01", expected)] if expected else []), i


def test_one_wrong_query_among_many_registers_none(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    wrong = "SELECT sum(prise) FROM bids [RANGE 1 minute SLIDE 1 minute]"
    with pytest.raises(transom.SQLError, match="did you mean price") as caught:
        engine.register_all({"good": PER_MINUTE, "bad": wrong, "fine": PER_SITE})
    assert "bad" in str(caught.value) and "^^^^^" in str(caught.value)
    assert engine.queries() == {}


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT count(*) FROM bits [RANGE 1 minute SLIDE 1 minute]", "bits.*did you mean bids"),
        ("SELECT sum(prize) FROM bids [RANGE 1 minute SLIDE 1 minute]", "prize.*did you mean price"),
        ("SELECT summ(price) FROM bids [RANGE 1 minute SLIDE 1 minute]", "summ.*did you mean sum"),
        ("SELECT count(*) FROM bids", "window"),
        ("SELECT count(* FROM bids [RANGE 1 minute SLIDE 1 minute]", "."),
        ("SELECT count(*) FROM bids [RANGE 5 SLIDE 5 WATTR price]", "price"),
    ],
    ids=[
        "an unknown stream",
        "an unknown column",
        "an unknown function",
        "no window",
        "no closing parenthesis",
        "a window along a price",
    ],
)
def test_a_wrong_query_is_refused(make_engine: EngineFactory, tmp_path: Path, sql: str, message: str) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SQLError, match=message):
        engine.register(sql)
    assert engine.queries() == {}


def test_wrong_declarations_are_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.StateError, match=r"bids.*already"):
        engine.feed("bids", BIDS, time="ts")
    with pytest.raises(transom.SettingError, match="no column tss; did you mean ts"):
        engine.feed("asks", BIDS, time="tss")
    with pytest.raises(transom.SettingError, match="price"):
        engine.feed("asks", BIDS, time="price")
    with pytest.raises(transom.SettingError, match="unit"):
        engine.feed("asks", BIDS, time="ts", slack="5")
    with pytest.raises(transom.SettingError, match="negative"):
        engine.feed("asks", BIDS, time="ts", slack="-5 seconds")
    with pytest.raises(transom.SettingError, match="not a schema"):
        engine.feed("asks", "what is this?", time="ts")
    with pytest.raises(transom.SettingError, match="punctuation"):
        engine.feed("asks", BIDS, time="ts", punctuation="kind = 'end'")
    with pytest.raises(transom.SettingError, match="expected a condition"):
        engine.feed("asks", BIDS, time="ts", punctuation="site + 1")
    with pytest.raises(transom.SettingError, match="strategy"):
        make_engine(str(tmp_path / "other"), strategy="pared")
    with pytest.raises(transom.SettingError, match="nowhere"):
        engine.stream("files", str(tmp_path / "nowhere"), time="ts")


def test_wrong_control_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SettingError, match="no stream named bits; did you mean bids"):
        engine.punctuate("bits", until=at("12:00"))
    with pytest.raises(transom.SettingError, match="not a time"):
        feed.punctuate(until="noon")
    with pytest.raises(transom.SettingError, match="no column sight; did you mean site"):
        feed.punctuate(until=at("12:00"), where={"sight": 1})
    with pytest.raises(transom.SettingError, match="site can't be 'three'"):
        feed.punctuate(until=at("12:00"), where={"site": "three"})
    with pytest.raises(transom.SettingError, match="bits"):
        engine.late("bits")
    with pytest.raises(transom.StateError, match="no query named other"):
        engine.query("other")
    assert engine.step() == 0


# --- results ---------------------------------------------------------------------------------


@ON_BOTH
def test_columns_and_types_of_results(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(
        "SELECT avg(price) AS mean, max(site) AS top FROM bids [RANGE 1 minute SLIDE 1 minute] "
        "GROUP BY price > 1"
    )
    empty = query.results()
    feed.push(bids((1, 1.0, "12:00"), (1, 3.0, "12:02")))
    engine.drain()
    table = query.results()
    utc = pa.timestamp("us", tz="UTC")
    kinds = [utc, utc, pa.bool_(), pa.float64(), pa.int32(), pa.string(), pa.bool_(), pa.int64(), pa.int64()]
    kinds += [pa.int64(), utc, pa.float64()]
    names = ["mean", "top", "kind", "complete", "rows", "late", "batch", "made", "latency"]
    assert table.column_names[:2] == ["window_start", "window_end"] and table.column_names[3:] == names
    assert table.schema.types == kinds
    assert empty.schema == table.schema and empty.num_rows == 0
    assert table["kind"].to_pylist() == ["final", "final"] and table["complete"].to_pylist() == [True, True]
    assert table["rows"].to_pylist() == [1, 1] and table["batch"].to_pylist() == [1, 2]


def test_system_columns_step_aside_for_the_users(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(
        "SELECT site AS kind, count(*) AS `rows`, max(price) AS batch, min(price) AS window_end "
        "FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    )
    engine.sink("json", path=str(tmp_path / "out"))
    feed.push(bids((7, 1.5, "12:00"), (7, 2.5, "12:00")))
    engine.drain()
    (row,) = query.results().to_pylist()
    assert (row["kind"], row["rows"], row["batch"], row["window_end"]) == (7, 2, 2.5, 1.5)
    assert (row["transom_kind"], row["transom_rows"], row["complete"]) == ("final", 2, True)
    assert row["transom_batch"] == 2 and f"{row['transom_window_end']:%H:%M}" == "12:01"
    (result,) = written(tmp_path / "out", "json")
    assert (result["kind"], result["rows"], result["keys"]) == ("final", 2, {"kind": "7"})


@pytest.mark.backends("local", "spark")
def test_columns_that_differ_in_case_only_are_refused_when_the_stream_is_declared(
    make_engine: EngineFactory,
) -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us", tz="UTC")), "a": [1], "A": [2]})
    with pytest.raises(transom.SettingError, match="columns a and A, which differ in case only"):
        make_engine().stream("s", table, time="ts")


@pytest.mark.backends("spark", reason="the local backend has no such types")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("time'12:00:00'", "time"),
        ("make_interval(1, 2)", "interval"),
        ("struct(1 AS n, INTERVAL '1' YEAR AS i)", "struct<"),
    ],
)
def test_a_column_of_an_unsupported_type_is_left_out_and_refused_where_a_query_uses_it(
    make_engine: EngineFactory, value: str, kind: str
) -> None:
    text = f"SELECT timestamp_seconds(id * 30) AS ts, id AS v, {value} AS At FROM range(4)"
    engine = make_engine()
    engine.stream("s", make_engine.session.sql(text), time="ts")
    query = engine.register("SELECT sum(v) AS v FROM s [RANGE 1 minute SLIDE 1 minute]")
    for used in ("count(at)", "max(s.at)"):
        with pytest.raises(transom.SQLError, match=f"the column at is {kind}.* not supported: cast it"):
            engine.register(f"SELECT {used} FROM s [RANGE 1 minute SLIDE 1 minute]")
    engine.drain()
    assert query.results()["v"].to_pylist() == [1, 5]


def test_engines_queries_and_feeds_say_what_they_are() -> None:
    with transom.Engine(backend="local") as engine:
        assert repr(engine) == "<engine (local) with 0 queries over no streams>"
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register("SELECT count(*) AS n\n FROM bids [RANGE 1 minute SLIDE 1 minute]", name="n")
        assert repr(engine) == "<engine (local) with 1 query over bids>"
        assert repr(feed) == "<feed bids(site int32, ts timestamp[us, tz=UTC])>"
        assert repr(query) == "<query n: SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]>"


@pytest.mark.parametrize("kind", ["pandas", "arrow reader", "record batch"])
def test_a_feed_takes_tables_of_other_libraries(kind: str) -> None:
    times = pa.array([0, 30_000_000, 60_000_000]).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": times, "site": pa.array([1, 2, 3], pa.int64())})
    rows = {
        "pandas": table.to_pandas,
        "arrow reader": table.to_reader,
        "record batch": lambda: table.to_batches()[0],
    }[kind]()
    with transom.Engine(backend="local") as engine:
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register("SELECT sum(site) AS s FROM bids [RANGE 1 minute SLIDE 1 minute]")
        assert feed.push(rows) == 3
        engine.drain()
        assert query.results()["s"].to_pylist() == [3, 3]
