"""CREATE SUMMARY and DROP SUMMARY: which column of a stream is summarized, and how.

The statement of "Stream Query Processing Using Promising Tuples", Figure 3a, with more options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from transom.columns.types import is_number
from transom.elements import Forget, Summary
from transom.errors import SQLError, near_miss
from transom.sql.catalog import Catalog, Relation
from transom.sql.syntax.spark_parser import query_tokens
from transom.sql.syntax.token_reader import TokenReader, word_of

STRUCTURE_OF_SHORT_NAME = {"T1": "none", "T2": "time", "T3": "cells", "T4": "adjusting"}
CHOICES = (*STRUCTURE_OF_SHORT_NAME.values(), "auto")
OPTIONS = ("GRANULARITY", "COLLAPSE", "STRUCTURE", "BUCKETS", "COUNTSKETCH", "HISTOGRAM")
RATES, DEPTHS, HISTOGRAM_BUCKETS, SKETCH_ROWS, SKETCH_WIDTHS = (
    (2, 64),
    (1, 16),
    (1, 65_536),
    (1, 15),
    (2, 4_096),
)
MAX_REACH = 1_000 * 365 * 86_400_000_000  # a thousand years, well within 64 bits of microseconds
_LISTED = f"{', '.join(OPTIONS[:-1])} or {OPTIONS[-1]}"
_GAP = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_STATEMENT = re.compile(rf"{_GAP}*(?:CREATE|DROP)\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class _Place:
    """A name in a statement, and its position."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class _Created:
    """CREATE SUMMARY as it was read, and the positions of the names to resolve."""

    summary: Summary
    name: _Place
    stream: _Place
    column: _Place
    between: tuple[int, int] | None


@dataclass(frozen=True)
class _Dropped:
    """DROP SUMMARY as it was read."""

    name: _Place
    if_exists: bool


def is_statement(text: str) -> bool:
    """Whether a text is a statement and not a query, by the word that it begins with.

    >>> is_statement("create summary items on store1(item)"), is_statement("SELECT count(*) FROM created")
    (True, False)
    """
    return _STATEMENT.match(text) is not None


def read_statement(text: str) -> Summary | Forget | None:
    """The statement in a text, before names are resolved; None if the text is no statement."""
    if not is_statement(text):
        return None
    read = _read(text)
    return read.summary if isinstance(read, _Created) else Forget(read.name.name)


def parse_summary(text: str) -> Summary:
    """The summary of a CREATE SUMMARY statement, with the names as they are written."""
    return _created(text).summary


def bind_summary(text: str, catalog: Catalog) -> Summary:
    """The summary of a CREATE SUMMARY statement, with stream and column resolved in the catalog."""
    read = _created(text)
    relation = _relation(text, read.stream, catalog)
    column = _column(text, read.column, relation)
    kind = relation.columns[column]
    if read.between is not None and not is_number(kind):
        message = f"BETWEEN is for numbers, and {column} is {kind}; leave it out to deal values out by a hash"
        raise SQLError(message, text, *read.between)
    summary = replace(read.summary, stream=relation.name, column=column)
    taken = _named(read.name.name, catalog.summaries)
    if taken is not None and catalog.summaries[taken] != summary:
        raise _at(text, read.name, f"there is a summary {taken} already; DROP SUMMARY {taken} comes first")
    return summary


def bind_drop(text: str, summaries: Iterable[str]) -> Forget | None:
    """The name of the summary to drop; None if it does not exist and the statement has IF EXISTS."""
    read = _read(text)
    if isinstance(read, _Created):
        raise SQLError("expected DROP SUMMARY", text, 0, read.name.end)
    names = list(summaries)
    name = _named(read.name.name, names)
    if name is not None:
        return Forget(name)
    if read.if_exists:
        return None
    raise _at(text, read.name, f"unknown summary {read.name.name}{near_miss(read.name.name, names)}")


# --- names -----------------------------------------------------------------------------------


def _at(text: str, place: _Place, message: str) -> SQLError:
    return SQLError(message, text, place.start, place.end)


def _named(name: str, names: Iterable[str]) -> str | None:
    """An existing name in its registered spelling."""
    spelled = list(names)
    exact = (one for one in spelled if one == name)
    return next(exact, next((one for one in spelled if one.casefold() == name.casefold()), None))


def _relation(text: str, place: _Place, catalog: Catalog) -> Relation:
    name = _named(place.name, catalog.streams)
    if name is None:
        for what, known in (
            ("a static table", catalog.tables),
            ("a query", catalog.queries),
            ("a view", catalog.views),
        ):
            if (other := _named(place.name, known)) is not None:
                raise _at(text, place, f"a summary is of a stream, and {other} is {what}")
        raise _at(text, place, f"unknown stream {place.name}{near_miss(place.name, catalog.streams)}")
    relation = catalog.streams[name]
    time = None if relation.time is None else relation.columns[relation.time]
    if time is None:
        raise _at(text, place, f"a summary goes by the stream's time, and {relation.name} has no time column")
    if not (pa.types.is_timestamp(time) or pa.types.is_date(time)):
        message = f"a summary goes by the stream's time, and {relation.time} of {relation.name} is {time}"
        raise _at(text, place, message)
    return relation


def _column(text: str, place: _Place, relation: Relation) -> str:
    name = _named(place.name, relation.columns)
    if name is None:
        raise _at(text, place, f"unknown column {place.name}{near_miss(place.name, relation.columns)}")
    kind = relation.columns[name]
    if not _is_hashable(kind):
        message = f"a column of type {kind} can't be summarized; numbers, text, times and booleans can"
        raise _at(text, place, message)
    return name


def _is_hashable(kind: pa.DataType) -> bool:
    """Whether equal values of a type have equal hashes."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return is_number(kind) or text or binary or time or pa.types.is_boolean(kind)


# --- reading ---------------------------------------------------------------------------------


def _created(text: str) -> _Created:
    read = _read(text)
    if isinstance(read, _Dropped):
        raise SQLError("expected CREATE SUMMARY", text, 0, read.name.end)
    return read


def _read(text: str) -> _Created | _Dropped:
    tokens = query_tokens(text)
    if not tokens:
        raise SQLError("the statement is empty", text)
    return _Statement(text, tokens, 0).read()


class _Statement(TokenReader):
    """Reads a statement from left to right."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        super().__init__(text, tokens, at)
        self.values: dict[str, Any] = {}
        self.between: tuple[int, int] | None = None
        self.collapse = (tokens[0], tokens[-1])

    def read(self) -> _Created | _Dropped:
        verb = self.take()
        if word_of(verb) not in ("CREATE", "DROP"):
            self.fail("expected CREATE SUMMARY or DROP SUMMARY", verb)
        if self.word() == "OR":
            self.fail("a summary can't be replaced: DROP SUMMARY comes first", self.take())
        self.expect("SUMMARY")
        return self._read_create() if word_of(verb) == "CREATE" else self._read_drop()

    def _read_drop(self) -> _Dropped:
        following = self.token(1)
        if_exists = self.word() == "IF" and following is not None and word_of(following) == "EXISTS"
        self.at += 2 if if_exists else 0
        name = self._name("the name of a summary")
        if (token := self.token()) is not None:
            self.fail(f"expected the end of the statement, found {self.written(token)}", token)
        return _Dropped(name, if_exists)

    def _read_create(self) -> _Created:
        if self.word() == "IF":
            self.fail(
                "leave out IF NOT EXISTS: CREATE SUMMARY never changes a summary that exists", self.take()
            )
        name = self._name("the name of a summary")
        self.expect("ON")
        stream = self._name("the name of a stream")
        self._parenthesis(TokenType.L_PAREN, f"{stream.name}(column)")
        column = self._name("a column")
        if self.is_next(TokenType.COMMA):
            self.fail("a summary is of one column; create one for each", self.take())
        self._parenthesis(TokenType.R_PAREN, f"{stream.name}({column.name})")
        self.expect("WITH", "write WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)")
        given = set[str]()
        while True:
            self._read_option(given)
            if self.token() is None:
                break
            self._expect_and()
        if "GRANULARITY" not in given:
            self.fail("a summary needs GRANULARITY, the time that its finest part covers", self.tokens[-1])
        summary = Summary(name.name, stream.name, column.name, **self.values)
        if summary.reach > MAX_REACH:
            self.fail(
                "COLLAPSE covers more time than a timestamp can hold; use a smaller depth", *self.collapse
            )
        return _Created(summary, name, stream, column, self.between)

    def _expect_and(self) -> None:
        token = self.take()
        if token.token_type == TokenType.AND:
            return
        if word_of(token) == "BETWEEN":
            self.fail("BETWEEN follows the number of buckets: BUCKETS 256 BETWEEN 0 AND 1000", token)
        missing = "; AND stands between options" if word_of(token) in OPTIONS else ""
        found = self.written(token)
        self.fail(f"expected AND or the end of the statement, found {found}{missing}", token)

    def _read_option(self, given: set[str]) -> None:
        if self.token() is None:
            self.fail(f"expected {_LISTED} after {self.tokens[-1].text.upper()}", self.tokens[-1])
        token = self.take()
        word = word_of(token)
        if word not in OPTIONS:
            hint = near_miss(token.text, OPTIONS)
            self.fail(f"expected {_LISTED}, found {self.written(token)}{hint}", token)
        if word in given:
            self.fail(f"{word} is given twice", token)
        given.add(word)
        if {"COUNTSKETCH", "HISTOGRAM"} <= given:
            self.fail("a summary is a COUNTSKETCH or a HISTOGRAM, not both", token)
        match word:
            case "GRANULARITY":
                self.values["granularity"] = self.duration(token, "'10 seconds'", ("AND", *OPTIONS))
            case "COLLAPSE":
                self._read_collapse()
            case "STRUCTURE":
                self._read_structure(token)
            case "BUCKETS":
                self._read_buckets()
            case "COUNTSKETCH":
                self._read_sketch()
            case "HISTOGRAM":
                self.values["kind"] = "histogram"

    def _read_collapse(self) -> None:
        form = "COLLAPSE(rate, depth), like COLLAPSE(4, 3)"
        opening = self.tokens[self.at - 1]
        self._parenthesis(TokenType.L_PAREN, form)
        self.values["rate"] = self.whole("COLLAPSE", "the rate of COLLAPSE", *RATES)
        self._parenthesis(TokenType.COMMA, form)
        self.values["depth"] = self.whole("COLLAPSE", "the depth of COLLAPSE", *DEPTHS)
        self._parenthesis(TokenType.R_PAREN, form)
        self.collapse = (opening, self.tokens[self.at - 1])

    def _read_structure(self, word: Token) -> None:
        token = self.token()
        choice = f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}"
        if token is None:
            self.fail(f"STRUCTURE needs {choice}", word)
        name = word_of(token)
        name = STRUCTURE_OF_SHORT_NAME.get(name, name.lower())
        if name not in CHOICES:
            hint = near_miss(token.text, CHOICES)
            self.fail(f"STRUCTURE needs {choice}, found {self.written(token)}{hint}", token)
        self.at += 1
        self.values["structure"] = name

    def _read_buckets(self) -> None:
        self.values["buckets"] = self.whole("BUCKETS", "the number of BUCKETS", *HISTOGRAM_BUCKETS)
        if self.word() != "BETWEEN":
            return
        opening = self.take()
        first = self.at
        low = self.number("BETWEEN")
        self.expect("AND")
        high = self.number("BETWEEN")
        if low >= high:
            self.outside("BETWEEN takes the smaller value first, and two that differ", first)
        self.values["between"] = (low, high)
        self.between = opening.start, self.tokens[self.at - 1].end + 1

    def _read_sketch(self) -> None:
        self.values["kind"] = "countsketch"
        if not self.is_next(TokenType.L_PAREN):
            return
        form = "COUNTSKETCH(rows, width), like COUNTSKETCH(5, 16)"
        self.at += 1
        first = self.at
        rows = self.values["rows"] = self.whole("COUNTSKETCH", "the number of rows", *SKETCH_ROWS)
        if rows % 2 == 0:
            self.outside("a count-sketch has an odd number of rows: an estimate is their median", first)
        self._parenthesis(TokenType.COMMA, form)
        self.values["width"] = self.whole("COUNTSKETCH", "the width of a row", *SKETCH_WIDTHS)
        self._parenthesis(TokenType.R_PAREN, form)

    # --- parts -----------------------------------------------------------------------------------

    def _name(self, what: str) -> _Place:
        token = self.token()
        if token is None:
            self.fail(f"expected {what} after {self.tokens[-1].text.upper()}", self.tokens[-1])
        if not self.is_name():
            self.fail(f"expected {what}, found {self.written(token)}", token)
        self.at += 1
        return _Place(token.text, token.start, token.end + 1)

    def _parenthesis(self, kind: TokenType, form: str) -> None:
        token = self.token()
        if token is None or token.token_type != kind:
            self._wrong_form(token, form)
        self.at += 1

    def _wrong_form(self, token: Token | None, form: str) -> NoReturn:
        found = "" if token is None else f", found {self.written(token)}"
        self.fail(f"write {form}{found}", token or self.tokens[-1])
