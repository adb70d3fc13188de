"""EMIT EMPTY, at the end of a query: windows without rows have results too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import EmptyWindows
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import Piece, TokenReader, is_after_from, read_length, word_of

_MOST_WINDOWS = 10**15  # more are no limit at all; admission refuses far fewer


@dataclass(frozen=True)
class EmptyClause(WindowQueryClause):
    """The clause as it was read, and its position; `length` is a duration or a number on the window's clock."""

    field: ClassVar[str] = "empty"

    start: int
    end: int
    windows: int | None = None
    length: Piece | None = None

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            message = "EMIT EMPTY needs SLIDE: an on-demand query reports nothing by itself"
            parsed.fail_at(message, self)

    def bound(self, text: str, context: ClauseContext) -> EmptyWindows:
        if self.length is not None:
            return EmptyWindows(length=read_length(text, self.length, context.clock, "FOR"))
        return EmptyWindows() if self.windows is None else EmptyWindows(self.windows)


def opens_empty(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause begins here; otherwise `emit` is a name."""
    if word_of(tokens[at]) != "EMIT" or at + 1 == len(tokens) or word_of(tokens[at + 1]) != "EMPTY":
        return False
    return at == 0 or is_after_from(tokens, at)


def read_empty(text: str, tokens: Sequence[Token], at: int) -> tuple[EmptyClause, int]:
    """Read the clause, and the place of the token that follows it: the end of the query, or another clause."""
    reader = _EmptyReader(text, tokens, at)
    return reader.read(), reader.at


EMIT_EMPTY = EndClauseReader(
    openings=("EMIT EMPTY",), keywords=("FOR", "WINDOWS"), opens=opens_empty, read=read_empty
)


class _EmptyReader(TokenReader):
    """Reads the clause from left to right."""

    def read(self) -> EmptyClause:
        opening, last = self.take(), self.take()
        place = opening.start, last.end + 1
        clause = self._read_for(self.take(), place) if self.word() == "FOR" else EmptyClause(*place)
        token = self.token()
        if (
            token is None
            or word_of(token) == "ALERT"
            or (word_of(token) == "EMIT" and self.word(1) != "EMPTY")
        ):
            return clause
        if word_of(token) == "EMIT":
            self.fail("EMIT EMPTY is given twice", token)
        if word_of(token) == "ON":
            self.fail("ON OVERLOAD PREFER comes before EMIT EMPTY", token)
        self.fail(
            f"expected FOR, EMIT EARLY, ALERT or the end of the query, found {self.written(token)}", token
        )

    def _read_for(self, word: Token, place: tuple[int, int]) -> EmptyClause:
        first = self.at
        while self.token() is not None and self.word() not in ("EMIT", "ALERT", "ON", "WINDOWS", "WINDOW"):
            self.at += 1
        given = self.tokens[first : self.at]
        if not given:
            self.fail("FOR needs a number of windows or a length: FOR 10 WINDOWS, or FOR '1 hour'", word)
        if self.word() in ("WINDOWS", "WINDOW"):
            number = given[0]
            if len(given) > 1 or number.token_type != TokenType.NUMBER or not number.text.isdigit():
                self.fail("FOR ... WINDOWS takes a positive whole number", given[0], given[-1])
            windows = int(number.text[:16])
            if not 0 < windows <= _MOST_WINDOWS:
                self.fail("FOR ... WINDOWS takes a positive whole number", number)
            self.at += 1
            return EmptyClause(*place, windows=windows)
        return EmptyClause(*place, length=Piece.of(self.text, given))
