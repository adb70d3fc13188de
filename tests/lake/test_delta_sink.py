"""Results in tables of Delta Lake: each once, whatever fails, whoever else writes, on both backends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.lake.conftest import append, bids, power_cut, table_rows
from tests.results.orders import ORDERS
from transom.backends.base import ResultKey, Sink
from transom.errors import BatchError, SettingError, StateError, WriteError
from transom.runtime.delivery import writer_name
from transom.storage.failpoints import arm
from transom.storage.file_store import Store

COUNTS = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
MOMENTS = ("sink.create", "sink.rename", "sink.renamed", "delivery.end", "state.create")
KEY = ResultKey(("start", "end", "site"), "q", extent=("start", "end"))
INSTANT = pa.timestamp("us", tz="UTC")


def results(*values: tuple[int | None, int], kind: str = "final", batch: int = 1, **more: Any) -> pa.Table:
    """Results of sites with a value each, of one window."""
    count = len(values)
    columns = {
        "start": pa.array([datetime(2024, 1, 1, 23, tzinfo=UTC)] * count, INSTANT),
        "end": pa.array([datetime(2024, 1, 2, tzinfo=UTC)] * count, INSTANT),
        "site": pa.array([site for site, _ in values], pa.int32()),
        "n": pa.array([n for _, n in values], pa.int64()),
        "kind": pa.array([kind] * count),
        "batch": pa.array([batch] * count, pa.int64()),
        "made": pa.array([datetime(2030, 5, 5, tzinfo=UTC)] * count, INSTANT),
    }
    return pa.table(columns | {name: pa.array([value] * count) for name, value in more.items()})


def sink_at(make_engine: EngineFactory, place: Path, **options: Any) -> Sink:
    return make_engine.backend.sink("delta", {"path": str(place)} | options)


def write(make_engine: EngineFactory, sink: Sink, rows: pa.Table, batch: int, key: ResultKey = KEY) -> None:
    sink.write(make_engine.backend.frame(rows), batch, key)


def values(place: Path) -> list[tuple[Any, Any]]:
    rows = table_rows(place, ["site", "n"])
    return sorted(((row["site"], row["n"]) for row in rows), key=repr)


def by_window(rows: list[Mapping[str, Any]]) -> list[tuple[str, Any, Any]]:
    """The results as texts and numbers, sorted."""
    return sorted(((f"{row['window_end']:%H:%M}", row["site"], row["n"]) for row in rows), key=repr)


@ON_BOTH
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_batch_that_is_written_again_is_written_once(
    make_engine: EngineFactory, tmp_path: Path, mode: str
) -> None:
    sink = sink_at(make_engine, tmp_path / "out", mode=mode)
    assert sink.exactly_once
    write(make_engine, sink, results((1, 1), (None, 2)), 1)
    write(make_engine, sink, results((3, 3)), 2)
    for again in (sink, sink_at(make_engine, tmp_path / "out", mode=mode)):
        version = DeltaTable(tmp_path / "out").version()
        write(make_engine, again, results((3, 3)), 2)
        assert DeltaTable(tmp_path / "out").version() == version
    assert values(tmp_path / "out") == [(1, 1), (3, 3), (None, 2)]


def test_an_upsert_replaces_results_with_the_same_key(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Of two results of a key in one batch, the final one counts. A null is a group like others."""
    sink = sink_at(make_engine, tmp_path / "out", mode="upsert", partition_by="day")
    early = results((1, 1), (None, 2), (7, 7), kind="early")
    write(make_engine, sink, early, 1)
    write(make_engine, sink, pa.concat_tables([results((1, 5)), results((1, 4), kind="early")]), 2)
    write(make_engine, sink, pa.concat_tables([results((None, 8), kind="early"), results((None, 9))]), 3)
    assert values(tmp_path / "out") == [(1, 5), (7, 7), (None, 9)]
    rows = table_rows(tmp_path / "out")
    assert {row["day"] for row in rows} == {date(2024, 1, 1)} and {row["query"] for row in rows} == {"q"}
    assert list(DeltaTable(tmp_path / "out").metadata().partition_columns) == ["day"]
    assert "transom_keyed" not in rows[0]


def test_the_last_result_of_a_key_in_a_batch_counts(make_engine: EngineFactory, tmp_path: Path) -> None:
    """A site for each order of results; all have a result from an earlier batch."""
    sink = sink_at(make_engine, tmp_path / "out", mode="upsert")
    write(make_engine, sink, results(*((site, 0) for site in range(len(ORDERS)))), 1)
    parts = [
        results((site, 1), kind=kind, batch=2) for site, (kinds, _, _) in enumerate(ORDERS) for kind in kinds
    ]
    write(make_engine, sink, pa.concat_tables(parts), 2)
    newest = {site: kind for site, (_, _, kind) in enumerate(ORDERS) if kind is not None}
    assert {row["site"]: row["kind"] for row in table_rows(tmp_path / "out")} == newest


def test_a_past_with_retractions_comes_in_one_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    with make_engine() as engine:
        feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts", retain="1 hour")
        for row in ((1, 1.0, "12:00:01"), (2, 2.0, "12:00:02"), (1, 1.0, "12:05:01"), (2, 9.0, "12:00:04")):
            feed.push([(*row[:2], f"2024-01-01 {row[2]}")])
            engine.step()
        query = engine.register(
            "SELECT site, sum(price) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site "
            "HAVING sum(price) < 10 EMIT CORRECTIONS WITHIN '1 hour' BACKFILL",
            "sums",
        )
        query.sink("delta", tmp_path / "out", mode="upsert")
        engine.sink("delta", tmp_path / "all", mode="upsert")
        engine.step()
        assert query.results()["kind"].to_pylist() == ["final", "final", "retraction"]
        assert [(row["site"], row["n"]) for row in query.latest().to_pylist()] == [(1, 1.0)]
    assert values(tmp_path / "out") == [(1, 1.0)]
    assert len(table_rows(tmp_path / "all")) == 1


@ON_BOTH
@pytest.mark.parametrize("retractions", ["deleted", "all"])
def test_corrections_replace_rows_and_retractions_delete_them(
    make_engine: EngineFactory, tmp_path: Path, retractions: str
) -> None:
    """The batch with the corrections is delivered, fails, and runs again."""
    text = (
        "SELECT site, sum(price) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site "
        "HAVING sum(price) < 10 EMIT CORRECTIONS WITHIN '1 hour'"
    )

    def started() -> Any:
        engine = make_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
        query = engine.register(text, "sums")
        options = {"mode": "upsert", "retractions": retractions}
        query.sink("delta", tmp_path / "out", partition_by="day", **options)
        engine.sink("delta", tmp_path / "all", **options)
        return engine, feed, query

    engine, feed, query = started()
    feed.push([(1, 1.0, "2024-01-01 12:00:01"), (None, 2.0, "2024-01-01 12:00:02")])
    feed.push([(1, 1.0, "2024-01-01 12:05:01")])
    engine.step()
    assert values(tmp_path / "out") == [(1, 1.0), (None, 2.0)]
    feed.push([(1, 3.0, "2024-01-01 12:00:03"), (None, 9.0, "2024-01-01 12:00:04")])
    with power_cut("delivery.end"):
        engine.step()
    engine.stop()
    engine, feed, query = started()
    with engine:
        engine.step()
        assert [(row["site"], row["n"]) for row in query.latest().to_pylist()] == [(1, 4.0)]
    (row,) = table_rows(tmp_path / "out")
    assert (row["site"], row["n"], row["kind"], row["revision"]) == (1, 4.0, "correction", 1)
    assert len(table_rows(tmp_path / "all")) == 1


def test_a_query_with_a_column_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    with make_engine() as engine:
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        text = "SELECT site AS query, count(*) AS day FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
        engine.register(text, "counts").sink("delta", tmp_path / "out", mode="upsert", partition_by="day")
        feed.push([(1, "2024-01-01 12:00:01"), (2, "2024-01-01 12:00:02")])
        engine.drain()
    rows = table_rows(tmp_path / "out", ["transom_query", "query", "day", "transom_day"])
    assert sorted((row["transom_query"], row["query"], row["day"]) for row in rows) == [
        ("counts", 1, 1),
        ("counts", 2, 1),
    ]


@pytest.mark.parametrize("partition_by", [{}, {"partition_by": "day"}], ids=["plain", "by day"])
def test_results_are_on_disk_before_the_batch_is_committed(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: Any
) -> None:
    synced: set[str] = set()
    monkeypatch.setattr("transom.backends.delta_sink.sync_paths", synced.update)
    sink = sink_at(make_engine, tmp_path / "out", **partition_by)
    sink.sync = True
    for batch in (1, 2):
        write(make_engine, sink, results((batch, batch)), batch)
    every = {str(path) for path in (tmp_path / "out").rglob("*")} | {str(tmp_path / "out")}
    assert synced == every
    synced.clear()
    write(make_engine, sink, results((2, 2)), 2)  # an attempt that was killed may have written the files only
    assert synced == every


def test_the_name_of_a_checkpoint_is_on_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("transom.storage.file_store.sync_paths", synced.extend)
    store = Store(tmp_path / "checkpoint", sync=True)
    name = writer_name(store)
    assert str(tmp_path / "checkpoint/sink/writer") in synced
    assert writer_name(Store(tmp_path / "checkpoint")) == name


def test_an_upsert_appends_results_that_have_no_key(make_engine: EngineFactory, tmp_path: Path) -> None:
    sink = sink_at(make_engine, tmp_path / "out", mode="upsert")
    key = ResultKey(KEY.columns, "q", condition="site > 1")
    rows = results((1, 1), (1, 1), (2, 2), (2, 3))
    write(make_engine, sink, rows, 1, key)
    write(make_engine, sink, rows, 2, key)
    assert values(tmp_path / "out") == [(1, 1)] * 4 + [(2, 3)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_edited_query_adds_its_columns(make_engine: EngineFactory, tmp_path: Path, mode: str) -> None:
    sink = sink_at(make_engine, tmp_path / "out", mode=mode)
    write(make_engine, sink, results((1, 1)), 1)
    write(make_engine, sink, results((2, 2), top=9), 2)
    write(make_engine, sink, results((3, 3)), 3)
    found = {row["site"]: row["top"] for row in table_rows(tmp_path / "out")}
    assert found == {1: None, 2: 9, 3: None}


def test_unusual_names_and_types(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Names are quoted, structs and maps can be groups, and a column without a type is text."""
    sink = sink_at(make_engine, tmp_path / "out", mode="upsert")
    rows = pa.table(
        {
            'the "site"': [{"a": 1}, {"a": None}],
            "tags`s": pa.array([[("x", "1")], []], pa.map_(pa.string(), pa.string())),
            "Count(*)": [1, 2],
            "nothing": pa.nulls(2),
            "kind": ["final", "final"],
            "batch": [1, 1],
        }
    )
    key = ResultKey(('the "site"', "tags`s"), "it's")
    for batch in (1, 2):
        write(make_engine, sink, rows, batch, key)
    found = table_rows(tmp_path / "out")
    assert sorted(row["Count(*)"] for row in found) == [1, 2] and found[0]["nothing"] is None


@ON_BOTH
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_engine_whose_batches_fail_at_any_moment(
    make_engine: EngineFactory, tmp_path: Path, mode: str
) -> None:
    """Every batch of a life fails once at each moment around the sink, and the next life runs it again."""

    def started() -> Any:
        engine = make_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(f"{COUNTS} EMIT EARLY ON DEMAND", "counts")
        query.sink("delta", tmp_path / "out", mode=mode, partition_by="day")
        engine.sink("delta", tmp_path / "all", mode=mode)
        return engine, feed, query

    engine, feed, query = started()
    feed.push([(9, "2024-01-01 11:59:01")])
    engine.step()  # closes no window, so that it has no results
    for minute, moment in enumerate(MOMENTS):
        feed.push([(minute % 2, f"2024-01-01 12:{minute:02}:01"), (None, f"2024-01-01 12:{minute:02}:02")])
        with power_cut(moment):
            engine.step()
        engine.stop()
        engine, feed, query = started()
        engine.step()
    engine.drain()
    wanted = by_window(query.results().to_pylist())
    assert len(wanted) == 2 * len(MOMENTS) + 1
    assert by_window(table_rows(tmp_path / "out")) == wanted
    assert len(table_rows(tmp_path / "all")) == len(wanted)
    engine.stop()


# Both tables are written in each batch: the second pass of a moment is that of the second table.
KILLS = (
    ("sink.rename", 2),
    ("sink.renamed", 1),
    ("sink.renamed", 2),
    ("delivery.end", 1),
    ("state.rename", 2),
    ("none", 1),
)
LIFE = """
import os, signal, sys
import transom
from transom.runtime.delivery import writer_name
from transom.storage.failpoints import arm
from transom.storage.file_store import Store

place, point, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
passes = [0]

def die(reached):
    passes[0] += reached == point
    if reached == point and passes[0] == batch:
        os.kill(os.getpid(), signal.SIGKILL)

engine = transom.Engine(backend="local", checkpoint=f"{place}/checkpoint", sync=False)
engine.stream("bids", f"{place}/bids", format="delta", time="ts", options={"startingVersion": 0})
query = engine.register(
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site", "counts"
)
query.sink("delta", f"{place}/out", partition_by="day")
query.sink("delta", f"{place}/latest", mode="upsert")
arm(die)
engine.drain()
print(engine.progress().streams["bids"].rows, query.results().num_rows)
"""


def test_processes_that_are_killed_between_two_tables(tmp_path: Path) -> None:
    """A stream from a table, and results to two tables: processes are killed in mid-batch again and again."""
    for minute in range(6):
        append(tmp_path / "bids", bids((1, f"12:{minute:02}:01"), (minute, f"12:{minute:02}:02")))
    deaths = 0
    for point, passes in KILLS:
        command = [sys.executable, "-c", LIFE, str(tmp_path), point, str(passes)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=os.getcwd())
        deaths += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert deaths == len(KILLS) - 1 and done.stdout.split() == ["12", "11"]
    for name in ("out", "latest"):
        counts = [n for _, _, n in by_window(table_rows(tmp_path / name))]
        assert len(counts) == 11 and sum(counts) == 12


def test_a_concurrent_writer_loses_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Another program appends to the table, and compacts it, while an engine merges into it."""
    sink = sink_at(make_engine, tmp_path / "out", mode="upsert")
    write(make_engine, sink, results((1, 1)), 1)
    stopping, others, failures = threading.Event(), [0], list[BaseException]()

    def disturb() -> None:
        from deltalake.exceptions import CommitFailedError

        while not stopping.wait(0.05):
            rows = results((100 + others[0], 0)).append_column("query", pa.array(["other"]))
            try:
                append(tmp_path / "out", rows)
                others[0] += 1
                if others[0] % 5 == 0:
                    DeltaTable(tmp_path / "out").optimize.compact()
            except CommitFailedError:
                pass
            except BaseException as error:
                failures.append(error)
                raise

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        batch, deadline = 1, time.monotonic() + 120
        while (batch < 20 or others[0] < 6) and time.monotonic() < deadline:
            batch += 1
            write(make_engine, sink, results((1, batch), (2, batch)), batch)
    finally:
        stopping.set()
        thread.join()
    assert not failures and others[0] >= 6
    found = values(tmp_path / "out")
    assert [row for row in found if row[0] < 100] == [(1, batch), (2, batch)]
    assert len(found) == 2 + others[0]


def test_of_two_engines_that_write_the_same_batch_one_does(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """An engine that was paused while another one took over finds its batch in the table."""
    paused, successor = (sink_at(make_engine, tmp_path / "out") for _ in range(2))
    write(make_engine, paused, results((1, 1)), 1)
    write(make_engine, successor, results((2, 2)), 2)
    write(make_engine, paused, results((2, 2)), 2)
    write(make_engine, successor, results((3, 3)), 3)
    with pytest.raises(BatchError, match="has results of batches up to 3, and batch 2 comes after them"):
        write(make_engine, paused, results((2, 2)), 2)
    assert values(tmp_path / "out") == [(1, 1), (2, 2), (3, 3)]


def test_an_engine_without_the_lease_writes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    first = make_engine(tmp_path / "checkpoint")
    feed = first.feed("bids", "site int, ts timestamp", time="ts")
    first.register(COUNTS, "counts").sink("delta", tmp_path / "out")
    feed.push([(1, "2024-01-01 12:00:01"), (1, "2024-01-01 12:02:01")])
    reached: list[Any] = []

    def take_over(point: str) -> None:
        if point == "sink.create" and not reached:
            reached.append(make_engine(tmp_path / "checkpoint"))
            reached[0].feed("bids", "site int, ts timestamp", time="ts")
            reached[0]._loop.open()

    arm(take_over)
    try:
        with pytest.raises(StateError, match="another engine has taken over"):
            first.step()
    finally:
        arm(None)
        first.stop()
        reached[0].stop()
    assert not (tmp_path / "out").exists()


def test_other_checkpoints_append_to_the_same_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    """The batches of a checkpoint have numbers that another one has, too."""
    for name in ("one", "two"):
        with make_engine(tmp_path / name) as engine:
            feed = engine.feed("bids", "site int, ts timestamp", time="ts")
            engine.register(COUNTS, "counts").sink("delta", tmp_path / "out")
            feed.push([(1, "2024-01-01 12:00:01")])
            engine.drain()
    assert [row["n"] for row in table_rows(tmp_path / "out")] == [1, 1]


def test_small_files_are_compacted(make_engine: EngineFactory, tmp_path: Path) -> None:
    sink = sink_at(make_engine, tmp_path / "out", compact_batches=5)
    for batch in range(1, 13):
        write(make_engine, sink, results((batch, batch)), batch)
    assert len(DeltaTable(tmp_path / "out").file_uris()) == 3  # two batches after ten that were merged twice
    assert values(tmp_path / "out") == sorted(((n, n) for n in range(1, 13)), key=repr)


def test_a_compaction_that_fails_does_not_fail_the_batch(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from deltalake.table import TableOptimizer

    def fail(self: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(TableOptimizer, "compact", fail)
    sink = sink_at(make_engine, tmp_path / "out", compact_batches=2)
    with caplog.at_level(logging.WARNING, logger="transom"):
        for batch in (1, 2):
            write(make_engine, sink, results((batch, batch)), batch)
    assert "can't be compacted: the store is away" in caplog.text
    assert values(tmp_path / "out") == [(1, 1), (2, 2)]


def test_a_column_of_another_type_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    sink = sink_at(make_engine, tmp_path / "out")
    write(make_engine, sink, results((1, 1)), 1)
    rows = results((2, 2)).set_column(3, "n", pa.array(["two"]))
    with pytest.raises(WriteError, match=r"out can't be written: .*two"):
        write(make_engine, sink, rows, 2)
    assert values(tmp_path / "out") == [(1, 1)]


def test_properties_of_a_new_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    sink = sink_at(make_engine, tmp_path / "out", **{"delta.appendOnly": "true"})
    write(make_engine, sink, results((1, 1)), 1)
    assert DeltaTable(tmp_path / "out").metadata().configuration == {"delta.appendOnly": "true"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "mode: expected append or upsert, not merge"),
        ({"partition_by": "hour"}, "partition_by: expected day, not hour"),
        ({"compact_batches": 1}, "compact_batches: expected a whole number of at least 2, not 1"),
        ({"partiton_by": "day"}, "delta has no option partiton_by; did you mean partition_by?"),
        ({"aws_region": "eu"}, "delta has no option aws_region; it has mode, partition_by, compact_batches"),
    ],
)
def test_options_that_are_refused(
    make_engine: EngineFactory, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(SettingError) as raised:
        sink_at(make_engine, tmp_path / "out", **options)
    assert message in str(raised.value) and "?;" not in str(raised.value)


def test_what_else_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    append(tmp_path / "plain", bids((1, "12:00:01")))
    with pytest.raises(SettingError, match="needs a path"):
        make_engine.backend.sink("delta", {})
    with pytest.raises(
        SettingError, match=r"partition_by: day is for a new table, and .*plain is not partitioned"
    ):
        sink_at(make_engine, tmp_path / "plain", partition_by="day")
    with make_engine() as engine:
        engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(COUNTS, "counts")
        query.sink("delta", tmp_path / "out")
        with pytest.raises(SettingError, match="another sink of the same results writes to"):
            query.sink("delta", tmp_path / "out", mode="upsert")


def test_a_secret_is_in_no_message(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSOM_LAKE_KEY", "quite-secret-key")
    options = {
        "aws_access_key_id": "me",
        "aws_secret_access_key": "${env:TRANSOM_LAKE_KEY}",
        "aws_region": "eu-central-1",
        "endpoint": "http://127.0.0.1:1/quite-secret-key",
        "allow_http": True,
        "max_retries": 0,
    }
    with pytest.raises(StateError, match="s3://bucket/out can't be read") as raised:
        make_engine.backend.sink("delta", {"path": "s3://bucket/out"} | options)
    assert "quite-secret-key" not in str(raised.value)
    monkeypatch.delenv("TRANSOM_LAKE_KEY")
    with pytest.raises(
        SettingError, match="aws_secret_access_key: the environment variable TRANSOM_LAKE_KEY is not set"
    ):
        make_engine.backend.sink("delta", {"path": "s3://bucket/out"} | options)
