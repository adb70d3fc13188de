"""Lookups: on-demand queries answered from the last committed page, in the thread of whoever asks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from transom.durations import format_duration, parse_duration
from transom.elements import Clock, ClockKind, Demand
from transom.errors import PageError, SettingError, SQLError, StateError
from transom.final.demanding import end_of
from transom.final.lookup import Lookup, answered, lookup_schema, shown
from transom.final.results import Moment, computed_texts, finish
from transom.plan.compiled import CompiledQuery, compile_query
from transom.spark.loop import PageLoop
from transom.spark.prodding import instant_of, pattern_of
from transom.spark.registry import Entry, Registry
from transom.spark.scalars import short_message
from transom.sql.catalog import Catalog
from transom.sql.derived import bind_all
from transom.sql.query import Query
from transom.state.state import State

MOST_TEXTS = 256  # of queries that were looked up without being registered, and are remembered
_BOUNDED = {"max", "min", "sum", "avg", "count", "count_rows"}


@dataclass
class Lookups:
    """Answers lookups beside the page loop; it only reads what is committed."""

    loop: PageLoop
    _texts: OrderedDict[str, tuple[Catalog, Query]] = field(default_factory=OrderedDict)

    def registered(self, name: str, length: int | None, at: Any, where: Mapping[str, Any] | None) -> pa.Table:
        """The answer of a registered query for its own window, or for one no longer than that."""
        self.loop.bind()
        return self._latest(
            lambda state, registry: self._registered(state, registry[name], length, at, where)
        )

    def _registered(
        self, state: State, entry: Entry, length: int | None, at: Any, where: Mapping[str, Any] | None
    ) -> pa.Table:
        name = entry.name
        if entry.suspended is not None:
            raise StateError(f"the query {name} is suspended: {entry.suspended}")
        assert entry.compiled is not None
        whole = entry.compiled.query.window.range
        if length is not None and length > whole:
            said, most = (shown_length(entry.compiled.clock, one) for one in (length, whole))
            raise SettingError(f"{name} can be looked up for {most} or less, not for {said}")
        lookup = self._lookup(entry.compiled, whole if length is None else length, state, at, where)
        if lookup is None or not lookup.stores.keys() <= state.stores.keys():
            return lookup_schema(entry.compiled.query).empty_table()
        return self._answered(lookup, state)

    def text(self, sql: str, at: Any, where: Mapping[str, Any] | None) -> pa.Table:
        """The answer of a query that nobody registered, from what is kept for others."""
        bound = self._bound(sql)
        if bound.demand is None:
            raise SettingError("the query has SLIDE: register it; only one without SLIDE can be looked up")
        return self._latest(lambda state, registry: self._found(bound, state, registry, at, where))

    def _latest(self, ask: Callable[[State, Registry], pa.Table]) -> pa.Table:
        """Ask the last committed state; the next one, if that let go of files that were to be read."""
        while True:
            with self.loop.control_lock:
                state, registry = self.loop.state, self.loop.registry
            try:
                return ask(state, registry)
            except Exception:
                if self.loop.state is state:
                    raise

    def _found(
        self, bound: Query, state: State, registry: Registry, at: Any, where: Mapping[str, Any] | None
    ) -> pa.Table:
        looking = registry.looking(bound.stream)
        kept = _kept(bound, looking)
        if kept and bound.window.range > kept:
            said, most = (shown_length(bound.clock, one) for one in (bound.window.range, kept))
            raise SettingError(f"only {most} are kept of what the query asks for, not {said}")
        for query in _readings(bound, looking, registry.naive) if kept else ():
            lookup = self._lookup(query, bound.window.range, state, at, where)
            if lookup is None:
                return lookup_schema(query.query).empty_table()
            if lookup.stores.keys() <= state.stores.keys():
                return self._answered(lookup, state)
        raise SettingError(
            "nothing is kept that answers this query: register it, or one of the same tuples, groups and "
            "attributes with a window at least as long"
        )

    def _lookup(
        self, query: CompiledQuery, length: int, state: State, at: Any, where: Mapping[str, Any] | None
    ) -> Lookup | None:
        """The window that is asked for; None while no row has come."""
        stream, clock = self.loop.source(query.query.stream), query.clock
        end = end_of(clock, state.stream(stream.name))
        if at is not None:
            if clock.kind is ClockKind.ROWS:
                raise SettingError("windows of rows end at the newest row: leave `at` out")
            moment = instant_of(clock, at)
            if end is not None and moment < end:
                raise SettingError("a lookup ends at the newest row or later: what was before is not kept")
            end = moment if end is not None else None
        pattern = pattern_of(stream, where)
        for column, _ in pattern:
            if column not in query.key_columns:
                raise SettingError(f"the query does not group by {column}: no group can match it")
        return None if end is None else Lookup.over(query, length, end, pattern, at is not None)

    def _answered(self, lookup: Lookup, state: State) -> pa.Table:
        loop = self.loop
        if any(state.stores[key].far for key in lookup.stores):
            answer = loop.far_stores.answered(lookup, state)
            for key in lookup.stores:
                loop.desk.note(key, is_hit=False)
        else:
            answer = answered(lookup, loop.desk.reader(lookup, state))
        try:
            results = finish([answer.lowered], Moment(state.page, made=loop.clock()), loop.scalars)
        except Exception as error:
            raise PageError(f"the lookup failed: {short_message(error)}") from error
        return shown(answer, results, lookup.is_complete(state))

    # --- queries that nobody registered ---

    def _bound(self, sql: str) -> Query:
        catalog = self.loop.catalog()
        known = self._texts.get(sql)
        if known is None or known[0] != catalog:
            query = bind_all({"": sql}, catalog, self.loop.scalars, self.loop.known_queries())[""]
            if isinstance(query, SQLError):
                raise query
            known = self._texts[sql] = catalog, query
            while len(self._texts) > MOST_TEXTS:
                self._texts.popitem(last=False)
        return known[1]


def _kept(bound: Query, looking: Sequence[CompiledQuery]) -> int:
    """How long the longest window is that is kept of the same tuples; 0: they are not."""
    selection = compile_query("", bound).selection
    return max((q.query.window.range for q in looking if q.selection == selection), default=0)


def _readings(bound: Query, looking: Sequence[CompiledQuery], naive: bool) -> Iterator[CompiledQuery]:
    """The ways to read a query off what others keep; one that says USING is taken at its word."""
    yield compile_query("", bound, naive)
    if bound.demand != Demand():
        return
    yield compile_query("", replace(bound, demand=Demand("naive")), naive)
    is_plain = not computed_texts(bound) and bound.kept is None
    if is_plain and all(call.function in _BOUNDED for call in bound.calls):
        for demand in dict.fromkeys(query.query.demand for query in looking):
            if demand is not None and demand.structure == "timegram":
                yield compile_query("", replace(bound, demand=demand), naive)


def length_of(query: Query, range: str | int | timedelta | None, rows: int | None) -> int | None:
    """The length of a window from a program's words; None: the query's own."""
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
        length = parse_duration(given)  # type: ignore[arg-type]
    elif isinstance(given, bool) or not isinstance(given, int):
        raise SettingError(f"not a number: {given!r}; the query's window counts in plain numbers")
    else:
        length = given
    if length <= 0:
        raise SettingError("a window's length is positive")
    return length


def shown_length(clock: Clock, length: int) -> str:
    """A window's length, for people."""
    if clock.kind is ClockKind.TIME:
        return format_duration(length)
    return f"{length:,} rows" if clock.kind is ClockKind.ROWS else f"{length:,}"
