"""SQL on the dashboard: syntax highlighting and the positions of errors."""

from __future__ import annotations

import re

from transom.dashboard.display_text import esc
from transom.sql.clauses.end_clauses import END_CLAUSES

_SPARK_KEYWORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY HAVING AS JOIN LEFT INNER ON USING FILTER ASC DESC "
    "AND OR NOT IN IS NULL BETWEEN LIKE CASE WHEN THEN ELSE END TRUE FALSE CAST INTERVAL"
)
_WINDOW_KEYWORDS = "RANGE SLIDE WATTR ROWS"
_OPENINGS = [opening for reader in END_CLAUSES for opening in reader.openings]
_CLAUSE_KEYWORDS = " ".join([*_OPENINGS, *(word for reader in END_CLAUSES for word in reader.keywords)])
_KEYWORDS = frozenset(f"{_SPARK_KEYWORDS} {_WINDOW_KEYWORDS} {_CLAUSE_KEYWORDS}".casefold().split())
_TOKEN = re.compile(
    r"(?P<note>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^'\\]|\\.|'')*'?)|(?P<name>`[^`]*`?|\"[^\"]*\"?)"
    r"|(?P<number>\b\d+(?:\.\d+)?\b%?)|(?P<word>[A-Za-z_]\w*)|(?P<rest>.)",
    re.DOTALL,
)
EXCERPT = 72  # characters of a line that are shown with an error
_BREAKS = re.compile(rf"(?i)\s+(?=(?:FROM|WHERE|GROUP BY|HAVING|{'|'.join(_OPENINGS)})\b)")


def highlight(sql: str) -> str:
    """SQL as HTML with syntax highlighting.

    >>> highlight("SELECT 'a<b'")
    '<span class="k">SELECT</span> <span class="s">&#x27;a&lt;b&#x27;</span>'
    """
    parts = []
    for token in _TOKEN.finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "word":
            follows = sql[token.end() : token.end() + 1]
            css = "k" if text.casefold() in _KEYWORDS else "f" if follows == "(" else ""
        else:
            css = {"note": "c", "text": "s", "number": "n"}.get(kind or "", "")
        parts.append(f'<span class="{css}">{esc(text)}</span>' if css else esc(text))
    return "".join(parts)


def break_lines(sql: str) -> str:
    """Break a one-line query at its clauses; a query of several lines stays as it is.

    >>> print(break_lines("SELECT a FROM b [RANGE 1 minute] WHERE a > 1"))
    SELECT a
    FROM b [RANGE 1 minute]
    WHERE a > 1
    """
    return sql if "\n" in sql.strip() else _BREAKS.sub("\n", sql.strip())


def error_span(text: str, start: int | None, end: int | None) -> tuple[int, int] | None:
    """The span of an error that the editor underlines: at least one character, within the text."""
    if start is None or not text:
        return None
    begin = min(max(0, start), len(text) - 1)
    return begin, max(begin + 1, min(end if end is not None else begin + 1, len(text)))


def error_excerpt(line: str, column: int, width: int, most: int = EXCERPT) -> tuple[str, int, int]:
    """The part of a long line around an error, with the column (from 0) and the width of the error in it.

    >>> error_excerpt("SELECT a, b FROM c", 10, 1, most=9)
    ('… a, b FRO…', 5, 1)
    """
    width = max(1, min(width, len(line) - column))
    if len(line) <= most:
        return line, column, width
    first = max(0, min(column - max(0, most - width) // 2, len(line) - most))
    last = min(len(line), first + most)
    shown = f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"
    return shown, column - first + bool(first), min(width, last - column)
