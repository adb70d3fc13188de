"""The work on sealed slices: rows of registered queries' selections are added up while there is nothing else to do.

Each step adds up some rows of one file, within the limit of time of a batch. What takes longer is tried again some
batches later; what fails is given up until the engine starts again: rows answer everything, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.backends.base import Backend
from transom.elements import ClockKind, WindowSpec
from transom.errors import CheckpointError, DeadlineError
from transom.ingest.streams import Stream
from transom.kernel.sheets import combine
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.runtime.batch_replay import JOINED_ROWS, BatchReplay
from transom.runtime.row_history import LARGEST_MERGE
from transom.runtime.sealed_slices import SealedSlices, by_batch
from transom.runtime.slice_records import SliceRecord, may_have_slices
from transom.runtime.slice_tiers import (
    ROWS_PER_SLICE,
    TIERS,
    TierRecord,
    can_be_sealed,
    finest_tier,
    worthwhile_tiers,
)
from transom.state.retained_rows import RetainedBatch, RetainedFile
from transom.windows.intervals import HIGHEST

log = logging.getLogger("transom")

FEWEST_ROWS = 10_000  # of a file with slices: a smaller one is replayed in milliseconds

# Batches until what missed the deadline is tried again; four times as many after each further miss.
FIRST_SLICE_WAIT = 16
LONGEST_SLICE_WAIT = 4_096

ReplayMaker = Callable[[CompiledQuery, Stream], BatchReplay]


@dataclass
class _Wanted:
    """The queries of a stream, what is made for them, and the files of rows for which that was tried.

    After the batch `retry_after`, all files are looked at again, for the sake of what took too long.
    """

    queries: Sequence[CompiledQuery]
    selections: Sequence[CompiledQuery]
    tried: set[str] = field(default_factory=set)
    retry_after: int = HIGHEST


@dataclass(frozen=True)
class _Missed:
    """How often in a row the slices of a selection took too long, and the batch after which they are tried again."""

    times: int
    until: int


class SliceWork:
    """Makes the sealed slices of an engine, some rows at a time."""

    def __init__(
        self,
        slices: SealedSlices,
        make_replay: ReplayMaker,
        backend: Backend,
        most: int,
        time_limit: Callable[[], AbstractContextManager[None]] = nullcontext,
        last_batch: Callable[[], int] = lambda: 0,
    ):
        self.slices, self.history = slices, slices.history
        self.make_replay, self.backend = make_replay, backend
        self.most = most  # selections of a stream
        self.time_limit = time_limit  # of a step of the work
        self.last_batch = last_batch  # the number of the last committed batch
        self._work: Iterator[None] | None = None
        self._wanted: dict[str, _Wanted] = {}  # by stream
        self._given_up: set[tuple[str, str]] = set()  # files of rows and selections
        self._missed: dict[tuple[str, str], _Missed] = {}  # by file of rows, or stream, and selection
        self.missed_deadlines: Counter[str] = Counter()  # by stream, since the engine started
        self._failed_streams: set[str] = set()

    def forget(self, paths: Iterable[str]) -> None:
        """Forget files of rows that are not listed any more."""
        gone = set(paths)
        for wanted in self._wanted.values():
            wanted.tried -= gone
        self._given_up = {(place, selection) for place, selection in self._given_up if place not in gone}
        self._missed = {key: missed for key, missed in self._missed.items() if key[0] not in gone}

    def seal(self, streams: Mapping[str, Stream], reading: Callable[[str], Sequence[CompiledQuery]]) -> bool:
        """Add up some rows that no slices have yet; whether there were some."""
        while self.most:
            self._work = self._work or self._next_work(streams, reading)
            if self._work is None:
                return False
            try:
                for _ in self._work:
                    return True
            except Exception as error:
                log.warning("some retained rows are not added up: %s", self.backend.error_text(error))
            self._work = None
        return False

    def _next_work(
        self, streams: Mapping[str, Stream], reading: Callable[[str], Sequence[CompiledQuery]]
    ) -> Iterator[None] | None:
        for name, stream in streams.items():
            if name in self._failed_streams:
                continue
            try:
                if (work := self._work_on(stream, reading)) is not None:
                    return work
            except Exception as error:
                self._failed_streams.add(name)
                log.warning(
                    "rows of %s are not added up until the engine starts again: %s",
                    name,
                    self.backend.error_text(error),
                )
        return None

    def _work_on(
        self, stream: Stream, reading: Callable[[str], Sequence[CompiledQuery]]
    ) -> Iterator[None] | None:
        """The work on the newest file of a stream's rows that lacks slices; None if there is none."""
        retained = self.history.committed.get(stream.name)
        if stream.retain is None or retained is None or stream.rules.clock.kind is not ClockKind.TIME:
            return None
        queries = reading(stream.name)
        wanted = self._wanted.get(stream.name)
        if wanted is None or wanted.queries is not queries:
            wanted = self._wanted[stream.name] = _Wanted(queries, self._selections(queries, stream))
        waiting = self.history.waits_for_merge(stream.name, stream.retain)
        if self.last_batch() > wanted.retry_after:
            wanted.tried, wanted.retry_after = set(), HIGHEST
        for file in reversed(retained.files) if wanted.selections else ():
            is_small = file.rows < FEWEST_ROWS or file.path in waiting
            if is_small or file.bytes > LARGEST_MERGE or file.path in wanted.tried:
                continue
            wanted.tried.add(file.path)
            if lacking := self._lacking(file, stream, wanted.selections):
                return self._work_of(file, stream, lacking, wanted)
            self._delete_unwanted(file, stream, wanted)
        return None

    def _selections(self, queries: Sequence[CompiledQuery], stream: Stream) -> list[CompiledQuery]:
        """A query for each selection whose slices are kept, with the slots of all its queries."""
        found: dict[str, list[CompiledQuery]] = {}
        for query in queries:
            if (query.selection in found or len(found) < self.most) and may_have_slices(query, stream):
                found.setdefault(query.selection, []).append(query)
        return [_with_all_calls(alike) for alike in found.values()]

    def _lacking(
        self, file: RetainedFile, stream: Stream, wanted: Sequence[CompiledQuery]
    ) -> list[CompiledQuery]:
        """The queries that the slices of a file's rows can't answer; slices that can't be read are deleted."""
        records = []
        for name in self.slices.names_of(stream.name, file):
            try:
                records.append(self.slices.record(name))
            except CheckpointError as error:
                log.warning("sealed slices are damaged, and made again: %s", error)
                self.slices.delete(stream, file, name)
        return [
            query
            for query in wanted
            if not any(record.answers(query, stream, self.slices.zone) for record in records)
            and (file.path, query.selection) not in self._given_up
            and not self._waits(file, stream, query)
        ]

    def _waits(self, file: RetainedFile, stream: Stream, query: CompiledQuery) -> bool:
        """Whether the slices of a selection took too long, and it is too early to try again."""
        waits = [
            missed.until
            for place in (file.path, stream.name)
            if (missed := self._missed.get((place, query.selection))) is not None
            and self.last_batch() <= missed.until
        ]
        if waits:
            wanted = self._wanted[stream.name]
            wanted.retry_after = min(wanted.retry_after, *waits)
        return bool(waits)

    def _delete_unwanted(self, file: RetainedFile, stream: Stream, wanted: _Wanted) -> None:
        """Delete the oldest slices of a file's rows that no wanted selection uses, if there are more than the limit."""
        names = self.slices.names_of(stream.name, file)
        records = {name: record for name in names if (record := self.slices.readable_record(name))}
        used = set()
        for query in wanted.selections:
            answering = (name for name in records if records[name].answers(query, stream, self.slices.zone))
            used.add(next(answering, ""))
        unused = [name for name in names if name not in used]
        excess = max(0, len(names) - self.most)
        for name in unused[:excess]:
            self.slices.delete(stream, file, name)

    def _work_of(
        self, file: RetainedFile, stream: Stream, queries: Sequence[CompiledQuery], wanted: _Wanted
    ) -> Iterator[None]:
        """Make slices of a file's rows, some rows at a time."""
        replays: list[tuple[CompiledQuery, BatchReplay]] = []
        for query in queries:
            with self._attempt(file, stream, [query]):
                replays.append((query, self.make_replay(query, stream)))
        columns = list(dict.fromkeys(name for _, replay in replays for name in replay.columns))
        content: tuple[Sequence[RetainedBatch], pa.Table | None] | None = None
        with self._attempt(file, stream, [query for query, _ in replays], is_reading=True):
            content = self.history.read(file, columns)
        yield
        for query, replay in replays if content is not None else ():
            assert content is not None
            steps = self._steps(file, stream, query, replay, *content)
            goes_on = True
            while goes_on:
                goes_on = False
                with self._attempt(file, stream, [query]):
                    goes_on = next(steps, False)
                yield
        self._delete_unwanted(file, stream, wanted)

    @contextmanager
    def _attempt(
        self, file: RetainedFile, stream: Stream, queries: Sequence[CompiledQuery], is_reading: bool = False
    ) -> Iterator[None]:
        """Do a step of work within the limit of time.

        A selection whose step fails is given up for the file. One that takes too long is tried again after some
        batches, each time after more; all files of the stream wait for that, because the next one may take as long.
        """
        try:
            with self.time_limit():
                yield
        except DeadlineError as error:
            place = file.path if is_reading else stream.name
            self.missed_deadlines[stream.name] += 1
            log.warning(
                "rows of %s are not added up to sealed slices (WHERE %s) until batch %s: %s",
                place,
                _conditions_text(queries),
                f"{self._note_missed(place, stream, queries):,}",
                self.backend.error_text(error),
            )
        except Exception as error:
            self._given_up |= {(file.path, query.selection) for query in queries}
            log.warning(
                "rows of %s are not added up to sealed slices (WHERE %s) until the engine starts again: %s",
                file.path,
                _conditions_text(queries),
                self.backend.error_text(error),
            )

    def _note_missed(self, place: str, stream: Stream, queries: Sequence[CompiledQuery]) -> int:
        """Note that slices took too long; the batch after which they are tried again."""
        last, latest = self.last_batch(), self.last_batch()
        for query in queries:
            key = place, query.selection
            times = self._missed[key].times if key in self._missed else 0
            wait = min(FIRST_SLICE_WAIT * 4**times, LONGEST_SLICE_WAIT)
            self._missed[key] = _Missed(times + 1, last + wait)
            latest = max(latest, last + wait)
            wanted = self._wanted[stream.name]
            wanted.retry_after = min(wanted.retry_after, last + wait)
        return latest

    def _steps(
        self,
        file: RetainedFile,
        stream: Stream,
        query: CompiledQuery,
        replay: BatchReplay,
        batches: Sequence[RetainedBatch],
        table: pa.Table | None,
    ) -> Iterator[bool]:
        """Make the slices of one selection step by step."""
        layout = replay.selection.layout
        parts = [layout.empty for _ in TIERS]
        tiers: Sequence[tuple[TierRecord, pa.Table]] = ()
        if table is not None and can_be_sealed(batches):
            base, replay = self._with_few_slices(query, stream, table.slice(0, JOINED_ROWS))
            yield True
            for place, rows in _by_tier(batches, table):
                for start in range(0, rows.num_rows, JOINED_ROWS):
                    made = replay.slices_of(rows.slice(start, JOINED_ROWS))
                    parts[place] = combine(layout, [parts[place], made])
                    yield True
            records = [TierRecord.of(place, batches) for place in range(len(TIERS))]
            tiers = worthwhile_tiers(layout, parts, records, base)
        self.slices.write(file, stream, SliceRecord.of(query, replay, self.slices.zone), tiers)
        for missing in (file.path, stream.name):
            self._missed.pop((missing, query.selection), None)

    def _with_few_slices(
        self, query: CompiledQuery, stream: Stream, sample: pa.Table
    ) -> tuple[int, BatchReplay]:
        """The finest tier with few slices for some rows, or the coarsest, and what adds up rows to its slices."""
        for place, unit in enumerate(TIERS.values()):
            replay = self.make_replay(_in_tier(query, unit), stream)
            slices = 0 if place == len(TIERS) - 1 else replay.slices_of(sample).num_rows
            if slices * ROWS_PER_SLICE <= sample.num_rows:
                return place, replay
        raise AssertionError("not reached")


def _conditions_text(queries: Sequence[CompiledQuery]) -> str:
    """The conditions of some selections, for a message."""
    return " or ".join(" AND ".join(query.conjunct_texts) or "true" for query in queries)


def _with_all_calls(alike: Sequence[CompiledQuery]) -> CompiledQuery:
    """A query over a selection with the aggregates of all its queries, and the average beside each sum."""
    calls = [call for one in alike for call in one.query.calls]
    calls += [replace(call, function="avg") for call in calls if call.function == "sum"]
    first = alike[0]
    union = replace(first, query=replace(first.query, calls=tuple(dict.fromkeys(calls)), kept=None))
    return compile_query("slices", union.without_select_list().query)


def _in_tier(query: CompiledQuery, unit: int) -> CompiledQuery:
    """A query with windows as long as the slices of a tier."""
    return replace(query, query=replace(query.query, window=WindowSpec.ending(unit, unit)))


def _by_tier(batches: Sequence[RetainedBatch], table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a file by the finest tier that can have them; rows that none can have are left out."""
    parts: list[list[pa.Table]] = [[] for _ in TIERS]
    for batch, rows in by_batch(batches, table):
        if (place := finest_tier(batch)) < len(TIERS):
            parts[place].append(rows)
    yield from ((place, pa.concat_tables(part)) for place, part in enumerate(parts) if part)
