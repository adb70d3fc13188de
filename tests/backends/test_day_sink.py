"""Parquet files by day: the day of a result, merges, and attempts that fail at any moment."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transom
from tests.engine_factory import EngineFactory
from transom.backends import day_sink
from transom.backends.base import Backend, ResultKey, Sink
from transom.backends.day_sink import DayFile, files_to_merge
from transom.errors import BatchError, SettingError
from transom.storage.failpoints import FAILPOINTS, arm

INSTANT = pa.timestamp("us", tz="UTC")
KEY = ResultKey(("start", "end"), extent=("start", "end"))
NIGHT = datetime(2024, 1, 2, tzinfo=UTC)
COUNTS = "SELECT site, count(*) AS n FROM bids [RANGE 6 hours SLIDE 6 hours] GROUP BY site"


def results(*ends: datetime | None, n: int = 0, hours: int = 1, **more: pa.DataType) -> pa.Table:
    """Results of windows of some hours."""
    starts = [None if end is None else end - timedelta(hours=hours) for end in ends]
    columns = {
        "start": pa.array(starts, INSTANT),
        "end": pa.array(ends, INSTANT),
        "n": pa.array([n] * len(ends), pa.int64()),
        "made": pa.array([datetime(2030, 5, 5, tzinfo=UTC)] * len(ends), INSTANT),
    }
    return pa.table(columns | {name: pa.nulls(len(ends), kind) for name, kind in more.items()})


def content(place: Path) -> dict[str, list[int]]:
    """The values of `n` by directory."""
    return {
        directory.name: sorted(
            n for file in files_of(directory) for n in pq.read_table(file)["n"].to_pylist()
        )
        for directory in sorted(place.glob("*=*"))
    }


def values(place: Path) -> list[int]:
    """The values of `n` of all days."""
    return sorted(n for numbers in content(place).values() for n in numbers)


def files_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))


def by_day(backend: Backend, path: Path, **options: Any) -> Sink:
    return backend.sink("parquet", {"path": str(path), "partition_by": "day"} | options)


@pytest.mark.parametrize(
    ("table", "key", "directory"),
    [
        pytest.param(results(NIGHT), KEY, "day=2024-01-01", id="a window that ends at midnight"),
        pytest.param(
            results(NIGHT + timedelta(microseconds=1)),
            KEY,
            "day=2024-01-02",
            id="a window that ends just after",
        ),
        pytest.param(results(NIGHT, hours=0), KEY, "day=2024-01-02", id="a row at midnight"),
        pytest.param(results(None), KEY, "day=2030-05-05", id="a result without a time"),
        pytest.param(
            results(NIGHT), ResultKey(("n",), extent=("n", "n")), "day=2030-05-05", id="a window over numbers"
        ),
        pytest.param(
            results(datetime(1901, 1, 1, tzinfo=UTC)), KEY, "day=1900-12-31", id="a window before 1970"
        ),
        pytest.param(
            results(NIGHT),
            ResultKey(KEY.columns, extent=KEY.extent, day="transom_day"),
            "transom_day=2024-01-01",
            id="a query with a column day",
        ),
    ],
)
def test_the_day_of_a_result(
    backend: Backend, tmp_path: Path, table: pa.Table, key: ResultKey, directory: str
) -> None:
    by_day(backend, tmp_path / "out").write(backend.frame(table), 1, key)
    assert content(tmp_path / "out") == {directory: [0]}


@pytest.mark.backends("local", "spark")
def test_a_replayed_batch_replaces_its_files_of_all_days(backend: Backend, tmp_path: Path) -> None:
    """The repeated batch may have other results: a query that failed was suspended."""
    sink = by_day(backend, tmp_path / "out")
    assert sink.exactly_once
    sink.write(backend.frame(results(NIGHT, n=1)), 1, KEY)
    sink.write(backend.frame(results(NIGHT, NIGHT + timedelta(days=2), n=2)), 2, KEY)
    for again in (sink, by_day(backend, tmp_path / "out")):
        again.write(backend.frame(results(NIGHT, n=3)), 2, KEY)
        assert content(tmp_path / "out") == {"day=2024-01-01": [1, 3], "day=2024-01-03": []}


def test_files_are_merged_by_tiers_and_when_a_day_is_over(backend: Backend, tmp_path: Path) -> None:
    sink, day = by_day(backend, tmp_path / "out", merge_files=3), tmp_path / "out" / "day=2024-01-01"
    most = 0
    for batch in range(1, 31):
        sink.write(backend.frame(results(NIGHT, n=batch)), batch, KEY)
        most = max(most, len(files_of(day)))
    assert content(tmp_path / "out") == {day.name: list(range(1, 31))}
    assert most <= 8  # at most 2 of each tier after a merge, and the batch's own
    sink.write(backend.frame(results(NIGHT + timedelta(hours=1), n=31)), 31, KEY)
    assert [file.name for file in files_of(day)] == ["part-4-1-30.parquet"]
    sink.write(backend.frame(results(NIGHT, n=32)), 32, KEY)  # a straggler
    assert [file.name for file in files_of(day)] == ["part-0-32-32.parquet", "part-4-1-30.parquet"]
    sink.write(backend.frame(results(NIGHT + timedelta(days=3), n=33)), 33, KEY)
    assert [file.name for file in files_of(day)] == ["part-5-1-32.parquet"]
    assert values(tmp_path / "out") == list(range(1, 34))
    assert pq.read_metadata(files_of(day)[0]).num_row_groups == 1
    assert pq.read_table(tmp_path / "out").num_rows == 33  # readers skip what begins with an underscore


@pytest.mark.parametrize(
    ("files", "is_over", "chosen"),
    [
        ([], True, []),
        ([DayFile(0, 1, 1)], True, []),
        ([DayFile(0, 1, 1), DayFile(0, 2, 2)], False, []),
        ([DayFile(1, 4, 9), DayFile(1, 1, 3), DayFile(0, 10, 10)], False, []),
        ([DayFile(1, k, k) for k in (3, 2, 1)], False, [DayFile(1, k, k) for k in (1, 2, 3)]),
    ],
)
def test_which_files_are_merged(files: list[DayFile], is_over: bool, chosen: list[DayFile]) -> None:
    assert files_to_merge(files, 3, is_over) == chosen


def test_files_with_other_columns_are_merged_apart(backend: Backend, tmp_path: Path) -> None:
    sink = by_day(backend, tmp_path / "out", merge_files=4)
    for batch in range(1, 6):
        more = {"p": pa.float64()} if batch % 2 else {}
        sink.write(backend.frame(results(NIGHT, n=batch, **more)), batch, KEY)
    files = files_of(tmp_path / "out" / "day=2024-01-01")
    assert [file.name for file in files] == ["part-0-5-5.parquet", "part-1-1-3.parquet", "part-1-2-4.parquet"]
    assert content(tmp_path / "out") == {"day=2024-01-01": [1, 2, 3, 4, 5]}


def test_files_that_a_user_deletes_or_damages_do_not_stop_the_stream(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink, out = by_day(backend, tmp_path / "out", merge_files=3), tmp_path / "out"
    first, second = out / "day=2024-01-01", out / "day=2024-01-02"
    for batch in (1, 2, 3):
        sink.write(backend.frame(results(NIGHT, n=batch)), batch, KEY)
    (first / "part-0-1-1.parquet").unlink()
    sink.write(backend.frame(results(NIGHT, n=4)), 4, KEY)
    assert content(out) == {first.name: [2, 3, 4]} and len(files_of(first)) == 2
    (first / "part-0-4-4.parquet").write_bytes(b"damaged")
    for batch in (5, 6):
        sink.write(backend.frame(results(NIGHT, NIGHT + timedelta(days=1), n=batch)), batch, KEY)
    with caplog.at_level(logging.WARNING):
        sink.write(backend.frame(results(NIGHT + timedelta(days=2), n=7)), 7, KEY)
    assert "part-0-4-4.parquet can't be merged with others" in caplog.text
    assert [file.name for file in files_of(first)] == ["part-0-4-4.parquet", "part-2-2-6.parquet"]
    assert [file.name for file in files_of(second)] == [
        "part-1-5-6.parquet"
    ]  # other days are merged all the same
    (first / "part-0-4-4.parquet").unlink()
    for day in (1, 2, 3):
        sink.write(backend.frame(results(NIGHT + timedelta(days=2 + day), n=7 + day)), 7 + day, KEY)
    assert values(out) == [2, 3, 5, 5, 6, 6, 7, 8, 9, 10]


def test_a_checkpoint_that_is_older_than_merged_files_is_refused(backend: Backend, tmp_path: Path) -> None:
    sink = by_day(backend, tmp_path / "out", merge_files=2)
    for batch in (1, 2, 3):
        sink.write(backend.frame(results(NIGHT, n=batch)), batch, KEY)
    with pytest.raises(
        BatchError, match="batches up to 2, and batch 2 comes after them: the checkpoint is older"
    ):
        sink.write(backend.frame(results(NIGHT, n=2)), 2, KEY)


def test_files_are_on_disk_before_they_replace_others(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge deletes files only when the merged file and the plan of the merge are on disk."""
    synced: list[str] = []
    monkeypatch.setattr(day_sink, "sync_paths", lambda paths: synced.extend(map(str, paths)))
    events: list[tuple[str, list[str]]] = []
    sink, out = by_day(backend, tmp_path / "out", merge_files=2), tmp_path / "out"
    sink.sync = True
    arm(lambda point: events.append((point, [place.removeprefix(f"{out}/") for place in synced])))
    try:
        for batch in (1, 2, 3):
            synced.clear()
            sink.write(backend.frame(results(NIGHT, n=batch)), batch, KEY)
    finally:
        arm(None)
    assert [point for point, _ in events[-7:]] == [
        *("sink.create", "sink.rename", "sink.renamed"),
        *("merge.create", "merge.begin", "merge.rename", "merge.renamed"),
    ]
    places = dict(events[-7:])
    assert len(places["sink.rename"]) == 1  # the batch's file, under a name that readers skip
    placed = ["day=2024-01-01/part-0-3-3.parquet", "day=2024-01-01", str(out)]
    assert places["merge.create"][1:] == placed
    merged, plan, *directories = places["merge.begin"][4:]
    assert merged.startswith("_unfinished/") and plan.startswith("_unfinished/")
    assert directories == ["_unfinished", str(out)]
    assert places["merge.renamed"][8:] == ["day=2024-01-01"]


class Killed(BaseException):
    """Stands for a process that ends at a failpoint."""


def test_batches_that_are_killed_at_any_failpoint_are_written_exactly_once(
    backend: Backend, tmp_path: Path, seed: int
) -> None:
    """Each process is killed at a random failpoint of a random batch; the next one repeats that batch."""
    draw, deaths = Random(seed), Counter[str]()
    points = [point for point in FAILPOINTS if point.startswith(("sink.", "merge."))]
    wanted = list(range(1, 60))
    batch, sink = 1, by_day(backend, tmp_path / "out", merge_files=2)
    fatal = draw.choice(points)

    def die(point: str) -> None:
        if point == fatal and draw.random() < 0.5:
            deaths[point] += 1
            raise Killed

    arm(die)
    try:
        while batch in wanted:
            end = NIGHT + timedelta(hours=batch)
            try:
                sink.write(backend.frame(results(end, end + timedelta(days=1), n=batch)), batch, KEY)
                batch += 1
            except Killed:
                fatal = draw.choice(points)
                sink = by_day(backend, tmp_path / "out", merge_files=2)
    finally:
        arm(None)
    assert values(tmp_path / "out") == sorted(wanted * 2)
    assert deaths.total() >= 10


@pytest.mark.backends("local", "spark")
def test_an_engine_writes_days(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Results of a query and of all queries, over a batch that fails after delivery and is repeated."""

    def started() -> tuple[transom.Engine, Any, Any]:
        engine = make_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(COUNTS, "counts")
        engine.register("SELECT site AS day FROM bids WHERE site > 1", "rows")
        engine.register("SELECT count(*) AS n FROM bids [ROWS 2 SLIDE 2]", "by_rows")
        query.sink("parquet", tmp_path / "counts", partition_by="day", merge_files=2)
        engine.sink("parquet", tmp_path / "all", partition_by="day")
        return engine, feed, query

    def fail(point: str) -> None:
        if point == "delivery.end":
            raise OSError("the power is gone")

    engine, feed, query = started()
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for hour in range(0, 96, 3):
        feed.push([(hour % 3 + k, start + timedelta(hours=hour)) for k in range(3)])
        if hour % 24 == 12:
            arm(fail)
            with pytest.raises(OSError, match="power"):
                engine.step()
            arm(None)
            engine.stop()
            engine, feed, query = started()
        engine.step()
    with engine:
        engine.drain(close=True)
        expected = query.results().to_pylist()
        rows_expected = engine.query("rows").results().num_rows
        made = engine.query("by_rows").results()["made"].to_pylist()
    rows = pq.read_table(tmp_path / "counts").to_pylist()

    def identity(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["window_end"], row["site"], row["n"], row["batch"]

    assert Counter(map(identity, rows)) == Counter(map(identity, expected)) and len(rows) == 16 * 3
    for row in rows:
        assert str(row["day"]) == f"{row['window_end'] - timedelta(microseconds=1):%Y-%m-%d}"
    over = [files_of(place) for place in sorted((tmp_path / "counts").glob("day=*"))[:-1]]
    assert [len(files) for files in over] == [1, 1, 1]
    together = pq.read_table(tmp_path / "all").to_pylist()
    by_query = Counter(row["query"] for row in together)
    assert by_query == {"counts": len(expected), "rows": rows_expected, "by_rows": len(made)}
    for row in together:
        if row["query"] == "by_rows":
            assert str(row["day"]) == f"{row['made']:%Y-%m-%d}"


@pytest.mark.backends("local", "spark")
def test_results_by_day_are_a_static_table_of_another_engine(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """The table is read again after its files were merged."""
    backend = make_engine.backend
    sink = by_day(backend, tmp_path / "out", merge_files=3)
    sink.write(backend.frame(results(NIGHT, n=1)), 1, KEY)
    with make_engine() as engine:
        engine.table("days", str(tmp_path / "out/*/*.parquet"))
        feed = engine.feed("bids", "n bigint, ts timestamp", time="ts")
        query = engine.register(
            "SELECT count(*) AS found FROM bids [RANGE 1 minute SLIDE 1 minute], days WHERE days.n = bids.n"
        )
        for batch in range(2, 7):
            feed.push([(1, f"2024-02-01 12:0{batch}:00")])
            engine.step()
            sink.write(backend.frame(results(NIGHT, n=1)), batch, KEY)
            engine.refresh("days")
        engine.drain(close=True)
        counted = [row["found"] for row in query.results().sort_by("window_end").to_pylist()]
    assert counted == [1, 2, 3, 4, 5]


@pytest.mark.backends("local", "spark")
@pytest.mark.parametrize(
    ("format", "options", "says"),
    [
        ("parquet", {"partition_by": "hour"}, "partition_by: expected day, not hour"),
        ("json", {"partition_by": "day"}, "partition_by is for parquet: a sink of json has no such option"),
        ("parquet", {"merge_files": 9}, "merge_files needs partition_by: day"),
        ("parquet", {"partition_by": "day", "merge_files": 1}, "merge_files: expected .* at least 2, not 1"),
        (
            "parquet",
            {"partition_by": "day", "merge_file": 9},
            "no option merge_file; did you mean merge_files",
        ),
    ],
)
def test_wrong_options_are_refused(
    backend: Backend, tmp_path: Path, format: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingError, match=says):
        backend.sink(format, {"path": str(tmp_path / "out"), **options})


def test_a_path_belongs_to_one_layout_and_one_run(make_engine: EngineFactory, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="needs a path"):
        make_engine.backend.sink("parquet", {"partition_by": "day"})
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="needs a directory"):
        make_engine.backend.sink("parquet", {"path": str(tmp_path / "file"), "partition_by": "day"})
    (tmp_path / "old" / "batch=1").mkdir(parents=True)
    (tmp_path / "other" / "day=2024-01-01").mkdir(parents=True)
    with make_engine() as engine:
        with pytest.raises(SettingError, match="a directory for each batch"):
            engine.sink("parquet", tmp_path / "old", partition_by="day")
        with pytest.raises(SettingError, match="batches of another run"):
            engine.sink("parquet", tmp_path / "other", partition_by="day")
