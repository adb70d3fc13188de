"""Sessions on sheets: which are late, which became final, and which are read early.

A session sheet holds the open sessions of its selections. All queries of a selection have the same gap and see the same
time closed, so that a session is final for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.table_columns import SELECTION, SESSION_START, SLICE, STOP
from transom.kernel.sessions import Boundaries, closed_sessions, session_ends
from transom.kernel.sheets import rows_of
from transom.plan.layout import Layout
from transom.results.close import Boundary, Reader
from transom.windows.sessions import session_end


def final_sessions(layout: Layout, sheet: pa.Table, readers: Iterable[Reader]) -> Mask:
    """Which sessions of a sheet are final after a batch."""
    after = {reader.home: (reader.after.view, reader.after.forced) for reader in readers}
    return closed_sessions(layout, sheet, after)


def sessions_of(layout: Layout, sheet: pa.Table, chosen: Mask, readers: Sequence[Reader]) -> pa.Table:
    """Some sessions of a sheet, once for each reader of their selection: as closed windows with their starts."""
    table = sheet.filter(pa.array(chosen)).combine_chunks()
    homes = one_array(table[SELECTION]).to_numpy()
    wanted = np.array([reader.home for reader in readers], np.int64)
    at, which = expand_runs(np.searchsorted(homes, wanted), np.searchsorted(homes, wanted, side="right"))
    return _as_windows(layout, table, at, which)


def requested_sessions(layout: Layout, sheet: pa.Table, readers: Sequence[Reader]) -> pa.Table:
    """The open sessions that lie between the two boundaries of each reader: those that prods request."""
    homes = one_array(sheet[SELECTION]).to_numpy()
    masks: dict[tuple[int, int], Mask] = {}  # by boundaries: most readers have the same
    rows, numbers = [], []
    for number, reader in enumerate(readers):
        key = id(reader.before), id(reader.after)
        if key not in masks:
            was, now = (
                closed_sessions(layout, sheet, _everywhere(homes, boundary), by_extent=True)
                for boundary in (reader.before, reader.after)
            )
            masks[key] = now & ~was
        low, high = np.searchsorted(homes, [reader.home, reader.home + 1]).tolist()
        mine = low + np.flatnonzero(masks[key][low:high])
        rows.append(mine)
        numbers.append(np.full(len(mine), number))
    return _as_windows(layout, sheet, np.concatenate(rows), np.concatenate(numbers))


def _everywhere(homes: Ints, boundary: Boundary) -> Boundaries:
    """The same boundary for all selections."""
    return dict.fromkeys(np.unique(homes).tolist(), (boundary.view, boundary.forced))


def _as_windows(layout: Layout, table: pa.Table, at: Ints, readers: Ints) -> pa.Table:
    """Sessions as closed windows: the id of a session is the last tick before its end."""
    taken = table.take(pa.array(at, pa.int64())).combine_chunks()
    columns = {"reader": pa.array(readers, pa.int64()), "wid": pa.array(session_ends(layout, taken) - 1)}
    columns |= {name: one_array(taken[name]) for name in taken.column_names[3:]}
    return pa.table({**columns, SESSION_START: one_array(taken[SLICE])})


def last_session(sheet: pa.Table, home: int, gap: int) -> int | None:
    """The id of the last session of a selection."""
    stops = rows_of(sheet, home)[STOP].to_numpy()
    return int(session_end(stops, gap).max()) - 1 if len(stops) else None
