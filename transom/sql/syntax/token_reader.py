"""Reads a clause from the tokens of a query, left to right, with errors that point at tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.durations import parse_duration
from transom.elements import ClockKind
from transom.errors import SettingError, SQLError, near_miss

# A clause can't begin after these: the next word is a name.
NAMES_FOLLOW = {
    TokenType.FROM,
    TokenType.JOIN,
    TokenType.COMMA,
    TokenType.ALIAS,
    TokenType.DOT,
    TokenType.SELECT,
}
# What an expression or a FROM clause ends with.
EXPRESSION_ENDS = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
}
FROM_ENDS = {
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
}
EARLIER_CLAUSES = {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.L_BRACKET, TokenType.JOIN}
INTEGER = re.compile(r"[+-]?\d+")
_NAME = re.compile(r"[^\W\d]\w*")
SIGNS = {TokenType.DASH: -1.0, TokenType.PLUS: 1.0}
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING}
LONGEST_LENGTH = (
    10**38
)  # of a window: longer numbers are refused here, and by admission those that cost too much
_LEAST, _MOST = Decimal("1e-6"), Decimal("1e6")  # percentages that an error writes out


@dataclass(frozen=True)
class Piece:
    """A part of a clause: its text without quotes, and its position."""

    text: str
    start: int
    end: int
    quoted: bool = False

    @classmethod
    def of(cls, text: str, tokens: Sequence[Token]) -> Piece:
        """The piece of some tokens of a text."""
        start, end = tokens[0].start, tokens[-1].end + 1
        if len(tokens) == 1 and tokens[0].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            return cls(tokens[0].text, start, end, quoted=True)
        # Token by token, so that a comment in between is left out.
        return cls(" ".join(text[token.start : token.end + 1] for token in tokens), start, end)


def split_list(text: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """The texts of a list of expressions, with or without parentheses around all of them."""
    openings, closings = (TokenType.L_PAREN, TokenType.L_BRACKET), (TokenType.R_PAREN, TokenType.R_BRACKET)
    if tokens and tokens[0].token_type == TokenType.L_PAREN and tokens[-1].token_type == TokenType.R_PAREN:
        tokens = tokens[1:-1]
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in openings) - (token.token_type in closings)
        if token.token_type == TokenType.COMMA and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return tuple(text[part[0].start : part[-1].end + 1] for part in parts if part)


class TokenReader:
    """Reads a clause, from the token it begins with to the end of the query; an error points at its part."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        self.text, self.tokens, self.at = text, tokens, at

    def token(self, ahead: int = 0) -> Token | None:
        """The token to be read next, or one after it."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def take(self) -> Token:
        """Read a token."""
        self.at += 1
        return self.tokens[self.at - 1]

    def is_next(self, kind: TokenType) -> bool:
        """Whether the next token is of a kind."""
        token = self.token()
        return token is not None and token.token_type == kind

    def word(self, ahead: int = 0) -> str:
        """The next token in upper case, or one after it; nothing if it is quoted."""
        token = self.token(ahead)
        return "" if token is None else word_of(token)

    def written(self, token: Token) -> str:
        """A token as it is written in the text."""
        return self.text[token.start : token.end + 1]

    def expect(self, word: str, why: str = "") -> None:
        """Read a required word."""
        token = self.token()
        if token is not None and word_of(token) == word:
            self.at += 1
            return
        why = f"; {why}" if why else ""
        before = self.tokens[self.at - 1]
        if token is None:
            self.fail(f"expected {word} after {before.text.upper()}{why}", before)
        hint = "" if why else near_miss(token.text, [word])
        self.fail(
            f"expected {word} after {before.text.upper()}, found {self.written(token)}{hint}{why}", token
        )

    def percentage(self, word: str, example: str = "75%") -> float:
        """Read `75%`, `75 %` or `75 PERCENT` as a fraction."""
        token = self.token()
        if token is None:
            self.fail(f"{word} needs a percentage like {example}", self.tokens[-1])
        negative = token.token_type == TokenType.DASH
        number = self.token(1) if negative else token
        if number is None or number.token_type != TokenType.NUMBER:
            self.fail(f"{word} needs a percentage like {example}, found {self.written(token)}", token)
        self.at += 2 if negative else 1
        if not math.isfinite(float(number.text)):
            self.fail("this is above the largest double", number)
        value = Decimal(repr(float(number.text)))  # exponents of decimals can have any length
        unit = self.token()
        if unit is None or unit.token_type not in (TokenType.MOD, TokenType.PERCENT):
            part = value * 100 if value < 1 else value
            written = f"write {part.normalize():f}%" if _LEAST <= part <= _MOST else f"like {example}"
            self.fail(f"{word} needs a percentage; {written}", number)
        self.at += 1
        return float(value / 100) * (-1 if negative else 1)

    def is_number(self, ahead: int = 0) -> bool:
        """Whether a number is next, with its sign if it has one."""
        token = self.token(ahead)
        if token is not None and token.token_type in SIGNS:
            token = self.token(ahead + 1)
        return token is not None and token.token_type == TokenType.NUMBER

    def number(self, word: str, what: str = "a number") -> float:
        """Read a number."""
        first, token = self.at, self.token()
        if token is None or not self.is_number():
            found = "" if token is None else f", found {self.written(token)}"
            self.fail(f"{word} needs {what}{found}", token or self.tokens[-1])
        sign = SIGNS.get(token.token_type)
        self.at += 1 if sign is None else 2
        value = (sign or 1.0) * float(self.tokens[self.at - 1].text)
        if not math.isfinite(value):
            self.outside("this is above the largest double", first)
        return value

    def whole(self, word: str, what: str, low: int, high: int) -> int:
        """Read an integer between two bounds."""
        first = self.at
        number = self.number(word)
        if number != int(number) or not low <= number <= high:
            self.outside(f"{what} is a whole number, {low:,} to {high:,}", first)
        return int(number)

    def duration(self, word: Token, example: str, ends: Collection[str]) -> int:
        """Read a positive duration, up to one of some words or the end."""
        first, name = self.at, word_of(word)
        while (token := self.token()) is not None and word_of(token) not in ends:
            self.at += 1
        if first == self.at:
            self.fail(f"{name} needs a duration like {example}", word)
        return read_length(self.text, Piece.of(self.text, self.tokens[first : self.at]), ClockKind.TIME, name)

    def is_name(self) -> bool:
        """Whether a name is next: a word, or anything in backticks."""
        token = self.token()
        if token is None:
            return False
        return token.token_type == TokenType.IDENTIFIER or _NAME.fullmatch(self.written(token)) is not None

    def outside(self, message: str, first: int) -> NoReturn:
        """Raise an error that points at everything read since a token."""
        self.fail(message, self.tokens[first], self.tokens[self.at - 1])

    def fail(self, message: str, first: Token, last: Token | None = None) -> NoReturn:
        """Raise an error that points at tokens."""
        raise SQLError(message, self.text, first.start, (last or first).end + 1)


def word_of(token: Token) -> str:
    """A token in upper case; nothing if it is quoted."""
    return "" if token.token_type in _QUOTED else token.text.upper()


def is_after_from(tokens: Sequence[Token], at: int) -> bool:
    """Whether a clause may begin at a token: after FROM, and not where a name is expected."""
    return (
        at > 0
        and tokens[at - 1].token_type not in NAMES_FOLLOW
        and any(token.token_type == TokenType.FROM for token in tokens[:at])
    )


def read_length(text: str, piece: Piece, kind: ClockKind, word: str) -> int:
    """The length in a piece, in units of the clock: a duration for time, a plain number otherwise."""

    def wrong(message: str) -> SQLError:
        return SQLError(message, text, piece.start, piece.end)

    number = INTEGER.fullmatch(piece.text.strip().replace(" ", ""))
    if kind == ClockKind.TIME:
        try:
            length = parse_duration(piece.text)
        except SettingError as error:
            raise wrong(f"{word}: {error}") from None
    elif number is None:
        what = "rows" if kind == ClockKind.ROWS else "an integer column"
        raise wrong(f"{word} over {what} is a plain number, not {piece.text!r}")
    else:
        length = int(Decimal(number[0]))  # an int is read from some thousands of digits only
    if length <= 0:
        raise wrong(f"{word} must be positive")
    if length > LONGEST_LENGTH:
        raise wrong(f"{word} is longer than any stream")
    return length
