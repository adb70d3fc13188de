"""The rows of a table that a page shows, after a search, a filter and a sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.dashboard.display_text import format_cell
from transom.plan.explain.text_parts import counted

PAGE_ROWS = 25


@dataclass(frozen=True)
class RowFilter:
    """The user's search, kind, sort key and page; the key is a column, a minus sorts in descending order."""

    search: str = ""
    kind: str = ""
    sort: str = ""
    page: int = 1

    def after(self, action: str, value: str) -> RowFilter:
        """The filter after a click on a heading (`sort`) or on the number of a page (`page`)."""
        if action == "sort":
            return replace(self, sort=reversed_sort(self.sort, value), page=1)
        return replace(self, page=int(value)) if action == "page" else self


@dataclass(frozen=True)
class RowPage:
    """A page of rows, and how many rows match and exist."""

    rows: pa.Table
    matching: int
    total: int
    page: int
    pages: int


def row_page(table: pa.Table, matching: pa.Table, order: pa.Array, page: int) -> RowPage:
    """A page of the matching rows of a table, in some order; a page beyond the end is the last page."""
    pages = max(1, math.ceil(matching.num_rows / PAGE_ROWS))
    page = min(max(1, page), pages)
    shown = order.slice((page - 1) * PAGE_ROWS, PAGE_ROWS)
    return RowPage(matching.take(shown), matching.num_rows, table.num_rows, page, pages)


def matching_rows(table: pa.Table, columns: Sequence[int], search: str) -> pa.Table:
    """The rows that have every word of a search in one of some columns, ignoring case."""
    for word in search.split():
        found: pa.ChunkedArray | pa.Array = pa.array([False] * table.num_rows)
        for at in columns:
            hits = pc.match_substring(_texts(table.column(at)), word, ignore_case=True)
            found = pc.or_(found, pc.fill_null(hits, False))
        table = table.filter(found)
    return table


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column as a table shows it; texts and integers by Arrow, because an answer can have many rows."""
    if kinds.is_string(column.type) or kinds.is_integer(column.type):
        return column.cast(pa.string())
    return pa.array([format_cell(value) for value in column.to_pylist()], pa.string())


def sorted_places(table: pa.Table, sort: str, then: Sequence[tuple[int, bool]] = ()) -> pa.Array | None:
    """The places of rows in the order of a sort key; None if there is no key, or Arrow can't sort by it."""
    key = sort.removeprefix("-")
    if not key.isdigit() or int(key) >= table.num_columns or kinds.is_nested(table.schema.types[int(key)]):
        return None
    return sort_places(table, [(int(key), sort.startswith("-")), *then])


def sort_places(table: pa.Table, keys: Sequence[tuple[int, bool]]) -> pa.Array:
    """The places of rows, ordered by some columns, each ascending or, if its flag is set, descending."""
    columns = pa.table({str(place): table.column(at) for place, (at, _) in enumerate(keys)})
    directions = ["descending" if descending else "ascending" for _, descending in keys]
    return pc.sort_indices(columns, sort_keys=[(str(at), each) for at, each in enumerate(directions)])


def reversed_sort(sort: str, clicked: str) -> str:
    """The sort key after a click on a heading: its column, or, if that is the key already, the other direction.

    The heading's own direction does not count: a second click may come before the heading has changed.

    >>> reversed_sort("", "3"), reversed_sort("3", "3"), reversed_sort("-3", "3"), reversed_sort("3", "-3")
    ('3', '-3', '3', '-3')
    """
    key = clicked.removeprefix("-")
    return f"-{key}" if sort == key else key


def count_text(page: RowPage, what: str, most: int | None = None) -> str:
    """How many rows there are, and how many match; of more than `most` rows, only the newest are there.

    >>> empty = pa.table({})
    >>> count_text(RowPage(empty, 7, 7, 1, 1), "row"), count_text(RowPage(empty, 2, 5000, 1, 1), "row", 5000)
    ('7 rows', '2 of the newest 5,000 rows')
    """
    total = counted(page.total, what)
    if page.total == most:
        total = f"the newest {total}"
    return total if page.matching == page.total else f"{page.matching:,} of {total}"
