"""Completion: what can be written at a place of a query's text, the best first.

`scan` splits the text before the cursor, `CursorPlace` finds the clause and whether it expects a value or an operator,
and `read_relations` what FROM names, also after the cursor. What fits there comes in the order of usefulness. Of that,
`match_rank` finds what the typed word can mean: a misspelt word finds the name that was meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from zoneinfo import available_timezones

import pyarrow as pa

from transom.sql.editor.cursor_place import CursorPlace, read_relations, select_aliases
from transom.sql.editor.name_match import match_rank, tier_of
from transom.sql.editor.scanned_text import PieceKind, ScannedPiece, quote_identifier, scan
from transom.sql.editor.signatures import (
    EXTRA_SIGNATURES,
    Signature,
    aggregate_signatures,
    scalar_signatures,
)

MOST_CANDIDATES = 40


@dataclass(frozen=True)
class KnownRelation:
    """A stream, static table, view or query that a query can read, with the types of its columns."""

    name: str
    kind: str  # stream, table, view or query
    columns: Mapping[str, pa.DataType]
    time: str | None = None  # a stream's time column


@dataclass(frozen=True)
class KnownNames:
    """The names that a query can use."""

    relations: Sequence[KnownRelation] = ()
    functions: frozenset[str] = frozenset()  # scalar functions that the program registered
    qualities: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """Something that can be written at a place.

    `insert` replaces the typed word, and the cursor moves to `cursor` within it; None: to its end.
    """

    label: str
    kind: str  # stream, table, view, query, column, aggregate, function, keyword, window, unit, zone or alias
    detail: str = ""  # a type or a signature
    info: str = ""  # what it means
    insert: str = ""
    cursor: int | None = None


@dataclass(frozen=True)
class Completion:
    """What can be written in place of the text from `start` to `end`, the best first."""

    start: int
    end: int
    candidates: tuple[Candidate, ...] = ()


def complete(text: str, cursor: int, names: KnownNames) -> Completion:
    """What can be written at a place of a query's text.

    >>> bids = KnownRelation("bids", "stream", {"origin": pa.string(), "price": pa.float64()})
    >>> found = complete("SELECT orign FROM bids", 12, KnownNames([bids]))
    >>> [candidate.label for candidate in found.candidates], found.start, found.end
    (['origin'], 7, 12)
    """
    cursor = max(0, min(cursor, len(text)))
    before = scan(text[:cursor])
    last = before[-1] if before else None
    if last is not None and last.end == cursor and last.is_open:
        return _in_quotes(before, cursor, text, names)
    typed = ""
    if last is not None and last.end == cursor and last.kind in (PieceKind.WORD, PieceKind.NUMBER):
        if last.kind is PieceKind.NUMBER:
            return Completion(cursor, cursor)
        typed = before.pop().text
    place = CursorPlace.of([piece for piece in before if piece.kind is not PieceKind.COMMENT])
    called = text[cursor : cursor + 1] == "("
    found = _candidates(place, read_relations(text), text, names, called)
    return Completion(cursor - len(typed), cursor, _ranked(typed, found))


def _in_quotes(before: list[ScannedPiece], cursor: int, text: str, names: KnownNames) -> Completion:
    """Completion in an open quote: the rest of a name in backticks, or a time zone."""
    opened = before.pop()
    typed = opened.text[1:]
    if opened.kind is PieceKind.QUOTED:
        place = CursorPlace.of([piece for piece in before if piece.kind is not PieceKind.COMMENT])
        found = _candidates(place, read_relations(text), text, names, called=False)
        quoted = [
            Candidate(each.label, each.kind, each.detail, each.info, f"`{each.label.replace('`', '``')}`")
            for each in found
            if each.kind in ("column", "alias", "stream", "table", "view", "query")
        ]
        return Completion(opened.start, cursor, _ranked(typed, quoted))
    if opened.kind is PieceKind.STRING and before and before[-1].word == "ZONE":
        zones = [Candidate(zone, "zone", insert=f"'{zone}'") for zone in _zones()]
        return Completion(opened.start, cursor, _ranked(typed, zones))
    return Completion(cursor, cursor)


@cache
def _zones() -> tuple[str, ...]:
    """The names of time zones of places; UTC is one, abbreviations are not."""
    return (
        "UTC",
        *sorted(
            zone for zone in available_timezones() if "/" in zone and zone[:4] not in ("Etc/", "posi", "righ")
        ),
    )


_DURATIONS = ("minutes", "hours", "seconds", "days", "weeks", "milliseconds", "microseconds")
_CALENDAR = ("month", "quarter", "year")


# --- what fits -------------------------------------------------------------------------------------

_EXPRESSION_WORDS = ("CASE", "NOT", "NULL", "TRUE", "FALSE", "INTERVAL")
_OPERATORS = ("AND", "OR", "IN", "NOT IN", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "ILIKE", "RLIKE")
_CASE_WORDS = ("WHEN", "THEN", "ELSE", "END")
_NEXT_CLAUSES = {
    "SELECT": ("AS", "FROM", "FILTER"),
    "FROM": ("AS", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "LATERAL VIEW", "WHERE", "GROUP BY"),
    "JOIN": ("AS", "ON", "USING", "WHERE", "GROUP BY"),
    "ON": ("JOIN", "LEFT JOIN", "WHERE", "GROUP BY"),
    "WHERE": ("GROUP BY",),
    "GROUP BY": ("HAVING", "WITH ROLLUP", "WITH CUBE"),
    "HAVING": (),
    "ORDER BY": ("ASC", "DESC", "NULLS FIRST", "NULLS LAST", "LIMIT"),
    "LIMIT": ("WITH TIES",),
    "UNION": ("ALL", "SELECT"),
    "USING": ("WITHIN",),
}
_ENDS = (
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "ON OVERLOAD PREFER",
    "EMIT EMPTY",
    "EMIT CORRECTIONS WITHIN",
    "EMIT EARLY",
    "USING",
    "WITHIN",
    "BACKFILL",
)
_BEFORE_ALERT = ("HAVING", "ON OVERLOAD PREFER", "EMIT EMPTY", "EMIT CORRECTIONS WITHIN", "EMIT EARLY")
_WORD_NOTES = {
    "RANGE": "the length of a window: RANGE 10 minutes",
    "RANGE UP TO": "cumulative windows: RANGE UP TO 1 day SLIDE 1 minute",
    "SLIDE": "the distance between two windows: SLIDE 1 minute; without it, the query runs on demand",
    "WATTR": "the column along which the window is measured",
    "ORIGIN": "where windows end: ORIGIN 6 hours",
    "ROWS": "windows of so many rows: ROWS 100 SLIDE 10",
    "ROWS UP TO": "cumulative windows of rows: ROWS UP TO 1000 SLIDE 100",
    "SESSION": "windows that end after a gap: SESSION 30 minutes",
    "PARTITION BY": "the last rows of each key: PARTITION BY card ROWS 5 SLIDE 1",
    "IN TIME ZONE": "calendar windows: RANGE 1 day SLIDE 1 day IN TIME ZONE 'Europe/Berlin'",
    "EMIT EARLY": "early results: EMIT EARLY EVERY '1 minute'",
    "EMIT EMPTY": "a result also for windows without rows",
    "WITH CONFIDENCE": "HAVING is decided while windows are open: HAVING n > 100 WITH CONFIDENCE 95%",
    "ALERT": "an alert while HAVING is true: ALERT FOR 3 WINDOWS RESOLVE AFTER 2 WINDOWS",
    "EMIT CORRECTIONS WITHIN": "late rows correct closed windows: EMIT CORRECTIONS WITHIN '1 day'",
    "EVERY": "early results at intervals: EVERY '1 minute'",
    "AT": "early results at points of the slide: AT 50%, 75% OF SLIDE",
    "WITH ACCURACY": "early results as soon as they are accurate: WITH ACCURACY 95%",
    "ON DEMAND": "early results when a prod asks for them",
    "CONFIDENCE": "how often the final value is within the bounds: CONFIDENCE 90%",
    "QUALITY": "a function that judges early results",
    "WITHIN": "the error that an on-demand query may have: WITHIN 1%",
    "USING": "the structure that answers an on-demand query: USING timegram",
    "ON OVERLOAD PREFER": "which rows of a burst are processed first",
    "BACKFILL": "results of the past, from the rows that the stream retains: BACKFILL SINCE '24 hours ago'",
    "LIMIT": "the first rows of each window: ORDER BY n DESC LIMIT 10",
    "WITH TIES": "also the rows that are equal to the last one",
    "LATERAL VIEW": "a row for each element: LATERAL VIEW explode(items) x AS item",
    "FILTER": "rows that an aggregate takes: FILTER (WHERE price > 10)",
    "UNION ALL": "the rows of several streams, in a subquery",
}
_INSERTS = {"FILTER": ("FILTER (WHERE )", 14), "CASE": ("CASE WHEN  THEN  END", 10)}
_WINDOW_SNIPPETS = (
    ("RANGE 10 minutes SLIDE 1 minute", "a window of ten minutes, every minute"),
    ("RANGE 1 hour SLIDE 1 hour", "one window after the other"),
    ("RANGE 1 hour", "on demand: the hour up to now"),
    ("RANGE UP TO 1 day SLIDE 1 minute", "the day so far, every minute"),
    ("RANGE 1 day SLIDE 1 day IN TIME ZONE 'Europe/Berlin'", "days of a time zone"),
    ("SESSION 30 minutes", "a window ends after 30 minutes without rows"),
    ("ROWS 100 SLIDE 10", "the last hundred rows, every ten rows"),
)
_EXPRESSIONS = ("SELECT", "WHERE", "ON", "GROUP BY", "HAVING", "ORDER BY", "PREFER", "LATERAL")
_USUAL_AGGREGATES = frozenset({"avg", "count", "count_if", "first", "last", "max", "median", "min", "sum"})
_AGGREGATE_CLAUSES = ("SELECT", "HAVING", "ORDER BY")


def _candidates(
    place: CursorPlace, relations: Mapping[str, str], text: str, names: KnownNames, called: bool
) -> Iterator[Candidate]:
    """What fits at a place, the most useful first."""
    known = {each.name.casefold(): each for each in names.relations}
    read = [known[name.casefold()] for name in dict.fromkeys(relations.values()) if name.casefold() in known]
    if place.qualifier:
        yield from _qualified(place.qualifier, relations, known, read)
    elif place.opener == "[]":
        yield from _in_window(place, read)
    elif place.clause in ("", "WITH"):
        yield from _words(("SELECT",) if place.clause else ("SELECT", "WITH"))
        if not place.clause and place.last is None:
            yield from _first_queries(names)
    elif place.clause in ("FROM", "JOIN") and _expects_relation(place):
        yield from _readable(place, names)
    elif place.clause == "EMIT":
        yield from _in_emit(place, names)
    elif place.clause == "USING" and "(" not in place.words and place.opener != "(":
        structures = ("exact", "naive", "ordered_sharing", "timegram")
        is_named = place.last is not None and place.last.word != "USING"
        yield from () if is_named else (Candidate(name, "keyword", "structure") for name in structures)
        yield from _words(("WITHIN",))
    elif place.expects_value and (place.clause in _EXPRESSIONS or place.opener == "("):
        yield from _values(place, read, text, names, called)
    else:
        yield from _operators(place)


def _expects_relation(place: CursorPlace) -> bool:
    words = place.words
    return words[:1] in (("FROM",), ("JOIN",)) and words[-1] in ("FROM", "JOIN", ",", "TABLE")


def _readable(place: CursorPlace, names: KnownNames) -> Iterator[Candidate]:
    """What FROM and JOIN can name: in FROM a stream is first, in JOIN a static table."""
    order = (
        ("table", "stream", "view", "query")
        if place.words[-1] in ("JOIN", ",")
        else ("stream", "view", "query", "table")
    )
    for kind in order:
        for each in names.relations:
            if each.kind == kind:
                columns = f"{len(each.columns)} columns" if len(each.columns) != 1 else "1 column"
                shown = ", ".join(list(each.columns)[:8]) + (", …" if len(each.columns) > 8 else "")
                yield Candidate(each.name, kind, f"{kind}, {columns}", shown, quote_identifier(each.name))
    yield from _words(("TABLE",))


def _qualified(
    qualifier: Sequence[str],
    relations: Mapping[str, str],
    known: Mapping[str, KnownRelation],
    read: Sequence[KnownRelation],
) -> Iterator[Candidate]:
    """The columns of a relation, or the fields of a struct, after a dot."""
    first, *rest = qualifier
    relation = known.get(relations.get(first.casefold(), first).casefold())
    if relation is not None and not rest:
        yield from _columns([relation])
        return
    tables = [relation] if relation is not None else read
    path = rest if relation is not None else list(qualifier)
    for table in tables:
        kind: pa.DataType | None = None
        fields: Mapping[str, pa.DataType] = table.columns
        for name in path:
            kind = next((of for each, of in fields.items() if each.casefold() == name.casefold()), None)
            fields = (
                {each.name: each.type for each in kind}
                if kind is not None and pa.types.is_struct(kind)
                else {}
            )
        for name, of in fields.items():
            yield Candidate(name, "column", type_text(of), insert=quote_identifier(name))


def _columns(relations: Iterable[KnownRelation]) -> Iterator[Candidate]:
    tables = list(relations)
    for relation in tables:
        for name, kind in relation.columns.items():
            of = f" of {relation.name}" if len(tables) > 1 else ""
            time = ", event time" if name == relation.time else ""
            detail = f"{type_text(kind)}{of}{time}"
            yield Candidate(name, "column", detail, insert=quote_identifier(name))


def _values(
    place: CursorPlace, read: Sequence[KnownRelation], text: str, names: KnownNames, called: bool
) -> Iterator[Candidate]:
    """What a value can be: a column, an alias, an aggregate, a function."""
    if place.words[-1:] == ("CASE",):
        yield from _words(("WHEN",))
    yield from _columns(read or [each for each in names.relations if each.kind == "stream"])
    if place.clause in ("SELECT", "GROUP BY", "HAVING", "ORDER BY"):
        for name in dict.fromkeys(select_aliases(text)):
            yield Candidate(name, "alias", "result column", insert=quote_identifier(name))
    if place.clause in _AGGREGATE_CLAUSES:
        usual = sorted(aggregate_signatures(), key=lambda each: each.name not in _USUAL_AGGREGATES)
        yield from (_call(each, called) for each in (*usual, *EXTRA_SIGNATURES))
        for name in ("window_start", "window_end"):
            yield Candidate(name, "column", "of the window")
    if place.clause == "GROUP BY":
        yield from _words(("ALL", "ROLLUP", "CUBE", "GROUPING SETS"))
        for call in ("window(ts, '10 minutes')", "session_window(ts, '30 minutes')"):
            yield Candidate(call.partition("(")[0], "window", call, "Spark's form of a window", call)
    yield from (_call(each, called) for each in scalar_signatures(names.functions))
    yield from _words(_EXPRESSION_WORDS)
    if place.clause == "SELECT":
        yield from _words(("DISTINCT",))


def _call(signature: Signature, called: bool) -> Candidate:
    kind = "aggregate" if signature.is_aggregate else "function"
    insert, cursor = f"{signature.name}()", len(signature.name) + 1
    if called:
        insert, cursor = signature.name, len(signature.name)
    elif signature.name == "count":
        insert, cursor = "count(*)", len("count(*)")
    elif not signature.takes_arguments:
        cursor = len(insert)
    return Candidate(signature.name, kind, signature.call, signature.meaning, insert, cursor)


def _operators(place: CursorPlace) -> Iterator[Candidate]:
    """What can follow a value: an operator, or the next clause."""
    words = place.words
    if "CASE" in words and words.count("CASE") > words.count("END"):
        yield from _words(_CASE_WORDS)
    if place.opener == "(":
        yield from _words((*_OPERATORS, "FILTER", "UNION ALL", "WHERE", "FROM", "AS"))
        return
    if place.clause == "FROM" and place.last is not None and place.last.text != "]":
        for snippet, meaning in _WINDOW_SNIPPETS:
            yield Candidate(f"[{snippet}]", "window", "", meaning)
    ends = _ENDS[_ENDS.index(place.clause) + 1 :] if place.clause in _ENDS else _ENDS
    if place.clause not in ("SELECT", "UNION"):
        yield from _words((*_NEXT_CLAUSES.get(place.clause, ()), *ends))
    else:
        yield from _words(_NEXT_CLAUSES[place.clause])
    if place.clause in _EXPRESSIONS:
        yield from _words(_OPERATORS)
    if place.clause in _BEFORE_ALERT:
        yield from _words(("ALERT",) if place.clause != "HAVING" else ("WITH CONFIDENCE", "ALERT"))
    if place.clause in ("SELECT",) and place.last is not None and place.last.text == ")":
        yield from _words(("OVER WINDOWS", "WITHIN GROUP"))


def _in_window(place: CursorPlace, read: Sequence[KnownRelation]) -> Iterator[Candidate]:
    """The parts of a window's bracket."""
    words, last = place.words, place.last
    streams = [each for each in read if each.kind != "table"] or read
    if not words:
        yield from _words(("RANGE", "SESSION", "ROWS", "PARTITION BY", "RANGE UP TO", "ROWS UP TO"))
        for snippet, meaning in _WINDOW_SNIPPETS:
            yield Candidate(snippet, "window", "", meaning)
    elif last is not None and last.kind is PieceKind.NUMBER:
        for unit in (*_DURATIONS, *_CALENDAR):
            yield Candidate(unit.removesuffix("s") if last.text == "1" else unit, "unit", "a length of time")
    elif words[-1] == "WATTR":
        clocks = [
            KnownRelation(
                each.name, each.kind, {n: t for n, t in each.columns.items() if _can_measure(t)}, each.time
            )
            for each in streams
        ]
        yield from _columns(clocks)
    elif "PARTITION" in words and not {"ROWS", "RANGE", "SLIDE"} & set(words) and words[-1] in ("BY", ","):
        yield from _columns(streams)
    elif words[-1] == "ZONE":
        for zone in _zones():
            yield Candidate(zone, "zone", "", insert=f"'{zone}'")
    elif words[-1] in ("RANGE", "ROWS"):
        yield from _words(("UP TO",))
    elif words[-1] not in ("SLIDE", "SESSION", "ORIGIN", "TIME", "IN", "UP", "TO", "PARTITION", "BY"):
        parts = ("SLIDE", "RANGE", "ROWS", "WATTR", "ORIGIN", "IN TIME ZONE")
        given = set(words)
        excluded = {"RANGE", "ROWS"} if given & {"RANGE", "ROWS", "SESSION"} else set()
        without = ({"SLIDE"} if "SESSION" in given else set()) | excluded
        yield from _words([part for part in parts if part.split()[0] not in given | without])


def _can_measure(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)


def _in_emit(place: CursorPlace, names: KnownNames) -> Iterator[Candidate]:
    """The parts of EMIT EARLY, EMIT EMPTY and EMIT CORRECTIONS."""
    words = place.words
    if words == ("EMIT",):
        yield from _words(("EARLY", "EMPTY", "CORRECTIONS WITHIN"))
    elif words[-1] == "CORRECTIONS":
        yield from _words(("WITHIN",))
    elif "CORRECTIONS" in words:
        yield from _words(("EMIT EARLY",) if words[-1] != "WITHIN" else ())
    elif words[-1] == "EARLY":
        yield from _words(("EVERY", "AT", "WITH ACCURACY", "ON DEMAND"))
    elif words[-1] == "EMPTY":
        yield from _words(("FOR", "EMIT EARLY"))
    elif words[-1] == "QUALITY":
        yield from (Candidate(name, "function", "quality") for name in sorted(names.qualities))
    elif "EMPTY" in words:
        yield from _words(("WINDOWS", "EMIT EARLY"))
    else:
        parts = ("OF SLIDE", "BETWEEN", "AND", "CONFIDENCE", "QUALITY")
        yield from _words([part for part in parts if part.split()[0] not in words])


def _first_queries(names: KnownNames) -> Iterator[Candidate]:
    """Whole queries for an empty text."""
    for each in names.relations:
        if each.kind == "stream" and each.time is not None:
            windows = "[RANGE 10 minutes SLIDE 1 minute]"
            if not pa.types.is_timestamp(each.columns.get(each.time, pa.null())):
                windows = "[RANGE 100 SLIDE 10]"
            query = f"SELECT count(*) AS n\nFROM {quote_identifier(each.name)} {windows}"
            yield Candidate(f"SELECT count(*) … FROM {each.name}", "window", "", "a first query", query)


def _words(words: Iterable[str]) -> Iterator[Candidate]:
    for word in words:
        insert, cursor = _INSERTS.get(word, ("", None))
        yield Candidate(word, "keyword", "", _WORD_NOTES.get(word, ""), insert, cursor)


def type_text(kind: pa.DataType) -> str:
    """A column's type in SQL, in short."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _TYPE_NAMES.get(str(kind), str(kind))


_TYPE_NAMES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "date32[day]": "date",
    "large_string": "string",
}


def _ranked(typed: str, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that a typed word can mean; of equally good ones the first stay first."""
    ranked: dict[tuple[str, str], tuple[int, int, Candidate]] = {}
    for order, candidate in enumerate(candidates):
        rank = match_rank(typed, candidate.label)
        key = (candidate.label.casefold(), candidate.insert)
        if rank is not None and key not in ranked:
            filled = candidate.insert or candidate.label
            ranked[key] = (
                rank,
                order,
                Candidate(
                    candidate.label,
                    candidate.kind,
                    candidate.detail,
                    candidate.info,
                    filled,
                    candidate.cursor,
                ),
            )
    best = sorted(ranked.values(), key=lambda each: each[:2])
    best = [each for each in best if tier_of(each[0]) == tier_of(best[0][0])]
    return tuple(candidate for _, _, candidate in best[:MOST_CANDIDATES])
