"""USING and WITHIN, at the end of an on-demand query: the structure that answers its lookups.

The structures are those of "Aggregate Sharing in Stream Databases", sections 2, 3 and 6, and an exact one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import Using
from transom.errors import near_miss
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import (
    EARLIER_CLAUSES,
    EXPRESSION_ENDS,
    SIGNS,
    Piece,
    TokenReader,
    is_after_from,
    read_length,
    word_of,
)

DEFAULT_BUCKETS = 64
MAX_BUCKETS = 65_536
STORE_STRUCTURES = ("exact", "naive", "ordered_sharing", "timegram")
_ARGUMENTS = ("BOUNDS", "BETWEEN", "SLICE")
_FORMS = "a number of buckets like 64, BETWEEN low AND high, BOUNDS low, ..., high or SLICE '1 second'"
_JOINS = {TokenType.JOIN, TokenType.ON, TokenType.USING, *EARLIER_CLAUSES}


@dataclass(frozen=True)
class UsingClause(WindowQueryClause):
    """The clause as it was read, and its position; `bound` computes the length of a slice."""

    field: ClassVar[str] = "using"

    using: Using
    start: int
    end: int
    word: str  # that it begins with
    slice: Piece | None = None

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if not on_demand:
            has = "SLIDE"
            if parsed.bracket is None:
                has = "a window() with a slide, or sessions"
            elif parsed.bracket.session is not None:
                has = "sessions"
            parsed.fail_at(
                f"the query has {has}: its results are pushed, and {self.word} is for lookups", self
            )

    def bound(self, text: str, context: ClauseContext) -> Using:
        """The value of the clause; the length of a slice is read in units of the query's clock."""
        if self.slice is None:
            return self.using
        return replace(self.using, slice=read_length(text, self.slice, context.clock, "SLICE"))


def opens_using(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause begins here; otherwise USING belongs to a join, and `within` is a name."""
    if tokens[at].token_type == TokenType.USING:
        return is_after_from(tokens, at) and not _is_of_join(tokens, at)
    if word_of(tokens[at]) != "WITHIN" or not is_after_from(tokens, at):
        return False
    ended = tokens[at - 1].token_type in EXPRESSION_ENDS
    if at + 1 == len(tokens):
        return ended and any(
            token.token_type in EARLIER_CLAUSES - {TokenType.L_BRACKET} for token in tokens[:at]
        )
    after = tokens[at + 1].token_type
    if after in (TokenType.NUMBER, TokenType.STRING):
        return True
    named = after == TokenType.VAR and word_of(tokens[at + 1]) not in ("EMIT", "WITHIN")
    return ended and (named or after in SIGNS)


def _is_of_join(tokens: Sequence[Token], at: int) -> bool:
    """Whether the last join still lacks its condition, even for a USING without parentheses."""
    last = next((token.token_type for token in reversed(tokens[:at]) if token.token_type in _JOINS), None)
    return last == TokenType.JOIN


def read_using(text: str, tokens: Sequence[Token], at: int) -> tuple[UsingClause, int]:
    """Read the clause, up to the end of the query; an error points at its part."""
    return _UsingReader(text, tokens, at).read(), len(tokens)


USING = EndClauseReader(
    openings=("USING", "WITHIN"),
    keywords=(*map(str.upper, STORE_STRUCTURES), *_ARGUMENTS, "AND"),
    opens=opens_using,
    read=read_using,
)


class _UsingReader(TokenReader):
    """Reads the clause from left to right."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        super().__init__(text, tokens, at)
        self.values: dict[str, Any] = {}
        self.slice: Piece | None = None
        self.buckets: tuple[int, int] | None = None  # the tokens that define the buckets

    def read(self) -> UsingClause:
        opening = self.tokens[self.at]
        structure: Token | None = None
        while (token := self.token()) is not None:
            word = word_of(self.take())
            if word == "USING" and structure is None:
                structure = self._read_structure(token)
            elif word == "WITHIN" and "within" not in self.values:
                self._read_within()
            else:
                self._misplaced(token)
        if "within" in self.values:
            self._check_within(structure)
        elif self.values["structure"] == "timegram" and "bounds" not in self.values:
            self.values.setdefault("buckets", DEFAULT_BUCKETS)
        end = self.tokens[-1].end + 1
        return UsingClause(Using(**self.values), opening.start, end, word_of(opening), self.slice)

    def _misplaced(self, token: Token) -> NoReturn:
        word, written = word_of(token), self.written(token)
        if word in ("USING", "WITHIN"):
            self.fail(f"{word} is given twice", token)
        if word == "EMIT":
            self.fail("EMIT EARLY is for queries with SLIDE, and USING and WITHIN for those without", token)
        if token.token_type in EARLIER_CLAUSES:
            self.fail("USING and WITHIN come at the very end of a query, and this is after them", token)
        if token.token_type == TokenType.L_PAREN and self.values.get("structure") in STORE_STRUCTURES[:-1]:
            self.fail(f"{self.values['structure']} takes nothing in parentheses", token)
        hint = near_miss(word, ["USING", "WITHIN"])
        self.fail(f"expected the end of the query, USING or WITHIN, found {written}{hint}", token)

    def _read_within(self) -> None:
        first = self.at
        within = self.percentage("WITHIN", "5%")
        if not 0 < within < 1:
            self.outside("WITHIN is above 0% and below 100%", first)
        self.values |= {"structure": "timegram", "within": within}

    def _check_within(self, structure: Token | None) -> None:
        """Refuse WITHIN unless the engine chooses the buckets of a timegram."""
        if structure is not None and structure.text.lower() != "timegram":
            self.fail(f"{structure.text.lower()} gives the exact answer; WITHIN is for a timegram", structure)
        if self.buckets is not None:
            first, last = self.buckets
            message = "the buckets follow from WITHIN; a timegram beside it takes SLICE only"
            self.fail(message, self.tokens[first], self.tokens[last])

    # --- USING ---------------------------------------------------------------------------------

    def _read_structure(self, using: Token) -> Token:
        token = self.token()
        choice = f"{', '.join(STORE_STRUCTURES[:-1])} or {STORE_STRUCTURES[-1]}"
        if token is None:
            self.fail(f"USING needs {choice}", using)
        name = word_of(token).lower()
        if name not in STORE_STRUCTURES:
            hint = near_miss(token.text, STORE_STRUCTURES)
            self.fail(f"USING needs {choice}, found {self.written(token)}{hint}", token)
        self.at += 1
        self.values["structure"] = name
        if name == "timegram" and self.is_next(TokenType.L_PAREN):
            self._read_arguments()
        return token

    def _read_arguments(self) -> None:
        opening = self.take()
        while not self.is_next(TokenType.R_PAREN):
            self._read_argument(opening)
            if not self.is_next(TokenType.COMMA):
                break
            self.at += 1
            if self.is_next(TokenType.R_PAREN):
                self.fail(f"timegram takes {_FORMS} after a comma", self.tokens[self.at - 1])
        token = self.token()
        if token is None:
            self.fail("the parenthesis of timegram is not closed", opening)
        if token.token_type != TokenType.R_PAREN:
            hint = near_miss(token.text, _ARGUMENTS)
            self.fail(
                f"expected a comma or the closing parenthesis, found {self.written(token)}{hint}", token
            )
        self.at += 1

    def _read_argument(self, opening: Token) -> None:
        token, first = self.token(), self.at
        if token is None:
            self.fail("the parenthesis of timegram is not closed", opening)
        word = word_of(token)
        if word == "SLICE":
            self._read_slice()
            return
        if word not in ("BOUNDS", "BETWEEN") and not self.is_number():
            hint = near_miss(token.text, _ARGUMENTS)
            self.fail(f"timegram takes {_FORMS}, found {self.written(token)}{hint}", token)
        if self.buckets is not None:
            self.fail("the buckets of the timegram are given twice", token)
        if word == "BOUNDS":
            self._read_bounds()
        else:
            self._read_buckets()
        self.buckets = first, self.at - 1

    def _read_buckets(self) -> None:
        if self.is_number():
            first = self.at
            number = self.number("timegram")
            if number != int(number):
                self.outside("a timegram has a whole number of buckets", first)
            if not 1 <= number <= MAX_BUCKETS:
                self.outside(f"a timegram has 1 to {MAX_BUCKETS:,} buckets", first)
            self.values["buckets"] = int(number)
        if self.word() == "BETWEEN":
            self.at += 1
            first = self.at
            low = self.number("BETWEEN")
            self.expect("AND")
            high = self.number("BETWEEN")
            if low >= high:
                self.outside("BETWEEN takes the smaller value first, and two that differ", first)
            self.values["between"] = (low, high)

    def _read_bounds(self) -> None:
        self.at += 1
        first = self.at
        bounds = [self.number("BOUNDS")]
        while self.is_next(TokenType.COMMA) and self.is_number(1):
            self.at += 1
            latest = self.at
            bounds.append(self.number("BOUNDS"))
            if bounds[-1] <= bounds[-2]:
                self.outside("BOUNDS ascend, and this one is not above the one before", latest)
        if len(bounds) < 2:
            self.outside("BOUNDS needs at least two values", first)
        if len(bounds) > MAX_BUCKETS + 1:
            self.outside(f"a timegram has 1 to {MAX_BUCKETS:,} buckets", first)
        self.values["bounds"] = tuple(bounds)

    def _read_slice(self) -> None:
        word = self.take()
        if self.slice is not None:
            self.fail("SLICE is given twice", word)
        first = self.at
        while (token := self.token()) is not None:
            if token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                break
            self.at += 1
        if first == self.at:
            self.fail("SLICE needs a length like '1 second'", word)
        self.slice = Piece.of(self.text, self.tokens[first : self.at])
