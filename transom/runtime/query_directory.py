"""The registered queries and summaries: as the last committed batch left them, and with the control that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from transom.elements import (
    Control,
    CreateView,
    Drop,
    DropView,
    Forget,
    Register,
    Rename,
    Summarize,
    Summary,
)
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.ingest.sources import ResultSource
from transom.ingest.streams import Stream
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.results.cascade import derived_rules
from transom.results.join_clock import merged_joins, pair_rules
from transom.results.preference_input import preference_rules
from transom.runtime.declarations import Declared
from transom.runtime.membership import Newcomers
from transom.runtime.registry import Registry
from transom.sql.binding.bind_preference_query import bind_preference_query
from transom.sql.binding.cascades import ReadableQuery, bind_all, relation_of, sources_of, views_read
from transom.sql.binding.promises import summaries_on
from transom.sql.catalog import Catalog
from transom.sql.clauses.query_parser import has_preference
from transom.sql.clauses.summary import bind_summary
from transom.sql.preference_query import PreferenceQuery
from transom.sql.promise import EstimatedCount, leaves
from transom.sql.query import Query, StreamJoin
from transom.state.batch_intent import BatchIntent


@dataclass
class WaitingControl:
    """Control that no batch is bound to yet, and streams that end with the next one."""

    control: list[Control] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.control or self.ended)


class QueryDirectory:
    """The queries and summaries by name, those that wait for the next batch included.

    `registry` is the committed one and `intent` what was written ahead for a batch that is not committed;
    the batch loop replaces both.
    """

    def __init__(self, declared: Declared, registry: Registry, intent: BatchIntent | None):
        self.declared, self.registry, self.intent = declared, registry, intent
        self.lock = threading.RLock()  # of what follows; held for moments only
        self.waiting = WaitingControl()
        # Queries by name, as they will be when the waiting control has taken effect.
        self.texts: dict[str, str] = {}
        self.bound: dict[str, Query] = {}  # by text: queries that wait to join
        self.compiled: dict[str, CompiledQuery] = {}  # by name: the same
        self.bound_preference_queries: dict[str, PreferenceQuery] = {}  # those WITH PREFERENCE, likewise
        self._numbered = 0  # names q1, q2, ... that this run of the program was given
        for element in (
            *(Register(entry.name, entry.text) for entry in registry),
            *(intent.control if intent else ()),
        ):
            self._note(element)

    def catalog(self) -> Catalog:
        """The names that queries can use."""
        catalog = self.declared.catalog()
        return replace(catalog, summaries=self._summaries(catalog), views=self.views())

    def views(self) -> dict[str, str]:
        """The texts of the views by name, with the waiting control applied."""
        with self.lock:
            views = dict(self.registry.views)
            bound = self.intent.control if self.intent is not None else ()
            for element in (*bound, *self.waiting.control):
                if isinstance(element, CreateView):
                    views[element.name] = element.text
                elif isinstance(element, DropView):
                    views.pop(element.name, None)
            return views

    def view_readers(self, view: str) -> list[str]:
        """The queries and views that read a view, directly or through other views.

        A query that joins with the next batch reads it even if it is dropped by then: the batch binds it.
        """
        with self.lock:
            views = self.views()
            joining = {e.name: e.text for e in self.waiting.control if isinstance(e, Register)}
            readers = {
                **joining,
                **self.texts,
                **{name: text for name, text in views.items() if name != view},
            }
            return [name for name, text in readers.items() if view in views_read(text, views)]

    def _summaries(self, catalog: Catalog) -> dict[str, Summary]:
        """The summaries by name, with the waiting control applied."""
        summaries = {}
        for entry in self.registry.created.values():
            with suppress(SQLError):  # its stream is gone: it can't be read, but it can be dropped
                summaries[entry.name] = entry.summary or bind_summary(entry.text, catalog)
        with self.lock:
            bound = self.intent.control if self.intent is not None else ()
            for element in (*bound, *self.waiting.control):
                if isinstance(element, Summarize):
                    summaries[element.name] = bind_summary(element.text, catalog)
                elif isinstance(element, Forget):
                    summaries.pop(element.name, None)
        return summaries

    def summary_names(self) -> list[str]:
        """All summaries, also those of streams that are gone, with the waiting control applied."""
        names = dict.fromkeys(self.registry.created)
        bound = self.intent.control if self.intent is not None else ()
        for element in (*bound, *self.waiting.control):
            if isinstance(element, Summarize):
                names[element.name] = None
            elif isinstance(element, Forget):
                names.pop(element.name, None)
        return list(names)

    def users(self, summary: str) -> list[str]:
        """The queries that read a summary, with the waiting control applied."""
        with suppress(StateError):  # of a stream that is gone
            self.bind()
        readers = [
            name
            for name, query in self.known_preference_queries().items()
            if summary in (side.summary for side in query.sides)
        ]
        return [*readers, *self._counting(summary)]

    def _counting(self, summary: str) -> list[str]:
        """The window queries that prefer rows by counts that no other summary has."""
        summaries = self.catalog().summaries
        counted = summaries.get(summary)
        if counted is None or len(summaries_on(summaries, counted.stream, counted.column)) > 1:
            return []
        overloads = {name: query.overload for name, query in self.known_queries().items()}
        count = EstimatedCount(counted.stream, counted.column)
        return [
            name
            for name, overload in overloads.items()
            if overload is not None and count in leaves(overload.promise)
        ]

    def bind(self) -> None:
        """Bind the queries of a checkpoint, before its first batch."""
        if not self.registry.is_bound:
            self.registry.bind(self.catalog(), self.declared.backend.scalars)
            self.declared.adopt(self.registry.queries().values())

    def push(self, control: Iterable[Control]) -> None:
        """Queue control for the next batch. It does not wait for a batch that is running."""
        with self.lock:
            for element in control:
                self.waiting.control.append(element)
                self._note(element)

    def register(
        self,
        texts: Mapping[str, str],
        bound: Mapping[str, Query],
        preference_queries: Mapping[str, PreferenceQuery],
        compiled: Mapping[str, CompiledQuery],
        partial: bool,
        starts: Mapping[str, int],
    ) -> int:
        """Let queries that were bound join with the next batch, but those that are registered; how many join.

        `starts` are the times since when retained rows are replayed for some of them.
        """
        with self.lock:
            new = {name: text for name, text in texts.items() if not self._is_registered(name, text)}
            self.bound |= {text: bound[name] for name, text in new.items() if name in bound}
            self.compiled |= {name: compiled[name] for name in new if name in compiled}
            self.bound_preference_queries |= {
                text: preference_queries[name] for name, text in new.items() if name in preference_queries
            }
            self.push(Register(name, text, partial, starts.get(name)) for name, text in new.items())
        return len(new)

    def _is_registered(self, name: str, text: str) -> bool:
        """Whether a query is registered already, perhaps by an earlier run of the program."""
        registered = self.texts.get(name)
        if registered is not None and registered != text:
            raise StateError(
                f"a query named {name} is registered already, with another text; edit or drop it"
            )
        return registered is not None

    def free_name(self, text: str) -> str:
        """The next of q1, q2, ...; that of an earlier run of the program if it is the same query."""
        while True:
            self._numbered += 1
            if self.texts.get(f"q{self._numbered}", text) == text:
                return f"q{self._numbered}"

    def _note(self, element: Control) -> None:
        if isinstance(element, Register):
            self.texts[element.name] = element.text
        elif isinstance(element, Drop):
            self.texts.pop(element.name, None)
        elif isinstance(element, Rename) and element.name in self.texts:
            self.texts = {
                element.to if name == element.name else name: text for name, text in self.texts.items()
            }

    def text(self, name: str) -> str:
        """The text of a query that is registered, or waits to join."""
        texts = dict(self.texts)
        if name not in texts:
            raise StateError(f"there is no query named {name}{near_miss(name, texts)}")
        return texts[name]

    def drop(self, name: str) -> None:
        """Drop a query with the next batch."""
        with self.lock:
            if name not in self.texts:
                raise StateError(f"there is no query named {name}")
            if readers := self.readers(name):
                raise StateError(f"{name} is read by {', '.join(readers[:3])}: drop that first")
            self.push([Drop(name)])

    def source(self, name: str) -> Stream:
        """A declared stream, or the stream that a query's results are to others."""
        if name in self.declared.streams:
            return self.declared.streams[name]
        self.bind()
        if (join := self.stream_joins().get(name)) is not None:
            return Stream(name, join.pair_columns, pair_rules(join), ResultSource())
        if (preferred := self.known_preference_queries().get(name)) is not None:
            columns = dict(relation_of(name, preferred).columns)
            return Stream(name, columns, preference_rules(name, preferred), ResultSource())
        query = self.registry.query(name) if name in self.registry else self.waiting_queries().get(name)
        if query is None:
            names = [*self.declared.streams, *self.texts]
            raise SettingError(f"there is no stream or query named {name}{near_miss(name, names)}")
        columns = dict(relation_of(name, query).columns)
        return Stream(name, columns, derived_rules(compile_query(name, query)), ResultSource())

    def stream_joins(self) -> dict[str, StreamJoin]:
        """The joins of two streams that queries read, with the waiting control applied."""
        joins = (query.stream_join for query in self.known_queries().values())
        return merged_joins([join for join in joins if join is not None])

    def waiting_queries(self) -> dict[str, Query]:
        """The bound queries that join with the next batch."""
        with self.lock:
            joining = [element for element in self.waiting.control if isinstance(element, Register)]
            return {
                e.name: self.bound[e.text]
                for e in joining
                if e.text in self.bound and self.texts.get(e.name) == e.text
            }

    def known_preference_queries(self) -> dict[str, PreferenceQuery]:
        """The queries WITH PREFERENCE that are bound, with the waiting control applied."""
        joined = self.registry.of_kind(PreferenceQuery)
        waiting = {
            name: self.bound_preference_queries[text]
            for name, text in self.texts.items()
            if text in self.bound_preference_queries
        }
        return {name: query for name, query in (joined | waiting).items() if name in self.texts}

    def known_queries(self) -> dict[str, Query]:
        """The window queries that another query can read, with the waiting control applied."""
        joined = {
            name: query
            for name, query in self.registry.queries().items()
            if self.texts.get(name) == self.registry[name].text
        }
        return joined | self.waiting_queries()

    def readable_queries(self, texts: Iterable[str]) -> dict[str, ReadableQuery]:
        """The queries that these texts can read; those of a checkpoint are bound first if a text names one.

        They stay unbound while one of their streams is not declared.
        """
        if not self.registry.is_bound:
            views, names = self.views(), {entry.name.casefold() for entry in self.registry}
            sources = {source.casefold() for text in texts for source in sources_of(text, views=views)}
            if sources & names:
                with suppress(StateError):
                    self.bind()
        return {**self.known_queries(), **self.known_preference_queries()}

    def readers(self, name: str) -> list[str]:
        """The queries that read another's results."""
        if name in self.declared.streams:
            return []
        word = name.casefold()
        views = self.views()
        reading = [
            other
            for other, text in self.texts.items()
            if (views or word in text.casefold()) and word in map(str.casefold, sources_of(text, views=views))
        ]
        return reading + [
            view for view, text in views.items() if word in map(str.casefold, sources_of(text, views=views))
        ]

    def newcomers(self, intent: BatchIntent, registry: Registry) -> Newcomers:
        """What joins with a batch. Most of it was bound when it was registered; the rest is bound now.

        A query that the batch leaves out is bound only if it was before.
        """
        control = intent.control
        # A query that joins and leaves with the batch may read a view that is dropped with it.
        created = {element.name: element.text for element in control if isinstance(element, CreateView)}
        catalog = replace(self.catalog(), views={**registry.views, **created})
        summaries = {e.text: bind_summary(e.text, catalog) for e in control if isinstance(e, Summarize)}
        bound_texts = self.bound.keys() | self.bound_preference_queries.keys()
        joining = [
            element
            for element in control
            if isinstance(element, Register)
            and (element.name not in intent.suspended or element.text in bound_texts)
        ]
        preference_queries = {}
        unknown = [element.text for element in joining if element.text not in self.bound]
        for text in [text for text in unknown if has_preference(text)]:
            if text not in self.bound_preference_queries:
                self.bound_preference_queries[text] = bind_preference_query(
                    text, catalog, self.declared.backend.scalars, catalog.summaries
                )
            preference_queries[text] = self.bound_preference_queries[text]
        plain = [element for element in joining if element.text not in preference_queries]
        preferred = {e.name: preference_queries[e.text] for e in joining if e.text in preference_queries}
        queries = self._bound_queries(plain, {**registry.readable(), **preferred}, catalog)
        compiled = {
            element.name: self.compiled[element.name] for element in plain if element.name in self.compiled
        }
        return Newcomers(queries, preference_queries, summaries, compiled)

    def joined(self, control: Iterable[Control]) -> None:
        """Forget the bound forms of what joined with a committed batch: the registry has them."""
        for element in control:
            if isinstance(element, Register):
                self.bound.pop(element.text, None)
                self.compiled.pop(element.name, None)
                self.bound_preference_queries.pop(element.text, None)

    def take_drops(self) -> list[Control]:
        """The waiting drops that can take effect at once, before the control that waits with them.

        A drop waits behind a registration of the same name, or of a query that may read what is dropped, and behind a
        query that gets the name.
        """
        with self.lock:
            taken: list[Control] = []
            left: list[Control] = []
            for element in self.waiting.control:
                is_first = isinstance(element, Drop | Forget) and not any(
                    (isinstance(before, Rename) and element.name in (before.name, before.to))
                    or (
                        isinstance(before, Register | Summarize)
                        and (before.name == element.name or element.name.casefold() in before.text.casefold())
                    )
                    for before in left
                )
                (taken if is_first else left).append(element)
            self.waiting.control = left
            return taken

    def _bound_queries(
        self, joining: Iterable[Register], readable: Mapping[str, ReadableQuery], catalog: Catalog
    ) -> dict[str, Query]:
        joining = list(joining)
        texts = {element.name: element.text for element in joining}
        missing = {name: text for name, text in texts.items() if text not in self.bound}
        bound = {**readable, **{n: self.bound[t] for n, t in texts.items() if t in self.bound}}
        # A query that is edited twice with one batch has several texts: the last counts, the others are bound too.
        earlier = [{e.name: e.text} for e in joining if e.text not in self.bound and e.text != texts[e.name]]
        for unbound in filter(None, [missing, *earlier]):
            for name, query in bind_all(unbound, catalog, self.declared.backend.scalars, bound).items():
                if isinstance(query, SQLError):
                    raise StateError(f"a query written ahead can't be read any more: {query}") from query
                self.bound[unbound[name]] = query
        return {text: self.bound[text] for text in {element.text for element in joining}}
