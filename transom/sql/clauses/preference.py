"""WITH PREFERENCE, at the end of a query: which tuples it prefers, and its budget.

The clause of "Stream Query Processing Using Promising Tuples", Figure 3b, with a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import Preference
from transom.errors import near_miss
from transom.sql.clauses.promise_reader import (
    PREFERENCE_PARTS,
    PROMISE_WORDS,
    WINDOW_CLAUSES,
    PromiseReader,
    WrittenPromise,
)
from transom.sql.syntax.parsed_query import EndClauseReader
from transom.sql.syntax.token_reader import Piece, is_after_from, word_of

_FORMS = ("FADE FACTOR", "WINDOW", "BUDGET")


@dataclass(frozen=True)
class PreferenceClause:
    """WITH PREFERENCE as it was read, its position, and the position of its WINDOW's length."""

    preference: Preference
    promise: WrittenPromise
    start: int
    end: int
    window: tuple[int, int] | None = None


def opens_preference(tokens: Sequence[Token], at: int) -> bool:
    """Whether WITH PREFERENCE begins here."""
    return (
        tokens[at].token_type == TokenType.WITH
        and at + 1 < len(tokens)
        and word_of(tokens[at + 1]) == "PREFERENCE"
        and is_after_from(tokens, at)
    )


def near_preference(tokens: Sequence[Token], at: int) -> str:
    """A hint for a misspelled PREFERENCE after FROM ... WITH."""
    if at + 1 == len(tokens) or not is_after_from(tokens, at):
        return ""
    return near_miss(tokens[at + 1].text, ["PREFERENCE"])


def read_preference(text: str, tokens: Sequence[Token], at: int) -> tuple[PreferenceClause, int]:
    """Read WITH PREFERENCE, up to the end of the query; an error points at its part."""
    return _PreferenceReader(text, tokens, at).read(), len(tokens)


WITH_PREFERENCE = EndClauseReader(
    openings=("WITH PREFERENCE",),
    keywords=(*PROMISE_WORDS, *" ".join(_FORMS).split(), "PROBES"),
    opens=opens_preference,
    read=read_preference,
)


class _PreferenceReader(PromiseReader):
    """Reads WITH PREFERENCE from left to right."""

    name = "WITH PREFERENCE"
    ends = PREFERENCE_PARTS

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        super().__init__(text, tokens, at)
        self.values: dict[str, Any] = {}
        self.window: tuple[int, int] | None = None

    def read(self) -> PreferenceClause:
        opening = self.take()
        self.expect("PREFERENCE")
        order, promise = self.order(), self.promise()
        given = set[str]()
        while (token := self.token()) is not None:
            word = word_of(token)
            if word in WINDOW_CLAUSES:
                self.fail(f"{word} is for window queries; a query WITH PREFERENCE takes WINDOW", token)
            if word == "WITH":
                self.fail("WITH PREFERENCE is given twice", token)
            if word not in PREFERENCE_PARTS:
                self.misplaced(token, promise, _FORMS)
            if word in given:
                self.fail(f"{word} is given twice", token)
            given.add(word)
            self._read_part(self.take(), word)
        end = self.tokens[-1].end + 1
        return PreferenceClause(Preference(order, **self.values), promise, opening.start, end, self.window)

    def _read_part(self, token: Token, word: str) -> None:
        first = self.at
        match word:
            case "FADE":
                self.expect("FACTOR")
                first = self.at
                fade = self.number("FADE FACTOR", "a number like 0.8")
                if not 0 < fade <= 1:
                    self.outside("FADE FACTOR is above 0 and at most 1", first)
                self.values["fade"] = fade
            case "WINDOW":
                self._check_bracket()
                self.values["window"] = self.duration(
                    token, "'1 minute'", (*PREFERENCE_PARTS, *WINDOW_CLAUSES)
                )
                self.window = self.tokens[first].start, self.tokens[self.at - 1].end + 1
            case "BUDGET":
                self._read_budget(token)

    def _check_bracket(self) -> None:
        if self.is_next(TokenType.L_BRACKET):
            self.fail("WINDOW takes a duration like '1 minute' here, and no bracket", self.take())

    def _read_budget(self, word: Token) -> None:
        first, ends = self.at, (*PREFERENCE_PARTS, *WINDOW_CLAUSES)
        if self.is_number():
            number = self.number("BUDGET")
            written = Piece.of(self.text, self.tokens[first : self.at]).text
            unit = self.token()
            if unit is None or word_of(unit) in ends:
                self.outside(f"a BUDGET has a unit: write {written} PROBES, or '{written} ms'", first)
            if word_of(unit) in ("PROBES", "PROBE"):
                self._read_probes(number, first)
                return
            if hint := near_miss(unit.text, ["PROBES"]):
                self.fail(
                    f"a BUDGET is in probes or a duration, and this is {self.written(unit)}{hint}", unit
                )
            self.at = first
        self.values["time"] = self.duration(word, "'200 ms', or 50000 PROBES", ends)

    def _read_probes(self, number: float, first: int) -> None:
        if number != int(number) or not 1 <= number < 2**53:
            self.outside("a BUDGET is a whole number of probes, at least 1", first)
        self.at += 1
        self.values["probes"] = int(number)
