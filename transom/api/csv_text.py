"""CSV that is safe to open in a spreadsheet, the same on the command line and in the API."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from transom.api.value_text import value_to_text

FORMULA_START = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
LINE_END = "\r\n"


class _Lines:
    """Ends the lines of a CSV writer with a line feed.

    The writer must not know: it quotes line breaks only if they are among those that end its own lines.
    """

    def __init__(self, out: TextIO):
        self.out = out

    def write(self, line: str) -> None:
        self.out.write(line.removesuffix(LINE_END) + "\n")


def write_csv(rows: Iterable[Sequence[Any]], out: TextIO, escape: bool = True) -> None:
    """Write rows as CSV; null is empty."""
    writer = csv.writer(_Lines(out), lineterminator=LINE_END)
    writer.writerows([csv_cell(value, escape) for value in row] for row in rows)


def csv_cell(value: Any, escape: bool = True) -> str:
    """A value as a cell of CSV; null is empty.

    With `escape`, text that a spreadsheet would run as a formula gets an apostrophe in front.

    >>> csv_cell("=HYPERLINK(1)"), csv_cell("-2.5"), csv_cell(-2.5), csv_cell("@x", escape=False)
    ("'=HYPERLINK(1)", '-2.5', '-2.5', '@x')
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return value_to_text(value)
    is_formula = FORMULA_START.match(value) is not None and NUMBER.fullmatch(value) is None
    return f"'{value}" if escape and is_formula else value
