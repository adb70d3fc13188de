"""The batch loop: one batch at a time, written ahead, run, committed.

Control that waits is bound to the next batch. A batch that failed, or whose process died, is run
again from what was written ahead and does the same work: its number, its rows, its control and its
reading of the clock are the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transom.alerts.events import AlertEvent
from transom.backends.base import Backend, Frame
from transom.elements import Adopt, Clock, Control, Edit, Prod, Punctuation, Rename
from transom.errors import BatchError, DeadlineError, StateError
from transom.estimates.feedback import Observation
from transom.gc_pause import pause_garbage_collection
from transom.ingest.stream_clocks import released_streams, watermark_after
from transom.ingest.streams import Stream, rows_as_prods
from transom.kernel.aggregate import Outcome
from transom.ondemand.cache import LookupCache
from transom.ondemand.partitioned_stores import PartitionedStores
from transom.overload.chunks import NO_BURST, chunk_ranges
from transom.overload.sideline import Sideline
from transom.plan.compiled_query import CompiledQuery
from transom.plan.passes.admission import release_suspended
from transom.plan.planner import Planner
from transom.promising.execution import Promising, PromisingOutput
from transom.promising.pace import Pace
from transom.results.batch_input import BatchInput
from transom.results.derived_input import DerivedInput, prods_of_derived, with_derived_streams
from transom.results.emit import BatchOutput, EmitContext, emit
from transom.results.preference_input import PreferenceInput, preference_rules, result_reach
from transom.results.prodder import due_streams
from transom.results.result_rows import ResultBatch, Results
from transom.runtime.alert_batches import alerts_after
from transom.runtime.alert_log import AlertLog
from transom.runtime.backfill import Backfills
from transom.runtime.batch_effects import BatchEffects
from transom.runtime.batch_replay import BatchReplay
from transom.runtime.batch_report import BatchFailure, BatchReport, Stopwatch, notify
from transom.runtime.begun_batch import BegunBatch, ProcessEndedError
from transom.runtime.declarations import Declared
from transom.runtime.executor_state import ExecutorState
from transom.runtime.ingest import BatchRows, Ingest, IngestedBatch
from transom.runtime.membership import check_types, is_backfilling, joined_and_left
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.quarantine import Quarantine
from transom.runtime.query_directory import QueryDirectory, WaitingControl
from transom.runtime.registry import Registry
from transom.runtime.row_history import RowHistory
from transom.runtime.sealed_slices import SealedSlices
from transom.runtime.slice_work import SliceWork
from transom.runtime.write_ahead_log import BatchLog
from transom.sql.preference_query import PreferenceQuery
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord, ResultFiles
from transom.state.retained_rows import RetainedBatch, RetainedRows
from transom.state.state import State
from transom.storage.failpoints import failpoint
from transom.storage.file_store import Store, is_of_batches_to
from transom.storage.lease import Lease
from transom.windows.batch_profile import Profile
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.partition_clocks import PARTITIONS, PartitionClocks
from transom.windows.stream_rules import DerivedRules

log = logging.getLogger("transom")

OVERDUE_SECONDS = 5.0  # after its deadline a batch that is cancelled has ended


@dataclass(frozen=True)
class _Attempt:
    """What an attempt at a batch made; none of it is committed."""

    registry: Registry
    ingested: IngestedBatch
    context: EmitContext
    output: BatchOutput
    files: int | None  # of its results; None if tasks wrote some of them
    alerts: Sequence[AlertEvent] = ()


class BatchLoop:
    """Runs batches and owns what they change: the state, the registry, the waiting control."""

    def __init__(
        self,
        backend: Backend,
        store: Store,
        clock: Callable[[], int],
        max_failures: int,
        planner: Planner,
        naive: bool,
    ):
        self.backend, self.store, self.clock = backend, store, clock
        store.guarded = Lease(store).guarded
        self.log, self.outputs = BatchLog(store), Outputs(store)
        self.planner, strategy = planner, planner.strategy
        self.declared = Declared(backend, store, strategy.limits)
        self.executors = ExecutorState(backend, store, strategy)
        self.partitioned_stores = PartitionedStores(self.executors.files, strategy.limits.store_files)
        self.promising = Promising(backend, self.executors.files, planner)
        self.sideline = Sideline(backend, store, self.declared.tables, strategy.limits)
        self.history = RowHistory(store, self._missed)
        self.ingest = Ingest(
            backend,
            self.declared.tables,
            self.outputs,
            self.executors,
            self.planner,
            max_failures,
            self.promising,
            self.sideline,
            self.history,
        )
        self.lookup_cache = LookupCache()
        self.lock = threading.RLock()
        self.idle = threading.Condition(self.lock)  # notified after every batch
        self.observations: dict[
            str, list[Observation]
        ] = {}  # by identity: windows that prods reported since the last batch
        self.listeners: list[Callable[[BatchReport], None]] = []  # called before a batch is committed
        self.followers: list[Callable[[BatchReport], None]] = []  # called afterwards
        self.failure_followers: list[Callable[[BatchFailure], None]] = []  # called when a batch has failed
        last = self.log.last()
        self.state, record = last if last else (State(), CommitRecord(backend.name, naive=naive))
        record.check_settings(naive, backend.name)
        self.planner.restore_decisions(record.decisions)
        self.outputs.resume(record)
        self.sideline.resume(record.paces)
        self.history.resume(record.history)
        self.alerts = AlertLog(store, record.alert_batches)
        store.delete("glances")  # of an engine that died
        self.log.discard(self._strays(record), self.state.batch_id)
        self.promising.pace = Pace.of(record.probing_pace, record.inserting_seconds)
        self.directory = QueryDirectory(
            self.declared,
            Registry(record.queries, naive, record.summaries, record.views, record.backfills),
            self.log.begun_after(self.state.batch_id),
        )
        most_sealed = strategy.limits.sealed_selections
        self.slices = SealedSlices(store, self.history, backend.time_zone)
        self.slice_work = SliceWork(self.slices, self.replay, backend, most_sealed, self.time_limit)
        self.log.discard(self.slices.strays, self.state.batch_id)
        self._unmerged: set[str] = set()  # streams whose files of rows can't be merged ahead
        self.backfills = Backfills(
            self.directory, self.declared, self.history, backend, strategy, self.slices, self.time_limit
        )
        self.idle_closed = dict(record.idle_closed)  # by stream: whether it was closed since its last data
        self.progress: dict[str, Any] = dict(record.sources)
        self._types_checked = False  # whether the types of all queries of the checkpoint were
        self.state_bytes = 0
        self.batch_thread: threading.Thread | None = None  # the thread that is processing a batch
        self.batch_began: float | None = None  # when it began to, on the monotonic clock
        self.deadline: float | None = None  # seconds that an attempt at a batch may take
        self.report: BatchReport | None = None
        self._timed: tuple[Registry, dict[str, CompiledQuery]] | None = None  # the queries of the last poll

    @property
    def continues(self) -> bool:
        """Whether an earlier engine began or committed batches here."""
        return self.state.batch_id > 0 or self.pending() is not None

    def _strays(self, record: CommitRecord) -> list[str]:
        """Files that an engine that died did not get to delete."""
        batch_id, listed = (
            self.state.batch_id,
            {results_of(batch.batch_id) for batch in record.result_batches},
        )
        feeds = (f"feeds/{name}" for name in self.store.directories("feeds"))
        return [
            *self.executors.files.strays(self.state.refs, batch_id),
            *self.sideline.strays(self.state),
            *self.outputs.rows.strays(batch_id),
            *self.history.strays(batch_id),
            *self.alerts.strays(batch_id),
            *(
                f"{feed}/{file}"
                for feed in feeds
                for file in self.store.list(feed)
                if is_of_batches_to(batch_id, file)
            ),
            *(
                f"results/{name}"
                for name in self.store.list("results")
                if is_of_batches_to(batch_id, name) and f"results/{name}" not in listed
            ),
        ]

    # --- what is declared ---

    def declare(self, stream: Stream) -> None:
        with self.lock:
            if stream.name in self.declared.streams:
                raise StateError(f"the stream {stream.name} is declared already")
            if stream.name in self.progress:
                stream.source.resume(self.progress[stream.name])
            if (reached := self.progress.get(f"{stream.name}{PARTITIONS}")) is not None:
                reached_clocks = PartitionClocks.from_json(reached)
                stream.partitions = reached_clocks.with_slack(stream.rules.clock_slack)
                stream.resumed = self.clock()
            # The time that the engine was down is not the source's silence: it begins to count now.
            stream.last_data, stream.idle_closed = self.clock(), self.idle_closed.get(stream.name, True)
            self.declared.streams[stream.name] = stream

    def open(self) -> None:
        """Check that every stream that the checkpoint's queries read is declared, and bind them."""
        with self.lock:
            intent = self.pending()
            control = (*(intent.control if intent else ()), *self.directory.waiting.control)
            registry = self.directory.registry
            registry.bind(self.directory.catalog(), self.backend.scalars, control)
            self.declared.adopt(registry.queries().values())
            if not self._types_checked:  # queries that join later have the types of the declared streams
                check_types(registry, self.state)
                self._types_checked = registry.is_bound
            if (
                intent is not None
                and intent.stream is not None
                and intent.stream not in self.declared.streams
            ):
                raise StateError(
                    f"batch {intent.batch_id} was begun for the stream {intent.stream}: declare it"
                )

    def end(self, streams: Iterable[str]) -> None:
        """Close every window of some streams with the next batch."""
        with self.directory.lock:
            self.directory.waiting.ended += streams

    def close_idle(self) -> None:
        """Close the windows of streams that have been silent for as long as their rules allow."""
        now = self.clock()
        for stream in self.declared.streams.values():
            if stream.rules.idle is None or stream.idle_closed or now - stream.last_data < stream.rules.idle:
                continue
            if self.state.stream(stream.name).sidelined:
                continue  # there is something to do still
            self.end([stream.name])
            stream.idle_closed = True

    # --- running batches ---

    def pending(self) -> BatchIntent | None:
        """The batch that was begun and not committed, if there is one: it comes before all others."""
        return self.directory.intent

    def data_batch(
        self,
        stream: Stream,
        reference: Mapping[str, Any],
        frame: Frame | None = None,
        control: tuple[Control, ...] = (),
    ) -> None:
        """Run a batch that carries rows; its source reads them unless they are given."""
        with self.lock:
            intent = self.pending()
            if intent is None:
                intent = self._begin(stream.name, reference, control)
            elif intent.stream != stream.name or dict(intent.reference) != dict(reference):
                raise StateError(
                    f"batch {intent.batch_id} was begun for {intent.stream} and must be finished first"
                )
            self._run(intent, frame)

    def control_batch(self) -> bool:
        """Run a batch that brings no rows, if some control waits for one, or one was begun."""
        with self.lock:
            intent = self.pending()
            if intent is None and (self.directory.waiting or self._timer_is_due() or self._is_released()):
                # A stream with sidelined rows ends with a batch that resumes them.
                waiting = (name for name in self.directory.waiting.ended if self.state.stream(name).sidelined)
                intent = self._begin(next(waiting, None), {}, ())
            if intent is None or intent.reference:
                return False
            self._run(intent, None)
            return True

    def empty_batch(self) -> None:
        """Run a batch without rows and without control: only the clock and the number of the batch advance."""
        with self.lock:
            intent = self.pending()
            if intent is not None:
                raise StateError(
                    f"batch {intent.batch_id} was begun for {intent.stream} and must be finished first"
                )
            self._run(self._begin(None, {}, ()), None)

    def lull_batch(self, stream: Stream, is_ending: bool = False) -> bool:
        """Run a batch of sidelined rows of a stream, if there are some and nothing else waits.

        It can't tell a query that follows a clock anew how far that has come: unless the stream is ending,
        the query's first batch is one with new rows.
        """
        with self.lock:
            if (
                self.directory.intent is not None
                or self.directory.waiting
                or not self.state.stream(stream.name).sidelined
            ):
                return False
            reading = (
                self.state.queries.get(query.name) for query in self.directory.registry.reading(stream.name)
            )
            kept = self.planner.store_sets(stream.name, self.directory.registry.looking(stream.name))
            stores = (self.state.stores.get(key) for store_set in kept for key in store_set.stores)
            is_undetermined = any(
                reader is not None and reader.unseen is None for reader in (*reading, *stores)
            )
            if is_undetermined and not is_ending:
                return False
            self._run(self._begin(stream.name, {}, ()), None)
            return True

    def idle_batch(self) -> bool:
        """Run a batch that resumes deferred regions of preference queries, if there are any and nothing else waits."""
        with self.lock:
            living = self.directory.registry.preference_queries()
            has_deferred = any(
                query.waits for name, query in self.state.promising.queries.items() if name in living
            )
            if self.directory.intent is not None or self.directory.waiting or not has_deferred:
                return False
            self._run(self._begin(None, {}, (), resumes=True), None)
            return True

    def backfill(self, seconds: float) -> bool:
        """Replay retained rows for new queries while there is nothing else to do; whether there were some."""
        with self.lock:
            return self.pending() is None and self.backfills.spend(seconds)

    def tend_history(self) -> bool:
        """Merge files of retained rows, or add up rows to sealed slices, while there is nothing else to do.

        Whether there was something to do; a batch that comes meanwhile waits for little of it.
        """
        with self.lock:
            if self.pending() is not None:
                return False
            return self._merge_ahead() or self.slice_work.seal(
                self.declared.streams, self.directory.registry.reading
            )

    def _merge_ahead(self) -> bool:
        """Merge some files of retained rows; whether there were some. Batches merge, too, if that fails."""
        for name, stream in self.declared.streams.items():
            if stream.retain is None or name in self._unmerged:
                continue
            try:
                if self.history.merge_ahead({name: stream.retain}):
                    return True
            except Exception as error:
                self._unmerged.add(name)
                log.warning(
                    "retained rows of %s are not merged ahead until the engine starts again: %s",
                    name,
                    self.backend.error_text(error),
                )
        return False

    def replay(self, query: CompiledQuery, stream: Stream) -> BatchReplay:
        """A replay of retained rows for a query, of all times."""
        declared, strategy = self.declared, self.planner.strategy
        return BatchReplay(
            query, stream, self.backend, declared.tables, strategy, IntervalSet(), declared.versions
        )

    @pause_garbage_collection()
    def _begin(
        self,
        stream: str | None,
        reference: Mapping[str, Any],
        control: tuple[Control, ...],
        resumes: bool = False,
    ) -> BatchIntent:
        """Bind what waits to the next batch, and write it ahead."""
        with self.directory.lock:
            in_lull = stream is not None and not reference and stream not in self.directory.waiting.ended
            waiting = WaitingControl() if in_lull else self.directory.waiting
            declared = None if stream is None else self.declared.streams[stream]
            waiting.ended += self._ended_with(waiting.ended)
            waiting.ended += self._results_ended_with(waiting.ended)
            bound = self.sideline.bind(declared, bool(reference), waiting.ended, self.state)
            intent = BatchIntent(
                self.state.batch_id + 1,
                self.clock(),
                stream,
                dict(reference),
                (*waiting.control, *control),
                bound.ended,
                dict(self.declared.versions),
                bound.budget,
                bound.sidelined,
                self.promising.probes(self.directory.registry.preference_queries()),
                resumes,
                resumed=self._resumed(),
                idle=tuple(name for name in bound.ended if self._is_idle(name)),
            )
            if self.log.intent(intent.batch_id) is not None:
                raise StateError(
                    f"another engine works on this checkpoint: it has begun batch {intent.batch_id}"
                )
            written: BatchIntent | None = None
            try:
                self.log.begin(intent)
                written = intent
            finally:  # what failed after it was written is bound all the same
                self.directory.intent = self.log.intent(intent.batch_id) if written is None else written
                if self.directory.intent is not None and not in_lull:
                    self.directory.waiting = WaitingControl(ended=bound.later)
        return intent

    def _ended_with(self, ended: Sequence[str]) -> list[str]:
        """The derived streams that end: all of their inputs do, or have ended since they last brought rows."""
        streams = self.declared.streams
        return [
            name
            for name, derived in self.declared.derived(streams).items()
            if name not in ended
            and any(rules.clock.stream in ended for rules in derived.inputs)
            and all(
                rules.clock.stream in ended or streams[rules.clock.stream].idle_closed
                for rules in derived.inputs
            )
        ]

    def _results_ended_with(self, ended: Sequence[str]) -> list[str]:
        """The queries WITH PREFERENCE whose results end: all of their streams do, or have ended as above.

        It makes a difference for those that others read, and for outer joins, which return tuples without a partner.
        """
        if not ended:
            return []
        registry = self.directory.registry
        read = registry.read_preferences()
        return [
            name
            for name, query in registry.preference_queries().items()
            if (name in read or query.outer is not None)
            and name not in ended
            and any(stream in ended for stream in query.streams)
            and all(stream in ended or self.declared.streams[stream].idle_closed for stream in query.streams)
        ]

    def _is_idle(self, name: str) -> bool:
        """Whether a stream brought nothing since it fell idle; a derived stream, if none of its inputs did."""
        if name not in self.declared.streams:  # the results of a query: all of its streams have ended
            return False
        stream = self.declared.streams[name]
        derived = self.declared.derived([name]).get(name)
        inputs = () if derived is None else (rules.clock.stream for rules in derived.inputs)
        return all(self._is_idle(each) for each in inputs) if derived is not None else stream.idle_closed

    def _run(self, intent: BatchIntent, frame: Frame | None) -> None:
        if self.batch_thread is not None:
            raise StateError("a subscriber can't start a batch while another one is being processed")
        self.batch_thread, self.batch_began = threading.current_thread(), time.monotonic()
        began = self.batch_began
        try:
            with pause_garbage_collection():  # a search takes as long as half a batch; it waits for the end
                self._process(intent, frame)
        except Exception as error:
            if self.failure_followers:
                reason = self.backend.error_text(error)
                seconds = time.monotonic() - began
                failure = BatchFailure(intent.batch_id, intent.stream, seconds, type(error).__name__, reason)
                notify(self.failure_followers, failure)
            raise
        finally:
            self.batch_thread = self.batch_began = None

    def _process(self, intent: BatchIntent, frame: Frame | None) -> None:
        """Attempt a batch until it passes, without the queries that make it fail; deliver and commit it."""
        is_replay = intent.batch_id <= self.log.last_begun
        most_ends = self.planner.strategy.limits.process_ends
        begun = BegunBatch(intent, self.log, self.directory, is_replay, self.backend.is_fatal, most_ends)
        stream = None if intent.stream is None else self.declared.streams[intent.stream]
        rows = BatchRows(begun, stream, frame)
        rows.frame()
        self._catch_up(intent)
        watch = Stopwatch()
        attempt = self._quarantined(begun, rows, watch)
        intent, registry, ingested, output = begun.intent, attempt.registry, attempt.ingested, attempt.output
        report = replace(
            self._report(intent, registry, ingested.outcome, output, watch), alerts=attempt.alerts
        )
        self.store.flush()  # the batch must be the same after a power failure: others see it from here on
        with self.store.guarded():
            pass  # an engine that another one has replaced delivers nothing
        failpoint("delivery", "begin")
        for listener in list(self.listeners):
            listener(report)
        failpoint("delivery", "end")
        watch.lap("delivery")
        if intent.stream is not None:
            taken = ingested.outcome.rows
            self.sideline.note(self.declared.streams[intent.stream], taken, watch.spent["ingest"])
        before = self.state
        made = ResultFiles(intent.batch_id, intent.clock, attempt.files) if output.results else None
        self._commit(
            intent, registry, output.state, made, attempt.context.observations, attempt.ingested.clocks
        )
        store_sets = self.planner.all_store_sets(registry.on_demand())
        self.lookup_cache.batch_committed(output.state, ingested.outcome.runs, store_sets)
        unused = self.executors.files.unused(before.refs, output.state.refs, intent.batch_id)
        self.log.discard(unused, intent.batch_id)
        watch.lap("commit")
        self.report = replace(report, seconds=watch.seconds)
        notify(self.followers, self.report)
        self.backfills.after_batch(self.report.seconds)
        self.idle.notify_all()

    def _catch_up(self, intent: BatchIntent) -> None:
        """Replay what a batch adopts before its time counts: after a restart, the replay begins again."""
        for element in intent.control:
            if (
                isinstance(element, Adopt)
                and element.problem is None
                and is_backfilling(self.directory.registry, element.name, element.joined)
            ):
                self._replayed(element.name)

    def _quarantined(self, begun: BegunBatch, rows: BatchRows, watch: Stopwatch) -> _Attempt:
        """The first attempt that passes; what makes others fail is suspended."""

        def attempt(excluded: Mapping[str, str], in_search: bool) -> _Attempt:
            begun.take_drops()
            frame = rows.frame()
            with begun.attempt(excluded):
                try:
                    with self.time_limit(in_search):
                        return self._attempt(begun.without(excluded), frame, watch)
                except BaseException as error:
                    self.planner.forget()  # it may have planned half a batch
                    watch.start_again()
                    if not isinstance(error, Exception) or not rows.leave_out_unreadable(error):
                        raise
            return attempt(excluded, in_search)

        def candidates() -> list[str]:
            registry = self.directory.registry.copy()
            self._plan(begun.intent, registry)
            return registry.members()

        def reason(error: Exception) -> str:
            return f"batch {begun.intent.batch_id} failed because of it: {self.backend.error_text(error)}"

        def is_late(error: Exception) -> bool:
            return isinstance(error, DeadlineError)

        quarantine = Quarantine(candidates, attempt, begun.suspend, reason, self.backend.is_external, is_late)
        try:
            return quarantine.run()
        except (StateError, BatchError):
            raise
        except Exception as error:
            if isinstance(error, ProcessEndedError):  # also without any query
                begun.forget_attempts()  # the next process may have more memory
            of = f" of {begun.intent.stream}" if begun.intent.stream is not None else ""
            message = f"batch {begun.intent.batch_id}{of} failed: {self.backend.error_text(error)}"
            raise BatchError(message) from error

    def time_limit(self, is_search: bool = False) -> AbstractContextManager[None]:
        """The time that an attempt may take; while a culprit is looked for, little more than batches usually take."""
        if self.deadline is None:
            return nullcontext()
        usual = self.report.seconds if self.report is not None else 0.0
        return self.backend.time_limit(
            min(self.deadline, max(2.0, 5 * usual)) if is_search else self.deadline
        )

    @property
    def overdue(self) -> float | None:
        """For how many seconds a batch has been running beyond its deadline, if it has."""
        began, deadline = self.batch_began, self.deadline
        if began is None or deadline is None or time.monotonic() - began <= deadline + OVERDUE_SECONDS:
            return None
        return time.monotonic() - began - deadline

    def _attempt(self, intent: BatchIntent, frame: Frame | None, watch: Stopwatch) -> _Attempt:
        """Plan, ingest and emit a batch; nothing is delivered or committed."""
        registry = self.directory.registry.copy()
        self.history.begin_attempt()
        state = self._plan(intent, registry)
        failures = self.ingest.failures(registry)
        watch.lap("planning")
        ingested = self._ingest(intent, frame, registry, state)
        watch.lap("ingest")
        context = self._emit_context(intent, ingested, registry)
        output = self._emit(intent, registry, state, ingested, context)
        if backfilled := self._backfilled(intent, registry, context.made):
            results = Results([*output.results.batches, *backfilled], output.results.stored)
            output = replace(output, results=results)
        alerts, events = alerts_after(intent, self.directory.registry, registry, output.state, output.results)
        output = replace(output, state=replace(output.state, alerts=alerts))
        self.alerts.write(intent.batch_id, events)
        self._retain(intent, ingested, output.state)
        self.ingest.count_failures(registry, failures)
        began = self.promising.clock()
        files = self.outputs.write_results(
            results_of(intent.batch_id), output.results, registry.identities().__getitem__
        )
        self.promising.note_written(intent.batch_id, output.results, self.promising.clock() - began)
        watch.lap("emit")
        return _Attempt(registry, ingested, context, output, files, events)

    def _plan(self, intent: BatchIntent, registry: Registry) -> State:
        """Let queries join and leave; the state that the batch starts with."""
        registry.bind(self.directory.catalog(), self.backend.scalars, intent.control)
        new = self.directory.newcomers(intent, registry)
        self.declared.adopt([*registry.derived_readers(), *new.queries.values()])
        declared = [name for name, stream in self.declared.streams.items() if stream.derived is None]
        state = joined_and_left(intent, registry, new, self.state, self.planner, declared, self._replayed)
        state = self._without_unread_results(state, registry)
        derived = self.declared.derived(self.declared.streams)
        if not derived:
            return state
        read = self._derived_streams(registry)
        readers = (*registry.queries().values(), *self.directory.bound.values())
        known = {*read, *(query.stream for query in readers)}
        self.declared.release([name for name in derived if name not in known])
        return with_derived_streams(state, read, [name for name in derived if name not in read])

    @staticmethod
    def _is_dropped(registry: Registry, stream: str) -> bool:
        """Whether late rows under a name are results of a query that was dropped: names of streams have no `@`."""
        return "@" in stream and stream not in registry.identities().values()

    def _without_unread_results(self, state: State, registry: Registry) -> State:
        """The state without streams of results that no query reads: another query may get the name."""
        kept = {*self.idle_closed, *self.declared.streams, *registry.streams()}
        streams = {name: stream for name, stream in state.streams.items() if name in kept}
        return state if len(streams) == len(state.streams) else replace(state, streams=streams)

    def _replayed(self, name: str) -> State | str:
        """The state that retained rows made of a query, which a batch adopts, or why there is none."""
        entry = self.directory.registry[name]
        try:
            return self.backfills.caught_up(entry).state_of(name)
        except Exception as error:
            return self.backfills.failed(entry, error)

    def _backfilled(self, intent: BatchIntent, registry: Registry, made: int) -> list[ResultBatch]:
        """The results of windows that closed before the queries took part that a batch adopts."""
        committed = self.directory.registry
        results: list[ResultBatch] = []
        for element in intent.control:
            if not isinstance(element, Adopt) or not is_backfilling(committed, element.name, element.joined):
                continue
            entry = committed[element.name]
            now = next((one for one in registry if one.identity == entry.identity), None)
            if now is not None and now.takes_part:
                backfill = self.backfills.caught_up(entry)
                results += backfill.results_in(now.name, intent.batch_id, made)
        return results

    def _retain(self, intent: BatchIntent, ingested: IngestedBatch, state: State) -> None:
        """Write what a batch brought to streams that retain their rows: rows, and what is closed after it."""
        for name, stream in self.declared.streams.items():
            if stream.retain is None:
                continue
            clock, brings_rows = stream.rules.clock, name == intent.stream
            before, after = (each.stream(name) for each in (self.state, state))
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
            self.history.write(name, batch, span, self._missed(clock))

    def _missed(self, clock: Clock) -> IntervalSet:
        """The times that a query has missed that begins to follow a clock now."""
        missed = self.state.missed(clock)
        return IntervalSet.of((LOWEST, HIGHEST)) if missed is None else missed

    def _retained_after(self, intent: BatchIntent, state: State) -> dict[str, RetainedRows]:
        """The retained rows that the commit of a batch lists."""
        streams, pins = self.declared.streams, self.backfills.pins()
        spans: dict[str, int] = dict.fromkeys(set(self.history.committed) - streams.keys(), 0)
        expired: dict[str, int] = {}
        for name, stream in streams.items():
            if stream.retain is None:
                continue
            spans[name] = stream.retain
            high = state.stream(name).clock(stream.rules.clock).newest
            if high is not None:
                expired[name] = min(high - stream.retain, pins.get(name, HIGHEST))
        return self.history.after(intent.batch_id, expired, spans)

    def _derived_streams(self, registry: Registry) -> dict[str, DerivedRules]:
        """The derived streams that queries read which take part in batches."""
        return self.declared.derived(registry.streams())

    def _ingest(
        self, intent: BatchIntent, frame: Frame | None, registry: Registry, state: State
    ) -> IngestedBatch:
        """Aggregate the batch's rows, if it has any; the control of the batch includes what rows carry."""
        control = [element for element in intent.control if isinstance(element, Punctuation | Prod)]
        if intent.stream is None or (frame is None and not intent.sidelined):
            return IngestedBatch(control)
        stream = self.declared.streams[intent.stream]
        if stream.prods is not None and frame is not None:
            return IngestedBatch([*control, *rows_as_prods(stream, frame)])
        derived_streams = [
            self.declared.streams[name]
            for name, derived in self._derived_streams(registry).items()
            if stream.rules in derived.inputs
        ]
        ingested = self.ingest.process(intent, stream, frame, registry, state, derived_streams)
        return replace(ingested, carried=[*control, *ingested.carried])

    def _emit(
        self,
        intent: BatchIntent,
        registry: Registry,
        state: State,
        ingested: IngestedBatch,
        context: EmitContext,
    ) -> BatchOutput:
        """Close windows, answer prods, and spend the budgets of queries with a preference."""
        state = release_suspended(state, registry.compiled())
        inputs, derived = self._inputs(intent, registry, state, ingested)
        directory = results_of(intent.batch_id)
        self.store.delete(directory)  # results of an earlier attempt
        effects = BatchEffects(self.backend.scalars, self.executors, self.ingest, intent, registry, directory)
        shelf = self.executors.shelf(state)
        preferred = PromisingOutput(state.promising, (), {})
        with_preference = registry.preference_queries()
        outer = {name for name, query in with_preference.items() if query.outer is not None}
        if ingested.arrivals or intent.resumes or not outer.isdisjoint(intent.ended):
            preferred = self.promising.process(
                intent,
                with_preference,
                registry.living_summaries(),
                state.promising,
                ingested.arrivals,
                context.made,
                registry.read_preferences(),
                self._newest_times(with_preference, state),
            )
            state = replace(state, promising=preferred.state)
        preferences = self._preference_inputs(intent, registry, preferred)
        output = emit(state, inputs, registry.everyone(), context, shelf, effects, derived, preferences)
        results = Results([*output.results.batches, *preferred.batches], output.results.stored)
        output = replace(output, results=results)
        rolled = self.executors.rolled_up(output.state, registry.living())
        store_sets = self.planner.all_store_sets(registry.on_demand())
        return replace(output, state=self.partitioned_stores.rolled_up(rolled, store_sets))

    def _newest_times(self, queries: Mapping[str, PreferenceQuery], state: State) -> dict[str, int | None]:
        """The newest time of each stream that outer joins WITH PREFERENCE read, before the batch."""
        streams = {name for query in queries.values() if query.outer is not None for name in query.streams}
        clocks = {name: self.declared.streams[name].rules.clock for name in streams}
        return {name: state.stream(name).clock(clock).high for name, clock in clocks.items()}

    def _preference_inputs(
        self, intent: BatchIntent, registry: Registry, preferred: PromisingOutput
    ) -> list[PreferenceInput]:
        """What the batch adds to the results of queries WITH PREFERENCE that others read."""
        summaries = registry.living_summaries()
        return [
            PreferenceInput(
                name,
                query,
                tuple(self.declared.streams[stream].rules.clock for stream in query.streams),
                result_reach(query, summaries),
                name not in self.state.promising.queries,
                name in intent.ended,
                preferred.new.get(name),
            )
            for name, query in registry.read_preferences().items()
        ]

    def _report(
        self,
        intent: BatchIntent,
        registry: Registry,
        outcome: Outcome,
        output: BatchOutput,
        watch: Stopwatch,
    ) -> BatchReport:
        queries, streams = registry.bound(), output.state.streams.items()
        work = {name: stream.work - self.state.stream(name).work for name, stream in streams}
        return BatchReport(
            intent.batch_id,
            intent.stream,
            outcome,
            output.results,
            queries,
            watch.seconds,
            work,
            watch.spent,
            [(each.name, each.to) for each in intent.control if isinstance(each, Rename)],
        )

    def _inputs(
        self, intent: BatchIntent, registry: Registry, state: State, ingested: IngestedBatch
    ) -> tuple[list[BatchInput], list[DerivedInput]]:
        """What the batch brings to each stream that it concerns: rows, punctuations, or its end."""
        control = ingested.carried
        concerned = dict.fromkeys(
            [
                *filter(None, [intent.stream]),
                *(element.clock.stream for element in control),
                *intent.ended,
                *self.due(state, registry.compiled(), intent.clock),
                *released_streams(self.declared.streams, state, intent.clock, intent.resumed),
            ]
        )
        read = self._derived_streams(registry)
        for name, derived_rules in read.items():
            if any(rules.clock.stream in concerned for rules in derived_rules.inputs):
                concerned[name] = None
        partial = registry.partial_readers()
        batches = {
            name: BatchInput(
                self.declared.streams[name].rules,
                registry.reading(name),
                ingested.outcome if name == intent.stream else ingested.derived.get(name, Outcome()),
                [e for e in control if isinstance(e, Punctuation) and e.clock.stream == name],
                name in intent.ended,
                partial,
                intent.clock,
                burst=ingested.burst if name == intent.stream else NO_BURST,
                store_sets=self.planner.store_sets(name, registry.looking(name)),
                watermark=watermark_after(
                    self.declared.streams[name], intent, ingested.clocks if name == intent.stream else None
                ),
            )
            for name in concerned
            if name in self.declared.queried()
        }
        derived = [DerivedInput(batches.pop(name), rules) for name, rules in read.items() if name in batches]
        unread = self.declared.derived(batches)
        return [batch for name, batch in batches.items() if name not in unread], derived

    def _is_released(self) -> bool:
        """Whether the watermark of some stream advances because a partition has become idle."""
        return bool(released_streams(self.declared.streams, self.state, self.clock(), self._resumed()))

    def _resumed(self) -> dict[str, int]:
        """By stream, when its partitions were read from a checkpoint."""
        return {name: stream.resumed for name, stream in self.declared.streams.items() if stream.resumed}

    def _timer_is_due(self) -> bool:
        if not self.state.prodders:
            return False
        if self._timed is None or self._timed[0] is not self.directory.registry:
            self._timed = self.directory.registry, self.directory.registry.compiled()
        return bool(self.due(self.state, self._timed[1], self.clock()))

    def _emit_context(self, intent: BatchIntent, ingested: IngestedBatch, registry: Registry) -> EmitContext:
        prods = prods_of_derived(
            [element for element in ingested.carried if isinstance(element, Prod)],
            self._derived_streams(registry),
        )
        with self.directory.lock:
            ids = _unchanged(registry, intent) if self.observations else set()
            recent = (observed for id, observed in self.observations.items() if id in ids)
            observations = [observation for observed in recent for observation in observed]
        return EmitContext(
            prods,
            intent.clock,
            self.clock(),
            self.declared.qualities,
            observations,
            self.declared.streams,
            self.planner,
            ingested.joined,
        )

    def due(self, state: State, queries: Mapping[str, CompiledQuery], clock: int) -> list[str]:
        """The streams whose open windows are to be reported by the clock, whether rows come or not."""
        if not state.prodders:
            return []
        rules = {name: stream.rules for name, stream in self.declared.streams.items()}
        read = self.directory.registry.read_preferences()
        rules |= {name: preference_rules(name, query) for name, query in read.items()}
        due = due_streams(state, queries, rules, clock)
        return [read[name].streams[0] if name in read else name for name in due]

    def _commit(
        self,
        intent: BatchIntent,
        registry: Registry,
        state: State,
        made: ResultFiles | None,
        seen: Sequence[Observation],
        partitions: PartitionClocks | None,
    ) -> None:
        sources = dict(self.progress)
        if intent.stream is not None and intent.reference:
            stream = self.declared.streams[intent.stream]
            stream.source.advance(intent.reference)
            sources[intent.stream] = stream.source.progress()
            stream.last_data, stream.idle_closed = self.clock(), False
        for name in intent.ended:
            if name in self.declared.streams:
                self.declared.streams[name].idle_closed = True
        if partitions is not None:
            sources[f"{intent.stream}{PARTITIONS}"] = partitions.to_json()
        result_batches = self.outputs.result_batches
        if made is not None:
            result_batches = [*result_batches, made]
        row_files = self.outputs.rows.after(
            intent.batch_id, intent.clock, partial(self._is_dropped, registry)
        )
        retained = self._retained_after(intent, state)
        self.idle_closed |= {name: stream.idle_closed for name, stream in self.declared.streams.items()}
        record = CommitRecord(
            queries=registry.query_records(),
            summaries=registry.summary_records(),
            views=registry.views,
            sources=sources,
            result_batches=tuple(result_batches),
            row_files=row_files,
            idle_closed=self.idle_closed,
            naive=registry.naive,
            backend=self.backend.name,
            paces=self.sideline.paces,
            probing_pace=self.promising.pace.probed,
            inserting_seconds=self.promising.pace.fixed,
            decisions=self.planner.stored_decisions(),
            history=retained,
            backfills=registry.backfills(),
            alert_batches=self.alerts.after(intent.batch_id),
        )
        self.state_bytes = self.log.commit(state, record)
        self.log.discard(self.sideline.unused(self.state, state), intent.batch_id)
        with self.directory.lock:  # prods read the state and the registry together, while batches run
            self.state, self.directory.registry = state, registry
            self.progress, self.outputs.result_batches = sources, result_batches
            if intent.stream is not None and partitions is not None:
                self.declared.streams[intent.stream].partitions = partitions
            self.log.discard(self.outputs.rows.commit(row_files), intent.batch_id)
            gone = self.history.commit(retained)
            self.slice_work.forget(gone)
            self.log.discard([*gone, *self.slices.without_rows(gone)], intent.batch_id)
            self.log.discard(self.alerts.commit(record.alert_batches), intent.batch_id)
            seen_ids = {id(one) for one in seen}
            living = _unchanged(registry, intent) if self.observations else set()
            self.observations = {
                whose: left
                for whose, observations in self.observations.items()
                if whose in living and (left := [one for one in observations if id(one) not in seen_ids])
            }
        self.directory.joined(intent.control)
        self.directory.intent = self.log.begun_after(intent.batch_id)
        if intent.stream is not None and intent.reference:
            source = self.declared.streams[intent.stream].source
            self.log.discard(source.stored_files(intent.reference), intent.batch_id)


def _unchanged(registry: Registry, intent: BatchIntent) -> set[str]:
    """The identities of the queries whose text and name a batch leaves as they are.

    What prods reported of the others is of another text, or has another name.
    """
    changed = {element.name for element in intent.control if isinstance(element, Edit)}
    changed |= {element.to for element in intent.control if isinstance(element, Rename)}
    return {entry.identity for entry in registry if entry.name not in changed}
