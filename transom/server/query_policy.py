"""What is not taken from requests, though a program's own queries may say it."""

from __future__ import annotations

import re
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.functions import MATCHING, UNBOUNDED
from transom.sql.syntax.dialect import query_tokens

TEXTS = (TokenType.STRING, TokenType.RAW_STRING)

# Java tries every way to match: with a repeated group that holds a repetition, that may be for ever.
ENDLESS = re.compile(r"\\[1-9]|\\k<|[+*}?]\)+[+*{]|\|[^()]*\)[+*{]")


def refuse_costly(sql: str) -> None:
    """Refuse calls of functions whose values can be of any size, and patterns that may be matched for ever.

    >>> refuse_costly("SELECT repeat('x', 2000000000) FROM bids")
    Traceback (most recent call last):
    transom.errors.SQLError: repeat is not taken from a request: its values may be of any size
      SELECT repeat('x', 2000000000) FROM bids
             ^^^^^^
    """
    tokens = query_tokens(sql)
    for word, behind in pairwise(tokens):
        if behind.token_type is TokenType.L_PAREN and word.text.casefold() in UNBOUNDED:
            _refuse(sql, word, f"{word.text} is not taken from a request: its values may be of any size")
    if not any(token.text.casefold() in MATCHING for token in tokens):
        return
    for token in tokens:
        written = sql[token.start : token.end + 1].replace("\\\\", "\\")
        if token.token_type in TEXTS and ENDLESS.search(written):
            _refuse(sql, token, "this pattern is not taken from a request: to match it may take for ever")


def _refuse(sql: str, token: Token, message: str) -> None:
    raise SQLError(message, sql, token.start, token.end + 1)
