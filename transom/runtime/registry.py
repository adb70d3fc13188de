"""The registered queries and summaries: their texts, their compiled form, and whether they are suspended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar, cast

from transom.elements import (
    AlertTerms,
    Control,
    Describe,
    Drop,
    Edit,
    Forget,
    Register,
    Rename,
    Resume,
    Summarize,
    Summary,
)
from transom.errors import SQLError, StateError
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.results.join_clock import merged_joins
from transom.runtime.entry_maps import Change, EntryMaps
from transom.sql.binding.bind_preference_query import bind_preference_queries
from transom.sql.binding.cascades import ReadableQuery, bind_all
from transom.sql.bound_query import BoundQuery
from transom.sql.catalog import Catalog, Scalars
from transom.sql.clauses.query_parser import split_by_preference
from transom.sql.clauses.summary import bind_summary
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query, StreamJoin
from transom.state.commit_record import QueryRecord, SummaryRecord

Executable = TypeVar("Executable", CompiledQuery, PreferenceQuery)  # the kinds of queries that batches run
Made = TypeVar("Made")


@dataclass(frozen=True)
class RegisteredQuery:
    """A registered query. A suspended query has a reason. A user paused a paused one. Neither takes part in batches.

    `since` is the batch that it joined with. An edit that leaves its rows, windows and result columns as they are
    leaves `since` too. `edited` is the batch that gave it its text, 0 if it joined with it. `origin` is the name that
    it joined with, if it was renamed.
    """

    name: str
    text: str
    partial: bool = False
    since: int = 0
    suspended: str | None = None
    failing: int = 0  # batches in a row in which its own function failed
    executable: CompiledQuery | PreferenceQuery | None = None  # None: it is not bound yet, or can't be
    summaries: tuple[str, ...] = ()  # the summaries that it was bound to
    origin: str | None = None
    edited: int = 0
    paused: bool = False
    description: str = ""
    tags: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()  # of columns, for charts
    backfill: int | None = None  # the time since when retained rows are replayed for it, until that is done

    @property
    def takes_part(self) -> bool:
        """Whether it takes part in batches."""
        return self.is_active and self.backfill is None

    @property
    def is_active(self) -> bool:
        """Whether it takes part in batches, or will when retained rows were replayed for it."""
        return self.suspended is None and not self.paused

    @property
    def why_not(self) -> str | None:
        """Why it takes no part in batches; None if it does."""
        if self.suspended is not None:
            return self.suspended
        return (
            "paused"
            if self.paused
            else None
            if self.backfill is None
            else "retained rows are replayed for it"
        )

    @property
    def is_bound(self) -> bool:
        return self.executable is not None

    @property
    def bound(self) -> BoundQuery:
        """The query with its names and types resolved, of whatever kind."""
        if self.executable is None:
            raise StateError(f"the query {self.name} is suspended and can't be read: {self.why_not}")
        return self.executable.bound

    @property
    def identity(self) -> str:
        """An id that other queries of its name, earlier or later, do not have."""
        return identity(self.stored_name, self.since)

    @property
    def stored_name(self) -> str:
        """The name under which its results and late rows are stored: the one that it joined with."""
        return self.name if self.origin is None else self.origin

    @classmethod
    def of_record(cls, record: QueryRecord) -> RegisteredQuery:
        """The entry that a checkpoint stored, not bound yet."""
        return cls(
            record.name,
            record.text,
            record.partial,
            record.since,
            record.suspended,
            record.failing,
            None,
            record.summaries,
            record.origin,
            record.edited,
            record.paused,
            record.description,
            record.tags,
            record.units,
        )

    @cached_property
    def record(self) -> QueryRecord:
        """What a checkpoint stores of the entry."""
        return QueryRecord(
            self.name,
            self.text,
            self.partial,
            self.since,
            self.suspended,
            self.failing,
            self.summaries,
            self.origin,
            self.edited,
            self.paused,
            self.description,
            self.tags,
            self.units,
        )


def identity(name: str, since: int) -> str:
    """The id of a query: its name and the batch that it joined with. Names are reused, ids are not."""
    return f"{name}@{since}"


@dataclass(frozen=True)
class SummaryEntry:
    """A summary, with the batch that created it. A suspended summary has a reason, and takes in no rows."""

    name: str
    text: str
    since: int = 0
    summary: Summary | None = None
    suspended: str | None = None

    @property
    def key(self) -> str:
        """What distinguishes it from a query of the same name."""
        return summary_key(self.name)


def summary_key(name: str) -> str:
    """The name of a summary where queries are named too; names of queries have no spaces."""
    return f"summary {name}"


def _derived_reader(entry: RegisteredQuery) -> Query | None:
    """The bound query, if it reads a derived stream."""
    executable = entry.executable
    return (
        executable.query
        if isinstance(executable, CompiledQuery) and executable.query.derived is not None
        else None
    )


def _without_summary(name: str) -> str:
    """Why a query is suspended that reads a suspended summary."""
    return f"the summary {name} is suspended"


def _unreadable(what: str, error: SQLError) -> StateError:
    return StateError(f"{what} of the checkpoint can't be read any more: {error}")


class Registry:
    """All entries by name. Entries of a checkpoint are bound when the streams that they read are declared."""

    def __init__(
        self,
        queries: Iterable[QueryRecord] = (),
        naive: bool = False,
        summaries: Iterable[SummaryRecord] = (),
        views: Mapping[str, str] | None = None,
        backfills: Mapping[str, int] | None = None,
    ):
        self.entries = {record.name: RegisteredQuery.of_record(record) for record in queries}
        for name, since in (backfills or {}).items():
            self.entries[name] = replace(self.entries[name], backfill=since)
        self.created = {
            record.name: SummaryEntry(record.name, record.text, record.since, suspended=record.suspended)
            for record in summaries
        }
        self.views = dict(views or {})  # the SELECT of each view, by name
        self.naive = naive
        self.is_bound = not self.entries and not self.created  # whether all entries are
        self._maps: EntryMaps[RegisteredQuery] = EntryMaps()
        self._lists: dict[object, Any] = {}  # of queries, made once: every batch reads them many times

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> RegisteredQuery:
        try:
            return self.entries[name]
        except KeyError:
            raise StateError(f"there is no query named {name}") from None

    def __iter__(self) -> Iterator[RegisteredQuery]:
        return iter(self.entries.values())

    def of_kind(self, kind: type[Executable]) -> dict[str, Executable]:
        """The bound queries of a kind by name, suspended ones included."""
        return self._mapped(
            ("bound", kind), lambda entry: entry.executable if isinstance(entry.executable, kind) else None
        )

    def living_of_kind(self, kind: type[Executable]) -> dict[str, Executable]:
        """The queries of a kind that take part in batches, by name."""
        return self._mapped(
            ("living", kind),
            lambda entry: (
                entry.executable if isinstance(entry.executable, kind) and entry.takes_part else None
            ),
        )

    def _mapped(self, what: object, value: Callable[[RegisteredQuery], Made | None]) -> dict[str, Made]:
        """What `value` makes of each entry, by name, without None; callers do not change it."""
        return self._maps.of(what, self.entries, value)

    def _living(self, what: object, value: Callable[[CompiledQuery], Made | None]) -> dict[str, Made]:
        """What `value` makes of each query with a window or without one that takes part in batches, by name."""

        def of_entry(entry: RegisteredQuery) -> Made | None:
            executable = entry.executable
            return value(executable) if isinstance(executable, CompiledQuery) and entry.takes_part else None

        return self._mapped(what, of_entry)

    def _once(self, what: object, make: Callable[[], Made]) -> Made:
        """What `make` makes of the entries, made once until they change; callers do not change it."""
        if what not in self._lists:
            self._lists[what] = make()
        return cast(Made, self._lists[what])

    def _put(self, entry: RegisteredQuery) -> None:
        self._maps.note(entry.name, Change.CHANGED if entry.name in self.entries else Change.ADDED)
        self.entries[entry.name] = entry
        self._lists = {}

    def alert_terms(self) -> dict[str, AlertTerms]:
        """The terms of the alerts in the texts of window queries, by the queries' names."""

        def make() -> dict[str, AlertTerms]:
            queries = self.of_kind(CompiledQuery).items()
            return {name: each.query.alert for name, each in queries if each.query.alert is not None}

        return self._once("alerts", make)

    def executable(self, name: str, kind: type[Executable]) -> Executable:
        """A bound query of a kind; StateError if it can't be bound any more."""
        entry = self[name]
        if not isinstance(entry.executable, kind):
            raise StateError(f"the query {name} is suspended and can't be read: {entry.why_not}")
        return entry.executable

    def query_records(self) -> tuple[QueryRecord, ...]:
        """What a checkpoint stores of the queries."""
        records = self._mapped("records", attrgetter("record"))
        return self._once("records", lambda: tuple(records.values()))

    def summary_records(self) -> tuple[SummaryRecord, ...]:
        """What a checkpoint stores of the summaries."""
        return tuple(
            SummaryRecord(entry.name, entry.text, entry.since, entry.suspended)
            for entry in self.created.values()
        )

    def bind(self, catalog: Catalog, scalars: Scalars, control: Iterable[Control] = ()) -> None:
        """Compile the entries that came from a checkpoint, except those that `control` drops.

        A suspended or paused query that can't be bound any more stays as it is, and so does one that `control` edits.
        """
        if self.is_bound:
            return
        control = list(control)
        leaving = {element.name for element in control if isinstance(element, Drop)}
        edited = {element.name for element in control if isinstance(element, Edit)}
        forgotten = {element.name for element in control if isinstance(element, Forget)}
        for name, created in self.created.items():
            if created.summary is None and name not in forgotten:
                try:
                    self.created[name] = replace(created, summary=bind_summary(created.text, catalog))
                except SQLError as error:
                    raise _unreadable(f"the summary {name}", error) from error
        catalog = replace(catalog, summaries=self.summaries(), views=self.views)
        unbound = {e.name: e.text for e in self if not e.is_bound and e.name not in leaving}
        plain, with_preference = split_by_preference(unbound)
        alike: dict[tuple[str, ...], dict[str, str]] = {}
        for name, text in with_preference.items():
            alike.setdefault(tuple(self.entries[name].summaries), {})[name] = text
        for names, texts in alike.items():  # each bound to the summaries it had: there may be others by now
            bound_summaries = {name: summary for name, summary in self.summaries().items() if name in names}
            for name, preference_query in bind_preference_queries(
                texts, catalog, scalars, bound_summaries
            ).items():
                if isinstance(preference_query, SQLError):
                    if not self.entries[name].takes_part or name in edited:
                        continue
                    raise _unreadable(f"the query {name}", preference_query) from preference_query
                self._put(replace(self.entries[name], executable=preference_query))
        for name, query in bind_all(plain, catalog, scalars, self.readable()).items() if plain else ():
            if isinstance(query, SQLError):
                if not self.entries[name].takes_part or name in edited:
                    continue
                raise _unreadable(f"the query {name}", query) from query
            self._put(replace(self.entries[name], executable=compile_query(name, query, self.naive)))
        self.is_bound = all(entry.is_bound or not entry.takes_part for entry in self)

    def add_preference_query(
        self, control: Register, preference_query: PreferenceQuery, batch_id: int
    ) -> None:
        """Add a query with a preference."""
        names = tuple(side.summary for side in preference_query.sides)
        self._put(
            RegisteredQuery(
                control.name, control.text, since=batch_id, executable=preference_query, summaries=names
            )
        )

    def summarize(self, control: Summarize, summary: Summary, batch_id: int) -> None:
        """Add a summary."""
        self.created[control.name] = SummaryEntry(control.name, control.text, batch_id, summary)

    def forget(self, control: Forget) -> None:
        self.created.pop(control.name, None)

    def suspend(self, reasons: Mapping[str, str]) -> None:
        """Let queries and summaries (by their keys) take no part in batches any more, and say why.

        A query that reads a suspended summary is suspended with it.
        """
        for entry in list(self.created.values()):
            if entry.key in reasons:
                self.created[entry.name] = replace(entry, suspended=reasons[entry.key])
        lost = {entry.name for entry in self.created.values() if entry.suspended is not None}
        for query in list(self) if reasons or lost else ():
            reason = reasons.get(query.name)
            if reason is None and query.suspended is None and not lost.isdisjoint(query.summaries):
                reason = _without_summary(min(lost & set(query.summaries)))
            if reason is not None:
                self.update(query.name, suspended=reason, failing=0)

    def resume(self, control: Resume) -> bool:
        """Let a suspended or paused query take part in batches again; whether it did not, and can be bound.

        Suspended summaries that it reads are resumed with it, empty, and so are the other queries that wait for them.
        """
        entry = self.entries.get(control.name)
        if entry is None or entry.takes_part or not entry.is_bound:
            return False
        for name in entry.summaries:
            if (summary := self.created.get(name)) is not None and summary.suspended is not None:
                self.created[name] = replace(summary, suspended=None)
                for waiting in [other for other in self if other.suspended == _without_summary(name)]:
                    self.update(waiting.name, suspended=None, failing=0)
        self.update(entry.name, suspended=None, failing=0, paused=False)
        return True

    def pause(self, name: str) -> None:
        """Let a query take no part in batches until it is resumed."""
        if name in self.entries:
            self.update(name, paused=True)

    def describe(self, control: Describe) -> None:
        """Give a query a description, tags and units."""
        if control.name in self.entries:
            self.update(control.name, description=control.description, tags=control.tags, units=control.units)

    def rename(self, control: Rename, batch_id: int) -> bool:
        """Give a query another name, in its place among the others; whether there is such a query.

        Its results stay where they are. A query that joins with the same batch has none yet.
        """
        entry = self.entries.get(control.name)
        if entry is None or control.to in self.entries:
            return False
        executable = entry.executable
        if isinstance(executable, CompiledQuery):
            executable = replace(executable, name=control.to)
        origin = entry.stored_name if entry.since < batch_id else None
        renamed = replace(entry, name=control.to, executable=executable, origin=origin)
        self.entries = {
            renamed.name if name == entry.name else name: renamed if name == entry.name else other
            for name, other in self.entries.items()
        }
        self._maps.clear()
        self._lists = {}
        return True

    def members(self) -> list[str]:
        """The keys of all queries and summaries that take part in batches, oldest first."""
        keys = [(e.since, e.key) for e in self.created.values() if e.suspended is None]
        keys += [(max(e.since, e.edited), e.name) for e in self if e.takes_part]
        return [key for _, key in sorted(keys, key=lambda since_and_key: since_and_key[0])]

    def summaries(self) -> dict[str, Summary]:
        """The bound summaries by name, suspended ones included."""
        return {entry.name: entry.summary for entry in self.created.values() if entry.summary is not None}

    def living_summaries(self) -> dict[str, Summary]:
        """The summaries that take part in batches, by name."""
        living = (entry for entry in self.created.values() if entry.suspended is None)
        return {entry.name: entry.summary for entry in living if entry.summary is not None}

    def newest(self) -> tuple[dict[str, tuple[Summary, int]], dict[str, tuple[PreferenceQuery, int]]]:
        """Summaries and queries with a preference, each with the batch that it joined with."""
        summaries = {
            name: (summary, self.created[name].since) for name, summary in self.living_summaries().items()
        }
        return summaries, {
            name: (query, self[name].since) for name, query in self.preference_queries().items()
        }

    def preference_queries(self) -> dict[str, PreferenceQuery]:
        """The queries with a preference that take part in batches, by name."""
        return self.living_of_kind(PreferenceQuery)

    def read_preferences(self) -> dict[str, PreferenceQuery]:
        """Those of these queries whose results others read that take part in batches."""
        read = self.streams()
        return {name: query for name, query in self.preference_queries().items() if name in read}

    def add_unbound(self, control: Register, batch_id: int, reason: str) -> None:
        """Add a query that made the batch it joins with fail before it was bound."""
        self._put(RegisteredQuery(control.name, control.text, control.partial, batch_id, suspended=reason))
        self.is_bound = False

    def add(
        self, control: Register, query: Query, batch_id: int, compiled: CompiledQuery | None = None
    ) -> None:
        """Add a window query; `compiled` is what was made of it when it was registered."""
        if compiled is None or compiled.query is not query:
            compiled = compile_query(control.name, query, self.naive)
        self._put(
            RegisteredQuery(
                control.name,
                control.text,
                control.partial,
                batch_id,
                executable=compiled,
                backfill=control.since,
            )
        )

    def backfills(self) -> dict[str, int]:
        """The queries that retained rows are replayed for, each with the time since when."""
        return self._mapped("backfills", attrgetter("backfill"))

    def put_in_place_of(self, before: RegisteredQuery, batch_id: int, continues: bool) -> None:
        """Let a query that was just added with an edit have what belongs to the name: description, tags, units, pause.

        If it `continues`, its results and its account go on; otherwise they begin with the batch.
        """
        self.update(
            before.name,
            since=before.since if continues else batch_id,
            origin=before.origin if continues else None,
            edited=batch_id,
            paused=before.paused,
            description=before.description,
            tags=before.tags,
            units=before.units,
        )

    def queries(self) -> dict[str, Query]:
        """The bound window queries by name."""
        return self._mapped(
            "queries",
            lambda entry: entry.executable.query if isinstance(entry.executable, CompiledQuery) else None,
        )

    def readable(self) -> dict[str, ReadableQuery]:
        """The bound queries whose results others may read, by name."""
        return {**self.queries(), **self.of_kind(PreferenceQuery)}

    def derived_readers(self) -> list[Query]:
        """The bound window queries that read derived streams."""
        reading = self._mapped("derived readers", _derived_reader)
        return self._once("derived readers", lambda: list(reading.values()))

    def query(self, name: str) -> Query:
        """A bound window query."""
        return self.executable(name, CompiledQuery).query

    def remove(self, control: Drop) -> None:
        self.entries.pop(control.name, None)
        self._maps.note(control.name, Change.REMOVED)
        self._lists = {}

    def update(self, name: str, **changes: Any) -> None:
        self._put(replace(self.entries[name], **changes))

    def everyone(self) -> list[CompiledQuery]:
        """The queries that take part in batches, standing or on demand."""
        return self._once("everyone", lambda: list(self.living_of_kind(CompiledQuery).values()))

    def streams(self) -> frozenset[str]:
        """The streams that these queries read, also those that are results of other queries."""
        streams = self._living("streams", attrgetter("query.stream"))
        return self._once("streams", lambda: frozenset(streams.values()))

    def bound(self) -> dict[str, BoundQuery]:
        """The bound queries of all kinds by name, suspended ones included."""
        return self._mapped("bound", lambda entry: entry.bound if entry.is_bound else None)

    def identities(self) -> dict[str, str]:
        """The identity of each query by name."""
        return self._mapped("identities", attrgetter("identity"))

    def partial_readers(self) -> frozenset[str]:
        """The names of the queries that also want windows that they saw only in part."""
        partial = self._mapped("partial", lambda entry: entry.name if entry.partial else None)
        return self._once("partial", lambda: frozenset(partial))

    def functions(self) -> dict[str, Collection[str]]:
        """The user-defined functions of queries that take part in batches, by the names of those that have any."""
        return self._mapped(
            "functions",
            lambda entry: (entry.bound.functions or None) if entry.is_bound and entry.takes_part else None,
        )

    def living(self) -> list[CompiledQuery]:
        """The standing queries that take part in batches."""
        standing = self.compiled()
        return self._once("living", lambda: list(standing.values()))

    def on_demand(self) -> list[CompiledQuery]:
        """The on-demand queries that take part in batches."""
        on_demand = self._living("on demand", lambda query: query if query.is_on_demand else None)
        return self._once("on demand", lambda: list(on_demand.values()))

    def compiled(self) -> dict[str, CompiledQuery]:
        """The standing queries that take part in batches, by name."""
        return self._living("compiled", lambda query: query if query.is_standing else None)

    def reading(self, stream: str) -> list[CompiledQuery]:
        """The standing queries over a stream that take part in batches."""
        what = "reading", stream
        reading = self._living(
            what, lambda query: query if query.is_standing and query.query.stream == stream else None
        )
        return self._once(what, lambda: list(reading.values()))

    def looking(self, stream: str) -> list[CompiledQuery]:
        """The on-demand queries over a stream that take part in batches."""
        return self._once(
            ("looking", stream), lambda: [query for query in self.on_demand() if query.query.stream == stream]
        )

    def row_queries(self, stream: str) -> list[CompiledQuery]:
        """The row queries over a stream that take part in batches."""
        by_stream = self._once("row queries", self._row_queries)
        return by_stream.setdefault(stream, [])  # the same list while no query changes

    def _row_queries(self) -> dict[str, list[CompiledQuery]]:
        by_stream: dict[str, list[CompiledQuery]] = {}
        for query in self._living(
            "row queries", lambda query: query if query.is_row_query else None
        ).values():
            by_stream.setdefault(query.query.stream, []).append(query)
        return by_stream

    def stream_joins(self) -> dict[str, StreamJoin]:
        """The joins of two streams, by the streams of their pairs, with all columns that queries read."""
        joins = self._living("stream joins", attrgetter("query.stream_join"))
        return self._once("stream joins", lambda: merged_joins(list(joins.values())))

    def copy(self) -> Registry:
        other = Registry(naive=self.naive, views=self.views)
        other.entries, other.created, other.is_bound = dict(self.entries), dict(self.created), self.is_bound
        other._maps, other._lists = self._maps.copy(), dict(self._lists)
        return other
