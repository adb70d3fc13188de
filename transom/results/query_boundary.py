"""Which windows of a query are closed, how many are open, and which is the last, when its stream ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import SELECTION, SLICE, groups_in
from transom.kernel.closed_views import split_by_view
from transom.kernel.shards import Shard, ShardStore
from transom.kernel.sheets import rows_of
from transom.plan.compiled_query import CompiledQuery
from transom.plan.passes.admission import SliceHolder, slices_held
from transom.results.close import Boundary, windows_open
from transom.state.state import QueryState, State, StreamState
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

Held = tuple[Ints, list[pa.Array]]  # the starts of slices, and the columns of their groups


def boundary(query: CompiledQuery, stream: StreamState, query_state: QueryState) -> Boundary:
    """The boundary of a query: which windows are closed for its groups."""
    closed = stream.clock(query.query.clock).closed
    view = closed.view(query.closing_columns, query.pinned, query.reads_earlier_windows)
    return Boundary(view, query_state.forced_wids())


def passed_boundary(query: CompiledQuery, stream: StreamState) -> Boundary | None:
    """Which windows late rows can't correct any more; None if a query corrects none.

    That its stream ended or fell idle does not count: rows may still come.
    """
    if not query.query.retention:
        return None
    closed = stream.clock(query.query.clock).closed.delayed(query.query.retention)
    return Boundary(closed.view(query.closing_columns, query.pinned), IntervalSet())


def boundary_before_it_joined(query: CompiledQuery, query_state: QueryState) -> Boundary:
    """Which windows had closed before a query joined: it gave no final results of them."""
    closed = query_state.closed_before or Closed()
    return Boundary(closed.view(query.closing_columns, query.pinned), IntervalSet())


def open_windows(state: State, queries: Iterable[CompiledQuery], stream: StreamState) -> int:
    """How many windows of some queries hold rows and are not closed, counted once for all groups."""
    counted: dict[object, int] = {}
    total = 0
    for query in queries:
        query_state = state.queries.get(query.name)
        if query_state is None:
            continue
        key = query_state.homes, query.query.window, query_state.forced
        if not query.query.window.is_shared_by_groups:
            total += sum(len(slices_held(state, home)[0]) for home in query_state.homes)
            continue
        if key not in counted:
            held = np.unique(np.concatenate([slices_held(state, home)[0] for home in query_state.homes]))
            counted[key] = windows_open(query, held, boundary(query, stream, query_state))
        total += counted[key]
    return total


def last_slices(sheets: Iterable[pa.Table], shards: Iterable[ShardRef]) -> dict[int, Ints]:
    """By selection, the start of its last slice."""
    last_starts: dict[int, Ints] = {}
    for table in sheets:
        homes, place = np.unique(table[SELECTION].to_numpy(), return_inverse=True)
        lasts = np.full(len(homes), LOWEST)
        np.maximum.at(lasts, place, table[SLICE].to_numpy())
        last_starts |= dict(zip(homes.tolist(), lasts[:, None], strict=True))
    for ref in shards:
        for home, slices in ref.held.items():
            last = max(start for start, _ in slices)
            last_starts[home] = np.maximum(last_starts.get(home, LOWEST), np.array([last]))
    return last_starts


def last_window(
    state: SliceHolder,
    query: CompiledQuery,
    was: Boundary,
    home: int,
    starts: Ints,
    store: ShardStore | None,
) -> int | None:
    """The last window of a query that holds tuples; `starts` is the start of its selection's last slice."""
    spec = query.query.window
    if was.view.columns or not was.view.is_from_start:
        # Rows that were late are kept, too, if they were late for their group only, or earlier times are open. They
        # must not close a window of other groups, or of these times.
        return _last_open(query, was, _groups_held(state, home, store))
    if windows.has_gaps(spec):  # the last slice may lie between windows
        starts, _ = slices_held(state, home)
        starts = starts[windows.in_some_window(spec, starts)]
    return int(windows.wid_to(spec, starts).max()) if len(starts) else None


def _groups_held(state: SliceHolder, home: int, store: ShardStore | None) -> Iterator[Held]:
    """A selection's slices with their groups; those on the executors are read file by file."""
    own = state.selections[home]
    if not own.on_executors:
        yield _held(rows_of(state.sheets[own.sheet], home))
        return
    assert store is not None
    for ref in state.shards:
        for file in ref.files if home in ref.held else ():
            shard = Shard.unpacked(store.get(file))
            asked = shard.head.wanted(home, shard.head.count)
            yield _held(shard.table.filter(pa.array(asked[shard.table["fragment"].to_numpy()])))


def _held(table: pa.Table) -> Held:
    groups = [one_array(table[name]) for name in groups_in(table.column_names)]
    return table[SLICE].to_numpy(), groups


def _last_open(query: CompiledQuery, was: Boundary, parts: Iterable[Held]) -> int | None:
    """The last window that holds some slices and was not closed for their groups."""
    last_wids = []
    for starts, keys in parts:
        firsts, lasts = (of(query.query.window, starts) for of in (windows.wid_from, windows.wid_to))
        for rows, (closed,) in split_by_view([was.view], keys, len(starts)):
            pairs = np.unique(np.stack([firsts[rows], lasts[rows] + 1]), axis=1).T.tolist()
            still = IntervalSet.of(*((first, after) for first, after in pairs)) - was.wids(query, closed)
            last_wids += [still.pairs[-1][1] - 1] if still else []
    return max(last_wids, default=None)
