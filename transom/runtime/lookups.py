"""Lookups: on-demand queries answered from the last committed batch, in the caller's thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.durations import format_duration, parse_duration
from transom.elements import Clock, ClockKind, Using
from transom.errors import BatchError, SettingError, SQLError, StateError
from transom.ondemand.finer_stores import FinerStores, finer_stores
from transom.ondemand.lookup import (
    Answer,
    GroupFilter,
    Lookup,
    group_pattern,
    look_up,
    lookup_result,
    lookup_schema,
)
from transom.ondemand.store_specs import StoreSet, store_id, stores_read_by
from transom.ondemand.stores import lookup_end
from transom.ondemand.structures.runs import GroupPattern
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.explain import keeps_text
from transom.plan.explain.text_parts import name_list, readable
from transom.results.result_rows import computed_texts
from transom.runtime.backfill_start import past_moment
from transom.runtime.loop import BatchLoop
from transom.runtime.past_lookups import PastWindow, answer_from_rows
from transom.runtime.registry import Registry
from transom.sql.binding.cascades import bind_all
from transom.sql.catalog import Catalog
from transom.sql.clauses.query_parser import has_preference
from transom.sql.query import Query
from transom.state.state import State
from transom.windows.ids import trailing_start

MOST_TEXTS = 256  # compiled queries that were looked up without being registered
ATTEMPTS = 8  # at a lookup whose files a newer batch deletes


class NotKeptError(SettingError):
    """No registered query keeps what a lookup needs."""


@dataclass
class Lookups:
    """Answers lookups while batches run; it only reads committed state."""

    loop: BatchLoop
    _texts: OrderedDict[str, tuple[Catalog, CompiledQuery]] = field(default_factory=OrderedDict)

    def registered(self, name: str, length: int | None, at: Any, where: GroupFilter) -> pa.Table:
        """The answer of a registered query for its own window, or for a shorter one."""
        self.loop.directory.bind()
        return self._latest(
            lambda state, registry: self._registered(state, registry, name, length, at, where)
        )

    def _registered(
        self,
        state: State,
        registry: Registry,
        name: str,
        length: int | None,
        at: Any,
        where: GroupFilter,
    ) -> pa.Table:
        if (reason := registry[name].suspended) is not None:
            raise StateError(f"the query {name} is suspended: {reason}")
        if registry[name].paused:
            raise StateError(f"the query {name} is paused: resume it first")
        compiled = registry.executable(name, CompiledQuery)
        return self._of_query(compiled, name, state, registry, length, at, where)

    def waiting(self, name: str, sql: str, length: int | None, at: Any, where: GroupFilter) -> pa.Table:
        """The answer of a query that joins with the next batch: from retained rows, or from stores that exist."""
        compiled = self._compiled(sql)
        return self._latest(
            lambda state, registry: self._of_query(compiled, name, state, registry, length, at, where)
        )

    def _of_query(
        self,
        compiled: CompiledQuery,
        name: str,
        state: State,
        registry: Registry,
        length: int | None,
        at: Any,
        where: GroupFilter,
    ) -> pa.Table:
        moment = self._moment(compiled, state, at)
        if compiled.is_standing:
            if length is not None or moment is None:
                raise SettingError(
                    f"{name} has SLIDE: its results are pushed; prod it for early ones, or look up a past one of its "
                    "windows with at='2013-01-01 12:00', without range"
                )
            past = PastWindow.before(compiled, moment, self._pattern(compiled, where))
            return answer_from_rows(self.loop, past, state, registry.naive)
        whole = compiled.query.window.range
        if length is not None and length > whole:
            wanted, most = (shown_length(compiled.clock, one) for one in (length, whole))
            raise SettingError(f"{name} can be looked up for {most} or less, not for {wanted}")
        length = whole if length is None else length
        if self._is_past(compiled, state, moment):
            return self._past(compiled, length, moment, state, registry, where)
        lookup = self._lookup(compiled, length, state, moment, where)
        if lookup is None:
            return lookup_schema(compiled.query).empty_table()
        has_stores = lookup.stores.keys() <= state.stores.keys()
        if self._retains(compiled) and not (has_stores and lookup.is_in_stores(state)):
            with suppress(SettingError):  # retained rows may lack some, too
                return self._past(compiled, length, lookup.end, state, registry, where)
        if not has_stores:
            return lookup_schema(compiled.query).empty_table()
        return self._answered(lookup, state)

    def text(self, sql: str, at: Any, where: GroupFilter) -> pa.Table:
        """The answer of a query that is not registered, from stores that registered queries keep."""
        if not isinstance(sql, str):
            raise SettingError(f"a lookup is of a query's text, not of {sql!r}")
        if has_preference(sql):
            raise SettingError(
                "a query WITH PREFERENCE can't be looked up: register it, and read its results()"
            )
        compiled = self._compiled(sql)
        if compiled.is_row_query:
            raise SettingError(
                "a query without a window can't be looked up: register it, and read its results()"
            )
        if compiled.query.backfill is not None:
            raise SettingError(
                "BACKFILL is for queries that are registered: leave it out; a lookup of the past has AS OF"
            )
        as_of = compiled.query.as_of
        if at is not None and as_of is not None:
            raise SettingError("the query has AS OF: leave at out")
        at = as_of if at is None else at
        if compiled.is_standing and at is None:
            raise SettingError(
                "the query has SLIDE: register it, or look up a past window of it with AS OF '2013-01-01 12:00'"
            )
        return self._latest(lambda state, registry: self._of_text(compiled, state, registry, at, where))

    def _of_text(
        self, compiled: CompiledQuery, state: State, registry: Registry, at: Any, where: GroupFilter
    ) -> pa.Table:
        moment = self._moment(compiled, state, at)
        if compiled.is_standing:
            assert moment is not None
            past = PastWindow.before(compiled, moment, self._pattern(compiled, where))
            return answer_from_rows(self.loop, past, state, registry.naive)
        length = compiled.query.window.range
        if self._is_past(compiled, state, moment):
            return self._past(compiled, length, moment, state, registry, where)
        try:
            return self._found(compiled, state, registry, moment, where)
        except NotKeptError:
            if not self._retains(compiled):
                raise
            return self._past(compiled, length, moment, state, registry, where)

    def _past(
        self,
        compiled: CompiledQuery,
        length: int,
        moment: int | None,
        state: State,
        registry: Registry,
        where: GroupFilter,
    ) -> pa.Table:
        """The answer for a window from retained rows; without a moment it ends at the newest row."""
        end = lookup_end(compiled.clock, state.stream(compiled.query.stream)) if moment is None else moment
        if end is None:
            return lookup_schema(compiled.query).empty_table()
        wanted = PastWindow(compiled, trailing_start(length, end), end, self._pattern(compiled, where))
        return answer_from_rows(self.loop, wanted, state, registry.naive)

    def _retains(self, query: CompiledQuery) -> bool:
        """Whether the stream of a query retains rows."""
        stream = self.loop.declared.streams.get(query.query.stream)
        return stream is not None and stream.retain is not None

    def _moment(self, query: CompiledQuery, state: State, at: Any) -> int | None:
        """The time at which a window is to end; None: at the newest row."""
        if at is None:
            return None
        if query.clock.kind is ClockKind.ROWS:
            raise SettingError("windows of rows end at the newest row: leave `at` out")
        return past_moment(query.clock, state.stream(query.query.stream), at, self._zone(query))

    def _is_past(self, query: CompiledQuery, state: State, moment: int | None) -> bool:
        """Whether a window ends before the newest row: stores do not keep such windows."""
        end = lookup_end(query.clock, state.stream(query.query.stream))
        return moment is not None and end is not None and moment < end

    def _pattern(self, query: CompiledQuery, where: GroupFilter) -> GroupPattern:
        return group_pattern(query, where, self.loop.backend.time_zone)

    def _latest(self, ask: Callable[[State, Registry], pa.Table]) -> pa.Table:
        """Answer from the last committed state; from the next one if that deleted files that are needed."""
        for attempt in range(ATTEMPTS):
            with self.loop.directory.lock:
                state, registry = self.loop.state, self.loop.directory.registry
            try:
                return ask(state, registry)
            except Exception:
                if self.loop.state is state or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("not reached")

    def _found(
        self,
        compiled: CompiledQuery,
        state: State,
        registry: Registry,
        moment: int | None,
        where: GroupFilter,
    ) -> pa.Table:
        bound = compiled.query
        sources = self._sources(compiled, registry)
        if not sources:
            raise NotKeptError(
                "nothing is kept that answers this query: no on-demand query over the same rows "
                "(WHERE, joins) with at least its groups is registered"
            )
        longest = 0
        for store_set, finer in sources:
            for query in _readings(compiled, store_set, registry, finer):
                lookup = self._lookup(query, bound.window.range, state, moment, where, finer)
                if lookup is None:
                    return lookup_schema(query.query).empty_table()
                if not lookup.stores.keys() <= state.stores.keys() & store_set.reach.keys():
                    continue
                reach = min(store_set.reach[key] for key in lookup.stores)
                if bound.window.range <= reach:
                    if self._retains(compiled) and not lookup.is_in_stores(state):
                        with suppress(SettingError):
                            return self._past(
                                compiled, bound.window.range, lookup.end, state, registry, where
                            )
                    names = [_store_name(store_set, key) for key in lookup.stores]
                    answer = self._answered(lookup, state)
                    return answer.replace_schema_metadata({"stores": "\n".join(names)})
                longest = max(longest, reach)
        if longest:
            wanted, most = (shown_length(bound.clock, one) for one in (bound.window.range, longest))
            raise NotKeptError(f"the query asks for {wanted}, and no more than {most} is kept")
        raise NotKeptError(_why_not_answered(compiled, sources[0][0]))

    def _sources(
        self, compiled: CompiledQuery, registry: Registry
    ) -> list[tuple[StoreSet, FinerStores | None]]:
        """The store sets that may answer a query: that of its own groups first, then those of the fewest columns."""
        planned = self.loop.planner.store_sets(compiled.query.stream, registry.looking(compiled.query.stream))
        sources: list[tuple[StoreSet, FinerStores | None]] = [
            (one, None) for one in planned if one.selection == compiled.selection
        ]
        for store_set in sorted(planned, key=lambda one: len(one.keys)):
            reader = registry.executable(store_set.queries[0], CompiledQuery)
            finer = finer_stores(compiled, store_set, reader)
            if finer is not None and store_set.selection != compiled.selection:
                sources.append((store_set, finer))
        return sources

    def _lookup(
        self,
        query: CompiledQuery,
        length: int,
        state: State,
        moment: int | None,
        where: GroupFilter,
        finer: FinerStores | None = None,
    ) -> Lookup | None:
        """The window to look up; None while no row has come."""
        stream = self.loop.directory.source(query.query.stream)
        newest = lookup_end(query.clock, state.stream(stream.name))
        if newest is None:
            return None
        end = newest if moment is None else moment
        return Lookup.over(query, length, end, self._pattern(query, where), moment is not None, finer)

    def _zone(self, query: CompiledQuery) -> str:
        """The zone of times that are written without an offset."""
        kind = query.query.clock_type
        has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
        return self.loop.backend.time_zone if has_zone else "UTC"

    def _answered(self, lookup: Lookup, state: State) -> pa.Table:
        loop = self.loop
        if any(state.stores[key].on_executors for key in lookup.stores):
            answer = self._far(lookup, state)
        else:
            answer = look_up(lookup, loop.lookup_cache.reader(lookup, state))
        try:
            with loop.time_limit():
                return lookup_result(answer, state, loop.backend.scalars, loop.clock())
        except Exception as error:
            raise BatchError(f"the lookup failed: {self.loop.backend.error_text(error)}") from error

    def _far(self, lookup: Lookup, state: State) -> Answer:
        for key, store_read in lookup.stores.items():
            self.loop.lookup_cache.count_read(key, store_read, is_hit=False)
        try:
            return self.loop.partitioned_stores.answered(lookup, state)
        except Exception as error:
            raise BatchError(f"the lookup failed: {self.loop.backend.error_text(error)}") from error

    # --- queries that are not registered ---

    def _compiled(self, sql: str) -> CompiledQuery:
        """A compiled text; it is cached if it reads a declared stream, which no other query can change."""
        loop, catalog = self.loop, self.loop.directory.catalog()
        cached = self._texts.get(sql)
        if cached is not None and cached[0] == catalog:
            self._texts.move_to_end(sql)
            return cached[1]
        registered = loop.directory.readable_queries([sql])
        query = bind_all({"": sql}, catalog, loop.backend.scalars, registered)[""]
        if isinstance(query, SQLError):
            raise query
        compiled = compile_query("", query, loop.directory.registry.naive)
        if query.stream in loop.declared.streams:
            self._texts[sql] = catalog, compiled
            while len(self._texts) > MOST_TEXTS:
                self._texts.popitem(last=False)
        return compiled


def _why_not_answered(query: CompiledQuery, kept: StoreSet) -> str:
    """What a query needs that the registered queries over the same rows and groups do not keep."""
    specs = stores_read_by(query).specs
    missing = ", ".join(spec.text for spec in specs if store_id(kept.selection, spec) not in kept.stores)
    stored = ", ".join(spec.text for spec in kept.stores.values() if not spec.keeps_times)
    keep = "keeps" if len(kept.queries) == 1 else "keep"
    return (
        f"nothing is kept that answers this query: it needs {missing}, and {name_list(kept.queries, 3)} {keep} only "
        f"{stored or 'which groups have rows'}; register the query to keep them"
    )


def _store_name(store_set: StoreSet, key: str) -> str:
    """A store's name as in the progress report."""
    return readable(f"{store_set.selection} | {keeps_text(store_set, store_set.stores[key])}")


def _readings(
    query: CompiledQuery, kept: StoreSet, registry: Registry, finer: FinerStores | None
) -> Iterator[CompiledQuery]:
    """The ways to answer a query from existing stores; a query with USING has only its own.

    The intervals of several groups of a timegram can't be combined.
    """
    bound, combines = query.query, finer is not None and finer.combines
    if not (combines and bound.has_bounds):
        yield query
    if query.using != Using():
        return
    yield compile_query("", bound.on_demand(Using("naive")), registry.naive)
    is_plain = not computed_texts(bound) and bound.kept is None
    if not combines and is_plain and all(aggregate_function(call.function).interval for call in bound.calls):
        readers = (registry.executable(name, CompiledQuery) for name in kept.queries)
        for using in dict.fromkeys(reader.using for reader in readers):
            if using.structure == "timegram":
                yield compile_query("", bound.on_demand(using), registry.naive)


def window_length(query: Query, range: str | int | timedelta | None, rows: int | None) -> int | None:
    """The length of a window from a program's arguments; None for the query's own."""
    if range is None and rows is None:
        return None
    if range is not None and rows is not None:
        raise SettingError("a lookup has a range or a number of rows, not both")
    counts_rows = query.clock.kind is ClockKind.ROWS
    if counts_rows != (rows is not None):
        word = "rows" if counts_rows else "range"
        raise SettingError(f"the query's window is one of {word}: say {word}=...")
    given = rows if range is None else range
    if query.clock.kind is ClockKind.TIME:
        if isinstance(given, int):
            raise SettingError(f"{given!r} has no unit; did you mean '{given} seconds'?")
        length = parse_duration(given)  # type: ignore[arg-type]
    elif isinstance(given, bool) or not isinstance(given, int):
        raise SettingError(f"not a number: {given!r}; the query's window counts in plain numbers")
    else:
        length = given
    if length <= 0:
        raise SettingError("a window's length must be positive")
    return length


def shown_length(clock: Clock, length: int) -> str:
    """A window's length as text."""
    if clock.kind is ClockKind.TIME:
        return format_duration(length)
    return f"{length:,} rows" if clock.kind is ClockKind.ROWS else f"{length:,}"
