"""ON OVERLOAD PREFER, at the end of a query: which rows to process first when a batch is beyond the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.sql.clauses.promise_reader import (
    PREFERENCE_PARTS,
    PROMISE_WORDS,
    WINDOW_CLAUSES,
    PromiseReader,
    WrittenPromise,
)
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.query import OverloadPreference
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import is_after_from, word_of


@dataclass(frozen=True)
class OverloadClause(WindowQueryClause):
    """ON OVERLOAD PREFER as it was read, and its position."""

    field: ClassVar[str] = "overload"

    order: str
    promise: WrittenPromise
    start: int
    end: int

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            message = "ON OVERLOAD PREFER needs SLIDE: a query without it is looked up, and keeps all rows"
            parsed.fail_at(message, self)

    def bound(self, text: str, context: ClauseContext) -> OverloadPreference:
        return OverloadPreference(self.order, context.promise(self.promise))


def opens_overload(tokens: Sequence[Token], at: int) -> bool:
    """Whether ON OVERLOAD begins here; otherwise ON belongs to a join, and `overload` is a name."""
    if tokens[at].token_type != TokenType.ON or at + 1 == len(tokens):
        return False
    if word_of(tokens[at + 1]) != "OVERLOAD" or not is_after_from(tokens, at):
        return False
    return at + 2 == len(tokens) or tokens[at + 2].token_type in (
        TokenType.VAR,
        TokenType.DESC,
        TokenType.ASC,
    )


def read_overload(text: str, tokens: Sequence[Token], at: int) -> tuple[OverloadClause, int]:
    """Read the clause, and the place of the token that follows it: the end of the query, or EMIT."""
    reader = _OverloadReader(text, tokens, at)
    return reader.read(), reader.at


ON_OVERLOAD = EndClauseReader(
    openings=("ON OVERLOAD",), keywords=("PREFER", *PROMISE_WORDS), opens=opens_overload, read=read_overload
)


class _OverloadReader(PromiseReader):
    """Reads ON OVERLOAD PREFER from left to right."""

    name = "ON OVERLOAD PREFER"
    ends = ("EMIT", "ALERT")

    def read(self) -> OverloadClause:
        opening = self.take()
        self.at += 1
        self.expect("PREFER")
        order, promise = self.order(), self.promise()
        token = self.token()
        if token is not None and word_of(token) not in ("EMIT", "ALERT"):
            self._refuse_after(token, promise)
        return OverloadClause(order, promise, opening.start, self.tokens[self.at - 1].end + 1)

    def _refuse_after(self, token: Token, promise: WrittenPromise) -> NoReturn:
        word = word_of(token)
        if word in PREFERENCE_PARTS:
            self.fail(f"{word} belongs to WITH PREFERENCE; ON OVERLOAD PREFER takes an order only", token)
        if word == "WITH":
            self.fail("ON OVERLOAD PREFER is for window queries, and WITH PREFERENCE for others", token)
        if word in WINDOW_CLAUSES:
            self.fail(f"ON OVERLOAD PREFER is for queries with SLIDE, and {word} for those without", token)
        if word == "ON":
            self.fail("ON OVERLOAD PREFER is given twice", token)
        self.misplaced(token, promise, ("EMIT EARLY",))
