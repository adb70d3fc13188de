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

    def split(self, window: Ints, group: Ints) -> tuple[PendingRows | None, Ints, Pending]:
        """The rows of the given (window, group) pairs, the position of each row's pair, and the other rows."""
        windows, groups = np.unique(window), np.unique(group)
        keys = np.searchsorted(windows, window) * len(groups) + np.searchsorted(groups, group)
        order = np.argsort(keys, kind="stable")
        matching: list[PendingRows] = []
        numbers: list[Ints] = []
        rest: list[PendingRows] = []
        for part in self.parts:
            at = _positions(part, windows, groups, keys[order])
            hit = at >= 0
            if hit.all():
                matching.append(part)
            elif hit.any():
                matching.append(part.take(hit))
                rest.append(part.take(~hit))
            else:
                rest.append(part)
                continue
            numbers.append(order[at[hit]])
        if not matching:
            return None, np.empty(0, np.int64), self
        return PendingRows.concatenated(matching), np.concatenate(numbers), Pending(tuple(rest))

    def since(self, window: int) -> Pending:
        """The pending rows without windows before this one."""
        if all(part.window.min(initial=window) >= window for part in self.parts):
            return self
        parts = [part.take(part.window >= window) for part in self.parts]
        return Pending(tuple(part for part in parts if len(part)))

    def without(self, window: Ints, group: Ints | None) -> Pending:
        """The pending rows without (window, group) pairs that get no final, or without whole windows."""
        if group is not None:
            return self.split(window, group)[2]
        parts = [part.take(~np.isin(part.window, window)) for part in self.parts]
        return Pending(tuple(part for part in parts if len(part)))


def _positions(rows: PendingRows, windows: Ints, groups: Ints, keys: Ints) -> Ints:
    """The position of each row's (window, group) among sorted keys; -1 if it is not among them."""
    if not len(keys):
        return np.full(len(rows), -1)
    w = np.searchsorted(windows, rows.window).clip(max=len(windows) - 1)
    g = np.searchsorted(groups, rows.group).clip(max=len(groups) - 1)
    key = w * len(groups) + g
    at = np.searchsorted(keys, key).clip(max=len(keys) - 1)
    hit = (windows[w] == rows.window) & (groups[g] == rows.group) & (keys[at] == key)
    return np.where(hit, at, -1)
