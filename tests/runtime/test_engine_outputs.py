"""What comes out of an engine: subscribers, sinks, late and rejected rows, progress, EXPLAIN, retention."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import (
    BIDS,
    MINUTE,
    PER_MINUTE,
    PER_SITE,
    SettableClock,
    accounted,
    answers,
    at,
    bids,
    bids_engine,
    bids_files,
    written,
)
from transom.results.result_rows import ResultBatch
from transom.runtime.outputs import Outputs, with_names
from transom.runtime.registry import identity
from transom.state.accounts import QueryAccount
from transom.state.commit_record import ResultFiles
from transom.storage.file_store import Store

# --- subscribers -----------------------------------------------------------------------------


def test_a_subscriber_is_called_with_each_batches_new_results(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query, other = engine.register(PER_MINUTE), engine.register(PER_SITE)
    heard: list[pa.Table] = []
    unsubscribe = query.subscribe(heard.append)
    for minute in range(3):
        feed.push(bids((1, 1.0, f"12:0{minute}")))
        engine.step()
    assert [answers(table, "n") for table in heard] == [[("12:00", "12:01", 1)], [("12:01", "12:02", 1)]]
    assert heard[0].schema == query.results().schema
    unsubscribe()
    unsubscribe()  # once more is no harm
    engine.drain()
    assert len(heard) == 2 and query.results().num_rows == 3 and other.results().num_rows == 4


def test_a_failing_subscriber_disturbs_no_other(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE, name="watched")
    heard: list[pa.Table] = []

    def failing(table: pa.Table) -> None:
        raise ValueError("no thanks")

    query.subscribe(failing)
    query.subscribe(heard.append)
    feed.push(bids((1, 1.0, "12:00")))
    with caplog.at_level(logging.ERROR, "transom"):
        engine.drain()
    assert len(heard) == 1 and query.results().num_rows == 1
    assert "watched" in caplog.text and "no thanks" in caplog.text


# --- sinks -----------------------------------------------------------------------------------


@ON_BOTH
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_all_results_in_one_schema(make_engine: EngineFactory, tmp_path: Path, format: str) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="site int, price double, fee decimal(6, 2), ts timestamp"
    )
    engine.register(
        "SELECT site, sum(fee) AS fees, max(ts) AS last FROM bids [RANGE 1 minute SLIDE 1 minute] "
        "GROUP BY site",
        name="fees",
    )
    engine.register("SELECT sum(price) AS p FROM bids [ROWS 2 SLIDE 2]", name="pairs")
    engine.sink(
        format, path=str(tmp_path / "out"), **({"header": True, "escape": '"'} if format == "csv" else {})
    )
    feed.push([(1, 1.5, Decimal("2.25"), at("12:00:10")), (None, None, None, at("12:00:20"))])
    engine.step()
    engine.drain()
    rows = written(tmp_path / "out", format)
    rows = sorted(rows, key=lambda row: (row["query"], "1" not in str(row.get("keys"))))
    assert [(row["query"], row["kind"], int(row["rows"]), int(row["batch"])) for row in rows] == [
        ("fees", "final", 1, 2),
        ("fees", "final", 1, 2),
        ("pairs", "final", 2, 1),
    ]
    last = {"last": "2013-01-01 12:00:10"}, {"last": "2013-01-01 12:00:20"}
    if format == "csv":  # it has no maps
        assert [json.loads(row["keys"]) for row in rows] == [{"site": 1}, {"site": None}, {}]
        assert [json.loads(row["values"]) for row in rows] == [
            {"fees": "2.25", **last[0]},
            {"fees": None, **last[1]},
            {"p": 1.5},
        ]
    else:
        if format == "json":  # each row says only what it has
            assert {"keys", "texts", "window_start", "window_end"}.isdisjoint(rows[2])
            assert all({"window_from", "window_to"}.isdisjoint(row) for row in rows[:2])
            rows[2] |= {"keys": {}, "texts": {}}
        assert [dict(row["keys"]) for row in rows] == [{"site": "1"}, {"site": None}, {}]
        assert [dict(row["values"]) for row in rows] == [{"fees": 2.25}, {"fees": None}, {"p": 1.5}]
        assert [dict(row["texts"]) for row in rows] == [
            {"fees": "2.25", **last[0]},  # all digits of a decimal
            {"fees": None, **last[1]},
            {},
        ]
    assert all("12:01" in str(row["window_end"]) for row in rows[:2])
    assert rows[2].get("window_end") in (None, "")
    assert (int(rows[2]["window_from"]), int(rows[2]["window_to"])) == (0, 2)


@ON_BOTH
def test_json_files_leave_out_nulls_unless_they_are_wanted(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register("SELECT max(price) AS top FROM bids [RANGE 1 minute SLIDE 1 minute]")
    query.sink("json", path=str(tmp_path / "short"))
    query.sink("json", path=str(tmp_path / "full"), ignoreNullFields=False)
    feed.push(bids((1, None, "12:00")))
    engine.drain()
    (short,), (full,) = written(tmp_path / "short", "json"), written(tmp_path / "full", "json")
    assert "top" not in short and full["top"] is None
    assert short.keys() == full.keys() - {"top"}


@ON_BOTH
@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize(
    "compression, ending, opened", [("gzip", "gz", gzip.open), ("bzip2", "bz2", bz2.open)]
)
def test_text_files_can_be_compressed(
    make_engine: EngineFactory,
    tmp_path: Path,
    format: str,
    compression: str,
    ending: str,
    opened: Callable[..., Any],
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    query.sink(format, path=str(tmp_path / "plain"))
    query.sink(format, path=str(tmp_path / "packed"), compression=compression)
    feed.push(bids((1, 1.0, "12:00")))
    engine.drain()
    (plain,) = (tmp_path / "plain").rglob(f"*.{format}")
    (packed,) = (tmp_path / "packed").rglob(f"*.{format}.{ending}")
    with opened(packed, "rt", encoding="utf-8") as file:
        assert file.read() == plain.read_text(encoding="utf-8") != ""


def test_a_compression_that_the_local_backend_lacks_is_refused(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SettingError, match=r"has no gzp; did you mean gzip\?"):
        engine.sink("json", path=str(tmp_path / "out"), compression="gzp")


def test_an_expression_over_keys_is_a_value_in_the_one_schema(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(
        "SELECT site, price, site + price AS both FROM bids [RANGE 1 minute SLIDE 1 minute] "
        "GROUP BY site, price"
    )
    engine.sink("json", path=str(tmp_path / "out"))
    feed.push(bids((1, 2.0, "12:00")))
    engine.drain()
    (row,) = written(tmp_path / "out", "json")
    assert row["keys"] == {"site": "1", "price": "2.0"} and row["values"] == {"both": 3.0}


@ON_BOTH
def test_one_querys_results_typed(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query, _ = engine.register(PER_SITE), engine.register(PER_MINUTE)
    query.sink("parquet", path=str(tmp_path / "out"))
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:01"), (1, 1.0, "12:04")))
    engine.step()
    engine.drain()
    batches = [str(tmp_path / "out" / f"batch={batch_id}") for batch_id in (1, 2)]
    columns = make_engine.backend.read_parquet(batches).columns
    assert (columns["window_end"], columns["n"]) == (pa.timestamp("us", tz="UTC"), pa.int64())
    table = pq.read_table(tmp_path / "out")
    assert answers(table.select(query.results().column_names), "site", "n") == answers(query, "site", "n")
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_dir()) == ["batch=1", "batch=2"]


def test_a_batch_without_results_writes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    query.sink("parquet", path=str(tmp_path / "own"))
    engine.sink("parquet", path=str(tmp_path / "every"))
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()
    assert not (tmp_path / "own").exists() and not (tmp_path / "every").exists()


def test_a_file_sink_needs_a_path(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SettingError, match="path"):
        engine.sink("parquet")


# --- late and rejected -----------------------------------------------------------------------


@ON_BOTH
def test_lateness_is_per_window_and_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    #  12:00      12:05      12:10        watermark 12:06
    #    [----------)  closed               a row at 12:04 is late for the first
    #    [---------------------)  open      and counts in the second
    engine, feed = bids_engine(make_engine, tmp_path)
    small = engine.register("SELECT count(*) AS n FROM bids [RANGE 5 minutes SLIDE 5 minutes]")
    large = engine.register(
        "SELECT count(*) AS n FROM bids [RANGE 10 minutes SLIDE 10 minutes] WHERE site = 1"
    )
    feed.push(bids((1, 1.0, "12:06")))
    engine.step()
    feed.push(bids((1, 4.0, "12:04"), (2, 4.0, "12:04"), (2, 4.0, "12:06:30")))
    engine.step()
    engine.drain()
    assert answers(small) == [("12:05", "12:10", 2)] and answers(large) == [("12:00", "12:10", 2)]
    first, late = engine.late("bids").to_pylist()
    assert (late["site"], late["price"], f"{late['ts']:%H:%M}", late["batch"]) == (2, 4.0, "12:04", 2)
    assert first["missed_by"] == late["missed_by"] == [small.name], (
        "each row once, with the query that missed it"
    )
    assert "12:06" in late["reason"]
    assert accounted(engine) == {"rows": 4, "counted": 2, "unwanted": 0, "late": 2, "rejected": 0}
    assert answers(small.late(), "late") == [("12:00", "12:05", 2)] and small.late(rows=True).num_rows == 2
    assert small.account == QueryAccount(rows=4, counted=2, late=2)
    assert large.late().num_rows == large.late(rows=True).num_rows == 0
    assert large.account == QueryAccount(rows=4, counted=2, unwanted=2)


def test_rows_that_no_query_wants_are_not_late(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 5 minutes] WHERE price > 10")
    feed.push(bids((1, 11.0, "12:04:30"), (1, 11.0, "12:03:30"), (1, 9.0, "12:04:30"), (1, 1.0, "12:20")))
    engine.step()
    feed.push(bids((1, 11.0, "12:04:30"), (1, 11.0, "12:03:30"), (1, None, "12:04:30")))
    engine.step()
    assert accounted(engine) == {"rows": 7, "counted": 1, "unwanted": 5, "late": 1, "rejected": 0}
    assert engine.late("bids").num_rows == 1


def test_rows_without_a_time_are_rejected(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    assert engine.rejected("bids").num_rows == engine.late("bids").num_rows == 0
    feed.push(bids((1, 1.0, "12:00"), (2, 2.0, None)))
    engine.drain()
    (rejected,) = engine.rejected("bids").to_pylist()
    assert (rejected["site"], rejected["price"], rejected["ts"], rejected["batch"]) == (2, 2.0, None, 1)
    assert rejected["reason"] == "no time: null"
    assert answers(query) == [("12:00", "12:01", 1)]
    assert accounted(engine)["rejected"] == 1


@ON_BOTH
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "bids.json",
            [
                '{"site": 1, "price": 1.5, "ts": "2013-01-01 12:00:10"}',
                '{"site": 2, "price": 1.5, "ts": "2013-01-01 12:0',
                '{"site": 3, "price": 1.5}',
                '{"site": 4, "price": 1.5, "ts": "noon"}',
            ],
        ),
        (
            "bids.csv",
            [
                "site,price,ts",
                "1,1.5,2013-01-01 12:00:10",
                "two,1.5,2013-01-01 12:00:20",
                "3,1.5,",
                "4,1.5,noon",
            ],
        ),
    ],
    ids=["json", "csv"],
)
def test_rows_that_cannot_be_parsed_are_rejected(
    make_engine: EngineFactory, tmp_path: Path, name: str, lines: list[str]
) -> None:
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    engine = make_engine(str(tmp_path / "checkpoint"))
    engine.stream("bids", str(tmp_path / name), time="ts", schema="site int, price double, ts timestamp")
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]")
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)]
    rejected = engine.rejected("bids").to_pylist()
    reasons = sorted(row["reason"] for row in rejected)
    assert len(reasons) == 3 and reasons[0] == "no time: null"
    assert accounted(engine) == {"rows": 4, "counted": 1, "unwanted": 0, "late": 0, "rejected": 3}
    text = json.dumps(rejected, default=str)
    assert "noon" in text  # what could not be read can be seen


# --- progress, explain, retention ------------------------------------------------------------


def test_progress_reports_the_status_of_the_engine(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 minute")
    before = engine.progress()
    assert (before.batch_id, before.queries, before.streams["bids"].watermark) == (0, 0, None)
    engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:02:30"), (1, 1.0, None)))
    with caplog.at_level(logging.INFO, "transom"):
        engine.step()
    now = engine.progress()
    own = now.streams["bids"]
    noon = 1_357_041_600_000_000
    assert (now.batch_id, now.queries, dict(now.suspended)) == (
        1,
        1,
        {},
    ) and now.batch_seconds > 0 < now.state_bytes
    assert (own.rows, own.counted, own.rejected, own.open_windows) == (3, 2, 1, 1)
    assert (own.high, own.watermark) == (noon + 150_000_000, noon + 90_000_000)
    assert "watermark 2013-01-01 12:01:30" in str(now) and "rejected 1" in str(now)
    assert "batch 1" in caplog.text and "3 rows" in caplog.text and "1 rejected" in caplog.text


def test_progress_reports_how_queries_share(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 minute")
    engine.register_all(
        {f"q{i}": f"{PER_MINUTE} WHERE price > {i // 2}" for i in range(4)}
    )  # two selections of two
    feed.push(bids((1, 1.0, "12:00"), (1, 2.0, "12:00:30")))
    engine.step()
    own = engine.progress().streams["bids"].sharing
    assert (own.queries, own.selections, own.most_queries, own.queries_per_selection) == (4, 2, 2, 2.0)
    assert (dict(own.families), own.slices) == ({"range": 1}, 2)
    shown = str(engine.progress())
    assert "selections 2 (queries in each 2.0, at most 2), families: 1 range, slices 2" in shown
    plain = json.loads(json.dumps(engine.progress().as_dict()))
    assert plain["streams"]["bids"]["sharing"]["families"] == plain["sharing"]["families"] == {"range": 1}
    assert plain["batch_id"] == 1 and set(plain["sharing"]["work"]) == set(plain["sharing"]["last_batch"])


def test_explain_shows_streams_and_queries_before_and_after_they_join(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="90 seconds")
    engine.table("sites", [{"site": 1, "city": "Portland"}])
    engine.register(
        "SELECT city, sum(price * 2) AS s FROM bids [RANGE 12 minutes SLIDE 5 minutes], sites "
        "WHERE bids.site = sites.site AND price > 10 GROUP BY city HAVING s > 5",
        name="by_city",
    )
    text = engine.explain()
    for part in (
        "stream bids",
        "slack 1 minute 30 seconds",
        "by_city",
        "12 minutes",
        "price",
        "sites",
        "having",
    ):
        assert part in text, part
    planned = json.loads(engine.explain(format="json"))
    feed.push(bids((1, 1.0, "12:00"), (1, 11.0, "12:00")))
    engine.step()
    joined = json.loads(engine.explain(format="json"))
    (before,), (after,) = (own["streams"][0]["families"][0]["selections"] for own in (planned, joined))
    same = ("where", "keeps", "windows", "unshared")
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    assert (before["queries"][0]["pending"], after["queries"][0]["pending"]) == (True, False)
    assert (before["holds"]["slices"], after["holds"]["slices"]) == (0, 1)


def test_explain_of_one_query_names_those_it_shares_with(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE, name="mine")
    engine.register(PER_MINUTE.replace("1 minute", "2 minutes"), name="mate")
    assert "shared with mate" in query.explain()
    assert query.explain(format="mermaid").startswith("flowchart LR")
    (own,) = json.loads(query.explain(format="json"))["streams"][0]["families"]
    assert [one["name"] for one in own["selections"][0]["queries"]] == ["mine", "mate"]
    with pytest.raises(transom.SettingError, match=r"unknown format 'jsom': .* did you mean json"):
        engine.explain(format="jsom")


@pytest.mark.parametrize("retention", [2, "2 minutes"], ids=["two batches", "two minutes by the clock"])
def test_retention_drops_old_results_only(make_engine: EngineFactory, tmp_path: Path, retention: Any) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, retention=retention)
    query = engine.register(PER_MINUTE)
    for minute in range(6):
        clock.now = clock.now + MINUTE
        feed.push(bids((1, 1.0, f"12:0{minute}"), (2, 1.0, "11:00" if minute else None)))
        engine.step()
    kept = answers(query)
    assert kept[-1] == ("12:04", "12:05", 1) and 2 <= len(kept) <= 3
    assert kept == [(f"12:0{i}", f"12:0{i + 1}", 1) for i in range(5)][-len(kept) :]
    assert engine.late("bids").num_rows == 5 and engine.rejected("bids").num_rows == 1
    stored = [p.name for p in (tmp_path / "checkpoint" / "results").iterdir()]
    assert len(stored) == len(kept) + 1  # the oldest is deleted with the next commit
    again, _ = bids_engine(make_engine, tmp_path, clock=clock, retention=retention)
    assert answers(again.query(query.name)) == kept


@pytest.mark.parametrize("is_pushed", [True, False], ids=["rows on the driver", "rows of files"])
def test_files_of_late_and_rejected_rows_stay_few(
    make_engine: EngineFactory, tmp_path: Path, is_pushed: bool
) -> None:
    """Each batch brings a late row and a rejected one; the files are merged, the rows come back in order."""
    batches = [[(i, 1.0, "12:30"), (i, 2.0, "11:00"), (i, 3.0, None)] for i in range(60)]
    engine = make_engine(tmp_path / "checkpoint", clock=SettableClock())
    if is_pushed:
        feed = engine.feed("bids", BIDS, time="ts")
    else:
        engine.stream("bids", str(bids_files(tmp_path / "in", *batches)), time="ts")
    engine.register(PER_MINUTE, name="q")
    for rows in batches if is_pushed else [()]:
        if is_pushed:
            feed.push(bids(*rows))
        engine.step()
    for kind, first in (("late", 1), ("rejected", 0)):
        stored = list((tmp_path / "checkpoint" / kind / "bids").iterdir())
        assert len(stored) <= 40, kind
        table = getattr(engine, kind)("bids")
        assert (
            table["site"].to_pylist() == list(range(first, 60)) == [b - 1 for b in table["batch"].to_pylist()]
        )
    again = make_engine(tmp_path / "checkpoint", clock=SettableClock())
    again.feed("bids", BIDS, time="ts")
    assert again.rejected("bids").num_rows == 60


def test_the_results_of_a_batch_are_one_file_whatever_columns_they_have(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(tmp_path / "checkpoint")
    feed = engine.feed("bids", BIDS, time="ts")
    first = engine.register(PER_SITE, "first")
    second = engine.register("SELECT count(*) AS n FROM bids [RANGE 5 minutes SLIDE 5 minutes]", "second")
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:10")))
    engine.step()
    assert [file.name for file in (tmp_path / "checkpoint" / "results" / "0000000001").iterdir()] == [
        "0000.arrow"
    ]
    assert first.results().num_rows and second.results()["n"].to_pylist()[0] == 1


def test_results_of_earlier_versions_with_a_file_for_each_schema_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outputs = Outputs(store)
    table = pa.table({"n": [1, 2, 3]})
    batch = ResultBatch(["a", "b"], np.array([0, 1, 3]), table)
    store.write_table("results/0000000001/0000.arrow", with_names(batch, lambda name: identity(name, 1)))
    outputs.result_batches = [ResultFiles(1, 0, 1)]
    assert outputs.results("b", table.schema, 1)["n"].to_pylist() == [2, 3]
