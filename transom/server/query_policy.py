"""Expressions that the service refuses from clients, though a program's own queries may use them."""

from __future__ import annotations

import re
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.functions import MATCHING, UNBOUNDED
from transom.sql.syntax.spark_parser import query_tokens

STRING_TOKENS = (TokenType.STRING, TokenType.RAW_STRING)

# Java's matcher backtracks: a repeated group that contains a repetition can take exponential time.
BACKTRACKING = re.compile(r"\\[1-9]|\\k<|[+*}?]\)+[+*{]|\|[^()]*\)[+*{]")


def refuse_costly(sql: str) -> None:
    """Refuse functions whose values can have any size, and patterns that can match for ever.

    >>> refuse_costly("SELECT repeat('x', 2000000000) FROM bids")
    Traceback (most recent call last):
    transom.errors.SQLError: repeat is not allowed in a request: its value may have any size
      SELECT repeat('x', 2000000000) FROM bids
             ^^^^^^
    """
    tokens = query_tokens(sql)
    for token, following in pairwise(tokens):
        if following.token_type is TokenType.L_PAREN and token.text.casefold() in UNBOUNDED:
            _refuse(sql, token, f"{token.text} is not allowed in a request: its value may have any size")
    if not any(token.text.casefold() in MATCHING for token in tokens):
        return
    for token in tokens:
        pattern = sql[token.start : token.end + 1].replace("\\\\", "\\")
        if token.token_type in STRING_TOKENS and BACKTRACKING.search(pattern):
            _refuse(sql, token, "this pattern is not allowed in a request: matching it may take for ever")


def _refuse(sql: str, token: Token, message: str) -> None:
    raise SQLError(message, sql, token.start, token.end + 1)
