"""Small streams, a clock that tests set, and results in a shape that reads well in an assertion."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import transom
from tests.engine_factory import EngineFactory
from transom.durations import parse_instant
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord
from transom.state.state import State
from transom.storage.file_store import Store

BIDS = "site int, price double, ts timestamp"
PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
PER_MINUTE = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]"
MINUTE = 60_000_000


class SettableClock:
    """Tells the time that a test sets, in microseconds."""

    def __init__(self, now: str | int = "2013-01-01 12:00"):
        self.now = parse_instant(now)

    def __call__(self) -> int:
        return self.now

    def advance(self, minutes: float) -> None:
        self.now += int(minutes * MINUTE)


def at(time: str) -> str:
    """A time of day on the day on which all tests play; a full timestamp as it is."""
    return time if "-" in time else f"2013-01-01 {time}"


def bids(*rows: tuple[Any, Any, str | None]) -> list[tuple[Any, ...]]:
    """Rows of a site, a price and a time of day."""
    return [(site, price, None if time is None else at(time)) for site, price, time in rows]


def bids_table(*rows: tuple[Any, Any, str | None]) -> pa.Table:
    """The same as an Arrow table."""
    sites, prices, times = zip(*bids(*rows), strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "site": pa.array(sites, pa.int32()),
            "price": pa.array(prices, pa.float64(), from_pandas=False),
            "ts": pa.array([None if t is None else parse_instant(t) for t in times], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
        }
    )


def bids_files(directory: Path, *batches: Sequence[tuple[Any, Any, str | None]]) -> Path:
    """The same as Parquet files, one for each batch; names and times tell their order."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, batch_id in enumerate(batches):
        file = directory / f"{number:04d}.parquet"
        pq.write_table(bids_table(*batch_id), file)
        os.utime(file, (1_357_000_000 + number,) * 2)  # files of one time are read in any order
    return directory


def written(place: Path, format: str = "parquet") -> list[dict[str, Any]]:
    """The rows that a sink wrote, with the batch that their directory is named for; CSV has texts."""
    if format == "parquet":
        return pq.read_table(place).to_pylist()
    rows: list[dict[str, Any]] = []
    for file in sorted(place.glob(f"**/*.{format}")):
        with file.open(encoding="utf-8", newline="") as lines:
            records = csv.DictReader(lines) if format == "csv" else map(json.loads, lines)
            batch = int(file.parent.name.removeprefix("batch="))
            rows += [{**record, "batch": batch} for record in records]
    return rows


def bids_engine(make_engine: EngineFactory, tmp_path: Path, **options: Any) -> tuple[transom.Engine, Any]:
    """An engine with a feed of bids."""
    own = {name: options.pop(name) for name in list(options) if name in ENGINE_OPTIONS}
    engine = make_engine(str(tmp_path / "checkpoint"), **own)
    return engine, engine.feed("bids", options.pop("schema", BIDS), time="ts", **options)


ENGINE_OPTIONS = {"state", "clock", "limits", "passes", "retention", "strategy", "poll", "max_failures"}


def committed(place: Path) -> tuple[State, CommitRecord]:
    """What the checkpoint of an engine under a directory holds after its last batch."""
    return BatchLog(Store(place / "checkpoint")).last() or (State(), CommitRecord("local"))


def begun(place: Path) -> BatchIntent | None:
    """The batch that was begun and not committed there."""
    return BatchLog(Store(place / "checkpoint")).intent(committed(place)[0].batch_id + 1)


def short(value: Any) -> Any:
    """Times of the tests' day as hours and minutes, everything else as it is."""
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        clock = f"{plain:%H:%M}" if not (plain.second or plain.microsecond) else f"{plain:%H:%M:%S}"
        return clock if plain.date() == date(2013, 1, 1) else f"{plain:%Y-%m-%d} {clock}"
    return value


def answers(query: Any, *columns: str) -> list[tuple[Any, ...]]:
    """A query's results in order: the ends of the window, then the named columns (all of the SELECT list)."""
    table = query if isinstance(query, pa.Table) else query.results()
    names = table.column_names
    system = ("kind", "complete", "rows", "late", "batch", "made", "latency")
    shown = list(columns) or [n for n in names if n not in system]
    if columns:
        shown = ["window_start", "window_end", *columns]
    rows = [tuple(short(row[name]) for name in shown) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, 0 if value is None else value) for value in row])


def accounted(engine: transom.Engine, stream: str = "bids") -> dict[str, int]:
    """Where the rows of a stream went; they have to add up."""
    own = engine.progress().streams[stream]
    assert own.rows == own.counted + own.unwanted + own.late + own.rejected + own.sidelined + own.shed, own
    return {name: getattr(own, name) for name in ("rows", "counted", "unwanted", "late", "rejected")}


def another_batch(engine: transom.Engine) -> None:
    """Run a batch that brings nothing: files that the state before it does not need are deleted with it."""
    before = engine.progress().batch_id
    engine.step(empty=True)
    assert engine.progress().batch_id == before + 1
