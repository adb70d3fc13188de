"""Text to syntax tree: Spark's grammar by sqlglot, with the papers' window brackets.

The bracket and the clauses at the end (EMIT EARLY; USING, WITHIN; WITH PREFERENCE; ON OVERLOAD) are cut out
of the token stream before sqlglot parses the rest, so that every position still points into the user's text.
Functions stay as they were written: sqlglot knows many of them and would rewrite some, and here only Spark
itself is to say what they mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Mapping, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError, near_miss
from transom.sql.clauses.emit import EmitClause, opens_emit, read_emit
from transom.sql.clauses.preference import (
    OverloadClause,
    PreferenceClause,
    near_preference,
    opens_overload,
    opens_preference,
    read_overload,
    read_preference,
)
from transom.sql.clauses.using import UsingClause, opens_using, read_using
from transom.sql.syntax.clause_reader import Piece
from transom.sql.syntax.spark_parser import add_token, parse_tokens, tokens_of


@dataclass(frozen=True)
class Bracket:
    """`[RANGE r SLIDE s WATTR a ORIGIN o]` as it was written; without SLIDE it is an on-demand query."""

    start: int
    end: int
    range: Piece | None = None
    rows: Piece | None = None
    slide: Piece | None = None
    wattr: Piece | None = None
    origin: Piece | None = None


EndClause = EmitClause | UsingClause | PreferenceClause


@dataclass(frozen=True)
class Parsed:
    """A query's text, its syntax tree, and the bracket and the clauses that were cut out of it."""

    text: str
    select: exp.Select
    bracket: Bracket | None
    end: EndClause | None = None
    overload: OverloadClause | None = None

    @property
    def end_start(self) -> int | None:
        """Where the clauses at the end begin."""
        first = self.overload or self.end
        return None if first is None else first.start

    def fail(self, message: str, node: exp.Expr | None = None) -> NoReturn:
        """Raise an error that points at a node."""
        raise SQLError(message, self.text, *(span(self.text, node) if node is not None else ()))


_REFUSED = {
    TokenType.ORDER_BY: "ORDER BY is not supported: results come window by window",
    TokenType.SORT_BY: "SORT BY is not supported: results come window by window",
    TokenType.CLUSTER_BY: "CLUSTER BY is not supported",
    TokenType.DISTRIBUTE_BY: "DISTRIBUTE BY is not supported",
    TokenType.LIMIT: "LIMIT is not supported: a standing query has no last row",
    TokenType.UNION: "UNION is not supported; register two queries",
    TokenType.EXCEPT: "EXCEPT is not supported",
    TokenType.INTERSECT: "INTERSECT is not supported",
    TokenType.WITH: "WITH is not supported; register the inner query on its own",
    TokenType.QUALIFY: "QUALIFY is not supported",
    TokenType.OVER: "window functions (OVER) are not supported; the query's own window takes their place",
    TokenType.LATERAL: "LATERAL is not supported",
    TokenType.CROSS: "CROSS JOIN is not supported; join a table on an equality",
    TokenType.NATURAL: "NATURAL JOIN is not supported; write ON or USING",
}
_REFUSED_JOINS = {TokenType.RIGHT, TokenType.FULL, TokenType.SEMI, TokenType.ANTI}
_BRACKET_WORDS = ("RANGE", "ROWS", "SLIDE", "WATTR", "ORIGIN")
_PREFERENCE = re.compile(r"\bpreference\b", re.IGNORECASE)
_END_OF_FROM = {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING}


def parse(text: str) -> Parsed:
    """The syntax tree of one query, or an error that points at the place."""
    tokens = query_tokens(text)
    if not tokens:
        raise SQLError("the query is empty", text)
    pieces = _Tokens(text, tokens).split()
    tree = parse_tokens(text, pieces.kept)
    if not isinstance(tree, exp.Select):
        raise SQLError("expected SELECT", text, tokens[0].start, tokens[0].end + 1)
    if not tree.expressions:
        raise SQLError("SELECT needs something to select", text, tokens[0].start, tokens[0].end + 1)
    return Parsed(text, tree, pieces.bracket, pieces.end, pieces.overload)


def parse_end(text: str) -> tuple[OverloadClause | None, EndClause | None]:
    """ON OVERLOAD and EMIT EARLY, or USING and WITHIN, alone, as they stand at the end of a query."""
    tokens, at, overload = query_tokens(text), 0, None
    if tokens[0].token_type == TokenType.ON:
        overload, at = read_overload(text, tokens, 0)
    if at == len(tokens):
        return overload, None
    read = read_emit if tokens[at].text.upper() == "EMIT" else read_using
    return overload, read(text, tokens, at)


def split_by_preference(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Named texts of queries, parted into window queries and queries with a preference."""
    with_preference = {name: text for name, text in texts.items() if has_preference(text)}
    return {name: text for name, text in texts.items() if name not in with_preference}, with_preference


@lru_cache(maxsize=4096)
def has_preference(text: str) -> bool:
    """Whether a query says WITH PREFERENCE, found without parsing it.

    >>> has_preference("SELECT a FROM s WITH PREFERENCE desc a"), has_preference("SELECT a AS preference FROM s")
    (True, False)
    """
    if _PREFERENCE.search(text) is None:  # almost all of thousands
        return False
    try:
        tokens = query_tokens(text)
    except SQLError:
        return False
    return any(opens_preference(tokens, at) for at in range(len(tokens)))


def query_tokens(text: str) -> list[Token]:
    """The tokens of a query, none of which names a variable."""
    tokens = tokens_of(text)
    _refuse_variables(text, tokens)
    return tokens


def _refuse_variables(text: str, tokens: list[Token]) -> None:
    """Spark replaces `${env:HOME}` in any text by what it names: a query could read the environment."""
    if "${" in text or "\\" in text:  # a literal may spell it with escapes
        for token in tokens:
            if "${" in token.text or "${" in text[token.start : token.end + 1]:
                raise SQLError(
                    "${ is not taken: Spark would put a variable there", text, token.start, token.end + 1
                )


class _Tokens:
    """One pass over the tokens: refuse what can't be, cut out our own clauses, mend what sqlglot misreads."""

    def __init__(self, text: str, tokens: list[Token]):
        self.text, self.tokens = text, _whole_group_by(tokens)
        self.kept: list[Token] = []
        self.bracket: Bracket | None = None
        self.end: EndClause | None = None
        self.overload: OverloadClause | None = None

    def split(self) -> _Tokens:
        at, in_from, after_on, selects = 0, False, False, 0
        while at < len(self.tokens):
            token = self.tokens[at]
            kind = token.token_type
            if kind == TokenType.L_BRACKET and self._opens_window(at, in_from, after_on):
                at = self._read_bracket(at)
                continue
            if kind == TokenType.VAR and opens_emit(self.tokens, at):
                self.end = read_emit(self.text, self.tokens, at)
                break
            if kind in (TokenType.USING, TokenType.VAR) and opens_using(self.tokens, at):
                self.end = read_using(self.text, self.tokens, at)
                break
            if kind == TokenType.WITH and opens_preference(self.tokens, at):
                self.end = read_preference(self.text, self.tokens, at)
                break
            if kind == TokenType.ON and self.overload is None and opens_overload(self.tokens, at):
                self.overload, at = read_overload(self.text, self.tokens, at)
                continue
            if kind == TokenType.FROM:
                in_from = True
            elif kind in _END_OF_FROM:
                in_from = False
            elif kind in (TokenType.ON, TokenType.JOIN):
                after_on = kind == TokenType.ON
            elif kind == TokenType.SELECT:
                selects += 1
            self._check(at, selects)
            add_token(self.text, self.kept, token, self._kind(at + 1))
            at += 1
        return self

    def _kind(self, at: int) -> TokenType | None:
        return self.tokens[at].token_type if 0 <= at < len(self.tokens) else None

    def _fail(self, message: str, first: Token, last: Token | None = None) -> NoReturn:
        raise SQLError(message, self.text, first.start, (last or first).end + 1)

    def _check(self, at: int, selects: int) -> None:
        token, kind = self.tokens[at], self.tokens[at].token_type
        if kind in _REFUSED and self._kind(at - 1) != TokenType.DOT:
            hint = near_preference(self.tokens, at) if kind == TokenType.WITH else ""
            self._fail(f"WITH is not supported here{hint}" if hint else _REFUSED[kind], token)
        if kind in _REFUSED_JOINS and self._kind(at + 1) in (TokenType.JOIN, TokenType.OUTER):
            self._fail(f"{token.text.upper()} JOIN is not supported; use INNER JOIN or LEFT JOIN", token)
        if kind == TokenType.SELECT and selects > 1:
            self._fail("subqueries are not supported; register the inner query on its own", token)
        if kind == TokenType.DISTINCT and self._kind(at - 1) == TokenType.SELECT:
            self._fail("SELECT DISTINCT is not supported; GROUP BY gives distinct rows", token)
        if kind == TokenType.SEMICOLON:
            self._fail("one query at a time: nothing may follow the semicolon", token)
        if (
            kind == TokenType.DASH
            and self.text[max(0, token.start - 5) : token.end + 3].upper() == "GROUP-BY"
        ):
            self._fail("write GROUP BY, without the hyphen", self.tokens[at - 1], self.tokens[at + 1])

    def _opens_window(self, at: int, in_from: bool, after_on: bool) -> bool:
        word = self.tokens[at + 1].text.upper() if at + 1 < len(self.tokens) else ""
        named = word in _BRACKET_WORDS and self._kind(at + 2) != TokenType.R_BRACKET
        return self._kind(at - 1) == TokenType.WINDOW or (in_from and (named or not after_on))

    def _read_bracket(self, at: int) -> int:
        opening = self.tokens[at]
        if self.bracket is not None:
            self._fail("a query has one window", opening)
        if self.kept and self.kept[-1].text.upper() == "WINDOW":
            self.kept.pop()
        close = at
        while self._kind(close) != TokenType.R_BRACKET:
            close += 1
            if close == len(self.tokens):
                self._fail("the window's bracket is not closed", opening)
        pieces: dict[str, Piece] = {}
        at += 1
        while at < close:
            at = self._read_piece(at, close, pieces)
        self.bracket = Bracket(opening.start, self.tokens[close].end + 1, **pieces)
        return close + 1

    def _read_piece(self, at: int, close: int, pieces: dict[str, Piece]) -> int:
        name = self.tokens[at]
        word = name.text.upper()
        if word not in _BRACKET_WORDS:
            hint = near_miss(word, _BRACKET_WORDS)
            self._fail(f"expected RANGE, SLIDE, WATTR, ORIGIN or ROWS, found {name.text}{hint}", name)
        if word.lower() in pieces:
            self._fail(f"{word} is given twice", name)
        first = at + 2 if self._kind(at + 1) == TokenType.EQ else at + 1
        last = first + 1
        while last < close and self.tokens[last].text.upper() not in _BRACKET_WORDS:
            last += 1
        value = self.tokens[first:last]
        if value and value[-1].token_type == TokenType.COMMA:
            value = value[:-1]
        swallowed = word != "WATTR" and value and value[0].text.upper() in _BRACKET_WORDS
        if first >= close or not value or swallowed:
            self._fail(f"{word} needs a value", name)
        pieces[word.lower()] = Piece.of(self.text, value)
        return last


def _whole_group_by(tokens: list[Token]) -> list[Token]:
    """sqlglot reads GROUP BY as one word, unless a comment stands between the two."""
    for at in range(len(tokens) - 1):
        first, second = tokens[at], tokens[at + 1]
        if first.text.upper() == "GROUP" and second.text.upper() == "BY":
            whole = Token(TokenType.GROUP_BY, "GROUP BY", first.line, first.col, first.start, second.end)
            return [*tokens[:at], whole, *tokens[at + 2 :]]
    return tokens


def span(text: str, node: exp.Expr) -> tuple[int, int]:
    """Where a node stands in the text it was parsed from, as far as its parts remember."""
    places = [part._meta for part in node.walk() if part._meta and "start" in part._meta]
    if not places:
        return span(text, node.parent) if node.parent is not None else (0, len(text))
    start, end = min(place["start"] for place in places), max(place["end"] for place in places) + 1
    while (inner := text[start:end]).count("(") > inner.count(")") and ")" in text[end:]:
        end = text.index(")", end) + 1
    return start, end
