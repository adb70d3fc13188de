"""The value of a string literal as Spark reads it."""

from __future__ import annotations

import re

ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
MEANINGS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string_value(written: str) -> str:
    r"""The value of a literal with its quotes.

    >>> string_value("'it''s'"), string_value(r"'a\tb\%'"), string_value(r"r'\d'")
    ("it's", 'a\tb\\%', '\\d')
    """
    if written[0] in "rR":
        return written[2:-1]
    quote = written[0]
    body = written[1:-1].replace(quote * 2, quote)
    return ESCAPE.sub(_meaning, body) if "\\" in body else body


def _meaning(match: re.Match[str]) -> str:
    short, long, octal, character = match.groups()
    if character is not None:
        return MEANINGS.get(character, character)
    return chr(int(octal, 8) if octal else int(short or long, 16))
