"""The rows that a query missed, by window."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.sql.query import Query
from transom.state.accounts import Accounts
from transom.windows import ids as windows

MOST_WINDOWS = 1_000  # the newest windows that are listed


def late_windows(name: str, query: Query, accounts: Accounts) -> pa.Table:
    """The windows of a query that missed rows, and how many each missed; the newest windows last.

    An on-demand query has one row without a window: its rows came when no lookup could see them any more.
    """
    kind = query.clock_type
    if query.is_on_demand:
        late = accounts.of(name).late
        columns = [
            pa.nulls(bool(late), kind),
            pa.nulls(bool(late), kind),
            pa.array([late] * bool(late), pa.int64()),
        ]
        return pa.table(columns, names=["window_start", "window_end", "late"])
    firsts, lasts, rows = accounts.missed_windows(name).T
    # Only the newest windows are listed: a run may be of any length.
    upto = np.cumsum((lasts - firsts + 1)[::-1])[::-1] - (lasts - firsts + 1)
    firsts = np.maximum(firsts, lasts + 1 - np.maximum(MOST_WINDOWS - upto, 0))
    wids, of = expand_runs(firsts, lasts + 1)
    starts, ends = windows.window_start(query.window, wids), windows.window_end(query.window, wids)
    bounds = [pa.array(times).cast(kind) for times in (starts, ends)]
    table = pa.table([*bounds, pa.array(rows[of])], names=["window_start", "window_end", "late"])
    # The last window ids of a shorter calendar period are unused: their windows are empty.
    return table if query.window.calendar is None else table.filter(pa.array(starts < ends))
