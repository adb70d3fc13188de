"""The status of streams, their late and rejected rows, and the problems of their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from transom.api.errors import NotFound
from transom.api.records import InputPartition, LateOfQuery, QueryStatus, StreamDetail, StreamStatus
from transom.backends.file_problems import Problem
from transom.durations import format_duration
from transom.errors import near_miss
from transom.ingest.streams import StreamInfo
from transom.runtime.progress import StreamProgress
from transom.runtime.watermark_progress import share_text
from transom.server.engine_monitor import EngineMonitor
from transom.server.query_description import sql_type

RECORDING_SECONDS = 366 * 24 * 3600.0  # a stream that is further behind is a recording and has no lag


class StreamReports:
    """Reports on the streams of an engine."""

    def __init__(self, monitor: EngineMonitor):
        self.monitor, self.engine, self.history = monitor, monitor.engine, monitor.history

    def statuses(self, queries: Iterable[QueryStatus]) -> list[StreamStatus]:
        """The status of every stream; `queries` are counted as their readers."""
        progress = self.monitor.progress().streams
        readers = Counter(stream for query in queries for stream in query.streams)
        return [
            self._status(info, progress[name], readers[name])
            for name, info in self.engine.streams().items()
            if name in progress
        ]

    def _status(self, info: StreamInfo, progress: StreamProgress, readers: int) -> StreamStatus:
        unit = 1e6 if progress.is_time else 1
        delay = lag = None
        if progress.high is not None and progress.watermark is not None:
            delay = max(progress.high - progress.watermark, 0) / unit
        if progress.is_time and progress.high is not None and info.now is not None:
            lag = max(info.now - progress.high, 0) / 1e6
        return StreamStatus(
            name=info.name,
            columns={column: sql_type(kind) for column, kind in info.columns.items()},
            time=info.rules.clock.attribute,
            is_time=progress.is_time,
            slack=_slack_of(info, progress),
            queries=readers,
            rows=progress.rows,
            counted=progress.counted,
            unwanted=progress.unwanted,
            late=progress.late,
            rejected=progress.rejected,
            sidelined=progress.sidelined,
            shed=progress.shed,
            high=progress.high,
            watermark=progress.watermark,
            watermark_delay=delay,
            lag=None if lag is None or lag > RECORDING_SECONDS else lag,
            open_windows=progress.open_windows,
            rate=self.history.rate(info.name),
            rates=self.history.rates(info.name),
            finished=info.finished,
            unreadable_files=progress.file_problems.get(Problem.UNREADABLE, 0),
            missing_columns=progress.file_problems.get(Problem.MISSING_COLUMN, 0),
            new_columns=progress.file_problems.get(Problem.NEW_COLUMN, 0),
            rewritten_files=progress.file_problems.get(Problem.REWRITTEN, 0),
            slack_target=progress.clocks.target,
            slack_now=None if progress.clocks.slack is None else progress.clocks.slack / unit,
            in_time=progress.clocks.in_time,
            wanted_in_time=_wanted_in_time(progress),
            clocks=progress.clocks.clocks,
            derived_from=info.derived_from,
        )

    def detail(self, name: str, queries: Sequence[QueryStatus]) -> StreamDetail:
        """The status of a stream, how far its source was read, and what its queries missed."""
        self.check_name(name)
        info, progress = self.engine.streams()[name], self.monitor.progress().streams.get(name)
        if progress is None:
            raise NotFound(f"the stream {name} has no status yet")
        readers = [query for query in queries if name in query.streams]
        status, source = self._status(info, progress, len(readers)), info.source
        late = sorted(readers, key=lambda query: -query.late)
        return StreamDetail(
            **vars(status),
            source=source.kind,
            files_read=source.files_read,
            files_waiting=source.files_waiting,
            rows_waiting=source.rows_waiting,
            partitions=tuple(
                InputPartition(each.name, each.offset, each.latest) for each in source.partitions
            ),
            late_by_query=tuple(LateOfQuery(query.name, query.late, query.rows) for query in late),
            horizon=None if info.rules.horizon is None else _slack_text(info.rules.horizon, progress.is_time),
            idle=None if info.rules.idle is None else format_duration(info.rules.idle),
            watermark_by=info.rules.group,
            slowest=progress.clocks.slowest,
        )

    def late(self, stream: str, limit: int) -> pa.Table:
        """The newest late rows, the newest last."""
        self.check_name(stream)
        return _newest(self.engine.late(stream), limit)

    def rejected(self, stream: str, limit: int) -> pa.Table:
        """The newest rows without a usable time, the newest last."""
        self.check_name(stream)
        return _newest(self.engine.rejected(stream), limit)

    def file_problems(self, stream: str, limit: int) -> pa.Table:
        """The newest problems of a stream's files, the newest last."""
        self.check_name(stream)
        return _newest(self.engine.file_problems(stream), limit)

    def check_name(self, name: str) -> None:
        """Refuse a name that no stream has."""
        names = self.engine.streams()
        if name not in names:
            raise NotFound(f"there is no stream named {name}{near_miss(name, names)}")


def _slack_of(info: StreamInfo, progress: StreamProgress) -> str:
    clocks = progress.clocks
    if clocks.target is None or clocks.slack is None:
        return _slack_text(info.rules.slack, progress.is_time)
    return f"{clocks.slack_text(progress.is_time)}, learned for {share_text(clocks.target)}"


def _wanted_in_time(progress: StreamProgress) -> float | None:
    """The share of the rows that queries want that no query missed."""
    wanted = progress.counted + progress.late
    return progress.counted / wanted if wanted else None


def _slack_text(slack: int | None, is_time: bool) -> str:
    if slack is None:
        return "none"
    return format_duration(slack) if is_time else f"{slack:,}"


def _newest(table: pa.Table, limit: int) -> pa.Table:
    return table.slice(max(table.num_rows - limit, 0))
