"""`[RANGE r SLIDE s WATTR a ORIGIN o]` after a stream's name in FROM: the window of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError, near_miss
from transom.sql.syntax.parsed_query import Bracket
from transom.sql.syntax.token_reader import Piece

BRACKET_WORDS = ("RANGE", "ROWS", "SLIDE", "WATTR", "ORIGIN")


def opens_bracket(tokens: Sequence[Token], at: int, in_from: bool, after_on: bool) -> bool:
    """Whether the bracket at a token is a window's; otherwise it is an index into an array or a map."""
    word = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
    named = word in BRACKET_WORDS and not (
        at + 2 < len(tokens) and tokens[at + 2].token_type == TokenType.R_BRACKET
    )
    after_window = at > 0 and tokens[at - 1].token_type == TokenType.WINDOW
    return after_window or (in_from and (named or not after_on))


def read_bracket(text: str, tokens: Sequence[Token], at: int) -> tuple[Bracket, int]:
    """Read the bracket; also the place of the first token after it."""
    opening, close = tokens[at], at
    while tokens[close].token_type != TokenType.R_BRACKET:
        close += 1
        if close == len(tokens):
            _fail(text, "the window's bracket is not closed", opening)
    pieces: dict[str, Piece] = {}
    at += 1
    while at < close:
        at = _read_piece(text, tokens, at, close, pieces)
    bracket = Bracket(opening.start, tokens[close].end + 1)
    return replace(bracket, **dict[str, Any](pieces)), close + 1


def _read_piece(text: str, tokens: Sequence[Token], at: int, close: int, pieces: dict[str, Piece]) -> int:
    name = tokens[at]
    word = name.text.upper()
    if word not in BRACKET_WORDS:
        hint = near_miss(word, BRACKET_WORDS)
        _fail(text, f"expected RANGE, SLIDE, WATTR, ORIGIN or ROWS, found {name.text}{hint}", name)
    if word.lower() in pieces:
        _fail(text, f"{word} is given twice", name)
    first = at + 2 if at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.EQ else at + 1
    last = first + 1
    while last < close and tokens[last].text.upper() not in BRACKET_WORDS:
        last += 1
    value = tokens[first:last]
    if value and value[-1].token_type == TokenType.COMMA:
        value = value[:-1]
    swallowed = word != "WATTR" and value and value[0].text.upper() in BRACKET_WORDS
    if first >= close or not value or swallowed:
        _fail(text, f"{word} needs a value", name)
    pieces[word.lower()] = Piece.of(text, list(value))
    return last


def _fail(text: str, message: str, token: Token) -> NoReturn:
    raise SQLError(message, text, token.start, token.end + 1)
