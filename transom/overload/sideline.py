"""Bursts on Spark: rows beyond a batch's budget are written aside by the executors, or dropped, and read back.

sidelined/bids/0000000012/chunk=3/     a chunk that batch 12 set aside: a later batch takes it whole

What a batch takes in and how many rows it may keep is written ahead; a batch that is run again chooses the
same rows and writes over what the first try left.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from transom.backends.base import Backend, Frame
from transom.backends.expressions import quoted
from transom.elements import Clock, ClockKind
from transom.ingest.batch import DataBatch, IngestRun
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.overload.bursts import BUCKETS, BurstPlan, bucket_grid, closed_times, plan_burst
from transom.overload.chunks import NO_BURST, BurstOutcome, SidelinedChunk, chunk_rows
from transom.overload.preferred_rows import BUCKET, RANK, clauses_of, preferred
from transom.overload.resumption import PACES, chunks_to_resume, chunks_without_new_rows, rows_within
from transom.state.batch_intent import BatchIntent
from transom.state.state import State, StreamState
from transom.storage.file_store import Store

log = logging.getLogger("transom")

CHUNK = "__chunk__"


@dataclass(frozen=True)
class Bound:
    """What a batch is bound to: streams that end with it, and `later`; how many rows it may process, and the
    chunks that it takes in."""

    ended: tuple[str, ...]
    later: list[str]
    budget: int | None = None
    aside: tuple[str, ...] = ()


@dataclass
class Parting:
    """A batch's rows after a burst was dealt with; what is cached for it is let go with `resources`."""

    batch: DataBatch
    burst: BurstOutcome = NO_BURST
    resources: ExitStack = field(default_factory=ExitStack)


class Sideline:
    """Sets rows aside and takes them in again."""

    def __init__(self, backend: Backend, store: Store, tables: StaticTables):
        self.backend, self.store, self.tables = backend, store, tables
        self.paces: dict[str, list[tuple[int, float]]] = {}  # by stream: rows and seconds of its last batches

    def resume(self, state: State, paces: Mapping[str, Sequence[tuple[int, float]]]) -> None:
        """Go on after an earlier engine, and delete what it left if it died before it could."""
        self.paces = {name: [(rows, seconds) for rows, seconds in own] for name, own in paces.items()}
        for name in self.store.list("sidelined"):
            kept = {chunk.name for chunk in state.stream(name).sidelined}
            for batch_id in self.store.list(f"sidelined/{name}"):
                directory = f"sidelined/{name}/{batch_id}"
                found = {f"{directory}/{chunk}" for chunk in self.store.list(directory)}
                for stray in found - kept if found & kept else [directory]:
                    self.store.delete(stray)

    # --- when a batch begins ---

    def bind(self, stream: Stream | None, is_new: bool, ended: Sequence[str], state: State) -> Bound:
        """What a batch that begins is bound to, which brings new rows of a stream or not.

        The end of a stream waits until its rows that are aside are in; a batch that ends it takes in all of
        them and sets none aside.
        """
        name = None if stream is None else stream.name
        now = tuple(dict.fromkeys(s for s in ended if s == name or not state.stream(s).sidelined))
        later = [s for s in dict.fromkeys(ended) if s not in now]
        if stream is None:
            return Bound(now, later)
        known, budget = state.stream(stream.name), self.budget(stream)
        if name in now:
            chunks, budget = known.sidelined, None
        elif is_new:
            overload = stream.rules.overload
            chunks = chunks_to_resume(
                known.sidelined, known.credit, overload.share if overload is not None else 1
            )
        else:
            chunks = chunks_without_new_rows(known.sidelined, budget)
        return Bound(now, later, budget, tuple(chunk.name for chunk in chunks))

    def budget(self, stream: Stream) -> int | None:
        """How many rows the next batch of a stream may process; None: all that come."""
        overload = stream.rules.overload
        if overload is None:
            return None
        if not overload.in_time:
            return overload.budget
        return rows_within(overload.budget, self.paces.get(stream.name, ()))

    def note(self, stream: Stream, rows: int, seconds: float) -> None:
        """Remember a batch's pace, if the stream's budget is a time."""
        overload = stream.rules.overload
        if overload is not None and overload.in_time and rows:
            self.paces[stream.name] = [*self.paces.get(stream.name, ()), (rows, seconds)][-PACES:]

    # --- while it runs ---

    def part(self, intent: BatchIntent, stream: Stream, batch: DataBatch) -> Parting:
        """A batch with the chunks that it takes in and without the rows that it sets aside or sheds.

        A batch that brings nothing new consists of such chunks alone, which were judged when they came.
        """
        taken = self._taken(intent, batch.before)
        if not intent.reference:
            return Parting(replace(batch, is_judged=True, on_driver=False), BurstOutcome(resumed=taken))
        if intent.budget is None and not taken:
            return Parting(batch)
        with ExitStack() as resources:
            parting = self._kept(intent, stream, batch, chunk_rows(taken), resources)
            if taken:
                both = parting.batch.frame.union(self._read(taken, stream))
                parting.batch = replace(parting.batch, frame=both, on_driver=False)
                parting.burst = replace(parting.burst, resumed=taken)
            parting.resources = resources.pop_all()
            return parting

    def rows(self, intent: BatchIntent, stream: Stream, state: State) -> Frame:
        """The rows of a batch that brings nothing new."""
        return self._read(self._taken(intent, state.stream(stream.name)), stream)

    def _taken(self, intent: BatchIntent, known: StreamState) -> tuple[SidelinedChunk, ...]:
        return tuple(chunk for chunk in known.sidelined if chunk.name in intent.sidelined)

    def _read(self, chunks: tuple[SidelinedChunk, ...], stream: Stream) -> Frame:
        frame = self.backend.read_parquet([self.store.path(chunk.name) for chunk in chunks])
        return frame.project({name: f"c{i}" for i, name in enumerate(stream.columns)})

    def _kept(
        self, intent: BatchIntent, stream: Stream, batch: DataBatch, taken: int, resources: ExitStack
    ) -> Parting:
        """The rows of a batch that fit its budget, judged by all that came: what is ahead of the stream is
        not to depend on what is set aside."""
        run = IngestRun(batch, self.tables, self.backend)
        limit, profile = run.judge_times(batch.frame)
        batch = replace(batch, time_limit=limit, is_judged=True)
        if intent.budget is None or profile.count + taken <= intent.budget:
            return Parting(batch)
        cut = _Cut(batch, run, limit)
        frame = resources.enter_context(batch.frame.held())
        top = profile.runs[-1][1]
        start, width = bucket_grid(profile.runs[0][0], top if limit is None else min(limit, top))
        counts, others = cut.histogram(frame, start, width)
        choice = plan_burst(start, width, counts, intent.budget, intent.budget - taken - others)
        if not choice.affected:
            return Parting(batch)
        ranked = resources.enter_context(cut.ranked(frame, choice).held())
        chunks = self._write(intent, stream, cut, ranked, choice)
        kept = cut.kept(frame, ranked, choice)
        is_shed = stream.rules.overload is not None and stream.rules.overload.shed
        burst = BurstOutcome(shed=chunks) if is_shed else BurstOutcome(sidelined=chunks)
        return Parting(replace(batch, frame=kept, on_driver=False), burst)

    def _write(
        self, intent: BatchIntent, stream: Stream, cut: _Cut, ranked: Frame, choice: BurstPlan
    ) -> tuple[SidelinedChunk, ...]:
        """The chunks of the rows beyond the budget, written unless they are shed."""
        aside = cut.aside(ranked, choice)
        directory = f"sidelined/{stream.name}/{intent.batch_id:010d}"
        chunks = cut.chunks(aside, directory, intent.clock)
        if stream.rules.overload is not None and stream.rules.overload.shed:
            log.warning("batch %d of %s: %d rows were shed", intent.batch_id, stream.name, chunk_rows(chunks))
            return chunks
        columns = {f"c{i}": quoted(name) for i, name in enumerate(cut.batch.columns)}
        numbered = aside.project(columns | {"chunk": CHUNK})
        numbered.write_parquet(self.store.path(directory), partition_by="chunk")
        log.info("batch %d of %s: %d rows were set aside", intent.batch_id, stream.name, chunk_rows(chunks))
        return chunks

    # --- when it is committed ---

    def forget(self, before: State, after: State) -> None:
        """Delete the chunks that a committed batch has taken in, and their directory with the last of them."""
        for name, stream in before.streams.items():
            if stream.sidelined:
                kept = {chunk.name for chunk in after.stream(name).sidelined}
                batches = {posixpath.dirname(chunk) for chunk in kept}
                gone = [chunk.name for chunk in stream.sidelined if chunk.name not in kept]
                for chunk in gone:
                    self.store.delete(chunk)
                for batch_id in {posixpath.dirname(chunk) for chunk in gone} - batches:
                    self.store.delete(batch_id)


class _Cut:
    """Where a batch is cut: the expressions that tell its rows apart."""

    def __init__(self, batch: DataBatch, run: IngestRun, limit: int | None):
        self.batch, self.run, self.limit = batch, run, limit
        followed = [clock for clock in batch.before.clocks if clock.attribute in batch.columns]
        clocks = dict.fromkeys([*run.clocks, *followed])
        self.clocks = [clock for clock in clocks if clock.kind is not ClockKind.ROWS]

    def _value(self, clock: Clock) -> str:
        return self.run.time if clock == self.batch.rules.clock else self.run.micros(clock)

    def _is_open(self) -> str:
        """Which accepted rows may be sidelined: nothing is closed yet where they are."""
        ranges = closed_times({clock: self.batch.before.clock(clock).closed for clock in self.clocks})
        parts = [
            f"({self._value(clock)}) >= {start} AND ({self._value(clock)}) < {stop}"
            for clock, closed in ranges.items()
            for start, stop in closed
        ]
        return f"NOT coalesce({' OR '.join(parts)}, false)" if parts else "true"

    def bucket(self, start: int, width: int) -> str:
        """A row's bucket; -1 if it may not be sidelined, null if it is not accepted."""
        number = f"least(greatest((({self.run.time}) - ({start})) div {width}, 0), {BUCKETS - 1})"
        bucket = f"CASE WHEN {self._is_open()} THEN {number} ELSE -1 END"
        return f"CASE WHEN {self.run.is_accepted(self.limit)} THEN CAST({bucket} AS INT) END"

    def histogram(self, frame: Frame, start: int, width: int) -> tuple[list[int], int]:
        """How many rows of each bucket may be sidelined, and how many other rows are accepted."""
        counted = frame.aggregate({BUCKET: self.bucket(start, width)}, {"rows": ("count", "*")})
        counts = {row[BUCKET]: row["rows"] for row in counted.to_table().to_pylist()}
        return [counts.get(bucket, 0) for bucket in range(BUCKETS)], counts.get(-1, 0)

    def ranked(self, frame: Frame, choice: BurstPlan) -> Frame:
        """The rows of the affected buckets, numbered by time, ties by their other columns. Where queries
        prefer some rows, the ones to keep come first."""
        clauses = clauses_of(self.batch.queries)
        marked = frame.extend({BUCKET: self.bucket(choice.start, choice.width)})
        affected = marked.filter(_is_affected(BUCKET, choice))
        if clauses:
            keeps = _by_bucket(choice.keeps)
            return preferred(self.run, frame, self.limit, affected, keeps, clauses)
        return affected.rank(RANK, BUCKET, self.run.order(affected))

    def kept(self, frame: Frame, ranked: Frame, choice: BurstPlan) -> Frame:
        """The rows that the batch processes."""
        names = list(frame.columns)
        bucket = self.bucket(choice.start, choice.width)
        others = frame.filter(f"NOT coalesce({_is_affected(bucket, choice)}, false)")
        return others.union(ranked.filter(f"{RANK} <= {_by_bucket(choice.keeps)}").project({}, names))

    def aside(self, ranked: Frame, choice: BurstPlan) -> Frame:
        """The other rows, with the number of the chunk of each."""
        keeps, firsts = _by_bucket(choice.keeps), _by_bucket(choice.first_chunks())
        chunk = f"{firsts} + ({RANK} - 1 - {keeps}) div {choice.size}"
        return ranked.filter(f"{RANK} > {keeps}").extend({CHUNK: chunk})

    def chunks(self, aside: Frame, directory: str, now: int) -> tuple[SidelinedChunk, ...]:
        """The chunks with their numbers of rows and the times that they span."""
        ends: dict[str, tuple[str, str]] = {}
        for i, clock in enumerate(self.clocks):
            value = self._value(clock)
            ends |= {f"low{i}": ("min", value), f"high{i}": ("max", value)}
        rows = aside.aggregate({CHUNK: CHUNK}, {"rows": ("count", "*")} | ends).to_table().to_pylist()
        return tuple(
            SidelinedChunk(f"{directory}/chunk={row[CHUNK]}", row["rows"], now, self._ranges(row))
            for row in sorted(rows, key=lambda row: int(row[CHUNK]))
        )

    def _ranges(self, row: dict[str, Any]) -> dict[Clock, tuple[int, int]]:
        ends = {clock: (row[f"low{i}"], row[f"high{i}"]) for i, clock in enumerate(self.clocks)}
        return {clock: span for clock, span in ends.items() if span[0] is not None}


def _is_affected(bucket: str, choice: BurstPlan) -> str:
    """A condition that is true for rows of the buckets that are cut."""
    return f"({bucket}) IN ({', '.join(map(str, choice.affected))})"


def _by_bucket(values: Sequence[int]) -> str:
    """The number of a row's bucket among some."""
    return f"element_at(array({', '.join(f'{value}L' for value in values)}), {BUCKET} + 1)"
