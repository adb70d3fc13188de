"""ALERT, at the end of a query: its results make an alert fire, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import AlertTerms
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import (
    EXPRESSION_ENDS,
    Piece,
    TokenReader,
    is_after_from,
    read_length,
    word_of,
)

MOST_ALERT_WINDOWS = 10_000  # of FOR and RESOLVE AFTER
SEVERITY, SUMMARY_TEXT = "severity", "summary"  # the label and the annotation that the clause sets
_PARTS = ("FOR", "RESOLVE", "REPEAT", "SEVERITY", "SUMMARY")
_FORMS = (
    "FOR 3 WINDOWS, RESOLVE AFTER 2 WINDOWS, REPEAT EVERY '1 hour', SEVERITY 'page' or SUMMARY '{n} bids'"
)


@dataclass(frozen=True)
class AlertClause(WindowQueryClause):
    """The clause as it was read, and its position; `repeat` is a length on the window's clock."""

    field: ClassVar[str] = "alert"

    start: int
    end: int
    windows: int = 1
    resolve_after: int = 1
    repeat: Piece | None = None
    severity: str | None = None
    summary: str | None = None

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            parsed.fail_at("ALERT needs SLIDE: an on-demand query reports nothing by itself", self)
        if parsed.select.args.get("having") is None:
            parsed.fail_at("ALERT needs HAVING: the alert fires while it is true", self)

    def bound(self, text: str, context: ClauseContext) -> AlertTerms:
        repeat = (
            None if self.repeat is None else read_length(text, self.repeat, context.clock, "REPEAT EVERY")
        )
        return AlertTerms(
            self.windows,
            self.resolve_after,
            repeat,
            () if self.severity is None else ((SEVERITY, self.severity),),
            () if self.summary is None else ((SUMMARY_TEXT, self.summary),),
        )


def opens_alert(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause begins here; otherwise `alert` is a name."""
    if word_of(tokens[at]) != "ALERT" or not is_after_from(tokens, at):
        return False
    follows = "" if at + 1 == len(tokens) else word_of(tokens[at + 1])
    before = tokens[at - 1].token_type
    is_percentage = before == TokenType.MOD and tokens[at - 2].token_type == TokenType.NUMBER
    return (before in EXPRESSION_ENDS or is_percentage) and follows in ("", ";", "BACKFILL", *_PARTS)


def read_alert(text: str, tokens: Sequence[Token], at: int) -> tuple[AlertClause, int]:
    """Read the clause, up to the end of the query."""
    reader = _AlertReader(text, tokens, at)
    return reader.read(), reader.at


ALERT_CLAUSE = EndClauseReader(
    openings=("ALERT",),
    keywords=("FOR", "WINDOWS", "RESOLVE", "AFTER", "REPEAT", "EVERY", "SEVERITY", "SUMMARY"),
    opens=opens_alert,
    read=read_alert,
)


class _AlertReader(TokenReader):
    """Reads the clause from left to right."""

    def read(self) -> AlertClause:
        opening = self.take()
        windows = resolve_after = 1
        repeat: Piece | None = None
        texts: dict[str, str] = {}
        given = set[str]()
        while self.token() is not None:
            first = self.take()
            word = word_of(first)
            if word in given:
                self.fail(f"{word} is given twice", first)
            given.add(word)
            match word:
                case "FOR":
                    windows = self._windows(first)
                case "RESOLVE":
                    self.expect("AFTER")
                    resolve_after = self._windows(first)
                case "REPEAT":
                    self.expect("EVERY")
                    repeat = self._length(first)
                case "SEVERITY" | "SUMMARY":
                    texts[word] = self._text(word, first)
                case _:
                    self._misplaced(first)
        end = self.tokens[self.at - 1].end + 1
        severity, summary = texts.get("SEVERITY"), texts.get("SUMMARY")
        return AlertClause(opening.start, end, windows, resolve_after, repeat, severity, summary)

    def _windows(self, word: Token) -> int:
        number = self.token()
        is_number = number is not None and number.token_type == TokenType.NUMBER and number.text.isdigit()
        if number is None or not is_number or not 0 < int(number.text[:9]) <= MOST_ALERT_WINDOWS:
            message = f"{word_of(word)} takes a number of windows, 1 to {MOST_ALERT_WINDOWS:,}: {_FORMS}"
            self.fail(message, number or word)
        self.at += 1
        if self.word() not in ("WINDOWS", "WINDOW"):
            self.fail(f"{word_of(word)} takes a number of windows: {_FORMS}", word, number)
        self.at += 1
        return int(number.text)

    def _length(self, word: Token) -> Piece:
        first = self.at
        while self.token() is not None and self.word() not in _PARTS:
            self.at += 1
        if self.at == first:
            self.fail("REPEAT EVERY needs a duration like '1 hour'", word)
        return Piece.of(self.text, self.tokens[first : self.at])

    def _text(self, name: str, word: Token) -> str:
        if not self.is_next(TokenType.STRING):
            self.fail(f"{name} needs a text like 'page'", word)
        return self.take().text

    def _misplaced(self, token: Token) -> NoReturn:
        if word_of(token) in ("EMIT", "ON", "WITH", "USING", "WITHIN", "HAVING", "ORDER", "LIMIT", "ALERT"):
            self.fail(
                f"only BACKFILL and AS OF can follow ALERT, and {self.written(token)} is after it", token
            )
        self.fail(f"expected {_FORMS}, found {self.written(token)}", token)
