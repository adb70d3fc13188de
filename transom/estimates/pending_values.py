"""Early values of open windows, kept until their finals arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits


@dataclass(frozen=True)
class PendingRows:
    """Early values with their estimates; arrays of equal length."""

    group: Ints
    window: Ints
    slides_left: Floats
    made: Ints
    emitted: Mask
    early: Floats  # by numeric item, as are the next three
    projected: Floats
    low: Floats
    high: Floats
    items: pa.Table | None = None  # the values in their own types, if a user's function compares them

    def __len__(self) -> int:
        return len(self.window)

    def take(self, rows: NDArray) -> PendingRows:
        """The rows at positions or at a mask."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in ARRAYS}
        if self.items is None:
            return PendingRows(**arrays)
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return PendingRows(**arrays, items=self.items.take(pa.array(numbers)))

    def part(self, start: int, stop: int) -> PendingRows:
        """Some of the rows, one after the other."""
        items = None if self.items is None else self.items.slice(start, stop - start)
        return PendingRows(
            self.group[start:stop],
            self.window[start:stop],
            self.slides_left[start:stop],
            self.made[start:stop],
            self.emitted[start:stop],
            self.early[start:stop],
            self.projected[start:stop],
            self.low[start:stop],
            self.high[start:stop],
            items,
        )

    @classmethod
    def empty(cls, items: int) -> PendingRows:
        """No rows."""
        none, values = np.empty(0, np.int64), np.empty((0, items))
        return cls(none, none, np.empty(0), none, np.empty(0, np.bool_), values, values, values, values)

    @classmethod
    def concatenated(cls, parts: Sequence[PendingRows]) -> PendingRows:
        """The rows of several parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS
        }
        tables = [part.items for part in parts if part.items is not None]
        return cls(**arrays, items=pa.concat_tables(tables) if tables else None)


ARRAYS = tuple(field.name for field in fields(PendingRows) if field.name != "items")


@dataclass(frozen=True)
class Pending:
    """The pending rows of a query, in order of arrival."""

    parts: tuple[PendingRows, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def with_rows(self, rows: PendingRows, limits: EstimateLimits = DEFAULT_LIMITS) -> Pending:
        """The pending rows and more rows; beyond the limit, rows of the oldest windows are evicted."""
        parts = tuple(part for part in (*self.parts, rows) if len(part))
        if len(parts) > limits.pending_parts:
            parts = (PendingRows.concatenated(parts),)
        if sum(map(len, parts)) > limits.pending_rows:
            whole = PendingRows.concatenated(parts)
            oldest_first = np.argsort(whole.window, kind="stable")
            parts = (whole.take(np.sort(oldest_first[-limits.pending_rows :])),)
        return Pending(parts)

    def since(self, window: int) -> Pending:
        """The pending rows without windows before this one."""
        if all(part.window.min(initial=window) >= window for part in self.parts):
            return self
        parts = [part.take(part.window >= window) for part in self.parts]
        return Pending(tuple(part for part in parts if len(part)))

    def without(self, window: Ints, group: Ints | None) -> Pending:
        """The pending rows without (window, group) pairs that get no final, or without whole windows."""
        parts = []
        for part in self.parts:
            if group is None:
                kept = ~np.isin(part.window, window)
            else:
                of, query = np.zeros(len(part), np.int64), np.zeros(len(window), np.int64)
                kept = final_positions((of, part.window, part.group), (query, window, group)) < 0
            parts.append(part.take(kept))
        return Pending(tuple(part for part in parts if len(part)))


def final_positions(rows: tuple[Ints, Ints, Ints], finals: tuple[Ints, Ints, Ints]) -> Ints:
    """The position of each row's final, -1 if there is none; both are queries, windows and groups.

    >>> of, windows, groups = np.zeros(3, np.int64), np.array([4, 4, 5]), np.array([7, 8, 7])
    >>> final_positions((of, windows, groups), (of[:2], np.array([5, 4]), np.array([7, 7]))).tolist()
    [1, -1, 0]
    """
    if not len(finals[0]):
        return np.full(len(rows[0]), -1)
    keys, wanted = finals[0], rows[0]
    is_known = np.ones(len(wanted), np.bool_)
    for column, other in zip(finals[1:], rows[1:], strict=True):
        distinct, rank = np.unique(column, return_inverse=True)
        at = np.searchsorted(distinct, other).clip(max=len(distinct) - 1)
        is_known &= distinct[at] == other
        keys, wanted = keys * len(distinct) + rank, wanted * len(distinct) + at
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    at = np.searchsorted(ordered, wanted).clip(max=len(keys) - 1)
    return np.where(is_known & (ordered[at] == wanted), order[at], -1)
