"""How an engine, a query and a feed show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

SHOWN_ROWS = 10
SHOWN_QUERIES = 50


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts; null is empty.

    >>> html_table(["a<b"], [[1]])
    '<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def titled(title: str, *parts: str) -> str:
    """Some HTML below a title."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def text_block(text: str) -> str:
    """A text whose lines stay as they are."""
    return f"<pre>{escape(text)}</pre>"
