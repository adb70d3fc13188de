"""`column:user.items[0]`, a path into JSON text, which is `get_json_object(column, '$.user.items[0]')`.

The tokens of a path are joined into one token, so that no key is taken for a keyword. The parser makes the call. A
colon opens a path if it directly follows a name or a closing bracket, and a key directly follows it: `x > :limit` is
a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.syntax.parsed_query import WRITTEN

_WORD = re.compile(r"[^\W\d]\w*")
_INDEX = re.compile(r"[0-9]{1,9}")
_KEY = re.compile(r"""[^\s*'"?\x00-\x1f][^'"?\x00-\x1f]*""")
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def is_path(token: Token) -> bool:
    """Whether a token is a path, which `with_paths` made."""
    return token.token_type == TokenType.COLON and token.text.startswith("$")


def path_call(value: exp.Expr, token: Token) -> exp.Expr:
    """The call that reads a path of a value; the path has the position of its token."""
    path = exp.Literal.string(token.text).update_positions(token)
    if "'" in token.text:
        path.meta[WRITTEN] = f'"{token.text}"'
    return exp.Anonymous(this="get_json_object", expressions=[value, path])


def with_paths(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens of a text, with every path as one token whose text is the JSON path."""
    if not any(token.token_type == TokenType.COLON for token in tokens):
        return tokens
    of_types = type_colons(tokens)
    joined: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.token_type == TokenType.COLON and at not in of_types and _follows_value(tokens, at):
            path, behind = _read(text, tokens, at)
            if path:
                last = tokens[behind - 1]
                token = Token(TokenType.COLON, f"${path}", token.line, token.col, token.start, last.end)
                joined.append(token)
                at = behind
                continue
        joined.append(token)
        at += 1
    return joined


def type_colons(tokens: Sequence[Token]) -> set[int]:
    """The places of the colons inside of `STRUCT<name: type>`."""
    places: set[int] = set()
    depth = 0
    for at, token in enumerate(tokens):
        opens = token.text == "<" and (depth or tokens[at - 1].token_type == TokenType.STRUCT)
        if opens:
            depth += 1
        elif depth and set(token.text) == {">"}:
            depth = max(0, depth - len(token.text))
        elif depth and token.token_type == TokenType.COLON:
            places.add(at)
    return places


def _follows_value(tokens: Sequence[Token], at: int) -> bool:
    """Whether a name or a closing bracket is directly before a token."""
    if at == 0 or tokens[at - 1].end + 1 != tokens[at].start:
        return False
    before = tokens[at - 1]
    is_name = before.token_type == TokenType.IDENTIFIER or _WORD.fullmatch(before.text) is not None
    return before.token_type in _CLOSING or (is_name and before.token_type not in _STRINGS)


def _read(text: str, tokens: Sequence[Token], colon: int) -> tuple[str, int]:
    """The JSON path after a colon, and the place of the first token behind it; nothing if there is no key."""
    path, at = "", colon + 1
    while at < len(tokens) and tokens[at - 1].end + 1 == tokens[at].start:
        token = tokens[at]
        step, behind = "", at
        if token.token_type == TokenType.L_BRACKET:
            step, behind = _bracket(text, tokens, at)
        elif path and token.token_type == TokenType.DOT and _touches(tokens, at + 1):
            step, behind = _key(text, tokens[at + 1]), at + 2
        elif not path:
            step, behind = _key(text, token), at + 1
        if not step:
            break
        path, at = path + step, behind
    return path, at


def _touches(tokens: Sequence[Token], at: int) -> bool:
    """Whether nothing is between a token and the one before."""
    return at < len(tokens) and tokens[at - 1].end + 1 == tokens[at].start


def _key(text: str, token: Token) -> str:
    """The step of a key that is a word or in backticks; nothing for another token."""
    if token.token_type == TokenType.IDENTIFIER:
        return _step(text, token)
    is_word = token.token_type not in _STRINGS and _WORD.fullmatch(text[token.start : token.end + 1])
    return f".{token.text}" if is_word else ""


def _bracket(text: str, tokens: Sequence[Token], at: int) -> tuple[str, int]:
    """The step of `[0]`, `['key']` or `[*]`."""
    if at + 2 >= len(tokens) or tokens[at + 2].token_type != TokenType.R_BRACKET:
        return "", at
    token = tokens[at + 1]
    if token.token_type in _STRINGS:
        return _step(text, token), at + 3
    if token.token_type == TokenType.STAR:
        return "[*]", at + 3
    if token.token_type == TokenType.NUMBER and _INDEX.fullmatch(token.text):
        return f"[{int(token.text)}]", at + 3
    return "", at


def _step(text: str, token: Token) -> str:
    """The step of a quoted key; Spark's paths can't contain every key."""
    key = token.text
    written = text[token.start : token.end + 1]
    if _KEY.fullmatch(key) is None or "\\" in written:
        raise SQLError(
            f"{written} can't be a key of a path: it is empty, begins with a space or *, or contains a quote, ? or \\",
            text,
            token.start,
            token.end + 1,
        )
    return f"['{key}']" if "." in key or "[" in key else f".{key}"
