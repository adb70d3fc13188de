"""Splits the text of a query into pieces, also if it is unfinished: an open quote or comment ends with the text.

The parser's own tokens are not enough here: they leave out comments, and a text with an open quote has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PIECES = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>[rR]?'(?:[^'\\]|\\.|'')*(?:'|\Z)|[rR]?\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z))"
    r"|(?P<quoted>`(?:[^`]|``)*(?:`|\Z))"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*|\.\d+(?:[eE][+-]?\d+)?\w*)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<symbol><=>|>>>|->|=>|::|<=|>=|<>|!=|==|\|\||<<|>>|\S)",
    re.DOTALL,
)


class PieceKind(StrEnum):
    """The kinds of pieces."""

    COMMENT = "comment"
    STRING = "string"
    QUOTED = "quoted"  # a name in backticks
    NUMBER = "number"
    WORD = "word"
    SYMBOL = "symbol"


@dataclass(frozen=True)
class ScannedPiece:
    """A part of a text between white space, and whether white space or a line break is before it."""

    kind: PieceKind
    text: str
    start: int
    spaced: bool = False
    on_new_line: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """A word in upper case; for other pieces nothing, so that a comparison with a keyword fails."""
        return self.text.upper() if self.kind is PieceKind.WORD else ""

    @property
    def is_open(self) -> bool:
        """Whether a quote or a comment is not closed."""
        if self.kind is PieceKind.COMMENT:
            return self.text.startswith("--") or len(self.text) < 4 or not self.text.endswith("*/")
        body = self.text.lstrip("rR")
        quoted = self.kind in (PieceKind.STRING, PieceKind.QUOTED)
        return (
            quoted
            and re.fullmatch(r"""(?s)'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""", body)
            is None
        )

    @property
    def name(self) -> str | None:
        """The name that a word or a quoted name is; None for other pieces."""
        if self.kind is PieceKind.WORD:
            return self.text
        return self.text.strip("`").replace("``", "`") if self.kind is PieceKind.QUOTED else None


def scan(text: str) -> list[ScannedPiece]:
    """The pieces of a text.

    >>> [piece.text for piece in scan("SELECT `a b`, 'it''s' -- why")]
    ['SELECT', '`a b`', ',', "'it''s'", '-- why']
    """
    pieces, behind = [], 0
    for match in _PIECES.finditer(text):
        between = text[behind : match.start()]
        kind = PieceKind(match.lastgroup or "symbol")
        pieces.append(ScannedPiece(kind, match[0], match.start(), bool(between), "\n" in between))
        behind = match.end()
    return pieces


_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_WORDS = """
    all and anti as between by case cast cross distinct else end except exists false for from full group having in
    inner intersect interval into is join lateral left like limit natural not null on or order outer right rlike select
    semi then true union using values when where window with"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


def quote_identifier(name: str) -> str:
    """A name for use in SQL, in backticks if it needs them.

    >>> quote_identifier("price"), quote_identifier("unit price"), quote_identifier("order")
    ('price', '`unit price`', '`order`')
    """
    if _BARE_NAME.fullmatch(name) and name.casefold() not in _RESERVED:
        return name
    return f"`{name.replace('`', '``')}`"
