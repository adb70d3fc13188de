"""Results printed as they are made: a line per result, JSON lines or CSV."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import TextIO

import pyarrow as pa

from transom.api.value_text import value_to_text
from transom.cli.result_text import (
    Format,
    shorten_lookup,
    shorten_preference_query,
    system_columns_start,
    without_system_columns,
    write_results,
)

UNNAMED_COLUMNS = ("query", "kind", "window_start", "window_end")  # a line has their values without names


class ResultPrinter:
    """Prints results with their kind: early, final, lookup, or found (by a query with a preference)."""

    def __init__(self, form: Format, full: bool, several: bool, out: TextIO):
        self.form, self.full, self.several, self.out = form, full, several, out
        self._started = False
        self._error: OSError | None = None

    def add(self, name: str, results: pa.Table, kind: str | None = None) -> None:
        """Print results of a query; keeps an error for `check`, since the engine, which calls this, would
        only log it."""
        try:
            self._print(name, results, kind)
            self.out.flush()
        except OSError as error:
            self._error = error

    def check(self) -> None:
        """Raise the error that printing caused, if any."""
        if self._error is not None:
            raise self._error

    def _print(self, name: str, results: pa.Table, kind: str | None) -> None:
        shown = results
        if kind is not None:
            kinds = pa.chunked_array([pa.repeat(kind, results.num_rows)])
            if not self.full:
                shown = (
                    shorten_lookup(results, self.form)
                    if kind == "lookup"
                    else shorten_preference_query(results)
                )
            shown = shown.add_column(0, "kind", kinds)
        elif not self.full:
            kinds = results.column(system_columns_start(results))
            shown = without_system_columns(results).add_column(0, "kind", kinds)
        if self.several:
            shown = shown.add_column(0, "query", pa.chunked_array([pa.repeat(name, results.num_rows)]))
        if self.form is Format.TABLE:
            self.out.writelines(result_lines(shown))
            return
        text = StringIO()
        write_results({name: shown}, self.form, text)
        repeats_header = self.form.is_csv and self._started
        self.out.write(text.getvalue().partition("\n")[2] if repeats_header else text.getvalue())
        self._started = True


def result_lines(results: pa.Table) -> Iterator[str]:
    """Each result as a line: query, kind and window, then every other value with its name."""
    for row in zip(*(column.to_pylist() for column in results.columns), strict=True):
        cells = []
        for name, value in zip(results.column_names, row, strict=True):
            text = "null" if value is None else value_to_text(value)
            if isinstance(value, datetime):
                text = text.replace("T", " ").removesuffix("Z")
            cells.append(text if name in UNNAMED_COLUMNS else f"{name} {text}")
        yield "  ".join(cells) + "\n"
