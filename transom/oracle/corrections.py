"""Corrections, as the oracle finds them: it keeps every row of every window, and answers again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from transom.elements import Punctuation
from transom.oracle.batches import OracleRow
from transom.oracle.window_close import WindowBounds, is_closed
from transom.sql.interpreter.values import sameness
from transom.sql.query import Query

CellKey = Hashable
AnyCell = TypeVar("AnyCell")


@dataclass
class Reported:
    """The newest result of a window and group, its revision, and whether it still holds."""

    row: OracleRow
    revision: int = 0
    holds: bool = True


@dataclass
class Corrections:
    """What is known of the closed windows of a query: by cell their newest results, and the cells with late rows."""

    reported: dict[CellKey, Reported] = field(default_factory=dict)
    closed: set[CellKey] = field(default_factory=set)
    late: dict[CellKey, None] = field(default_factory=dict)

    def finals(self, rows: Iterable[tuple[CellKey, OracleRow]]) -> list[OracleRow]:
        """The final results of windows that closed with a batch."""
        found = []
        for key, row in rows:
            self.reported[key] = Reported(row)
            found.append(_of_kind(row, "final", 0))
        return found

    def changes(
        self, keys: Iterable[CellKey], now: Mapping[CellKey, OracleRow], batch: int
    ) -> list[OracleRow]:
        """The rows that correct the newest results of some cells, given their results now."""
        found: list[OracleRow] = []
        for key in keys:
            known, row = self.reported.get(key), now.get(key)
            was = known.row if known is not None and known.holds else None
            if was is not None and row is not None and _is_same(was, row):
                continue
            revision = 0 if known is None else known.revision
            if was is not None:
                found.append(_of_kind({**was, "batch": batch}, "retraction", revision))
            if row is not None:
                found.append(_of_kind(row, "correction", revision + 1))
                self.reported[key] = Reported(row, revision + 1)
            elif known is not None:
                known.holds = False
        return found


def is_passed(
    query: Query, window: WindowBounds, group: Sequence[Any], closings: Sequence[Punctuation]
) -> bool:
    """Whether a window can't be corrected any more: all is closed from its start to its end and the bound after it."""
    assert query.corrections is not None
    return is_closed(query, (window[0], window[1] + query.corrections), group, closings)


def cells_to_answer(
    query: Query,
    cells: Mapping[CellKey, AnyCell],
    late: Iterable[CellKey],
    window_of: Callable[[AnyCell], WindowBounds],
) -> list[CellKey]:
    """The cells whose results late rows may change: with LIMIT, all groups of their windows."""
    if query.top is None:
        return list(late)
    ends = {window_of(cells[key]) for key in late}
    return [key for key, cell in cells.items() if window_of(cell) in ends]


def _of_kind(row: OracleRow, kind: str, revision: int) -> OracleRow:
    """A result with its kind and revision; a query may have a column of that name."""
    return {**row, "transom_kind" if "kind" in row else "kind": kind, "revision": revision}


def _is_same(one: OracleRow, other: OracleRow) -> bool:
    return all(sameness(one[name]) == sameness(other[name]) for name in one if name not in ("batch", "late"))
