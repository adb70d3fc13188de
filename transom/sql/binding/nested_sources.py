"""The names in the FROM clauses of a query with subqueries, WITH or window table functions, read from its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.clauses.end_clauses import end_clause_at
from transom.sql.syntax.spark_parser import query_tokens

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
_END_OF_FROM = (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.UNION, TokenType.LATERAL)


class FromName(NamedTuple):
    """A name in FROM, and its position."""

    name: str
    start: int
    end: int


@dataclass
class _Level:
    """What was read between two parentheses."""

    has_select: bool = False
    in_from: bool = False
    is_expected: bool = False  # a name comes next


def nested_sources(text: str) -> list[FromName]:
    """The names of all FROM clauses but those that WITH defines; a text that is no query gives the names found."""
    try:
        tokens = query_tokens(text)
    except SQLError:
        return []
    own = _defined_names(tokens)
    levels, sources = [_Level()], []
    for at, token in enumerate(tokens):
        level, kind = levels[-1], token.token_type
        if len(levels) == 1 and level.in_from and end_clause_at(tokens, at) is not None:
            break
        if kind in _OPENING:
            level.is_expected = False
            levels.append(_Level())
        elif kind in _CLOSING:
            levels[1:] = levels[1:-1]
        elif kind == TokenType.SELECT:
            levels[-1] = _Level(has_select=True)
        elif kind == TokenType.FROM and level.has_select and tokens[at - 1].token_type != TokenType.DISTINCT:
            level.in_from = level.is_expected = True
        elif kind in _END_OF_FROM:
            level.in_from = level.is_expected = False
        elif kind in (TokenType.COMMA, TokenType.JOIN) and level.in_from:
            level.is_expected = True
        elif kind == TokenType.TABLE:
            following = tokens[at + 1].token_type if at + 1 < len(tokens) else None
            level.is_expected = following != TokenType.L_PAREN
        elif level.is_expected:
            level.is_expected = False
            following = tokens[at + 1].token_type if at + 1 < len(tokens) else None
            if following != TokenType.L_PAREN and token.text.casefold() not in own:
                sources.append(FromName(token.text, token.start, token.end + 1))
    return sources


def _defined_names(tokens: list[Token]) -> set[str]:
    """The names that WITH defines."""
    if not tokens or tokens[0].token_type != TokenType.WITH:
        return set()
    return {
        name.text.casefold()
        for name, word, opening in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if word.token_type == TokenType.ALIAS and opening.token_type == TokenType.L_PAREN
    }
