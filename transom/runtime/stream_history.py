"""The past of streams under the checkpoint: retained rows, the sealed slices of them, and backfills that replay both.

A batch comes here at named points: the replays that it adopts catch up, an attempt adopts them and retains its rows,
the commit lists the files that count, and what the batch leaves of the time is spent on backfills. An engine that has
nothing else to do tends the past: it goes on with backfills, merges files of rows, and adds up rows to sealed slices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from transom.backends.base import Backend
from transom.elements import Adopt, Clock
from transom.ingest.streams import Stream
from transom.overload.chunks import chunk_ranges
from transom.plan.compiled_query import CompiledQuery
from transom.plan.strategy import Strategy
from transom.results.result_rows import ResultBatch
from transom.runtime.backfill import Backfills
from transom.runtime.batch_replay import BatchReplay
from transom.runtime.declarations import Declared
from transom.runtime.ingest import IngestedBatch
from transom.runtime.membership import is_backfilling
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import RegisteredQuery, Registry
from transom.runtime.row_history import RowHistory
from transom.runtime.sealed_slices import SealedSlices
from transom.runtime.slice_work import SliceWork
from transom.state.batch_intent import BatchIntent
from transom.state.retained_rows import RetainedBatch, RetainedRows
from transom.state.state import State
from transom.storage.file_store import Store
from transom.windows.batch_profile import Profile
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

log = logging.getLogger("transom")


class StreamHistory:
    """Keeps the past of streams that retain rows, and replays it for queries that ask for it.

    `retained` is what the last commit lists, and `committed_state` gives the state after it.
    """

    def __init__(
        self,
        store: Store,
        backend: Backend,
        directory: QueryDirectory,
        declared: Declared,
        strategy: Strategy,
        retained: Mapping[str, RetainedRows],
        committed_state: Callable[[], State],
        time_limit: Callable[[], AbstractContextManager[None]],
    ):
        self.backend, self.directory, self.declared, self.strategy = backend, directory, declared, strategy
        self._committed_state = committed_state
        self.rows = RowHistory(store, self._missed)
        self.rows.resume(retained)
        self.slices = SealedSlices(store, self.rows, backend.time_zone)
        self.backfills = Backfills(directory, declared, self.rows, backend, strategy, self.slices, time_limit)
        limits = strategy.limits
        self.slice_work = SliceWork(
            self.slices,
            self.replay,
            backend,
            limits.sealed_selections,
            time_limit,
            lambda: self._committed_state().batch_id,
        )
        self._unmerged: set[str] = set()  # streams whose files of rows can't be merged ahead

    def _missed(self, clock: Clock) -> IntervalSet:
        """The times that a query has missed that begins to follow a clock now."""
        missed = self._committed_state().missed(clock)
        return IntervalSet.of((LOWEST, HIGHEST)) if missed is None else missed

    def strays(self, batch_id: int) -> Iterator[str]:
        """Files that an engine that died did not get to delete."""
        yield from self.rows.strays(batch_id)
        yield from self.slices.strays

    def replay(self, query: CompiledQuery, stream: Stream) -> BatchReplay:
        """A replay of retained rows for a query, of all times."""
        declared = self.declared
        return BatchReplay(
            query, stream, self.backend, declared.tables, self.strategy, IntervalSet(), declared.versions
        )

    # --- a batch that adopts what was replayed ---

    def catch_up(self, intent: BatchIntent) -> None:
        """Replay what a batch adopts before its time counts: after a restart, the replay begins again."""
        for element, _ in self._adopted(intent):
            if element.problem is None:
                self.adopted_state(element.name)

    def adopted_state(self, name: str) -> State | str:
        """The state that retained rows made of a query, which a batch adopts, or why there is none."""
        entry = self.directory.registry[name]
        try:
            return self.backfills.caught_up(entry).state_of(name)
        except Exception as error:
            return self.backfills.failed(entry, error)

    def adopted_results(self, intent: BatchIntent, registry: Registry, made: int) -> list[ResultBatch]:
        """The results of windows that closed before the queries took part that a batch adopts."""
        results: list[ResultBatch] = []
        for _, entry in self._adopted(intent):
            now = next((one for one in registry if one.identity == entry.identity), None)
            if now is not None and now.takes_part:
                results += self.backfills.caught_up(entry).results_in(now.name, intent.batch_id, made)
        return results

    def _adopted(self, intent: BatchIntent) -> Iterator[tuple[Adopt, RegisteredQuery]]:
        """The queries whose replays a batch adopts, as the last batch left them."""
        committed = self.directory.registry
        for element in intent.control:
            if isinstance(element, Adopt) and is_backfilling(committed, element.name, element.joined):
                yield element, committed[element.name]

    # --- a batch that retains its rows ---

    def begin_attempt(self) -> None:
        """Forget what an earlier attempt at the batch wrote."""
        self.rows.begin_attempt()

    def retain(self, intent: BatchIntent, ingested: IngestedBatch, state: State) -> None:
        """Write what a batch brought to streams that retain their rows: rows, and what is closed after it."""
        committed = self._committed_state()
        for name, stream in self.declared.streams.items():
            if stream.retain is None:
                continue
            clock, brings_rows = stream.rules.clock, name == intent.stream
            before, after = committed.stream(name), state.stream(name)
            closed = before.clock(clock).closed, after.clock(clock).closed
            rows = after.totals.accepted - before.totals.accepted if brings_rows else 0
            shed = ingested.burst.shed if brings_rows else ()
            is_ended = name in intent.ended
            if not rows and not shed and not is_ended and closed[0] == closed[1]:
                continue
            profile = ingested.outcome.clocks.get(clock, Profile()) if rows else Profile()
            span = (profile.runs[0][0], profile.runs[-1][1]) if profile.runs else None
            times = chunk_ranges(shed, clock) if shed else IntervalSet()
            low = None if span is None else span[0]
            batch = RetainedBatch(intent.batch_id, intent.clock, rows, *closed, low, is_ended, times)
            if times:
                lows, highs = times.pairs[0][0], times.pairs[-1][1] - 1
                span = (lows, highs) if span is None else (min(span[0], lows), max(span[1], highs))
            self.rows.write(name, batch, span, self._missed(clock))

    def retained_after(self, intent: BatchIntent, state: State) -> dict[str, RetainedRows]:
        """The retained rows that the commit of a batch lists."""
        streams, pins = self.declared.streams, self.backfills.pins()
        spans: dict[str, int] = dict.fromkeys(set(self.rows.committed) - streams.keys(), 0)
        expired: dict[str, int] = {}
        for name, stream in streams.items():
            if stream.retain is None:
                continue
            spans[name] = stream.retain
            high = state.stream(name).clock(stream.rules.clock).newest
            if high is not None:
                expired[name] = min(high - stream.retain, pins.get(name, HIGHEST))
        return self.rows.after(intent.batch_id, expired, spans)

    def commit(self, retained: Mapping[str, RetainedRows]) -> list[str]:
        """Let readers see the files that a commit lists; the files that it does not list any more."""
        gone = self.rows.commit(retained)
        self.slice_work.forget(gone)
        return [*gone, *self.slices.without_rows(gone)]

    # --- between batches ---

    def after_batch(self, seconds: float) -> None:
        """Go on with backfills after a batch that took so long, for as long as the limits allow."""
        self.backfills.after_batch(seconds)

    def backfill(self, seconds: float) -> bool:
        """Go on with backfills for so long; whether there was something to replay."""
        return self.backfills.spend(seconds)

    def tend(self) -> bool:
        """Merge some files of retained rows, or add up some rows to sealed slices; whether there were some."""
        return self._merge_ahead() or self.slice_work.seal(
            self.declared.streams, self.directory.registry.reading
        )

    def _merge_ahead(self) -> bool:
        """Merge some files of retained rows; whether there were some. Batches merge, too, if that fails."""
        for name, stream in self.declared.streams.items():
            if stream.retain is None or name in self._unmerged:
                continue
            try:
                if self.rows.merge_ahead({name: stream.retain}):
                    return True
            except Exception as error:
                self._unmerged.add(name)
                log.warning(
                    "retained rows of %s are not merged ahead until the engine starts again: %s",
                    name,
                    self.backend.error_text(error),
                )
        return False
