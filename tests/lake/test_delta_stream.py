"""A table of Delta Lake as a stream and as a static table, on both backends."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.lake.conftest import append, bids, power_cut
from transom.backends.delta_table import DeltaCommit, DeltaLocation, DeltaReader
from transom.errors import SettingError, StateError
from transom.ingest.delta_source import DeltaSource, DeltaStreamOptions

COUNTS = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
SUMS = "SELECT sum(price) AS total, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour]"


def stream(engine: Any, place: Path, **options: Any) -> None:
    engine.stream("bids", str(place), format="delta", time="ts", options=options)


def counts(query: Any) -> list[tuple[Any, Any]]:
    return sorted(((row["site"], row["n"]) for row in query.results().to_pylist()), key=repr)


def source_of(make_engine: EngineFactory, place: Path, **options: Any) -> DeltaSource:
    table = DeltaReader(DeltaLocation(str(place), {}))
    return DeltaSource(make_engine.backend, table, DeltaStreamOptions(**options))


def taken(source: DeltaSource, batches: int = 1 << 30) -> list[list[Any]]:
    """The sites of each batch."""
    sites = []
    while len(sites) < batches and (batch := source.next(1)) is not None:
        reference = json.loads(json.dumps(batch.reference))
        again = source.read(reference).to_table()
        assert source.read(reference).to_table().equals(again)
        sites.append(again["site"].to_pylist())
        source.advance(reference)
    return sites


@ON_BOTH
def test_new_versions_are_read_in_their_order(make_engine: EngineFactory, tmp_path: Path) -> None:
    """The stream begins with the rows that are there, and goes on over a restart."""
    append(tmp_path / "bids", bids((1, "12:00:01"), (2, "12:00:02")))
    append(tmp_path / "bids", bids((1, "12:00:03")))
    with make_engine(tmp_path / "checkpoint") as engine:
        stream(engine, tmp_path / "bids")
        query = engine.register(COUNTS, "counts")
        assert engine.step() and engine.progress().streams["bids"].rows == 3
        append(tmp_path / "bids", bids((1, "12:00:04")))
        append(tmp_path / "bids", bids((3, "12:01:04")))
        assert engine.step(1) == 1 and engine.progress().streams["bids"].rows == 4
    DeltaTable(tmp_path / "bids").optimize.compact()
    append(tmp_path / "bids", bids((4, "12:02:04")))
    with make_engine(tmp_path / "checkpoint") as engine:
        stream(engine, tmp_path / "bids")
        query = engine.query("counts")
        engine.drain()
        assert engine.progress().streams["bids"].rows == 6
        assert counts(query) == [(1, 3), (2, 1), (3, 1), (4, 1)]


@ON_BOTH
@pytest.mark.parametrize("moment", ["log.renamed", "delivery.end", "state.rename"])
def test_a_batch_that_is_read_again_has_the_same_rows(
    make_engine: EngineFactory, tmp_path: Path, moment: str
) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01")))
    append(tmp_path / "bids", bids((2, "12:00:02"), (3, "12:00:03")))
    engine = make_engine(tmp_path / "checkpoint")
    stream(engine, tmp_path / "bids")
    engine.register(COUNTS, "counts")
    with power_cut(moment):
        engine.step()
    engine.stop()
    append(tmp_path / "bids", bids((4, "12:00:04")))
    DeltaTable(tmp_path / "bids").optimize.compact()
    with make_engine(tmp_path / "checkpoint") as engine:
        stream(engine, tmp_path / "bids")
        engine.drain()
        assert counts(engine.query("counts")) == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_batch_has_files_of_one_version(make_engine: EngineFactory, tmp_path: Path) -> None:
    """A version with many files is several batches; a restart continues in the middle of it."""
    place = tmp_path / "by_site"
    append(place, bids(*((site, "12:00:01") for site in range(5))), partition_by=["site"])
    append(place, bids(*((site, "12:00:01") for site in range(5, 8))), partition_by=["site"])
    source = source_of(make_engine, place, starting_version="0", most_files=2)
    first = taken(source, 2)
    resumed = source_of(make_engine, place, starting_version="0", most_files=2)
    resumed.resume(json.loads(json.dumps(source.progress())))
    rest = taken(resumed)
    assert [len(batch) for batch in first + rest] == [2, 2, 1, 2, 1]
    assert sorted(chain(*first, rest[0])) == [0, 1, 2, 3, 4]
    assert sorted(chain(*rest[1:])) == [5, 6, 7]
    small = source_of(make_engine, place, most_bytes=1)
    assert sorted(map(len, taken(small))) == [1] * 8
    (whole,) = taken(source_of(make_engine, place))
    assert sorted(whole) == list(range(8))


def test_where_a_stream_starts(make_engine: EngineFactory, tmp_path: Path) -> None:
    for site in range(4):
        append(tmp_path / "bids", bids((site, "12:00:01")))
    assert [sorted(batch) for batch in taken(source_of(make_engine, tmp_path / "bids"))] == [[0, 1, 2, 3]]
    assert taken(source_of(make_engine, tmp_path / "bids", starting_version="2")) == [[2], [3]]
    latest = source_of(make_engine, tmp_path / "bids", starting_version="latest")
    assert taken(latest) == []
    append(tmp_path / "bids", bids((9, "12:00:01")))
    assert taken(latest) == [[9]]


def test_a_version_that_removes_rows_is_an_error_unless_it_is_left_out(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01"), (2, "12:00:02")))
    with make_engine(tmp_path / "checkpoint") as engine:
        stream(engine, tmp_path / "bids")
        engine.register(COUNTS, "counts")
        engine.step()
        DeltaTable(tmp_path / "bids").delete("site = 2")
        append(tmp_path / "bids", bids((3, "12:00:03")))
        with pytest.raises(StateError, match=r"version 1 of .* \(DELETE\) removes or changes rows") as raised:
            engine.step()
        assert "set skipChangeCommits: true" in str(raised.value)
    with (
        caplog.at_level(logging.WARNING, logger="transom"),
        make_engine(tmp_path / "checkpoint") as engine,
    ):
        stream(engine, tmp_path / "bids", skipChangeCommits=True)
        engine.drain()
        assert counts(engine.query("counts")) == [(1, 1), (2, 1), (3, 1)]
    assert "(DELETE) removes or changes rows: it is left out" in caplog.text


def test_columns_of_partitions(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Values of all types, with nulls and characters that addresses escape, in the snapshot and in versions."""
    rows = pa.table(
        {
            "text": ["x y", "ü", "a/b", None, "a%20b", "a=b"],
            "number": pa.array([1.5, None, 2, 3, 4, 5]),
            "at": pa.array([datetime(2024, 1, 1, 1, 2, 3, 456, tzinfo=UTC)] * 6, pa.timestamp("us", "UTC")),
            "flag": [True, False, None, True, True, True],
            "day": pa.array([datetime(2024, 1, day) for day in range(1, 7)]).cast(pa.date32()),
            "amount": pa.array([1, 2, 3, 4, 5, None], pa.int32()).cast(pa.decimal128(12, 2)),
            "site": range(6),
        }
    )
    names = rows.column_names[:-1]
    write_deltalake(tmp_path / "a place", rows, partition_by=names)
    write_deltalake(tmp_path / "a place", rows, mode="append")
    table = DeltaReader(DeltaLocation(str(tmp_path / "a place"), {}))
    wanted = sorted(rows.to_pylist(), key=lambda row: row["site"])
    commit = table.commit(1)
    assert commit is not None and not commit.removes and len(commit.added) == 6
    for files, times in ((commit.added, 1), (table.snapshot(1), 2)):
        found = sorted(table.rows(files).to_pylist(), key=lambda row: row["site"])
        assert found == [row for row in wanted for _ in range(times)]


def test_a_new_column_is_read_after_a_restart(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01")))
    with caplog.at_level(logging.WARNING, logger="transom"):
        source = source_of(make_engine, tmp_path / "bids", starting_version="0")
        rows = bids((2, "12:00:02")).append_column("tip", pa.array([5]))
        append(tmp_path / "bids", rows, schema_mode="merge")
        assert taken(source) == [[1], [2]]
    assert "has a new column tip: restart the engine to read it" in caplog.text
    again = source_of(make_engine, tmp_path / "bids", starting_version="0")
    tips = []
    while (batch := again.next(1)) is not None:
        tips += again.read(batch.reference).to_table()["tip"].to_pylist()
        again.advance(batch.reference)
    assert tips == [None, 5]


def test_what_the_log_or_vacuum_has_deleted_is_reported(make_engine: EngineFactory, tmp_path: Path) -> None:
    for site in range(3):
        append(tmp_path / "bids", bids((site, "12:00:01")))
    source = source_of(make_engine, tmp_path / "bids", starting_version="0")
    assert taken(source, 1) == [[0]]
    DeltaTable(tmp_path / "bids").optimize.compact()
    DeltaTable(tmp_path / "bids").vacuum(0, dry_run=False, enforce_retention_duration=False)
    batch = source.next(1)
    assert batch is not None
    with pytest.raises(StateError, match="is gone: VACUUM deletes files that newer versions do not need"):
        source.read(batch.reference)
    DeltaTable(tmp_path / "bids").create_checkpoint()
    for log in sorted((tmp_path / "bids/_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    lost = source_of(make_engine, tmp_path / "bids", starting_version="2")
    with pytest.raises(StateError, match=r"version 2 of .* is not in its log any more, and the newest is 5"):
        lost.next(1)


def test_a_view_and_its_condition(make_engine: EngineFactory, tmp_path: Path) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01"), (2, "12:00:02"), price=250.0))
    with make_engine() as engine:
        engine.stream(
            "bids",
            format="delta",
            options={"path": str(tmp_path / "bids")},
            time="ts",
            select="SELECT ts, price / 100 AS price FROM bids WHERE site = 2",
        )
        query = engine.register(SUMS)
        engine.drain()
        assert [(row["total"], row["n"]) for row in query.results().to_pylist()] == [(2.5, 1)]


def test_the_sink_of_one_engine_is_the_stream_of_another(make_engine: EngineFactory, tmp_path: Path) -> None:
    with make_engine() as first:
        feed = first.feed("bids", "site int, price double, ts timestamp", time="ts")
        first.register(COUNTS, "counts").sink("delta", tmp_path / "counts", partition_by="day")
        for minute in range(4):
            feed.push([(1, 1.0, f"2024-01-01 12:{minute:02}:01"), (2, 1.0, f"2024-01-01 12:{minute:02}:01")])
            first.step()
        first.drain()
    with make_engine() as second:
        stream_options = {"startingVersion": 0}
        second.stream(
            "counts", tmp_path / "counts", format="delta", time="window_end", options=stream_options
        )
        query = second.register("SELECT sum(n) AS n FROM counts [RANGE 1 hour SLIDE 1 hour]")
        second.drain()
        assert sum(row["n"] for row in query.results().to_pylist()) == 8


@ON_BOTH
def test_a_static_table_is_read_again_when_it_has_a_new_version(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "sites")
    write_deltalake(place, pa.table({"site": pa.array([1], pa.int32()), "city": ["Oslo"]}))
    with make_engine(tmp_path / "checkpoint") as engine:
        engine.table("sites", place, format="delta")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(
            "SELECT city, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute], sites "
            "WHERE bids.site = sites.site GROUP BY city"
        )
        feed.push([(1, "2024-01-01 12:00:01")])
        engine.step()
        scans = [0]
        scan = DeltaTable.scan

        def count(self: DeltaTable, *given: Any, **more: Any) -> Any:
            scans[0] += 1
            return scan(self, *given, **more)

        monkeypatch.setattr(DeltaTable, "scan", count)
        assert not engine.refresh("sites") and scans == [0]  # the version is the same, so no row is read
        write_deltalake(
            place, pa.table({"site": pa.array([1], pa.int32()), "city": ["Rome"]}), mode="overwrite"
        )
        assert engine.refresh("sites") and not engine.refresh("sites") and scans == [1]
        feed.push([(1, "2024-01-01 12:01:01")])
        engine.drain()
        assert [row["city"] for row in query.results().sort_by("window_end").to_pylist()] == ["Oslo", "Rome"]
        engine.table("before", place, format="delta", options={"versionAsOf": 0})
        assert not engine.refresh("before")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingVersion": "first"},
            "startingVersion: expected the number of a version or latest, not first",
        ),
        ({"skipChangeCommits": "maybe"}, "skipChangeCommits: expected true or false, not maybe"),
        ({"maxFilesPerTrigger": 0}, "maxFilesPerTrigger: expected a whole number of at least 1, not 0"),
        ({"maxBytesPerTrigger": "1t"}, "maxBytesPerTrigger: expected a number of bytes such as 128m, not 1t"),
        ({"startingVersions": 1}, "delta has no option startingVersions; did you mean startingVersion?"),
    ],
)
def test_options_that_are_refused(
    make_engine: EngineFactory, tmp_path: Path, options: Any, message: str
) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01")))
    with make_engine() as engine, pytest.raises(SettingError) as raised:
        stream(engine, tmp_path / "bids", **options)
    assert message in str(raised.value)


def test_what_else_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    append(tmp_path / "bids", bids((1, "12:00:01")))
    place = str(tmp_path / "bids")
    with make_engine() as engine:
        with pytest.raises(SettingError, match="there is no table of Delta Lake at"):
            stream(engine, tmp_path / "nothing")
        with pytest.raises(SettingError, match="leave out schema"):
            engine.stream("bids", place, format="delta", time="ts", schema="site int")
        with pytest.raises(SettingError, match="leave out decode"):
            engine.stream("bids", place, format="delta", time="ts", decode="json")
        with pytest.raises(SettingError, match="needs a path"):
            engine.stream("bids", format="delta", time="ts")
        with pytest.raises(SettingError, match="versionAsOf: expected the number of a version, not last"):
            engine.table("sites", place, format="delta", options={"versionAsOf": "last"})


def test_a_table_with_deletion_vectors_is_not_a_stream() -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors", "timestampNtz"],
    }
    log = json.dumps({"protocol": protocol}).encode()
    with pytest.raises(StateError, match="can't read a table of Delta Lake with deletionVectors"):
        DeltaCommit.parse(0, log)
