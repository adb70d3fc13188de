"""Texts for people."""

from __future__ import annotations


def cut_text(text: str, most: int) -> str:
    """The text, or its beginning if it is longer than that.

    >>> cut_text("abc", 3), cut_text("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"
