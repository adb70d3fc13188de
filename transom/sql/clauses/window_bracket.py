"""`[RANGE r SLIDE s WATTR a ORIGIN o IN TIME ZONE z]` after a stream's name in FROM: the window of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError, near_miss
from transom.sql.syntax.parsed_query import Bracket
from transom.sql.syntax.token_reader import Piece, split_list, word_of

BRACKET_WORDS = ("RANGE", "ROWS", "SESSION", "SLIDE", "WATTR", "ORIGIN")
_ZONE_WORDS = ("IN", "TIME", "ZONE")


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
    partition: tuple[str, ...] = ()
    while at < close:
        if tokens[at].token_type == TokenType.PARTITION_BY:
            partition, at = _read_partition(text, tokens, at, close, partition)
        else:
            at = _read_piece(text, tokens, at, close, pieces)
    bracket = Bracket(opening.start, tokens[close].end + 1, partition=partition)
    return replace(bracket, **dict[str, Any](pieces)), close + 1


def _read_piece(text: str, tokens: Sequence[Token], at: int, close: int, pieces: dict[str, Piece]) -> int:
    name = tokens[at]
    if _opens_zone(tokens, at):
        return _read_zone(text, tokens, at, close, pieces)
    word = name.text.upper()
    if word not in BRACKET_WORDS:
        hint = near_miss(word, BRACKET_WORDS)
        expected = "RANGE, SLIDE, WATTR, ORIGIN, ROWS, SESSION or IN TIME ZONE"
        _fail(text, f"expected {expected}, found {name.text}{hint}", name)
    if word.lower() in pieces:
        _fail(text, f"{word} is given twice", name)
    first = at + 2 if at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.EQ else at + 1
    last = first + 1
    while last < close and tokens[last].text.upper() not in BRACKET_WORDS and not _opens_zone(tokens, last):
        if tokens[last].token_type == TokenType.PARTITION_BY:
            break
        last += 1
    value = tokens[first:last]
    if value and value[-1].token_type == TokenType.COMMA:
        value = value[:-1]
    swallowed = word != "WATTR" and value and value[0].text.upper() in BRACKET_WORDS
    if first >= close or not value or swallowed:
        _fail(text, f"{word} needs a value", name)
    pieces[word.lower()] = Piece.of(text, list(value))
    return last


def _read_partition(
    text: str, tokens: Sequence[Token], at: int, close: int, before: tuple[str, ...]
) -> tuple[tuple[str, ...], int]:
    """The columns of PARTITION BY, and the place of the token after them."""
    opening, first = tokens[at], at + 1
    if before:
        _fail(text, "PARTITION BY is given twice", opening)
    at = first
    while at < close and tokens[at].text.upper() not in BRACKET_WORDS and not _opens_zone(tokens, at):
        at += 1
    names = split_list(text, tokens[first:at])
    if not names:
        _fail(text, "PARTITION BY needs a column", opening)
    return names, at


def _opens_zone(tokens: Sequence[Token], at: int) -> bool:
    """Whether IN TIME ZONE begins at a token."""
    return tuple(word_of(token) for token in tokens[at : at + len(_ZONE_WORDS)]) == _ZONE_WORDS


def _read_zone(text: str, tokens: Sequence[Token], at: int, close: int, pieces: dict[str, Piece]) -> int:
    first, last = tokens[at], tokens[at + 2]
    if "zone" in pieces:
        raise SQLError("IN TIME ZONE is given twice", text, first.start, last.end + 1)
    place = at + len(_ZONE_WORDS)
    if place >= close or tokens[place].token_type != TokenType.STRING:
        message = "IN TIME ZONE needs the name of a zone in quotes, like 'Europe/Berlin'"
        raise SQLError(message, text, first.start, last.end + 1)
    pieces["zone"] = Piece.of(text, tokens[place : place + 1])
    has_comma = place + 1 < close and tokens[place + 1].token_type == TokenType.COMMA
    return place + 1 + has_comma


def _fail(text: str, message: str, token: Token) -> NoReturn:
    raise SQLError(message, text, token.start, token.end + 1)
