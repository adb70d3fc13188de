"""Queries over queries: the results of one are a stream to another (the end of the thesis's section 3.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.binding.bind import bind
from transom.sql.binding.nested_sources import FromName, nested_sources
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.clauses.end_clauses import END_CLAUSES, end_clause_at
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import result_stream
from transom.sql.query import Query, free_name
from transom.sql.syntax.spark_parser import query_tokens

_FROM = re.compile(r"(?i)\bfrom\b")
_UNSURE = re.compile(r"['\"`]|--|/\*")  # with these in a text, a FROM may be inside of an expression
_PIECE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/"  # skipped
    r"|(`[^`]*`|[^\W\d]\w*|[\[\](),])",
    re.DOTALL,
)
_END_OF_FROM = {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "LATERAL"}
_OPENINGS = {tuple(opening.split()) for reader in END_CLAUSES for opening in reader.openings}
_FIRST_WORDS = {opening[0] for opening in _OPENINGS}
# A table function or a query in FROM, or WITH: the names are not all behind one FROM.
_NESTED = re.compile(
    r"(?i)\bfrom\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:\(|table\b|tumble\b|hop\b|cumulate\b)"
    r"|^[^a-z]*with\b|\bunion\b",
    re.DOTALL,
)
_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}


ReadableQuery = Query | PreferenceQuery  # the kinds of queries whose results others may read


def relation_of(name: str, query: ReadableQuery) -> Relation:
    """The results of a query as a stream: window bounds, items, and the number of rows.

    A result's time is `window_time`, the last moment inside of its window. System columns get a prefix if
    an item has their name, as in the results. Those of a query WITH PREFERENCE have no window.
    """
    if isinstance(query, PreferenceQuery):
        return result_stream(name, query)
    if query.is_row_query:
        raise SQLError(row_query_message(name), query.text)
    if query.corrections is not None:
        raise SQLError(corrections_message(name), query.text)
    if query.window.is_keyed:
        message = f"{name} has PARTITION BY in its window: each key has its own row numbers, so no query can read it"
        raise SQLError(message, query.text)
    taken = {item.name for item in query.items}
    time = free_name("window_time", taken)
    system = {free_name(column, taken): query.clock_type for column in ("window_start", "window_end")}
    items = {item.name: item.type for item in query.items}
    columns = system | {time: query.clock_type} | items | {free_name("rows", taken): pa.int64()}
    return Relation(name, columns, time, "it is a query; join the streams themselves", is_declared=False)


def corrections_message(name: str) -> str:
    """Why no query can read the results of a query with EMIT CORRECTIONS, and what to do."""
    return (
        f"{name} has EMIT CORRECTIONS: no query can read its results, because a window over them would be final before "
        "they are; register the inner query once more without the clause"
    )


def _unreadable(name: str, query: ReadableQuery) -> str | None:
    """Why no query can read the results of a query; None if one can."""
    if isinstance(query, PreferenceQuery):
        return None
    if query.is_on_demand:
        return f"{name} has no SLIDE: it is looked up, and has no results to read"
    if query.is_row_query:
        return row_query_message(name)
    return None if query.corrections is None else corrections_message(name)


def row_query_message(name: str) -> str:
    """Why no query can read the results of a row query, and what to do."""
    return f"{name} has no window: no query can read its results; create a view for others to read"


def sources_of(
    text: str, tables: Collection[str] = (), views: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The names in FROM except tables, found without parsing. A view is replaced by the names that it reads.

    >>> sources_of("SELECT max(n) FROM per_sensor P [RANGE 5 s SLIDE 1 s], sites WHERE P.site = sites.site")
    ('per_sensor', 'sites')
    """
    folded = {table.casefold() for table in tables}
    sources = _sources_through_views(text, views or {})
    return tuple(source.name for source in sources if source.name.casefold() not in folded)


def views_read(text: str, views: Mapping[str, str]) -> list[str]:
    """The views that a text reads, directly or through other views.

    >>> views_read("SELECT count(*) FROM b", {"a": "SELECT * FROM s", "b": "SELECT * FROM A", "c": "SELECT * FROM s"})
    ['b', 'a']
    """
    spelled = {name.casefold(): name for name in views}
    names: dict[str, None] = {}
    texts = [text]
    while texts and spelled:
        for source in _sources(texts.pop()):
            name = spelled.get(source.name.casefold())
            if name is not None and name not in names:
                names[name] = None
                texts.append(views[name])
    return list(names)


def bind_all(
    texts: Mapping[str, str],
    catalog: Catalog,
    scalars: Scalars,
    registered: Mapping[str, ReadableQuery],
) -> dict[str, Query | SQLError]:
    """Bind named queries that may read each other's results, and those of queries that are bound already.

    Streams and tables take precedence over queries of the same name, and the given texts over bound queries.
    """
    binder = _CascadeBinder(texts, catalog, scalars, registered)
    binder.bind()
    return {name: binder.outcome[name] for name in texts}


class _CascadeBinder:
    """Binds queries in the order in which they read one another."""

    def __init__(
        self,
        texts: Mapping[str, str],
        catalog: Catalog,
        scalars: Scalars,
        registered: Mapping[str, ReadableQuery],
    ):
        self.texts, self.scalars, self.registered = texts, scalars, registered
        self.catalog = replace(catalog, queries=frozenset({*texts, *registered}))
        self.outcome: dict[str, Query | SQLError] = {}
        self._declared = {name.casefold() for name in (*catalog.streams, *catalog.tables)}
        self._folded: dict[str, str] | None = None

    def bind(self) -> None:
        """Bind the queries that read only streams, then those that read these queries, and so on."""
        waiting: dict[str, list[tuple[FromName, str]]] = {}
        for name, text in self.texts.items():
            if inner := self._inner(text):
                waiting[name] = inner
        self.outcome |= bind(self._without(waiting), self.catalog, self.scalars)
        while waiting:
            ready = [
                name
                for name, inner in waiting.items()
                if all(self._is_bound(inner_name) for _, inner_name in inner)
            ]
            if ready:
                self._bind_ready({name: waiting.pop(name) for name in ready})
            else:
                self._refuse_circle(waiting)

    def _without(self, waiting: Collection[str]) -> Mapping[str, str]:
        return (
            {name: text for name, text in self.texts.items() if name not in waiting}
            if waiting
            else self.texts
        )

    def _inner(self, text: str) -> list[tuple[FromName, str]]:
        """The queries that a text reads: their names and positions."""
        inner = []
        for source in _sources_through_views(text, self.catalog.views):
            if (
                source.name.casefold() not in self._declared
                and (name := self._query(source.name)) is not None
            ):
                inner.append((source, name))
        return inner

    def _query(self, written: str) -> str | None:
        if written in self.texts or written in self.registered:
            return written
        if self._folded is None:
            self._folded = {name.casefold(): name for name in (*self.registered, *self.texts)}
        return self._folded.get(written.casefold())

    def _is_bound(self, name: str) -> bool:
        return name in self.outcome or name not in self.texts

    def _bind_ready(self, ready: Mapping[str, list[tuple[FromName, str]]]) -> None:
        streams, texts = dict(self.catalog.streams), {}
        for name, inner in ready.items():
            text = self.texts[name]
            for source, inner_name in inner:
                query = self.outcome[inner_name] if inner_name in self.texts else self.registered[inner_name]
                if isinstance(query, SQLError):
                    message = f"{inner_name} has an error of its own: {query.message}"
                    self.outcome[name] = _at(text, source, message)
                    break
                if (problem := _unreadable(inner_name, query)) is not None:
                    self.outcome[name] = _at(text, source, problem)
                    break
                if source.name not in streams:
                    streams[source.name] = relation_of(inner_name, query)
            else:
                texts[name] = text
        self.outcome |= bind(texts, replace(self.catalog, streams=streams), self.scalars)

    def _refuse_circle(self, waiting: dict[str, list[tuple[FromName, str]]]) -> None:
        """Refuse queries that read each other in a circle; queries that read those are refused later."""
        path: list[str] = []
        name = next(iter(waiting))
        while name not in path:
            path.append(name)
            name = next(inner_name for _, inner_name in waiting[name] if inner_name in waiting)
        circle = path[path.index(name) :]
        for at, member in enumerate(circle):
            following = [*circle[at + 1 :], *circle[: at + 1]]
            source = next(source for source, inner_name in waiting.pop(member) if inner_name == following[0])
            message = f"{member} can't read its own results"
            if len(circle) > 1:
                message += f": it reads {', which reads '.join(following)}"
            self.outcome[member] = _at(self.texts[member], source, message)


def _at(text: str, source: FromName, message: str) -> SQLError:
    return SQLError(message, text, source.start, source.end)


def _sources_through_views(
    text: str, views: Mapping[str, str], opened: tuple[str, ...] = ()
) -> list[FromName]:
    """The names in FROM with their positions; in place of a view, the names that it reads, at its position."""
    sources = _sources(text)
    if not views:
        return sources
    spelled, declared = {name.casefold(): name for name in views}, []
    for source in sources:
        view = spelled.get(source.name.casefold())
        if view is None:
            declared.append(source)
        elif view not in opened:  # a cyclic view is refused where it is inlined
            inside = _sources_through_views(views[view], views, (*opened, view))
            declared += [FromName(inner.name, source.start, source.end) for inner in inside]
    return declared


def _sources(text: str) -> list[FromName]:
    """The names in FROM with their positions; a text that is no query gives the names found."""
    if _NESTED.search(text) is not None:
        return nested_sources(text)
    start = _start(text)
    sources: list[FromName] = []
    if start is None:
        return sources
    expected, depth = True, 0
    for piece in _PIECE.finditer(text, start):
        word = piece[1]
        if word is None:
            continue
        if word in _DEPTH:
            depth += _DEPTH[word]
        elif depth:
            continue
        elif word == "," or word.upper() == "JOIN":
            expected = True
        elif expected:
            sources.append(FromName(word.strip("`"), *piece.span(1)))
            expected = False
        elif word.upper() in _END_OF_FROM or (
            word.upper() in _FIRST_WORDS and _opens_clause(text, piece.start(1))
        ):
            break
    return sources


def _opens_clause(text: str, start: int) -> bool:
    """Whether a clause at the end of a query begins at a word; ON and USING can also belong to a join."""
    following = (piece[1].upper() for piece in _PIECE.finditer(text, start) if piece[1])
    words = tuple(islice(following, 2))
    if words[:1] not in _OPENINGS and words not in _OPENINGS:
        return False
    try:
        tokens = query_tokens(text)
    except SQLError:
        return True
    return any(token.start == start and end_clause_at(tokens, at) for at, token in enumerate(tokens))


def _start(text: str) -> int | None:
    """The position of the FROM clause: the first FROM that is not part of an expression."""
    for candidate in _FROM.finditer(text):
        before = text[: candidate.start()]
        if _UNSURE.search(before):
            break
        if before.count("(") == before.count(")") and not before.rstrip().upper().endswith("DISTINCT"):
            return candidate.end()
    else:
        return None
    return _surely(_PIECE.finditer(text))


def _surely(pieces: Iterable[re.Match[str]]) -> int | None:
    depth, last = 0, ""
    for piece in pieces:
        word = piece[1].upper() if piece[1] else ""
        depth += _DEPTH.get(word, 0)
        if word == "FROM" and depth == 0 and last != "DISTINCT":
            return piece.end()
        last = word or last
    return None
