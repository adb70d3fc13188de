"""WITH CONFIDENCE, after HAVING: the condition is decided while windows are open, as surely as the clause says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import TokenReader, is_after_from, word_of


@dataclass(frozen=True)
class ConfidenceClause(WindowQueryClause):
    """WITH CONFIDENCE as it was read, and its position."""

    field: ClassVar[str] = "decision_confidence"

    confidence: float
    start: int
    end: int

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            message = "WITH CONFIDENCE needs SLIDE: an on-demand query reports nothing by itself"
            parsed.fail_at(message, self)
        if parsed.select.args.get("having") is None:
            parsed.fail_at("WITH CONFIDENCE decides HAVING early, and this query has no HAVING", self)
        if parsed.select.args.get("limit") is not None:
            message = (
                "WITH CONFIDENCE can't be combined with LIMIT: which rows are first is known at the end only"
            )
            parsed.fail_at(message, self)

    def check_groups(self, parsed: Parsed) -> None:
        """Refuse windows whose ends are not known in advance."""
        message = (
            "WITH CONFIDENCE needs windows that all groups share: nothing predicts when these windows end"
        )
        parsed.fail_at(message, self)

    def bound(self, text: str, context: ClauseContext) -> float:
        return self.confidence


def opens_confidence(tokens: Sequence[Token], at: int) -> bool:
    """Whether WITH CONFIDENCE begins here."""
    if tokens[at].token_type != TokenType.WITH or at + 1 == len(tokens):
        return False
    return word_of(tokens[at + 1]) == "CONFIDENCE" and (at == 0 or is_after_from(tokens, at))


def read_confidence(text: str, tokens: Sequence[Token], at: int) -> tuple[ConfidenceClause, int]:
    """Read the clause, and the place of the token that follows it."""
    reader = _ConfidenceReader(text, tokens, at)
    return reader.read(), reader.at


WITH_CONFIDENCE = EndClauseReader(
    openings=("WITH CONFIDENCE",), keywords=("PERCENT",), opens=opens_confidence, read=read_confidence
)


class _ConfidenceReader(TokenReader):
    """Reads the clause from left to right."""

    def read(self) -> ConfidenceClause:
        opening = self.take()
        self.expect("CONFIDENCE")
        first = self.at
        confidence = self.percentage("CONFIDENCE", "95%")
        if not 0.5 <= confidence < 1:
            self.outside("CONFIDENCE is at least 50% and below 100%", first)
        last = self.tokens[self.at - 1]
        token = self.token()
        if token is not None and token.token_type != TokenType.SEMICOLON:
            if word_of(token) == "WITH" and self.word(1) == "CONFIDENCE":
                self.fail("WITH CONFIDENCE is given twice", token)
            if word_of(token) not in ("EMIT", "ON", "ALERT"):
                found = self.written(token)
                self.fail(
                    f"WITH CONFIDENCE is followed by ON OVERLOAD, EMIT, ALERT or nothing, not {found}", token
                )
        return ConfidenceClause(confidence, opening.start, last.end + 1)
