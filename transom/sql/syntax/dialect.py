"""Text to syntax tree: Spark's grammar by sqlglot, with the papers' window brackets.

The bracket and the clauses at the end (EMIT EARLY; USING, WITHIN; WITH PREFERENCE; ON OVERLOAD) are cut out
of the token stream before sqlglot parses the rest, so that every position still points into the user's text.
Functions stay as they were written: sqlglot knows many of them and would rewrite some, and here only Spark
itself is to say what they mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
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
from transom.sql.clauses.using import DemandClause, opens_demand, read_demand
from transom.sql.syntax.clause_reader import Piece


class _Located(ParseError):
    """sqlglot's error with the place of the token it stumbled over."""

    def __init__(self, message: str, start: int, end: int):
        super().__init__(message)
        self.message, self.start, self.end = message, start, end


def _constant(parse: Any) -> Any:
    return lambda self, token: parse(self, token).update_positions(token)


class TransomParser(SparkParser):
    """Spark's parser, leaving functions uninterpreted and remembering where constants stood."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING")
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = SparkParser.PRIMARY_PARSERS | {
        kind: _constant(SparkParser.PRIMARY_PARSERS[kind])
        for kind in (TokenType.NULL, TokenType.TRUE, TokenType.FALSE)
    }
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # array(a, b)[1] is no constructor of [1]
    STRICT_CAST = True

    def raise_error(self, message: str, token: Token | None = None) -> None:
        token = token or self._curr or self._prev
        raise _Located(message, token.start, token.end + 1)


class TransomDialect(Spark):
    """Spark SQL as far as Transom reads it."""

    Parser = TransomParser


_DIALECT = TransomDialect()


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


EndClause = EmitClause | DemandClause | PreferenceClause


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
_CONSTRUCTORS = {TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT}
_BRACKET_WORDS = ("RANGE", "ROWS", "SLIDE", "WATTR", "ORIGIN")
_PREFERENCE = re.compile(r"\bpreference\b", re.IGNORECASE)
_END_OF_FROM = {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING}


def parse(text: str) -> Parsed:
    """The syntax tree of one query, or an error that points at the place."""
    tokens = tokens_of(text)
    if not tokens:
        raise SQLError("the query is empty", text)
    pieces = _Tokens(text, tokens).split()
    try:
        parser = TransomParser(dialect=_DIALECT, error_level=ErrorLevel.IMMEDIATE)
        tree = parser.parse(pieces.kept, text)[0]
    except _Located as error:
        raise SQLError(_plain(error.message), text, error.start, error.end) from None
    except ParseError as error:
        raise SQLError(str(error).split("\n")[0], text) from None
    except (LookupError, ValueError, TypeError, AttributeError):  # of the parser's own, on strange names
        raise SQLError("this can't be read as SQL", text) from None
    if not isinstance(tree, exp.Select):
        raise SQLError("expected SELECT", text, tokens[0].start, tokens[0].end + 1)
    if not tree.expressions:
        raise SQLError("SELECT needs something to select", text, tokens[0].start, tokens[0].end + 1)
    return Parsed(text, tree, pieces.bracket, pieces.end, pieces.overload)


def parse_end(text: str) -> tuple[OverloadClause | None, EndClause | None]:
    """ON OVERLOAD and EMIT EARLY, or USING and WITHIN, alone, as they stand at the end of a query."""
    tokens, at, overload = tokens_of(text), 0, None
    if tokens[0].token_type == TokenType.ON:
        overload, at = read_overload(text, tokens, 0)
    if at == len(tokens):
        return overload, None
    read = read_emit if tokens[at].text.upper() == "EMIT" else read_demand
    return overload, read(text, tokens, at)


def is_preferred(text: str) -> bool:
    """Whether a query has a preference, told without parsing it.

    >>> is_preferred("SELECT a FROM s WITH PREFERENCE desc a"), is_preferred("SELECT a AS preference FROM s")
    (True, False)
    """
    if _PREFERENCE.search(text) is None:  # almost all of thousands
        return False
    try:
        tokens = tokens_of(text)
    except SQLError:
        return False
    return any(opens_preference(tokens, at) for at in range(len(tokens)))


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text up to the semicolons at its end."""
    try:
        tokens: list[Token] = _DIALECT.tokenize(text)
    except TokenError:
        raise SQLError("a quote or a comment is not closed", text, max(0, len(text) - 1)) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
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


def _plain(message: str) -> str:
    """sqlglot's message without its own names for things."""
    if message.startswith("Required keyword"):
        return "an expression is missing before this"
    plain = message.replace("Invalid expression / Unexpected token", "this was not expected here")
    return plain[:1].lower() + plain[1:]


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
            if kind in (TokenType.USING, TokenType.VAR) and opens_demand(self.tokens, at):
                self.end = read_demand(self.text, self.tokens, at)
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
            self._keep(token, self._kind(at + 1))
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

    def _keep(self, token: Token, following: TokenType | None) -> None:
        last = self.kept[-1] if self.kept else None
        constructor = token.token_type in _CONSTRUCTORS and following == TokenType.L_PAREN
        if token.token_type == TokenType.WINDOW or constructor:
            # A keyword for sqlglot, or the name of a type; here it is only ever a name.
            place = (token.line, token.col, token.start, token.end)
            token = Token(TokenType.VAR, token.text, *place, token.comments)
        elif (
            last is not None
            and token.token_type == TokenType.STRING
            and last.token_type in (TokenType.STRING, TokenType.RAW_STRING)
            and token.start == last.end + 1
            and self.text[token.start] == self.text[last.end]
        ):
            # Since version 4 Spark reads 'it''s' as one string.
            self.kept.pop()
            whole = f"{last.text}{self.text[last.end]}{token.text}"
            token = Token(TokenType.STRING, whole, token.line, token.col, last.start, token.end)
        if token.token_type == TokenType.STRING and "\\" in self.text[token.start : token.end + 1]:
            # What a backslash means is Spark's to say: the string is passed on as it was written.
            place = (token.line, token.col, token.start, token.end)
            token = Token(TokenType.RAW_STRING, token.text, *place, token.comments)
        self.kept.append(token)

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
