"""The batch loop: one batch at a time, written ahead, run, committed.

Control that waits is bound to the next batch. A batch that failed, or whose process died, is run
again from what was written ahead and does the same work: its number, its rows, its control and its
reading of the clock are the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transom.alerts.events import AlertEvent
from transom.backends.base import Backend, Frame
from transom.elements import Control, Prod, Punctuation, Rename
from transom.errors import BatchError, DeadlineError, StateError
from transom.gc_pause import pause_garbage_collection
from transom.ingest.streams import Stream, rows_as_prods
from transom.ondemand.cache import LookupCache
from transom.ondemand.partitioned_stores import PartitionedStores
from transom.overload.sideline import Sideline
from transom.plan.passes.admission import release_suspended
from transom.plan.planner import Planner
from transom.promising.execution import Promising, PromisingOutput
from transom.promising.pace import Pace
from transom.results.derived_input import prods_of_derived, with_derived_streams
from transom.results.emit import BatchOutput, EmitContext, emit
from transom.results.result_rows import Results
from transom.runtime.alert_batches import alerts_after
from transom.runtime.alert_log import AlertLog
from transom.runtime.batch_effects import BatchEffects
from transom.runtime.batch_inputs import BatchInputs
from transom.runtime.batch_report import BatchFailure, BatchReport, Stopwatch, notify
from transom.runtime.begun_batch import BegunBatch, ProcessEndedError
from transom.runtime.declarations import Declared
from transom.runtime.executor_state import ExecutorState
from transom.runtime.ingest import BatchRows, Ingest, IngestedBatch
from transom.runtime.membership import check_types, joined_and_left
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.prod_observations import ProdObservations
from transom.runtime.quarantine import Quarantine
from transom.runtime.query_directory import QueryDirectory, WaitingControl
from transom.runtime.registry import Registry
from transom.runtime.stream_ends import StreamEnds
from transom.runtime.stream_history import StreamHistory
from transom.runtime.stream_timers import StreamTimers
from transom.runtime.write_ahead_log import BatchLog
from transom.sql.preference_query import PreferenceQuery
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord, ResultFiles
from transom.state.state import State
from transom.storage.failpoints import failpoint
from transom.storage.file_store import Store, is_of_batches_to
from transom.storage.lease import Lease
from transom.windows.partition_clocks import PARTITIONS, PartitionClocks

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
        self.lookup_cache = LookupCache()
        self.observations = ProdObservations()
        last = self.log.last()
        self.state, record = last if last else (State(), CommitRecord(backend.name, naive=naive))
        record.check_settings(naive, backend.name)
        self.directory = QueryDirectory(
            self.declared,
            Registry(record.queries, naive, record.summaries, record.views, record.backfills),
            self.log.begun_after(self.state.batch_id),
        )
        self.history = StreamHistory(
            store,
            backend,
            self.directory,
            self.declared,
            strategy,
            record.history,
            lambda: self.state,
            self.time_limit,
        )
        self.ingest = Ingest(
            backend,
            self.declared.tables,
            self.outputs,
            self.executors,
            self.planner,
            max_failures,
            self.promising,
            self.sideline,
            self.history.rows,
        )
        self.alerts = AlertLog(store, record.alert_batches)
        self.ends = StreamEnds(self.declared, self.directory, clock, record.idle_closed)
        self.timers = StreamTimers(self.declared, self.directory, clock)
        self.inputs = BatchInputs(self.declared, self.planner, self.timers)
        self.progress: dict[str, Any] = dict(record.sources)
        self._resume(record)
        self.lock = threading.RLock()
        self.idle = threading.Condition(self.lock)  # notified after every batch
        self.listeners: list[Callable[[BatchReport], None]] = []  # called before a batch is committed
        self.followers: list[Callable[[BatchReport], None]] = []  # called afterwards
        self.failure_followers: list[Callable[[BatchFailure], None]] = []  # called when a batch has failed
        self._types_checked = False  # whether the types of all queries of the checkpoint were
        self.state_bytes = 0
        self.batch_thread: threading.Thread | None = None  # the thread that is processing a batch
        self.batch_began: float | None = None  # when it began to, on the monotonic clock
        self.deadline: float | None = None  # seconds that an attempt at a batch may take
        self.report: BatchReport | None = None

    def _resume(self, record: CommitRecord) -> None:
        """Continue with what the last commit lists."""
        self.planner.restore_decisions(record.decisions)
        self.outputs.resume(record)
        self.sideline.resume(record.paces)
        self.promising.pace = Pace.of(record.probing_pace, record.inserting_seconds)
        self.store.delete("glances")  # of an engine that died
        self.log.discard(self._strays(record), self.state.batch_id)

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
            self.ends.declare(stream)
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
            if intent is None and (self.directory.waiting or self.timers.is_due(self.state)):
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
            return self.pending() is None and self.history.backfill(seconds)

    def tend_history(self) -> bool:
        """Merge files of retained rows, or add up rows to sealed slices, while there is nothing else to do.

        Whether there was something to do; a batch that comes meanwhile waits for little of it.
        """
        with self.lock:
            return self.pending() is None and self.history.tend()

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
            bound = self.sideline.bind(declared, bool(reference), waiting.ended, self.state)
            ended = self.ends.with_derived(bound.ended)
            intent = BatchIntent(
                self.state.batch_id + 1,
                self.clock(),
                stream,
                dict(reference),
                (*waiting.control, *control),
                ended,
                dict(self.declared.versions),
                bound.budget,
                bound.sidelined,
                self.promising.probes(self.directory.registry.preference_queries()),
                resumes,
                resumed=self.timers.resumed(),
                idle=tuple(name for name in ended if self.ends.is_idle(name)),
                ended_results=self.ends.results(ended, self.state),
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
        begun = BegunBatch(
            intent,
            self.log,
            self.directory,
            is_replay,
            self.backend.is_fatal,
            most_ends,
            self.backend.is_external,
        )
        stream = None if intent.stream is None else self.declared.streams[intent.stream]
        rows = BatchRows(begun, stream, frame)
        rows.frame()
        self.history.catch_up(intent)
        watch = Stopwatch()
        attempt = self._quarantined(begun, rows, watch)
        intent = begun.intent
        report = self._report(intent, attempt, watch)
        self._deliver(report)
        watch.lap("delivery")
        if intent.stream is not None:
            taken = attempt.ingested.outcome.rows
            self.sideline.note(self.declared.streams[intent.stream], taken, watch.spent["ingest"])
        self._commit(intent, attempt)
        watch.lap("commit")
        self.report = replace(report, seconds=watch.seconds)
        notify(self.followers, self.report)
        self.history.after_batch(self.report.seconds)
        self.idle.notify_all()

    def _deliver(self, report: BatchReport) -> None:
        """Call the listeners of batches: sinks, and subscribers of queries."""
        self.store.flush()  # the batch must be the same after a power failure: others see it from here on
        with self.store.guarded():
            pass  # an engine that another one has replaced delivers nothing
        failpoint("delivery", "begin")
        for listener in list(self.listeners):
            listener(report)
        failpoint("delivery", "end")

    def _quarantined(self, begun: BegunBatch, rows: BatchRows, watch: Stopwatch) -> _Attempt:
        """The first attempt that passes; what makes others fail is suspended."""

        def attempt(excluded: Mapping[str, str], in_search: bool, confirms: bool = False) -> _Attempt:
            begun.take_drops()
            frame = rows.frame()
            with begun.attempt(excluded, confirms):
                try:
                    with self.time_limit(in_search):
                        return self._attempt(begun.without(excluded), frame, watch)
                except BaseException as error:
                    self.planner.forget()  # it may have planned half a batch
                    watch.start_again()
                    if not isinstance(error, Exception) or not rows.leave_out_unreadable(error):
                        raise
            return attempt(excluded, in_search, confirms)

        def candidates() -> list[str]:
            registry = self.directory.registry.copy()
            self._plan(begun.intent, registry)
            return registry.members()

        def reason(error: Exception) -> str:
            return f"batch {begun.intent.batch_id} failed because of it: {self.backend.error_text(error)}"

        def is_late(error: Exception) -> bool:
            return isinstance(error, DeadlineError)

        def is_ended(error: Exception) -> bool:
            return isinstance(error, ProcessEndedError)

        quarantine = Quarantine(
            candidates,
            attempt,
            begun.suspend,
            reason,
            self.backend.is_external,
            is_late,
            is_ended,
            partial(attempt, confirms=True),
        )
        try:
            return quarantine.run()
        except (StateError, BatchError):
            raise
        except Exception as error:
            if is_ended(error):  # also without any query
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
        if backfilled := self.history.adopted_results(intent, registry, context.made):
            results = Results([*output.results.batches, *backfilled], output.results.stored)
            output = replace(output, results=results)
        alerts, events = alerts_after(intent, self.directory.registry, registry, output.state, output.results)
        output = replace(output, state=replace(output.state, alerts=alerts))
        self.alerts.write(intent.batch_id, events)
        self.history.retain(intent, ingested, output.state)
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
        state = joined_and_left(
            intent, registry, new, self.state, self.planner, declared, self.history.adopted_state
        )
        state = self._without_unread_results(state, registry)
        derived = self.declared.derived(self.declared.streams)
        if not derived:
            return state
        read = self.declared.derived(registry.streams())
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
        kept = {*self.ends.idle_closed, *self.declared.streams, *registry.streams()}
        streams = {name: stream for name, stream in state.streams.items() if name in kept}
        return state if len(streams) == len(state.streams) else replace(state, streams=streams)

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
            for name, derived in self.declared.derived(registry.streams()).items()
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
        inputs, derived = self.inputs.of_streams(intent, registry, state, ingested)
        directory = results_of(intent.batch_id)
        self.store.delete(directory)  # results of an earlier attempt
        effects = BatchEffects(self.backend.scalars, self.executors, self.ingest, intent, registry, directory)
        shelf = self.executors.shelf(state)
        preferred = PromisingOutput(state.promising, (), {})
        with_preference = registry.preference_queries()
        has_ended = {name for name in with_preference if registry[name].identity in intent.ended_results}
        if ingested.arrivals or intent.resumes or has_ended:
            preferred = self.promising.process(
                intent,
                with_preference,
                registry.living_summaries(),
                state.promising,
                ingested.arrivals,
                context.made,
                registry.read_preferences(),
                self._newest_times(with_preference, state),
                has_ended,
            )
            state = replace(state, promising=preferred.state)
        preferences = self.inputs.of_preferences(intent, registry, self.state, preferred)
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

    def _report(self, intent: BatchIntent, attempt: _Attempt, watch: Stopwatch) -> BatchReport:
        output = attempt.output
        work = {
            name: stream.work - self.state.stream(name).work for name, stream in output.state.streams.items()
        }
        return BatchReport(
            intent.batch_id,
            intent.stream,
            attempt.ingested.outcome,
            output.results,
            attempt.registry.bound(),
            watch.seconds,
            work,
            watch.spent,
            [(each.name, each.to) for each in intent.control if isinstance(each, Rename)],
            alerts=attempt.alerts,
        )

    def _emit_context(self, intent: BatchIntent, ingested: IngestedBatch, registry: Registry) -> EmitContext:
        prods = prods_of_derived(
            [element for element in ingested.carried if isinstance(element, Prod)],
            self.declared.derived(registry.streams()),
        )
        with self.directory.lock:
            observations = self.observations.for_batch(intent, registry)
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

    def _commit(self, intent: BatchIntent, attempt: _Attempt) -> None:
        """Write the state and the commit record, and let readers see them."""
        registry, state, partitions = attempt.registry, attempt.output.state, attempt.ingested.clocks
        before, batch_id = self.state, intent.batch_id
        record = self._commit_record(intent, attempt)
        self.state_bytes = self.log.commit(state, record)
        self.log.discard(self.sideline.unused(before, state), batch_id)
        with self.directory.lock:  # prods read the state and the registry together, while batches run
            self.state, self.directory.registry = state, registry
            self.progress, self.outputs.result_batches = dict(record.sources), list(record.result_batches)
            if intent.stream is not None and partitions is not None:
                self.declared.streams[intent.stream].partitions = partitions
            self.log.discard(self.outputs.rows.commit(record.row_files), batch_id)
            self.log.discard(self.history.commit(record.history), batch_id)
            self.log.discard(self.alerts.commit(record.alert_batches), batch_id)
            self.observations.batch_committed(intent, registry, attempt.context.observations)
        self.directory.joined(intent.control)
        self.directory.intent = self.log.begun_after(batch_id)
        if intent.stream is not None and intent.reference:
            source = self.declared.streams[intent.stream].source
            self.log.discard(source.stored_files(intent.reference), batch_id)
        store_sets = self.planner.all_store_sets(registry.on_demand())
        self.lookup_cache.batch_committed(state, attempt.ingested.outcome.runs, store_sets)
        self.log.discard(self.executors.files.unused(before.refs, state.refs, batch_id), batch_id)

    def _commit_record(self, intent: BatchIntent, attempt: _Attempt) -> CommitRecord:
        """What a batch commits besides the state; its source has advanced."""
        registry = attempt.registry
        sources = self._advanced_sources(intent, attempt.ingested.clocks)
        self.ends.batch_ended(intent)
        result_batches = self.outputs.result_batches
        if attempt.output.results:
            made = ResultFiles(intent.batch_id, intent.clock, attempt.files)
            result_batches = [*result_batches, made]
        return CommitRecord(
            queries=registry.query_records(),
            summaries=registry.summary_records(),
            views=registry.views,
            sources=sources,
            result_batches=tuple(result_batches),
            row_files=self.outputs.rows.after(
                intent.batch_id, intent.clock, partial(self._is_dropped, registry)
            ),
            idle_closed=self.ends.idle_closed,
            naive=registry.naive,
            backend=self.backend.name,
            paces=self.sideline.paces,
            probing_pace=self.promising.pace.probed,
            inserting_seconds=self.promising.pace.fixed,
            decisions=self.planner.stored_decisions(),
            history=self.history.retained_after(intent, attempt.output.state),
            backfills=registry.backfills(),
            alert_batches=self.alerts.after(intent.batch_id),
        )

    def _advanced_sources(self, intent: BatchIntent, partitions: PartitionClocks | None) -> dict[str, Any]:
        """How far each source has come after a batch."""
        sources = dict(self.progress)
        if intent.stream is not None and intent.reference:
            source = self.declared.streams[intent.stream].source
            source.advance(intent.reference)
            sources[intent.stream] = source.progress()
        if partitions is not None:
            sources[f"{intent.stream}{PARTITIONS}"] = partitions.to_json()
        return sources
