"""What is not taken from requests, though a program's own queries may say it."""

from __future__ import annotations

from itertools import pairwise

from sqlglot.tokenizer_core import TokenType

from transom.errors import SQLError
from transom.sql.dialect import tokens_of

# One number in a query would make them fill the memory of a machine.
UNBOUNDED = frozenset(["repeat", "space", "lpad", "rpad", "sequence", "array_repeat"])


def refuse_large_values(sql: str) -> None:
    """Refuse calls of functions whose values can be of any size.

    >>> refuse_large_values("SELECT repeat('x', 2000000000) FROM bids")
    Traceback (most recent call last):
    transom.errors.SQLError: repeat is not taken from a request: its values may be of any size
      SELECT repeat('x', 2000000000) FROM bids
             ^^^^^^
    """
    for word, behind in pairwise(tokens_of(sql)):
        if behind.token_type is TokenType.L_PAREN and word.text.casefold() in UNBOUNDED:
            message = f"{word.text} is not taken from a request: its values may be of any size"
            raise SQLError(message, sql, word.start, word.end + 1)
