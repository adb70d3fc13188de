"""A second check before Spark: a text printed from a query is an expression over columns and nothing else.

The SQL front prints only what it has parsed. If a user's text gets through nevertheless, this check finds it,
because it reads the printed text as Spark does.
"""

from __future__ import annotations

from itertools import pairwise

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from transom.sql.functions import REACHING_OUT

_DIALECT = Spark()
_STATEMENTS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.TABLE, TokenType.SEMICOLON}


def reaches_out(text: str) -> bool:
    """Whether a text is more than an expression over columns.

    >>> reaches_out("sum(`price`) || 'SELECT'"), reaches_out("1 || (SELECT max(x) FROM y)")
    (False, True)
    """
    try:
        tokens = _DIALECT.tokenize(text)
    except TokenError:
        return True
    if any(token.token_type in _STATEMENTS or token.comments for token in tokens):
        return True
    return any(
        behind.token_type is TokenType.L_PAREN
        and word.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        and word.text.casefold() in REACHING_OUT
        for word, behind in pairwise(tokens)
    )
