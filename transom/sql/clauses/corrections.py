"""EMIT CORRECTIONS WITHIN, at the end of a query: late rows correct results that were final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import Token

from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import (
    EARLIER_CLAUSES,
    Piece,
    TokenReader,
    is_after_from,
    read_length,
    word_of,
)

_NEEDS_WITHIN = "EMIT CORRECTIONS needs how long: EMIT CORRECTIONS WITHIN '1 day'"
_NEXT_CLAUSES = ("EMIT", "ON", "WITH", "USING", "ALERT")


@dataclass(frozen=True)
class CorrectionsClause(WindowQueryClause):
    """The clause as it was read, and its position; `length` is a duration or a number on the window's clock."""

    field: ClassVar[str] = "corrections"

    start: int
    end: int
    length: Piece

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            parsed.fail_at(
                "EMIT CORRECTIONS needs SLIDE: an on-demand query reports nothing that could be corrected",
                self,
            )

    def bound(self, text: str, context: ClauseContext) -> int:
        return read_length(text, self.length, context.clock, "WITHIN")


def opens_corrections(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause begins here; otherwise `emit` is a name."""
    if word_of(tokens[at]) != "EMIT" or at + 1 == len(tokens) or word_of(tokens[at + 1]) != "CORRECTIONS":
        return False
    return at == 0 or is_after_from(tokens, at)


def read_corrections(text: str, tokens: Sequence[Token], at: int) -> tuple[CorrectionsClause, int]:
    """Read the clause, and the place of the token that follows it: the end of the query, or another clause."""
    reader = TokenReader(text, tokens, at)
    opening, word = reader.take(), reader.take()
    if reader.word() != "WITHIN":
        found = reader.token()
        reader.fail(_NEEDS_WITHIN, word if found is None else found)
    within = reader.take()
    first = reader.at
    while (token := reader.token()) is not None and reader.word() not in _NEXT_CLAUSES:
        if token.token_type in EARLIER_CLAUSES:
            reader.fail("EMIT CORRECTIONS comes after GROUP BY and HAVING", token)
        reader.at += 1
    given = tokens[first : reader.at]
    if not given:
        reader.fail(_NEEDS_WITHIN, within)
    return CorrectionsClause(opening.start, word.end + 1, Piece.of(text, given)), reader.at


EMIT_CORRECTIONS = EndClauseReader(
    openings=("EMIT CORRECTIONS",), keywords=("WITHIN",), opens=opens_corrections, read=read_corrections
)
