"""Prods from a program: answered at once from the last committed batch, in the caller's thread.

prods/0000000012/<clock>-<id>/   answers given after batch 12 was committed, and before batch 13 was
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from transom.durations import parse_instant
from transom.elements import Clock, ClockKind, Kind, Prod, Punctuation
from transom.errors import BatchError, SettingError, StateError
from transom.estimates.feedback import add_estimates
from transom.ingest.streams import Stream
from transom.plan.compiled_query import CompiledQuery, has_fraction, pattern_value, typed_value
from transom.plan.passes.admission import release_suspended
from transom.results.cascade import cascade_order, passed_on
from transom.results.early_results import WindowRequest, read_open_windows, window_requests
from transom.results.emit import driver_results, with_early_results
from transom.results.prodder import now_of
from transom.results.result_rows import Moment, Results
from transom.results.shard_work import split_work
from transom.runtime.batch_effects import BatchEffects
from transom.runtime.delivery import Delivery
from transom.runtime.journal import Journal
from transom.runtime.loop import BatchLoop
from transom.runtime.options import clock_kind, declared_column
from transom.runtime.outputs import prod_directory
from transom.runtime.quarantine import Quarantine
from transom.runtime.registry import Registry
from transom.sql.bound_query import BoundQuery
from transom.sql.query import Query
from transom.state.batch_intent import BatchIntent
from transom.state.state import State
from transom.windows.intervals import HIGHEST, LOWEST

log = logging.getLogger("transom")


@dataclass
class ProdAnswers:
    """Answers prods while batches run; it only reads committed state."""

    loop: BatchLoop
    delivery: Delivery
    journals: list[Journal] = field(default_factory=list)

    def prod(
        self,
        streams: Iterable[Stream],
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: tuple[str, ...] | None = None,
        on: str | None = None,
    ) -> dict[str, pa.Table]:
        """Early results of open windows from the last committed batch, by query.

        A time or a pattern may fit only some of the streams: it is an error if it fits none.
        """
        prods, problem = [], None
        for stream in streams:
            if stream.prods is not None:
                continue
            try:
                prods.append(prod_of(stream, until, at, where, on, queries, self.loop.backend.time_zone))
            except SettingError as error:
                problem = error
        if problem is not None and not prods:
            raise problem
        results, batch_id = self._answer_now(prods)
        self.delivery.call_subscribers(results)
        for journal in self.journals:
            journal.add_prod(results, batch_id)
        return dict(results)

    def streams(self, name: str | None, queries: Iterable[BoundQuery] | None) -> list[Stream]:
        """The stream that is named, the streams that the queries read, or all."""
        directory, declared = self.loop.directory, self.loop.declared.streams.values()
        preferred = directory.registry.read_preferences()
        if name is not None:
            derived = [each for each in declared if each.derived is not None and name in each.derived.streams]
            results = [query for query, bound in preferred.items() if name in bound.streams]
            return [directory.source(name), *derived, *map(directory.source, results)]
        if queries is None:
            return [*declared, *map(directory.source, [*directory.stream_joins(), *preferred])]
        streams = dict.fromkeys(
            stream
            for query in queries
            for stream in ((query.stream,) if isinstance(query, Query) else query.streams)
        )
        return [directory.source(stream) for stream in streams]

    def _answer_now(self, prods: Sequence[Prod]) -> tuple[Results, int]:
        """Early results of the windows that prods ask for, and the batch that they are as of.

        The answers are stored with the queries' results.
        """
        loop = self.loop
        loop.directory.bind()
        while True:
            with loop.directory.lock:
                state, registry = loop.state, loop.directory.registry.copy()  # a prod suspends no query
            try:
                return self._isolated(prods, state, registry), state.batch_id
            except Exception:
                if loop.state is state:
                    raise
                # A batch was committed meanwhile, and deleted files that this answer needs: answer from that batch.

    def _isolated(self, prods: Sequence[Prod], state: State, registry: Registry) -> Results:
        """The answers of all prodded queries but those that fail; one that is prodded alone raises its error."""
        backend = self.loop.backend

        def attempt(excluded: Mapping[str, str], in_search: bool = False) -> Results:
            living = registry.copy()
            living.suspend(excluded)
            with self.loop.time_limit(in_search):
                return self._answer(prods, release_suspended(state, living.compiled()), living)

        def suspend(name: str, reason: str) -> None:
            registry.suspend({name: reason})
            log.warning("the query %s can't be prodded: %s", name, reason)

        def prodded() -> list[str]:
            return [ask.query.name for ask in self._asks(prods, registry)]

        names = prodded()
        quarantine = Quarantine(prodded, attempt, suspend, backend.error_text, backend.is_external)
        try:
            return quarantine.run() if len(names) > 1 else attempt({})
        except (StateError, BatchError):
            raise
        except Exception as error:
            raise BatchError(f"the prod failed: {backend.error_text(error)}") from error

    def _asks(self, prods: Sequence[Prod], registry: Registry) -> tuple[WindowRequest, ...]:
        living = registry.living()
        cascade = cascade_order(living, self.loop.declared.streams)
        return tuple(window_requests(passed_on(prods, cascade), living).values())

    def _answer(self, prods: Sequence[Prod], state: State, registry: Registry) -> Results:
        loop, living = self.loop, registry.living()
        cascade, asks = cascade_order(living, loop.declared.streams), self._asks(prods, registry)
        if not asks:
            return Results()
        partial = frozenset(entry.name for entry in registry if entry.partial)
        moment = Moment(state.batch_id, Kind.EARLY, loop.clock())
        directory = prod_directory(state.batch_id, moment.made)
        intent = BatchIntent(state.batch_id, moment.made, tables=dict(loop.declared.versions))
        effects = BatchEffects(loop.backend.scalars, loop.executors, loop.ingest, intent, registry, directory)
        try:
            snapshot = with_early_results(state, asks, cascade, living, partial, effects, moment)
            opened = read_open_windows(snapshot, asks, living, partial)
            early = opened.finished(effects.scalars, moment)
            from_groups = driver_results(effects, snapshot, opened.shard_work, moment)
            early = Results([*early.batches, *from_groups.batches])
            stored, _ = effects.read_shards(split_work(opened.shard_work).plain, moment)
        except Exception:
            loop.store.delete(directory)
            raise
        queries = {query.name: query for query in living}
        answers, observations = add_estimates(
            state.estimators, early, queries, self._nows(asks, queries, state), moment.made
        )
        loop.outputs.write_results(directory, answers, lambda name: registry[name].identity)
        with loop.directory.lock:
            for observation in observations:
                current = loop.directory.registry.entries.get(observation.query)
                if current is None or current.text != registry[observation.query].text:
                    continue  # edited or renamed meanwhile
                loop.observations.add(registry[observation.query].identity, observation)
        return Results(answers.batches, stored)

    def _nows(
        self, asks: Sequence[WindowRequest], queries: Mapping[str, CompiledQuery], state: State
    ) -> dict[str, int]:
        nows = {ask.query.name: self._now(ask.query, queries, state) for ask in asks}
        return {name: now for name, now in nows.items() if now is not None}

    def _now(self, query: CompiledQuery, queries: Mapping[str, CompiledQuery], state: State) -> int | None:
        """How far a query's clock has come; a query over results follows the stream that these are made of."""
        streams = self.loop.declared.streams
        while query.query.stream not in streams and query.query.stream in queries:
            query = queries[query.query.stream]
        name = query.query.stream
        if query.query.stream_join is not None or name in self.loop.directory.registry.read_preferences():
            return state.stream(name).clock(query.query.clock).high
        if name not in streams:
            return None
        return now_of(query.query.clock, state.stream(name), streams[name].rules, self.loop.clock())


def prod_of(
    stream: Stream,
    until: Any = None,
    at: Any = None,
    where: Mapping[str, Any] | None = None,
    on: str | None = None,
    queries: tuple[str, ...] | None = None,
    zone: str = "UTC",
) -> Prod:
    """A prod from a program's arguments; times without an offset are in the zone."""
    if until is not None and at is not None:
        raise SettingError("a prod is for the windows up to a time (until) or for the one at a time (at)")
    clock = clock_named(stream, on)
    moment = until if at is None else at
    time = None if moment is None else instant_of(clock, moment, clock_zone(stream, clock, zone))
    return Prod(clock, time, at is not None, pattern_of(stream, where, zone), queries)


def punctuation_of(
    stream: Stream,
    until: Any,
    since: Any = None,
    where: Mapping[str, Any] | None = None,
    on: str | None = None,
    zone: str = "UTC",
) -> Punctuation:
    """A punctuation from a program's arguments; times without an offset are in the zone."""
    clock = clock_named(stream, on)
    own = clock_zone(stream, clock, zone)
    start = None if since is None else instant_of(clock, since, own)
    return Punctuation(clock, instant_of(clock, until, own), start, pattern_of(stream, where, zone))


def clock_zone(stream: Stream, clock: Clock, zone: str) -> str:
    """The zone of a clock's times: those of a column without a zone are as they are written."""
    kind = stream.columns.get(clock.attribute)
    return zone if kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None else "UTC"


def clock_named(stream: Stream, on: str | None) -> Clock:
    """The clock that a time is of: the stream's own, or that of a column."""
    if on is None:
        return stream.rules.clock
    column = declared_column(stream.name, on, stream.columns)
    return Clock(stream.name, column, clock_kind(column, stream.columns[column]))


def instant_of(clock: Clock, value: Any, zone: str = "UTC") -> int:
    """A moment on a clock; without an offset it is in the zone."""
    if clock.kind is ClockKind.TIME:
        number, what = parse_instant(value, zone), "number of microseconds"
    elif isinstance(value, bool | np.bool_) or has_fraction(value):
        raise SettingError(f"not a whole number: {value!r}; the column counts in whole numbers")
    else:
        try:
            number, what = int(value), "number"
        except (TypeError, ValueError):
            raise SettingError(f"not a number: {value!r}; the column counts in plain numbers") from None
    if not LOWEST < number < HIGHEST:
        raise SettingError(f"too large a {what}: {value!r}")
    return number


def pattern_of(
    stream: Stream, where: Mapping[str, Any] | None, zone: str = "UTC"
) -> tuple[tuple[str, Any], ...]:
    """A pattern on a stream's columns, its values in their types."""
    pattern = []
    for name, value in (where or {}).items():
        column = declared_column(stream.name, name, stream.columns)
        kind = stream.columns[column]
        if pa.types.is_nested(kind):
            raise SettingError(f"the column {column} is {kind}: no pattern can match it")
        try:
            typed = typed_value(value, kind, zone)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SettingError(f"the column {column} can't be {value!r}: {error}") from error
        pattern.append((column, pattern_value(typed)))
    return tuple(pattern)
