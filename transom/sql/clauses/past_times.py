"""BACKFILL and AS OF, at the very end of a query: the past that a new query, or a lookup, asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import BackfillStart
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import (
    EXPRESSION_ENDS,
    INTEGER,
    SIGNS,
    TokenReader,
    is_after_from,
    word_of,
)

_CLAUSE_ENDS = {TokenType.MOD, TokenType.PERCENT, TokenType.DESC, TokenType.ASC, TokenType.NULL}
_NEVER_AFTER_ALIAS = {TokenType.VAR, TokenType.STRING, TokenType.NUMBER, *SIGNS}
_EARLIER_WORDS = {"ALERT", "EMIT", "USING"}
_ENDING_WORDS = {"EMPTY", "DEMAND", "SLIDE", "WINDOWS", "WINDOW", "FIRST", "LAST", "TIES"}


@dataclass(frozen=True)
class BackfillClause(WindowQueryClause):
    """BACKFILL as it was read, and its position."""

    field: ClassVar[str] = "backfill"

    backfill: BackfillStart
    start: int
    end: int

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        """Which queries can ask for the past depends on their stream, too: that is checked when they register."""

    def bound(self, text: str, context: ClauseContext) -> BackfillStart:
        return self.backfill


@dataclass(frozen=True)
class AsOfClause(WindowQueryClause):
    """AS OF as it was read, and its position."""

    field: ClassVar[str] = "as_of"

    time: str | int
    start: int
    end: int

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        """Every query with a window can be looked up in the past, if its stream retains rows."""

    def bound(self, text: str, context: ClauseContext) -> str | int:
        return self.time


def opens_backfill(tokens: Sequence[Token], at: int) -> bool:
    """Whether BACKFILL begins here; otherwise `backfill` is a name."""
    if word_of(tokens[at]) != "BACKFILL" or not _may_begin(tokens, at):
        return False
    return at + 1 == len(tokens) or _continues(tokens[at + 1])


def opens_as_of(tokens: Sequence[Token], at: int) -> bool:
    """Whether AS OF begins here; otherwise `of` is an alias."""
    if tokens[at].token_type != TokenType.ALIAS or at + 1 == len(tokens) or word_of(tokens[at + 1]) != "OF":
        return False
    if not _may_begin(tokens, at):
        return False
    return at + 2 < len(tokens) and _continues(tokens[at + 2])


def _continues(token: Token) -> bool:
    """Whether a token can follow a clause's first words, rightly or by mistake, and can't follow an alias."""
    return token.token_type in _NEVER_AFTER_ALIAS and word_of(token) != "WINDOW"


def _may_begin(tokens: Sequence[Token], at: int) -> bool:
    if at == 0:
        return True
    before = tokens[at - 1]
    if before.token_type not in EXPRESSION_ENDS | _CLAUSE_ENDS and word_of(before) not in _ENDING_WORDS:
        return False
    is_query = tokens[0].token_type in (TokenType.SELECT, TokenType.WITH)  # and not its end clauses alone
    return is_after_from(tokens, at) or not is_query


def read_backfill(text: str, tokens: Sequence[Token], at: int) -> tuple[BackfillClause, int]:
    """Read BACKFILL, and the place of the token that follows it: the end of the query."""
    reader = _PastReader(text, tokens, at)
    opening, since = reader.take(), None
    if reader.token() is not None:
        if (word := reader.word()) in _EARLIER_WORDS:
            reader.fail(f"BACKFILL comes last: write {word} before it", tokens[at + 1])
        reader.expect("SINCE")
        since = reader.read_time(tokens[reader.at - 1], "'24 hours ago' or '2013-01-01 12:00'")
    reader.read_end("BACKFILL")
    clause = BackfillClause(BackfillStart(since), opening.start, tokens[reader.at - 1].end + 1)
    return clause, reader.at


def read_as_of(text: str, tokens: Sequence[Token], at: int) -> tuple[AsOfClause, int]:
    """Read AS OF, and the place of the token that follows it: the end of the query."""
    reader = _PastReader(text, tokens, at)
    opening = reader.take()
    time = reader.read_time(reader.take(), "'2013-01-01 12:00'")
    reader.read_end("AS OF")
    return AsOfClause(time, opening.start, tokens[reader.at - 1].end + 1), reader.at


class _PastReader(TokenReader):
    """Reads both clauses from left to right."""

    def read_time(self, word: Token, examples: str) -> str | int:
        """Read a time as text, or a whole number of an integer clock."""
        token, first = self.token(), self.at
        if token is not None and token.token_type == TokenType.STRING:
            return self.take().text
        if not self.is_number():
            self.fail(f"{word_of(word)} needs a time like {examples}", token or word)
        self.at += 2 if self.tokens[self.at].token_type in SIGNS else 1
        written = "".join(self.written(token) for token in self.tokens[first : self.at])
        if INTEGER.fullmatch(written) is None or len(written) > 20:
            self.outside(f"{word_of(word)} takes a time in quotes, or a whole number", first)
        return int(written)

    def read_end(self, word: str) -> None:
        """Refuse what follows."""
        if (token := self.token()) is not None:
            self.fail(f"{word} comes at the very end of a query, and this is after it", token)


BACKFILL = EndClauseReader(
    openings=("BACKFILL",), keywords=("SINCE",), opens=opens_backfill, read=read_backfill
)
AS_OF = EndClauseReader(openings=("AS OF",), keywords=(), opens=opens_as_of, read=read_as_of)
