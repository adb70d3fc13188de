"""Flink's window table functions in FROM: `TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))`.

TUMBLE, HOP and CUMULATE become the window's bracket: RANGE is the size, SLIDE the slide or the step, WATTR the
descriptor's column, ORIGIN the offset.
SESSION becomes `[SESSION gap]`; the columns of its PARTITION BY must be those of GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.syntax.parsed_query import Bracket
from transom.sql.syntax.token_reader import Piece, split_list, word_of

_PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP", ""),
}
_SLIDES = {"TUMBLE": "SIZE", "HOP": "SLIDE", "CUMULATE": "STEP"}
_FORMS = {
    "TUMBLE": "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES), the slide before the size",
    "CUMULATE": "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY), the step before the size",
    "SESSION": "SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '30' MINUTES)",
}
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def opens_window_table(tokens: Sequence[Token], at: int) -> bool:
    """Whether `TABLE(` or `TUMBLE(` begins at a token of FROM."""
    following = tokens[at + 1].token_type if at + 1 < len(tokens) else None
    names_follow = at > 0 and tokens[at - 1].token_type in (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
    known = tokens[at].token_type == TokenType.TABLE or word_of(tokens[at]) in _PARAMETERS
    return names_follow and known and following == TokenType.L_PAREN


def read_window_table(text: str, tokens: Sequence[Token], at: int) -> tuple[Bracket, list[Token], int]:
    """Read the function: its window, the tokens of the stream's name, and the place of the first token after it."""
    start, wrapped = tokens[at], tokens[at].token_type == TokenType.TABLE
    function = tokens[at + 2] if wrapped and at + 2 < len(tokens) else start
    name = word_of(function)
    if name not in _PARAMETERS:
        _fail(text, "expected TUMBLE, HOP, CUMULATE or SESSION after TABLE(", function)
    opening = at + 3 if wrapped else at + 1
    arguments, after = _arguments(text, tokens, opening, function)
    if wrapped:
        if after >= len(tokens) or tokens[after].token_type != TokenType.R_PAREN:
            _fail(text, "TABLE( is not closed", start)
        after += 1
    if name == "SESSION":
        arguments = [_unnamed(tokens) for tokens in arguments]
        return _session(text, tokens[at], tokens[after - 1], function, arguments), arguments[0][1:2], after
    given = _by_name(text, name, function, arguments)
    pieces: dict[str, Any] = {
        "range": Piece.of(text, given["SIZE"]),
        "slide": Piece.of(text, given[_SLIDES[name]]),
        "wattr": _descriptor(text, given["TIMECOL"]),
    }
    if "OFFSET" in given:
        pieces["origin"] = Piece.of(text, given["OFFSET"])
    bracket = Bracket(start.start, tokens[after - 1].end + 1, **pieces, table_function=name)
    return bracket, _table(text, given["DATA"]), after


def _session(text: str, start: Token, last: Token, function: Token, arguments: list[list[Token]]) -> Bracket:
    """The window of SESSION. PARTITION BY may have several columns, with or without parentheses."""
    places = [place for place, tokens in enumerate(arguments) if word_of(tokens[0]) == "DESCRIPTOR"]
    if not places or not arguments[0] or arguments[0][0].token_type != TokenType.TABLE:
        _fail(text, f"write {_FORMS['SESSION']}", function)
    if places[0] + 2 != len(arguments):
        _fail(text, f"SESSION needs one GAP after the time column; write {_FORMS['SESSION']}", function)
    table, *columns = arguments[: places[0]]
    _table(text, table[:2])
    words = table[2:]
    if words and words[0].token_type != TokenType.PARTITION_BY:
        _fail(text, f"expected PARTITION BY; write {_FORMS['SESSION']}", words[0])
    gap, wattr = Piece.of(text, arguments[-1]), _descriptor(text, arguments[places[0]])
    return Bracket(
        start.start,
        last.end + 1,
        session=gap,
        wattr=wattr,
        table_function="SESSION",
        partition=tuple(name for tokens in (words[1:], *columns) for name in split_list(text, tokens)),
    )


def _unnamed(tokens: list[Token]) -> list[Token]:
    """An argument of SESSION without its name: `GAP => INTERVAL '5' MINUTES`."""
    is_named = len(tokens) > 2 and tokens[1].token_type == TokenType.FARROW
    return tokens[2:] if is_named and word_of(tokens[0]) in _PARAMETERS["SESSION"] else tokens


def _arguments(
    text: str, tokens: Sequence[Token], opening: int, function: Token
) -> tuple[list[list[Token]], int]:
    """The tokens of each argument between the parentheses, and the place of the token after them."""
    if opening >= len(tokens) or tokens[opening].token_type != TokenType.L_PAREN:
        _fail(text, f"{word_of(function)} needs arguments: {_FORMS[word_of(function)]}", function)
    arguments: list[list[Token]] = [[]]
    depth = 1
    for place in range(opening + 1, len(tokens)):
        token = tokens[place]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if not depth:
            return [each for each in arguments if each], place + 1
        if depth == 1 and token.token_type == TokenType.COMMA:
            arguments.append([])
        else:
            arguments[-1].append(token)
    _fail(text, f"{word_of(function)}( is not closed", function)


def _by_name(text: str, name: str, function: Token, arguments: list[list[Token]]) -> dict[str, list[Token]]:
    """The arguments by the names of Flink's parameters, which may be written: `SIZE => INTERVAL '1' HOUR`."""
    parameters, given = _PARAMETERS[name], {}
    for place, tokens in enumerate(arguments):
        parameter = parameters[place] if place < len(parameters) else ""
        if len(tokens) > 2 and tokens[1].token_type == TokenType.FARROW:
            parameter, tokens = word_of(tokens[0]), tokens[2:]
        if parameter not in parameters or parameter in given:
            _fail(text, f"{name} has no such argument; write {_FORMS[name]}", tokens[0])
        given[parameter] = tokens
    missing = [parameter for parameter in parameters[:-1] if parameter not in given]
    if missing:
        _fail(text, f"{name} needs {missing[0]}; write {_FORMS[name]}", function)
    return given


def _table(text: str, tokens: list[Token]) -> list[Token]:
    named = tokens[1:] if tokens[0].token_type == TokenType.TABLE else []
    if len(named) != 1:
        _fail(text, "expected TABLE and the name of a stream", tokens[0], tokens[-1])
    return named


def _descriptor(text: str, tokens: list[Token]) -> Piece:
    inner = tokens[2:-1]
    if word_of(tokens[0]) != "DESCRIPTOR" or len(inner) != 1:
        _fail(
            text, "expected DESCRIPTOR and the name of a time column, DESCRIPTOR(ts)", tokens[0], tokens[-1]
        )
    return Piece.of(text, inner)


def _fail(text: str, message: str, first: Token, last: Token | None = None) -> NoReturn:
    raise SQLError(message, text, first.start, (last or first).end + 1)
