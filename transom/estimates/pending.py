"""What was seen of windows that are still open, until their finals come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.estimates.sightings import Flags, Floats, Ints

MOST_PENDING = 131_072  # rows of a query; windows that never close must not fill the memory
MOST_SHEETS = 32


@dataclass(frozen=True)
class Sheet:
    """Early values with what was said of them; arrays of equal length."""

    group: Ints
    window: Ints
    left: Floats
    made: Ints
    told: Flags
    early: Floats  # by numeric item, as what follows
    projected: Floats
    low: Floats
    high: Floats
    items: pa.Table | None = None  # the values in their own types, if a function of the user's compares them

    def __len__(self) -> int:
        return len(self.window)

    def taken(self, rows: NDArray) -> Sheet:
        """Some of the rows: by number or by flag."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in ARRAYS}
        if self.items is None:
            return Sheet(**arrays)
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Sheet(**arrays, items=self.items.take(pa.array(numbers)))

    @classmethod
    def joined(cls, sheets: Sequence[Sheet]) -> Sheet:
        if len(sheets) == 1:
            return sheets[0]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(sheet, name) for sheet in sheets]) for name in ARRAYS
        }
        tables = [sheet.items for sheet in sheets if sheet.items is not None]
        return cls(**arrays, items=pa.concat_tables(tables) if tables else None)


ARRAYS = tuple(field.name for field in fields(Sheet) if field.name != "items")


@dataclass(frozen=True)
class Pending:
    """Sheets in the order in which they were seen."""

    sheets: tuple[Sheet, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.sheets))

    def with_sheet(self, sheet: Sheet) -> Pending:
        """With more rows; if they are too many, without those of the oldest windows."""
        sheets = tuple(s for s in (*self.sheets, sheet) if len(s))
        if len(sheets) > MOST_SHEETS:
            sheets = (Sheet.joined(sheets),)
        if sum(map(len, sheets)) > MOST_PENDING:
            whole = Sheet.joined(sheets)
            oldest_first = np.argsort(whole.window, kind="stable")
            sheets = (whole.taken(np.sort(oldest_first[-MOST_PENDING:])),)
        return Pending(sheets)

    def parted(self, window: Ints, group: Ints) -> tuple[Sheet | None, Ints, Pending]:
        """What was seen of some (window, group)s, the number of the one each row is of, and the rest."""
        windows, groups = np.unique(window), np.unique(group)
        keys = np.searchsorted(windows, window) * len(groups) + np.searchsorted(groups, group)
        order = np.argsort(keys, kind="stable")
        found: list[Sheet] = []
        places: list[Ints] = []
        rest: list[Sheet] = []
        for sheet in self.sheets:
            at = _matched(sheet, windows, groups, keys[order])
            hit = at >= 0
            if hit.all():
                found.append(sheet)
            elif hit.any():
                found.append(sheet.taken(hit))
                rest.append(sheet.taken(~hit))
            else:
                rest.append(sheet)
                continue
            places.append(order[at[hit]])
        if not found:
            return None, np.empty(0, np.int64), self
        return Sheet.joined(found), np.concatenate(places), Pending(tuple(rest))

    def since(self, window: int) -> Pending:
        """Without windows before this one."""
        if all(sheet.window.min(initial=window) >= window for sheet in self.sheets):
            return self
        kept = [sheet.taken(sheet.window >= window) for sheet in self.sheets]
        return Pending(tuple(sheet for sheet in kept if len(sheet)))

    def without(self, window: Ints, group: Ints | None) -> Pending:
        """Without what was seen of (window, group)s that will have no final; of whole windows if no groups
        are given."""
        if group is not None:
            return self.parted(window, group)[2]
        kept = [sheet.taken(~np.isin(sheet.window, window)) for sheet in self.sheets]
        return Pending(tuple(sheet for sheet in kept if len(sheet)))


def _matched(sheet: Sheet, windows: Ints, groups: Ints, keys: Ints) -> Ints:
    """The place among sorted keys of each row of a sheet, -1 for none."""
    if not len(keys):
        return np.full(len(sheet), -1)
    w = np.searchsorted(windows, sheet.window).clip(max=len(windows) - 1)
    g = np.searchsorted(groups, sheet.group).clip(max=len(groups) - 1)
    wanted = w * len(groups) + g
    at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    hit = (windows[w] == sheet.window) & (groups[g] == sheet.group) & (keys[at] == wanted)
    return np.where(hit, at, -1)
