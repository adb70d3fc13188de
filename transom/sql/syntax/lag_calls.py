"""LAG(x) OVER WINDOWS: the value of an earlier window of the same group.

sqlglot reads OVER as Spark does. So the tokens of OVER are cut out, and the call gets a name of its own, with the
distance to the earlier window as its first argument if that is a duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.syntax.token_reader import word_of

BY_COUNT, BY_LENGTH = "lag over windows", "lag over interval"  # no user can write these names
LAG_FORMS = "LAG(x) OVER WINDOWS, LAG(x, 24) OVER WINDOWS or LAG(x) OVER (INTERVAL 1 day)"


def is_lag(node: exp.Expr) -> bool:
    """Whether a node is a call of LAG over windows."""
    return isinstance(node, exp.Anonymous) and node.this in (BY_COUNT, BY_LENGTH)


def cut_over(text: str, tokens: Sequence[Token], at: int, kept: list[Token]) -> int:
    """Cut OVER, at a token, out of a call of LAG: its place among the tokens that are kept, and what follows OVER."""
    over = tokens[at]

    def fail(message: str, last: Token = over) -> NoReturn:
        raise SQLError(message, text, over.start, last.end + 1)

    opening = _call_opening(kept)
    if opening is None or word_of(kept[opening - 1]) != "LAG":
        fail(
            "window functions (OVER) are not supported, except LAG(x) OVER WINDOWS; the query's own window takes "
            "their place"
        )
    name, following = kept[opening - 1], tokens[at + 1] if at + 1 < len(tokens) else None
    if following is not None and word_of(following) == "WINDOWS":
        kept[opening - 1] = _token(TokenType.VAR, BY_COUNT, name)
        return at + 2
    closing = at + 2
    while closing < len(tokens) and tokens[closing].token_type != TokenType.R_PAREN:
        closing += 1
    is_length = (
        following is not None
        and following.token_type == TokenType.L_PAREN
        and closing < len(tokens)
        and tokens[at + 2].token_type == TokenType.INTERVAL
    )
    if not is_length:
        last = tokens[min(closing, len(tokens) - 1)]
        fail(f"LAG refers to an earlier window, not to an earlier row: write {LAG_FORMS}", last)
    given = tokens[at + 3 : closing]
    if not given:
        fail(f"INTERVAL needs a length: write {LAG_FORMS}", tokens[closing])
    # Without its start, no template takes the literal for a constant of the text.
    length = " ".join(
        one.text if one.token_type == TokenType.STRING else text[one.start : one.end + 1] for one in given
    )
    kept[opening - 1] = _token(TokenType.VAR, BY_LENGTH, name)
    kept[opening + 1 : opening + 1] = [
        Token(TokenType.STRING, length, over.line, over.col, over.start, given[-1].end),
        _token(TokenType.COMMA, ",", over),
    ]
    return closing + 1


def _call_opening(kept: Sequence[Token]) -> int | None:
    """The parenthesis that opens the call which ends with the last token."""
    if not kept or kept[-1].token_type != TokenType.R_PAREN:
        return None
    depth = 0
    for place in range(len(kept) - 1, 0, -1):
        depth += (kept[place].token_type == TokenType.R_PAREN) - (kept[place].token_type == TokenType.L_PAREN)
        if not depth:
            return place
    return None


def _token(kind: TokenType, text: str, place: Token) -> Token:
    return Token(kind, text, place.line, place.col, place.start, place.end)
