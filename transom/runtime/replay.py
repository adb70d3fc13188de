"""A recorded stream, delivered by its timestamps: the thesis's Streamer as a source (sections 4.1 and 6.1).

The recording is put into the order of its delivery once, and kept so under the checkpoint: a batch is
a range of that order, and an engine that continues delivers what was not delivered yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.backends.base import Backend, Frame
from transom.backends.hidden_columns import TIME_TEXT
from transom.columns.types import Columns
from transom.durations import parse_duration, parse_instant
from transom.errors import SettingError, StateError, near_miss
from transom.ingest.sources import (
    SAMPLED_ROWS,
    FileSource,
    NextBatch,
    Reference,
    Source,
    SourceStatus,
    visible,
    with_time,
)
from transom.runtime.options import declared_column
from transom.runtime.streamer import Streamer
from transom.runtime.watermark_options import WATERMARK_DEFAULTS
from transom.storage.file_store import Store

ARRIVAL = "_arrival"  # when a row is delivered, in microseconds of the recording's own time
WRITTEN_WITH = b"transom"  # what a recording's order depends on, in the metadata of its file


class StreamOptions(TypedDict, total=False):
    """Options of a replay that any stream has."""

    slack: Any
    horizon: Any
    max_ahead: Any
    idle: Any
    punctuation: str | None
    overload: str | None
    budget: int | str | None
    share: int
    prod: str | None
    retain: Any
    partition: str | None
    partition_idle: Any
    watermark_by: str | None
    watermark_clocks: int
    slack_start: Any
    slack_min: Any
    slack_max: Any


class ReplayOptions(StreamOptions, total=False):
    """Options of `engine.replay`: how rows are delivered, what any stream has, and how files are read."""

    speed: float
    delay: Any
    delays: str
    burst: Any
    seed: int
    start: Any
    batch: Any
    format: str | None
    schema: str | None
    options: Mapping[str, Any] | None


DEFAULTS: dict[str, Any] = {
    "speed": 1.0,
    "delay": None,
    "delays": "uniform",
    "burst": None,
    "seed": 0,
    "start": None,
    "batch": "100 ms",
    "slack": "default",
    "horizon": "default",
    "max_ahead": "default",
    "idle": None,
    "punctuation": None,
    "prod": None,
    "overload": None,
    "budget": None,
    "share": 3,
    "retain": None,
    **WATERMARK_DEFAULTS,
    "format": None,
    "schema": None,
    "options": None,
}


class ReplaySource(Source):
    """Rows of a recording, each when it is due on the engine's clock."""

    kind = "recording"

    def __init__(
        self,
        backend: Backend,
        columns: Columns,
        rows: pa.Table,
        clock: Callable[[], int],
        speed: float,
        step: int,
    ):
        self.backend, self.speed, self.step, self._clock = backend, speed, step, clock
        self._columns, self._rows = columns, rows.drop_columns([ARRIVAL])
        self._arrivals = rows[ARRIVAL].to_numpy()
        first = int(self._arrivals[0]) if len(self._arrivals) else 0
        self._delivered, self._reached = 0, first  # as of the last batch
        self._begun = first  # where this engine began
        self._since: int | None = None  # the clock at that moment
        self._hurried = False

    @property
    def columns(self) -> Columns:
        return self._columns

    def next(self, batch_id: int) -> NextBatch | None:
        moment = self._due()
        until = int(np.searchsorted(self._arrivals, moment, "right"))
        if until <= self._delivered:
            return None
        rows = until - self._delivered
        return NextBatch({"replay": [self._delivered, until], "moment": moment, "rows": rows})

    def status(self) -> SourceStatus:
        return SourceStatus(self.kind, rows_waiting=len(self._arrivals) - self._delivered)

    def sample(self) -> Frame | None:
        """The rows that were delivered last; before the first ones, those that come first."""
        first = max(0, self._delivered - SAMPLED_ROWS)
        rows = self._rows.slice(first, self._delivered - first or SAMPLED_ROWS)
        return self.backend.frame(rows) if rows.num_rows else None

    def _due(self) -> int:
        """How far the recording is now: a whole number of batches from where this engine began it."""
        if self._hurried:
            return int(self._arrivals[-1]) if len(self._arrivals) else 0
        if self._since is None:
            self._since = self._clock()
        batches = max((self._clock() - self._since) // self.step, 0)
        return self._begun + int(batches * self.step * self.speed)

    @property
    def finished(self) -> bool:
        return self.delivered == self.rows

    def now(self, clock: int) -> int | None:
        if self.finished or self._since is None:
            return None
        return self._begun + int(max(clock - self._since, 0) * self.speed)

    def hurry(self) -> None:
        self._hurried = True

    def read(self, reference: Reference) -> Frame:
        start, stop = reference["replay"]
        return self.backend.frame(self._rows.slice(start, stop - start))

    def advance(self, reference: Reference) -> None:
        self._delivered, self._reached = reference["replay"][1], reference["moment"]

    def progress(self) -> Any:
        return {"delivered": self._delivered, "moment": self._reached}

    def resume(self, progress: Any) -> None:
        """Go on where it was, from now on: the time that the engine was down does not count."""
        self._delivered = progress["delivered"]
        self._begun = self._reached = progress["moment"]

    @property
    def rows(self) -> int:
        return self._rows.num_rows

    @property
    def delivered(self) -> int:
        return self._delivered


class Replay:
    """A recording that is being delivered."""

    def __init__(self, name: str, source: ReplaySource):
        self.name, self._source = name, source

    def __repr__(self) -> str:
        return f"<replay {self.name}>"

    @property
    def rows(self) -> int:
        """How many rows the recording has."""
        return self._source.rows

    @property
    def delivered(self) -> int:
        """How many of them were processed so far."""
        return self._source.delivered

    @property
    def finished(self) -> bool:
        """Whether all of them were."""
        return self._source.finished


def replay_source(
    backend: Backend,
    store: Store,
    name: str,
    recording: Any,
    time: str,
    clock: Callable[[], int],
    given: ReplayOptions,
) -> tuple[ReplaySource, dict[str, Any]]:
    """The source that `engine.replay` declares, and the options that any stream has."""
    options: dict[str, Any] = DEFAULTS | _known(given)
    speed = options["speed"]
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 < speed < float("inf"):
        raise SettingError(f"speed is a factor above 0, such as 60 for a minute in a second, not {speed!r}")
    step = parse_duration(options["batch"])
    if step <= 0:
        raise SettingError(f"batch must be a positive duration, not {options['batch']!r}")
    streamer = Streamer.of(*(options[key] for key in ("delay", "delays", "burst", "seed")))
    start = None if options["start"] is None else parse_instant(options["start"], backend.time_zone)
    columns, read = _opened(backend, recording, options)
    column = declared_column(name, time, visible(columns))
    path = f"replays/{name}.arrow"
    written_with = json.dumps([column, start, *vars(streamer).values()]).encode()
    if store.exists(path):
        rows = store.read_table(path)
        if (rows.schema.metadata or {}).get(WRITTEN_WITH) != written_with:
            raise StateError(f"the replay of {name} was begun with another time, start, delay, burst or seed")
    else:
        rows = _ordered(name, read(column), column, streamer, start)
        rows = rows.replace_schema_metadata({WRITTEN_WITH: written_with})
        store.write_table(path, rows)
    stream_options = {key: options[key] for key in StreamOptions.__annotations__}
    return ReplaySource(backend, columns, rows, clock, float(speed), step), stream_options


def _known(given: ReplayOptions) -> dict[str, Any]:
    for name in given:
        if name not in DEFAULTS:
            raise SettingError(f"a replay has no option {name}{near_miss(name, DEFAULTS)}")
    return dict(given)


def _opened(
    backend: Backend, recording: Any, options: Mapping[str, Any]
) -> tuple[Columns, Callable[[str], pa.Table]]:
    """The columns of a recording, and a function that reads it with its times parsed into `ARRIVAL`."""
    frame, form = backend.input_of(recording), None
    if frame is None:
        given = (options.get("format"), options.get("schema"), dict(options["options"] or {}))
        files = backend.open_files(str(recording), *given)
        names = [file for batch in files.pending() for file in batch]
        if not names:
            raise SettingError(f"no files in {recording}: there is nothing to replay")
        source = FileSource(files)
        frame, columns, form = source.read({"files": names}), source.columns, source.time_format
    elif isinstance(frame, Frame):
        columns = frame.columns
    else:
        raise SettingError("a recording has an end: a streaming DataFrame can't be replayed")
    rows: Frame = frame

    def read(time: str) -> pa.Table:
        table = with_time(rows, time, form).to_table()
        times = table[time]
        if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
            raise SettingError(f"the column {time} is {times.type}: a recording is delivered by its times")
        if TIME_TEXT in table.column_names:  # batches are parsed like those of any other source
            table = table.set_column(table.column_names.index(time), time, table[TIME_TEXT])
        return table.select(list(columns)).append_column(
            ARRIVAL, times.cast(pa.timestamp("us")).cast(pa.int64())
        )

    return columns, read


def _ordered(name: str, rows: pa.Table, time: str, streamer: Streamer, start: int | None) -> pa.Table:
    """The rows in the order of delivery; one without a time comes with the one recorded before it."""
    times = rows[ARRIVAL]
    if rows.num_rows and times.null_count == rows.num_rows:
        raise SettingError(f"no row of the recording {name} has a time in {time}")
    filled = pc.fill_null_backward(pc.fill_null_forward(times)).to_numpy()
    arrivals = streamer.arrivals(filled)
    order = np.argsort(arrivals, kind="stable")
    if start is not None:
        order = order[filled[order] >= start]
    rows = rows.set_column(rows.num_columns - 1, ARRIVAL, pa.array(arrivals))
    return rows.take(pa.array(order)).combine_chunks()
