"""Lookups of windows in the past, from the rows that a stream retains.

Only files with rows of the window's time are read, and only the columns that the query needs. A window of a query
with SLIDE has the rows that were in time for it; one of a query without SLIDE all rows that were accepted, as in
any other lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.durations import format_instant
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import BatchError, SettingError, TransomError
from transom.ingest.streams import Stream
from transom.ondemand.lookup import bound_type, lookup_schema
from transom.ondemand.structures.group_index import match_pattern
from transom.ondemand.structures.runs import GroupPattern
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.explain.text_parts import counted
from transom.results.newest_results import ResultPlaces, newest_results
from transom.results.result_rows import result_schema
from transom.runtime.batch_replay import BatchReplay, ReplaySlices
from transom.runtime.loop import BatchLoop
from transom.runtime.past_queries import refuse_past
from transom.runtime.slice_tiers import slices_between
from transom.sql.query import Query, free_name
from transom.state.retained_rows import RetainedBatch, RetainedFile, RetainedRows
from transom.state.state import State
from transom.windows import ids as windows
from transom.windows.closed_time import Closed
from transom.windows.intervals import HIGHEST, IntervalSet

ROWS_OF_RUN = 500_000  # most rows of batches that are aggregated together: no live batch waits for them


@dataclass(frozen=True)
class PastWindow:
    """A query and the window `[start, end)` to answer from retained rows; `where` is a pattern on the groups."""

    query: CompiledQuery
    start: int
    end: int
    where: GroupPattern = ()

    @classmethod
    def before(cls, query: CompiledQuery, at: int, where: GroupPattern) -> PastWindow:
        """The last window of a query with SLIDE that ends at a moment or before."""
        spec = query.query.window
        wid = windows.last_ended(spec, at)
        return cls(query, windows.window_start(spec, wid), windows.window_end(spec, wid), where)

    @property
    def clock(self) -> Clock:
        """The clock of the window."""
        return self.query.clock

    @property
    def shown(self) -> str:
        """The window as text."""
        is_time = self.clock.kind is ClockKind.TIME
        start, end = (format_instant(time) if is_time else f"{time:,}" for time in (self.start, self.end))
        return f"the window from {start} to {end}"

    def alone(self, naive: bool) -> CompiledQuery:
        """A query whose windows are as long, one after the other, and one of which is this."""
        bound, length = self.query.query, self.end - self.start
        values = {each.name: getattr(bound, each.name) for each in fields(Query)}
        window = WindowSpec.ending(length, length, self.end)
        return compile_query(self.query.name, Query(**{**values, "window": window, "emit": None}), naive)


def answer_from_rows(loop: BatchLoop, wanted: PastWindow, state: State, naive: bool) -> pa.Table:
    """The answer for a window from the retained rows of batches that a state has seen."""
    query = wanted.query.query
    stream = loop.declared.streams.get(query.stream)
    refuse_past(wanted.query.name, query, stream)
    assert stream is not None
    retained = loop.history.rows.retained(wanted.clock)
    _check_retained(wanted, stream, retained)
    files = [file for file in retained.files if file.first <= state.batch_id]
    reading = _Reading(loop, wanted, stream, files, state, naive)
    try:
        with loop.time_limit():
            replay = reading.of_standing() if query.is_standing else reading.of_all_rows()
    except TransomError:
        raise
    except Exception as error:
        raise BatchError(f"the lookup failed: {loop.backend.error_text(error)}") from error
    clock_state = replay.state.stream(stream.name).clock(wanted.clock)
    missing = clock_state.arrivals.shed | state.stream(stream.name).held(wanted.clock)
    is_complete = not missing.meets(np.array([wanted.start]), np.array([wanted.end]))[0]
    answer = _result_table(wanted, replay, is_complete, state.batch_id, loop.clock())
    return answer.replace_schema_metadata({"stores": reading.sources})


@dataclass
class _Reading:
    """Replays the retained rows that a window needs; sealed slices take the place of rows where they can."""

    loop: BatchLoop
    wanted: PastWindow
    stream: Stream
    files: Sequence[RetainedFile]
    state: State
    naive: bool
    read: list[RetainedFile] = field(default_factory=list)  # the files whose rows were read
    sliced: list[RetainedFile] = field(default_factory=list)  # the files whose slices were read
    slices: int = 0

    def of_all_rows(self) -> BatchReplay:
        """All rows of the window, none of which is late."""
        replay = self._replay(self.wanted.alone(self.naive))
        self._run_files(replay, [file for file in self.files if self._has_times(file)], are_all_in_time=True)
        replay.close(Closed().close(self.wanted.end), self.loop.clock())
        return replay

    def of_standing(self) -> BatchReplay:
        """The rows of the window that were in time.

        If the stream ended or fell idle in between, all windows up to the last one with rows were closed. Then rows
        of later windows are needed, too, to tell which that was.
        """
        wanted = self.wanted
        closed = self.state.stream(self.stream.name).clock(wanted.clock).closed
        is_closed = not IntervalSet.of((wanted.start, wanted.end)) - closed.general
        own = [file for file in self.files if self._has_times(file)]
        if own:
            until = own[-1].last if is_closed else self.state.batch_id
            later = [file for file in self.files if own[0].first <= file.first <= until]
            if any(self._ends(file) for file in later):
                return self._with_later_rows(later, closed, is_closed)
        if not is_closed:
            raise self._still_open()
        replay = self._replay(wanted.alone(self.naive))
        self._run_files(replay, own)
        replay.close(closed, self.loop.clock())
        return replay

    def _ends(self, file: RetainedFile) -> bool:
        """Whether the stream ended or fell idle in a batch of a file."""
        if self.loop.history.slices.has_slices(self.stream.name, file):
            return False
        return any(one.ended for one in self.loop.history.rows.batches(file))

    def _with_later_rows(self, files: Sequence[RetainedFile], closed: Closed, is_closed: bool) -> BatchReplay:
        wanted, replay = self.wanted, self._replay(self.wanted.query)
        self._check_limit(sum(file.rows for file in files))
        for file in files:
            batches, table = self._rows(file, replay)
            self._run(replay, *_between(wanted.clock, wanted.start, HIGHEST, batches, table))
        replay.close(closed, self.loop.clock())
        if not is_closed:
            spec = wanted.query.query.window
            own = replay.state.queries[replay.query.name]
            wid = windows.last_ended(spec, wanted.end)
            if IntervalSet.of((wid, wid + 1)) - own.forced_wids():
                raise self._still_open()
        return replay

    def _run_files(
        self, replay: BatchReplay, files: Sequence[RetainedFile], are_all_in_time: bool = False
    ) -> None:
        """Replay the rows of the window in some files: from their sealed slices, or the rows."""
        wanted = self.wanted
        expected = [self._rows_to_read(file, replay) for file in files]
        rows = self._check_limit(sum(expected))
        for file, rows_expected in zip(files, expected, strict=True):
            sliced = self._slices(file, replay)
            if sliced is None:
                rows = self._check_limit(rows + file.rows - rows_expected)
                batches, table = self._rows(file, replay)
            else:
                rows = self._check_limit(rows + sliced.slices.num_rows)
                self.sliced.append(file)
                self.slices += sliced.slices.num_rows
                batches, table = list(sliced.batches), sliced.rows
            if are_all_in_time:
                batches = [replace(one, before=Closed(), after=Closed(), ended=False) for one in batches]
            if sliced is not None:
                replay.add(replace(sliced, batches=batches))
            self._run(replay, *_between(wanted.clock, wanted.start, wanted.end, batches, table))

    def _rows_to_read(self, file: RetainedFile, replay: BatchReplay) -> int:
        """How many rows of a file are read beside its sealed slices, or instead of them."""
        if file.last > self.state.batch_id:
            return file.rows
        return self.loop.history.slices.rows_to_read(file, replay)

    def _slices(self, file: RetainedFile, replay: BatchReplay) -> ReplaySlices | None:
        """The sealed slices of the window's time in a file, if they can take the place of its rows."""
        if file.last > self.state.batch_id:
            return None
        sliced = self.loop.history.slices.for_replay(file, replay)
        if sliced is None:
            return None
        own = slices_between(sliced.slices, self.wanted.start, self.wanted.end)
        return replace(sliced, slices=own)

    def _replay(self, query: CompiledQuery) -> BatchReplay:
        return self.loop.history.replay(query, self.stream)

    def _has_times(self, file: RetainedFile) -> bool:
        """Whether a file has times of the window, as far as is known without reading it."""
        if file.low is None or file.high is None:
            return False
        return file.low < self.wanted.end and file.high >= self.wanted.start

    def _rows(self, file: RetainedFile, replay: BatchReplay) -> tuple[list[RetainedBatch], pa.Table | None]:
        self.read.append(file)
        batches, table = self.loop.history.rows.read(file, replay.columns)
        return [batch for batch in batches if batch.batch_id <= self.state.batch_id], table

    def _run(self, replay: BatchReplay, batches: Sequence[RetainedBatch], table: pa.Table | None) -> None:
        for batch, _, rows in replay.joined(batches, table, ROWS_OF_RUN):
            replay.run(batch, rows)

    def _check_limit(self, rows: int) -> int:
        """A number of rows and slices to be read; SettingError if these are too many."""
        limit = self.loop.planner.strategy.limits.lookup_rows
        if rows > limit:
            raise SettingError(
                f"{self.wanted.shown} would read {rows:,} retained rows, and the limit is {limit:,}: ask for a "
                "shorter window, or raise the setting lookup_rows"
            )
        return rows

    @property
    def sources(self) -> str:
        """What was read, as the metadata of the answer says it."""
        name, rows = self.stream.name, sum(file.rows for file in self.read)
        parts = []
        if self.sliced:
            parts.append(f"sealed slices of {name}: {self.slices:,} of {counted(len(self.sliced), 'file')}")
        if self.read or not self.sliced:
            parts.append(f"retained rows of {name}: {rows:,} of {counted(len(self.read), 'file')}")
        return "\n".join(parts)

    def _still_open(self) -> SettingError:
        return SettingError(f"{self.wanted.shown} is still open: prod the query for its early results")


def _check_retained(wanted: PastWindow, stream: Stream, retained: RetainedRows) -> None:
    """Refuse a window with rows that were deleted, or were never retained."""
    missed = retained.missed
    if missed.meets(np.array([wanted.start]), np.array([wanted.end]))[0]:
        since = missed.pairs[-1][1]
        is_time = wanted.clock.kind is ClockKind.TIME
        raise SettingError(
            f"{wanted.shown} begins before {format_instant(since) if is_time else f'{since:,}'}, and {stream.name} "
            "does not retain all rows from before that"
        )


def _between(
    clock: Clock, start: int, end: int, batches: Sequence[RetainedBatch], table: pa.Table | None
) -> tuple[list[RetainedBatch], pa.Table | None]:
    """The rows of a stretch of time and their batches; what other batches closed is closed by the one before."""
    counts = [0] * len(batches)
    if table is not None:
        times = _times(table[clock.attribute])
        is_inside = (times >= start) & (times < end)
        before = np.concatenate([[0], np.cumsum(is_inside)])
        bounds = np.cumsum([0, *(batch.rows for batch in batches)])
        counts = np.diff(before[bounds]).tolist()
        table = table.slice(0, int(bounds[-1])).filter(pa.array(is_inside[: bounds[-1]]))
    kept: list[RetainedBatch] = []
    for batch, rows in zip(batches, counts, strict=True):
        if rows or batch.shed or batch.ended:
            low = None if batch.low is None or not rows else max(batch.low, start)
            kept.append(replace(batch, rows=rows, low=low))
        elif kept:
            kept[-1] = replace(kept[-1], after=batch.after)
    return kept, table


def _times(column: pa.ChunkedArray) -> np.ndarray:
    """Times as numbers on their clock."""
    if not pa.types.is_integer(column.type):
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        column = column.cast(pa.timestamp("us", zone), safe=False)
    return column.cast(pa.int64()).to_numpy()


def _result_table(
    wanted: PastWindow, replay: BatchReplay, is_complete: bool, batch_id: int, made: int
) -> pa.Table:
    """The window's newest results as the answer of a lookup, ordered by group unless the query has an order."""
    query = replace(wanted.query.query, emit=None, early_decision=None)
    items = [item.name for item in query.items]
    end = pa.scalar(wanted.end, pa.int64()).cast(query.clock_type)
    results = [batch.table for batch in replay.results if batch.table.num_rows]
    found = pa.concat_tables([result_schema(replay.query.query).empty_table(), *results])
    found = found.filter(pc.equal(found[free_name("window_end", items)], end))
    found = newest_results(found, ResultPlaces.of(replay.query.query))
    keys = {item.key_place: found[item.name] for item in reversed(query.items) if item.is_key}
    groups = [keys[place].combine_chunks() for place in sorted(keys)]
    if wanted.where:
        chosen = match_pattern(groups, found.num_rows, wanted.where)
        found, groups = found.filter(pa.array(chosen)), [key.filter(pa.array(chosen)) for key in groups]
    if groups and query.top is None and not any(pa.types.is_nested(key.type) for key in groups):
        names = [str(place) for place in range(len(groups))]
        order = pc.sort_indices(pa.table(groups, names), sort_keys=[(name, "ascending") for name in names])
        found = found.take(order)
    return _with_lookup_columns(query, found, is_complete, batch_id, made)


def _with_lookup_columns(
    query: Query, found: pa.Table, is_complete: bool, batch_id: int, made: int
) -> pa.Table:
    """Results in the columns of lookups; the bounds of an interval are its exact value."""
    items = [item.name for item in query.items]
    system = {
        free_name("complete", items): pa.scalar(is_complete),
        free_name("batch", items): pa.scalar(batch_id),
        free_name("made", items): pa.scalar(made),
    }
    exact = {
        free_name(f"{item.name}_{side}", items): item
        for item in query.items
        for side in ("low", "high")
        if query.has_bounds and not item.is_key
    }
    schema, columns = lookup_schema(query), []
    for column in schema:
        if column.name in system:
            columns.append(pa.repeat(system[column.name].cast(column.type), found.num_rows))
        elif column.name in exact:
            item = exact[column.name]
            columns.append(found[item.name].cast(bound_type(item.type)))
        else:
            columns.append(found[column.name])
    return pa.table(columns, schema=schema)
