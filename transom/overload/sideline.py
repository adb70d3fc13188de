"""The files of sidelined rows: a batch writes the rows beyond its budget, or sheds them, and later ones read them.

sidelined/bids/0000000012-5c1f/chunk=3/     a chunk that batch 12 sidelined; a later batch resumes it as a whole

The chunks that a batch resumes and the number of rows that it may keep are written ahead. A replayed batch
chooses the same rows and overwrites the files of the first attempt.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from transom.backends.base import Backend, Frame
from transom.backends.expressions import quoted
from transom.elements import Clock, ClockKind
from transom.ingest.batch import DataBatch, IngestRun
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.overload.bursts import BURST_BUCKETS, BurstPlan, bucket_grid, closed_times, plan_burst
from transom.overload.chunks import NO_BURST, BurstOutcome, SidelinedChunk, chunk_rows
from transom.overload.preferred_rows import BUCKET, RANK, clauses_of, preferred
from transom.overload.resumption import PACES, chunks_to_resume, chunks_without_new_rows, rows_within
from transom.plan.limits import Limits
from transom.state.batch_intent import BatchIntent
from transom.state.state import State, StreamState
from transom.storage.file_store import Store
from transom.storage.sealed_directory import SEAL, seal, sealed_files, write_frame

log = logging.getLogger("transom")

CHUNK = "__chunk__"
KEEPS, FIRST_CHUNK = "__keeps__", "__first_chunk__"  # of a row's bucket


@dataclass(frozen=True)
class BatchBinding:
    """What is written ahead of a batch: the streams that end with it, its budget of rows, and the chunks it resumes.

    The streams in `later` end with a later batch.
    """

    ended: tuple[str, ...]
    later: list[str]
    budget: int | None = None
    sidelined: tuple[str, ...] = ()


@dataclass
class SplitBatch:
    """A batch without the rows beyond its budget; closing `resources` releases the frames cached for it."""

    batch: DataBatch
    burst: BurstOutcome = NO_BURST
    resources: ExitStack = field(default_factory=ExitStack)


class Sideline:
    """Sidelines rows of bursts and resumes them."""

    def __init__(self, backend: Backend, store: Store, tables: StaticTables, limits: Limits | None = None):
        self.backend, self.store, self.tables = backend, store, tables
        self.limits = limits or Limits()
        self.paces: dict[str, list[tuple[int, float]]] = {}  # by stream: rows and seconds of its last batches

    def resume(self, paces: Mapping[str, Sequence[tuple[int, float]]]) -> None:
        """Continue with the paces that a commit recorded."""
        self.paces = {name: [(rows, seconds) for rows, seconds in own] for name, own in paces.items()}

    def strays(self, state: State) -> Iterator[str]:
        """Files that the last engine did not get to delete."""
        for name in self.store.directories("sidelined"):
            still_sidelined = {chunk.name for chunk in state.stream(name).sidelined}
            for batch_id in self.store.list(f"sidelined/{name}"):
                directory = f"sidelined/{name}/{batch_id}"
                found = {f"{directory}/{chunk}" for chunk in self.store.list(directory)}
                seal_file = {f"{directory}/{SEAL}"}
                unused = found - still_sidelined - seal_file
                yield from sorted(unused) if found & still_sidelined else [directory]

    # --- when a batch begins ---

    def bind(self, stream: Stream | None, is_new: bool, ended: Sequence[str], state: State) -> BatchBinding:
        """What is written ahead of a batch, with or without new rows of a stream.

        A stream ends only when none of its rows is sidelined; the batch that ends it resumes all of them
        and sidelines none.
        """
        name = None if stream is None else stream.name
        now = tuple(dict.fromkeys(s for s in ended if s == name or not state.stream(s).sidelined))
        later = [s for s in dict.fromkeys(ended) if s not in now]
        if stream is None:
            return BatchBinding(now, later)
        stream_state, budget = state.stream(stream.name), self.budget(stream)
        if name in now:
            chunks, budget = stream_state.sidelined, None
        elif is_new:
            overload = stream.rules.overload
            chunks = chunks_to_resume(
                stream_state.sidelined, stream_state.credit, overload.share if overload is not None else 1
            )
        else:
            chunks = chunks_without_new_rows(stream_state.sidelined, budget)
        return BatchBinding(now, later, budget, tuple(chunk.name for chunk in chunks))

    def budget(self, stream: Stream) -> int | None:
        """How many rows the next batch of a stream may process; None: all."""
        overload = stream.rules.overload
        if overload is None:
            return None
        if not overload.in_time:
            return overload.budget
        return rows_within(overload.budget, self.paces.get(stream.name, ()))

    def note(self, stream: Stream, rows: int, seconds: float) -> None:
        """Record a batch's pace, if the stream's budget is a time."""
        overload = stream.rules.overload
        if overload is not None and overload.in_time and rows:
            self.paces[stream.name] = [*self.paces.get(stream.name, ()), (rows, seconds)][-PACES:]

    # --- while it runs ---

    def split(self, intent: BatchIntent, stream: Stream, batch: DataBatch) -> SplitBatch:
        """A batch with the chunks that it resumes, and without the rows that it sidelines or sheds.

        A batch without new rows consists of such chunks alone; their times were judged on arrival.
        """
        resumed = self._resumed_chunks(intent, batch.before)
        if not intent.reference:
            judged = replace(batch.with_rows(batch.frame), is_judged=True)
            return SplitBatch(judged, BurstOutcome(resumed=resumed))
        with ExitStack() as resources:
            split = self._kept(intent, stream, batch, chunk_rows(resumed), resources)
            if resumed:
                both = split.batch.frame.union(self._read(resumed, stream))
                split.batch = split.batch.with_rows(both)
                split.burst = replace(split.burst, resumed=resumed)
            split.resources = resources.pop_all()
            return split

    def rows(self, intent: BatchIntent, stream: Stream, state: State) -> Frame:
        """The rows of a batch without new ones."""
        return self._read(self._resumed_chunks(intent, state.stream(stream.name)), stream)

    def _resumed_chunks(self, intent: BatchIntent, stream_state: StreamState) -> tuple[SidelinedChunk, ...]:
        return tuple(chunk for chunk in stream_state.sidelined if chunk.name in intent.sidelined)

    def _read(self, chunks: tuple[SidelinedChunk, ...], stream: Stream) -> Frame:
        names_by_directory: dict[str, set[str]] = {}
        for chunk in chunks:
            directory, name = posixpath.split(chunk.name)
            names_by_directory.setdefault(directory, set()).add(name)
        for directory, names in names_by_directory.items():
            sealed_files(self.store, directory, names)
        is_few = chunk_rows(chunks) <= self.limits.pushed_rows
        frame = self.backend.read_parquet([self.store.path(chunk.name) for chunk in chunks], is_few)
        return frame.project({name: f"c{i}" for i, name in enumerate(stream.columns)})

    def _kept(
        self, intent: BatchIntent, stream: Stream, batch: DataBatch, resumed: int, resources: ExitStack
    ) -> SplitBatch:
        """The rows of a batch that fit its budget.

        All rows that arrived decide which rows are beyond the horizon, whatever is sidelined.
        """
        run = IngestRun(batch, self.tables, self.backend)
        limit, profile = run.judge_times(batch.frame)
        batch = replace(batch, time_limit=limit, is_judged=True)
        if intent.budget is None or profile.count + resumed <= intent.budget:
            return SplitBatch(batch)
        splitter = _BurstSplitter(batch, run, limit)
        frame = resources.enter_context(batch.frame.held())
        top = profile.runs[-1][1]
        start, width = bucket_grid(profile.runs[0][0], top if limit is None else min(limit, top))
        counts, others = splitter.histogram(frame, start, width)
        plan = plan_burst(start, width, counts, intent.budget, intent.budget - resumed - others)
        if not plan.affected:
            return SplitBatch(batch)
        ranked = resources.enter_context(splitter.ranked(frame, plan).held())
        chunks = self._write(intent, stream, splitter, ranked, plan)
        kept = splitter.kept(frame, ranked, plan)
        is_shed = stream.rules.overload is not None and stream.rules.overload.shed
        burst = BurstOutcome(shed=chunks) if is_shed else BurstOutcome(sidelined=chunks)
        return SplitBatch(batch.with_rows(kept), burst)

    def _write(
        self, intent: BatchIntent, stream: Stream, splitter: _BurstSplitter, ranked: Frame, plan: BurstPlan
    ) -> tuple[SidelinedChunk, ...]:
        """The chunks of the rows beyond the budget, written unless they are shed."""
        sidelined = splitter.sidelined(ranked, plan)
        # Under a name of its own: the backend's writer is not stopped when another engine takes over.
        directory = f"sidelined/{stream.name}/{intent.batch_id:010d}-{uuid.uuid4().hex[:8]}"
        chunks = splitter.chunks(sidelined, directory, intent.clock)
        if stream.rules.overload is not None and stream.rules.overload.shed:
            log.warning("batch %d of %s: %d rows were shed", intent.batch_id, stream.name, chunk_rows(chunks))
            return chunks
        columns = {f"c{i}": quoted(name) for i, name in enumerate(splitter.batch.columns)}
        numbered = sidelined.project(columns | {"chunk": CHUNK})
        write_frame(self.store, directory, numbered, partition_by="chunk")
        seal(self.store, directory)
        log.info("batch %d of %s: %d rows were sidelined", intent.batch_id, stream.name, chunk_rows(chunks))
        return chunks

    # --- when it is committed ---

    def unused(self, before: State, after: State) -> Iterator[str]:
        """The chunks that a committed batch resumed, and their directory with the last of them."""
        for name, stream in before.streams.items():
            if stream.sidelined:
                kept = {chunk.name for chunk in after.stream(name).sidelined}
                batches = {posixpath.dirname(chunk) for chunk in kept}
                resumed = [chunk.name for chunk in stream.sidelined if chunk.name not in kept]
                yield from resumed
                yield from {posixpath.dirname(chunk) for chunk in resumed} - batches


class _BurstSplitter:
    """The expressions that split a batch's rows into kept and sidelined ones."""

    def __init__(self, batch: DataBatch, run: IngestRun, limit: int | None):
        self.batch, self.run, self.limit = batch, run, limit
        followed = [clock for clock in batch.before.clocks if clock.attribute in batch.columns]
        clocks = dict.fromkeys([*run.clocks, *followed])
        self.clocks = [clock for clock in clocks if clock.kind is not ClockKind.ROWS]

    def _value(self, clock: Clock) -> str:
        return self.run.time if clock == self.batch.rules.clock else self.run.micros(clock)

    def _is_open(self) -> str:
        """A condition for accepted rows that may be sidelined: nothing is closed at their times."""
        ranges = closed_times({clock: self.batch.before.clock(clock).closed for clock in self.clocks})
        parts = [
            f"({self._value(clock)}) >= {start} AND ({self._value(clock)}) < {stop}"
            for clock, closed in ranges.items()
            for start, stop in closed
        ]
        return f"NOT coalesce({' OR '.join(parts)}, false)" if parts else "true"

    def bucket(self, start: int, width: int) -> str:
        """A row's bucket; -1 if it may not be sidelined, null if it is not accepted."""
        number = f"least(greatest((({self.run.time}) - ({start})) div {width}, 0), {BURST_BUCKETS - 1})"
        bucket = f"CASE WHEN {self._is_open()} THEN {number} ELSE -1 END"
        return f"CAST(CASE WHEN {self.run.is_accepted(self.limit)} THEN {bucket} END AS INT)"

    def histogram(self, frame: Frame, start: int, width: int) -> tuple[list[int], int]:
        """How many rows of each bucket may be sidelined, and how many other rows are accepted."""
        counted = frame.aggregate({BUCKET: self.bucket(start, width)}, {"rows": ("count", "*")})
        counts = {row[BUCKET]: row["rows"] for row in counted.to_table().to_pylist()}
        return [counts.get(bucket, 0) for bucket in range(BURST_BUCKETS)], counts.get(-1, 0)

    def ranked(self, frame: Frame, plan: BurstPlan) -> Frame:
        """The rows of the affected buckets, numbered by time, ties by their other columns.

        If queries prefer some rows, the rows to keep come first.
        """
        clauses = clauses_of(self.batch.queries)
        marked = frame.extend({BUCKET: self.bucket(plan.start, plan.width)})
        affected = marked.filter(_is_affected(BUCKET, plan))
        if clauses:
            ranked = preferred(self.run, frame, self.limit, affected, _by_bucket(plan.keeps), clauses)
        else:
            ranked = affected.rank(RANK, BUCKET, self.run.order(affected))
        numbers = pa.table(
            {
                "__of__": pa.array(range(len(plan.keeps)), pa.int32()),
                KEEPS: pa.array(plan.keeps, pa.int64()),
                FIRST_CHUNK: pa.array(plan.first_chunks(), pa.int64()),
            }
        )
        return ranked.lookup(BUCKET, self.run.backend.frame(numbers), "__of__")

    def kept(self, frame: Frame, ranked: Frame, plan: BurstPlan) -> Frame:
        """The rows that the batch processes."""
        names = list(frame.columns)
        bucket = self.bucket(plan.start, plan.width)
        others = frame.filter(f"NOT coalesce({_is_affected(bucket, plan)}, false)")
        return others.union(ranked.filter(f"{RANK} <= {KEEPS}").project({}, names))

    def sidelined(self, ranked: Frame, plan: BurstPlan) -> Frame:
        """The rows to sideline, each with the number of its chunk."""
        chunk = f"CAST({FIRST_CHUNK} + ({RANK} - 1 - {KEEPS}) div {plan.size} AS BIGINT)"
        return ranked.filter(f"{RANK} > {KEEPS}").extend({CHUNK: chunk})

    def chunks(self, sidelined: Frame, directory: str, now: int) -> tuple[SidelinedChunk, ...]:
        """The chunks with their numbers of rows and the times that they span."""
        ends: dict[str, tuple[str, str]] = {}
        for i, clock in enumerate(self.clocks):
            value = self._value(clock)
            ends |= {f"low{i}": ("min", value), f"high{i}": ("max", value)}
        rows = sidelined.aggregate({CHUNK: CHUNK}, {"rows": ("count", "*")} | ends).to_table().to_pylist()
        return tuple(
            SidelinedChunk(f"{directory}/chunk={row[CHUNK]}", row["rows"], now, self._ranges(row))
            for row in sorted(rows, key=lambda row: int(row[CHUNK]))
        )

    def _ranges(self, row: dict[str, Any]) -> dict[Clock, tuple[int, int]]:
        ends = {clock: (row[f"low{i}"], row[f"high{i}"]) for i, clock in enumerate(self.clocks)}
        return {clock: span for clock, span in ends.items() if span[0] is not None}


def _is_affected(bucket: str, plan: BurstPlan) -> str:
    """A condition that is true for rows of the buckets that are cut."""
    return f"({bucket}) IN ({', '.join(map(str, plan.affected))})"


def _by_bucket(values: Sequence[int]) -> str:
    """The number of a row's bucket among some."""
    return f"element_at(array({', '.join(f'{value}L' for value in values)}), {BUCKET} + 1)"
