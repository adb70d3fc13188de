"""SQL on the dashboard: syntax highlighting, error positions, and example queries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transom.api.records import StreamStatus
from transom.dashboard.chart_points import is_numeric_type
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
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BREAKS = re.compile(rf"(?i)\s+(?=(?:FROM|WHERE|GROUP BY|HAVING|{'|'.join(_OPENINGS)})\b)")


@dataclass(frozen=True)
class Example:
    """An example query for the editor."""

    title: str
    sql: str


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


def quote_identifier(name: str) -> str:
    """A name for use in SQL, in backticks if it needs them.

    >>> quote_identifier("price"), quote_identifier("unit price")
    ('price', '`unit price`')
    """
    return name if _BARE.fullmatch(name) else f"`{name}`"


def examples(streams: Iterable[StreamStatus]) -> list[Example]:
    """Example queries over the given streams, built from their first numeric and text columns."""
    return [example for stream in streams for example in _examples(stream)]


def _examples(stream: StreamStatus) -> list[Example]:
    others = {name: kind for name, kind in stream.columns.items() if name != stream.time}
    measure = _first(name for name, kind in others.items() if is_numeric_type(kind))
    group = _first(name for name, kind in others.items() if kind.casefold() in ("string", "int", "boolean"))
    if group == measure:
        group = _first(name for name, kind in others.items() if kind.casefold() == "string")
    name = quote_identifier(stream.name)
    short, long = ("1 minute", "10 minutes") if stream.is_time else ("10", "100")
    queries = [
        Example(f"Count {stream.name}", f"SELECT count(*) AS n\nFROM {name} [RANGE {long} SLIDE {short}]"),
    ]
    if measure:
        value = quote_identifier(measure)
        key = quote_identifier(group) if group else ""
        by, keys = (f"\nGROUP BY {key}", f"{key}, ") if group else ("", "")
        queries += [
            Example(
                f"Mean {measure}{f' by {group}' if group else ''}",
                f"SELECT {keys}avg({value}) AS mean, count(*) AS n"
                f"\nFROM {name} [RANGE {long} SLIDE {short}]{by}",
            ),
            Example(
                f"Total {measure}, with early results",
                f"SELECT sum({value}) AS total\nFROM {name} [RANGE {long} SLIDE {long}]"
                "\nEMIT EARLY AT 75% OF SLIDE",
            ),
            Example(
                f"Highest {measure}, on demand",
                f"SELECT max({value}) AS top, count(*) AS n\nFROM {name} [RANGE {long}]",
            ),
        ]
    return queries


def _first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)
