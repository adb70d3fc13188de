"""Sessions: runs of rows of a group that are at most the gap apart, from rows to cells and on sheets.

    gap 3        0   2   4   6   8   10  12  14
    rows         x x . x . . . . . . x . x
    sessions     [-----------)       [-------------)     from the first row to one gap after the last

A cell of a session sheet is such a run: it starts at its first row and stops one tick after its last. Cells of two
tasks or batches become one where they are at most the gap apart. Rows exactly one gap apart are in one session, as in
Spark and Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.kernel.closed_views import split_by_view
from transom.kernel.fold import pair_batches
from transom.kernel.rows import FamilyTuples
from transom.kernel.sheets import combine
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.windows.closed_time import View
from transom.windows.intervals import IntervalSet
from transom.windows.sessions import run_heads, session_closed, session_end

Boundaries = Mapping[
    int, tuple[View, IntervalSet]
]  # by selection: closed time, and ids of windows closed by force


def fold_sessions(family: Family, tuples: FamilyTuples, limits: Limits) -> Iterator[tuple[Layout, pa.Table]]:
    """The cells of all members, by layout; cells of one member are not merged yet.

    Tuples are added once for all members: to runs within the smallest gap, by fragment and group.
    """
    if not len(tuples) or family.session_gap is None:
        return
    fragments, groups = tuples.fragments, tuples.groups
    columns = [
        codes for codes in (fragments.codes, None if groups is None else groups.codes) if codes is not None
    ]
    lanes = group(columns, len(tuples)).codes
    order = np.lexsort((tuples.times, lanes))
    times = tuples.times[order]
    heads = run_heads(lanes[order], times, times + 1, family.session_gap)
    numbers = np.zeros(len(order), np.int64)
    numbers[heads[1:]] = 1
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(numbers)
    firsts, lasts = order[heads], order[np.r_[heads[1:], len(order)] - 1]
    starts, stops = tuples.times[firsts], tuples.times[lasts] + 1
    rows = tuples.counted(codes, len(heads))
    states = [tuples.states(i, slot, codes, len(heads)) for i, slot in enumerate(family.slots)]
    keys = [key.take(pa.array(groups.codes[firsts])) for key in tuples.keys] if groups is not None else []
    fragment = np.zeros(len(heads), np.int64) if fragments.codes is None else fragments.codes[firsts]
    ranges = fragments.ranges
    begins, ends = np.searchsorted(fragment, ranges.starts), np.searchsorted(fragment, ranges.stops)
    for start, stop in pair_batches(ends - begins, ranges.owners, limits.pairs):
        at, which = expand_runs(begins[start:stop], ends[start:stop])
        owners = ranges.owners[start:stop][which]
        for layout, chosen, slots in family.by_layout:
            mine = slice(None) if len(family.by_layout) == 1 else np.isin(owners, chosen)
            taken, cells = pa.array(at[mine]), at[mine]
            arrays = [pa.array(family.ids[owners[mine]]), pa.array(starts[cells]), pa.array(stops[cells])]
            arrays += [key.take(taken) for key in keys]
            arrays.append(pa.array(rows[cells]))
            arrays += [part.take(taken) for slot in slots for part in states[slot]]
            yield layout, pa.Table.from_arrays(arrays, schema=layout.schema)


def closed_sessions(layout: Layout, table: pa.Table, boundaries: Boundaries, by_extent: bool = False) -> Mask:
    """Which sessions of a sheet are final: no row can extend them, in the closed time of their selection and group.

    With `by_extent`, those that lie in closed time: rows beside them could still extend them.
    """
    assert layout.gap is not None
    homes = one_array(table[SELECTION]).to_numpy()
    starts, stops = (one_array(table[name]).to_numpy() for name in (SLICE, STOP))
    is_closed = np.zeros(len(homes), bool)
    alike: dict[tuple[int, IntervalSet], list[int]] = {}
    for home in np.unique(homes).tolist():
        if home in boundaries:
            view, forced = boundaries[home]
            alike.setdefault((id(view), forced), []).append(home)
    for (_, forced), members in alike.items():
        view = boundaries[members[0]][0]
        at = np.arange(len(homes)) if len(alike) == 1 else np.flatnonzero(np.isin(homes, members))
        keys = (
            [] if view.uniform else [one_array(table[name]).take(pa.array(at)) for name in layout.key_names]
        )
        for rows, (closed,) in split_by_view([view], keys, len(at)):
            mine = at[rows]
            is_closed[mine] = session_closed(
                starts[mine], stops[mine], layout.gap, closed, forced, 0 if by_extent else layout.gap
            )
    return is_closed


# --- late rows ---


@dataclass(frozen=True)
class LateSessions:
    """Sessions of one selection that a batch would open although they are final: their rows are late."""

    starts: Ints
    stops: Ints
    rows: Ints
    keys: Sequence[pa.Array]

    def holding(self, times: Ints, keys: Sequence[pa.Array]) -> Mask:
        """Which rows, given by their times and groups, are in one of the sessions."""
        sessions, rows = len(self.starts), len(times)
        columns = [
            pa.concat_arrays([own, theirs.cast(own.type)])
            for own, theirs in zip(self.keys, keys, strict=True)
        ]
        codes = group(columns, sessions + rows).codes
        order = np.lexsort((self.starts, codes[:sessions]))
        ranks = np.unique(np.concatenate([self.starts, times]), return_inverse=True)[1]
        ladder = codes * (int(ranks.max(initial=0)) + 1) + ranks
        place = np.searchsorted(ladder[:sessions][order], ladder[sessions:], side="right") - 1
        found = order[np.maximum(place, 0)]
        is_inside: Mask = (
            (place >= 0) & (codes[:sessions][found] == codes[sessions:]) & (times < self.stops[found])
        )
        return is_inside


def late_sessions(
    layouts: Mapping[str, Layout],
    brought: Mapping[str, pa.Table],
    sheets: Mapping[str, pa.Table],
    boundaries: Boundaries,
) -> dict[int, LateSessions]:
    """The sessions of a batch that were final before it, by selection.

    A row that is far behind is not late if it belongs to a session that is still open: of the state, or with other rows
    of its batch.
    """
    late: dict[int, LateSessions] = {}
    for key, table in brought.items():
        layout = layouts[key]
        if layout.gap is None or not closed_sessions(layout, table, boundaries).any():
            continue
        merged = combine(layout, [table, *([sheets[key]] if key in sheets else [])])
        gone = merged.filter(pa.array(closed_sessions(layout, merged, boundaries))).combine_chunks()
        homes = gone[SELECTION].to_numpy()
        for home in np.unique(homes).tolist():
            low, high = np.searchsorted(homes, [home, home + 1]).tolist()
            mine = gone.slice(low, high - low)
            starts, stops, rows = (mine[name].to_numpy() for name in (SLICE, STOP, ROWS))
            late[home] = LateSessions(
                starts, stops, rows, [one_array(mine[name]) for name in layout.key_names]
            )
    return late


def session_ends(layout: Layout, table: pa.Table) -> Ints:
    """Where the sessions of a sheet end."""
    assert layout.gap is not None
    return session_end(one_array(table[STOP]).to_numpy(), layout.gap)
