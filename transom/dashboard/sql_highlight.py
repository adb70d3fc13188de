"""SQL on the page: coloured, with its errors in place, and examples to start from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transom.api.records import StreamStatus
from transom.dashboard.chart_points import is_numeric
from transom.dashboard.formatting import e

_WORDS = [
    "select",
    "from",
    "where",
    "group",
    "by",
    "having",
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "as",
    "join",
    "on",
    "left",
    "inner",
    "between",
    "like",
    "case",
    "when",
    "then",
    "else",
    "end",
    "range",
    "slide",
    "wattr",
    "rows",
    "emit",
    "early",
    "every",
    "at",
    "of",
    "with",
    "accuracy",
    "confidence",
    "quality",
    "demand",
    "using",
    "within",
    "timegram",
    "exact",
    "naive",
    "ordered_sharing",
    "preference",
    "summary",
    "window",
    "budget",
    "probes",
    "filter",
    "distinct",
    "asc",
    "desc",
    "overload",
    "prefer",
    "true",
    "false",
    "cast",
    "interval",
    "slice",
    "bounds",
]
_TOKEN = re.compile(
    r"(?P<note>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^'\\]|\\.|'')*'?)|(?P<name>`[^`]*`?|\"[^\"]*\"?)"
    r"|(?P<number>\b\d+(?:\.\d+)?\b%?)|(?P<word>[A-Za-z_]\w*)|(?P<rest>.)",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BREAKS = re.compile(r"(?i)\s+(?=(?:FROM|WHERE|GROUP BY|HAVING|EMIT EARLY|WITH PREFERENCE|USING|WITHIN)\b)")


@dataclass(frozen=True)
class Example:
    """A query to start from."""

    title: str
    sql: str


def highlight(sql: str) -> str:
    """SQL as HTML.

    >>> highlight("SELECT 'a<b'")
    '<span class="k">SELECT</span> <span class="s">&#x27;a&lt;b&#x27;</span>'
    """
    parts = []
    for token in _TOKEN.finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "word":
            follows = sql[token.end() : token.end() + 1]
            css = "k" if text.casefold() in _WORDS else "f" if follows == "(" else ""
        else:
            css = {"note": "c", "text": "s", "number": "n"}.get(kind or "", "")
        parts.append(f'<span class="{css}">{e(text)}</span>' if css else e(text))
    return "".join(parts)


def laid_out(sql: str) -> str:
    """A query that is written in one line, over several; one that has lines of its own stays as it is.

    >>> print(laid_out("SELECT a FROM b [RANGE 1 minute] WHERE a > 1"))
    SELECT a
    FROM b [RANGE 1 minute]
    WHERE a > 1
    """
    return sql if "\n" in sql.strip() else _BREAKS.sub("\n", sql.strip())


def error_place(text: str, start: int | None, end: int | None) -> tuple[int, int] | None:
    """Where an error is to be underlined: at least a character, within the text."""
    if start is None or not text:
        return None
    begin = min(max(0, start), len(text) - 1)
    return begin, max(begin + 1, min(end if end is not None else begin + 1, len(text)))


def quoted(name: str) -> str:
    """A name as SQL wants it written.

    >>> quoted("price"), quoted("unit price")
    ('price', '`unit price`')
    """
    return name if _BARE.fullmatch(name) else f"`{name}`"


def examples(streams: Iterable[StreamStatus]) -> list[Example]:
    """Queries over the streams that there are: the first numbers and the first words that they have."""
    return [example for stream in streams for example in _examples(stream)]


def _examples(stream: StreamStatus) -> list[Example]:
    others = {name: kind for name, kind in stream.columns.items() if name != stream.time}
    measure = _first(name for name, kind in others.items() if is_numeric(kind))
    group = _first(name for name, kind in others.items() if kind.casefold() in ("string", "int", "boolean"))
    if group == measure:
        group = _first(name for name, kind in others.items() if kind.casefold() == "string")
    name = quoted(stream.name)
    short, long = ("1 minute", "10 minutes") if stream.is_time else ("10", "100")
    made = [
        Example(f"Count {stream.name}", f"SELECT count(*) AS n\nFROM {name} [RANGE {long} SLIDE {short}]"),
    ]
    if measure:
        value = quoted(measure)
        by, keys = (f"\nGROUP BY {quoted(group)}", f"{quoted(group)}, ") if group else ("", "")
        made += [
            Example(
                f"Mean {measure}{f' by {group}' if group else ''}",
                f"SELECT {keys}avg({value}) AS mean, count(*) AS n"
                f"\nFROM {name} [RANGE {long} SLIDE {short}]{by}",
            ),
            Example(
                f"Total {measure}, told early",
                f"SELECT sum({value}) AS total\nFROM {name} [RANGE {long} SLIDE {long}]"
                "\nEMIT EARLY AT 75% OF SLIDE",
            ),
            Example(
                f"Top {measure}, looked up on demand",
                f"SELECT max({value}) AS top, count(*) AS n\nFROM {name} [RANGE {long}]",
            ),
        ]
    return made


def _first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)
