"""Close windows over the cells of shards, one partition of the groups at a time, on the executors.

Cells are sorted by group once. A window of a reader is then a mask over them, by fragment and by slice, and the
cells of a group under the mask are a run that is combined. Windows that closed for some groups only, or many at
once, are closed as on a sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import CountRows
from transom.aggregates.numeric import combine_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group
from transom.columns.table_columns import ROWS, SLICE, STOP, groups_in
from transom.elements import WindowSpec
from transom.kernel.shards import Shard, together
from transom.plan.compiled_query import Slot
from transom.plan.layout import Layout, state_columns
from transom.results.close import Reader, close, specs_of
from transom.results.lower import lower_by_shape, lower_windows, slot_columns
from transom.results.result_rows import LoweredWindows
from transom.results.shard_work import ShardWork
from transom.windows import ids as windows
from transom.windows.slices import crossed_slices

LoweredPart = tuple[LoweredWindows, int]  # and how many cells were combined for it

FEW_WINDOWS = 8  # of a reader: each is a mask
WINDOWS_AT_ONCE = 1 << 21  # windows of groups that are finished together, roughly


def close_shards(shards: Iterable[Shard], work: ShardWork) -> Iterator[LoweredPart]:
    """The windows that close over the shards of one partition."""
    slots = {slot.id: slot for reader in work.readers for slot in reader.query.slots}
    shard_cells = together(shards, list(slots.values()))
    if shard_cells is None:
        return
    table = shard_cells.table
    codes = group([one_array(table[name]) for name in groups_in(table.column_names)], len(table)).codes
    order = np.argsort(codes, kind="stable")
    starts = one_array(table[SLICE]).to_numpy()[order]
    stops = one_array(table[STOP]).to_numpy()[order]
    places = {key: i for i, key in enumerate(slots)}
    cells = ShardCells(table.take(pa.array(order)), codes[order], starts, stops, places)
    fragments = shard_cells.fragments[order]
    by_homes: dict[tuple[int, ...], list[int]] = {}
    for i, homes in enumerate(work.homes):
        by_homes.setdefault(homes, []).append(i)
    for homes, numbers in by_homes.items():
        mine = np.logical_or.reduce([shard_cells.wanted(home) for home in homes])[fragments]
        if mine.any():
            yield from ShardCloser(cells, mine, homes[0], work.of(numbers)).all()


@dataclass(frozen=True)
class ShardCells:
    """Cells of shards in the order of their groups; `places` are those of the slots among their states."""

    table: pa.Table
    codes: Ints  # of the groups
    starts: Ints
    stops: Ints
    places: dict[str, int]

    def taken(self, name: str, at: pa.Array) -> pa.Array:
        return one_array(self.table[name]).take(at)

    def states(self, key: str, slot: Slot, at: pa.Array) -> list[pa.Array]:
        return [self.taken(name, at) for name in state_columns(slot.accumulator, self.places[key])]


class ShardCloser:
    """Closes the windows of readers of the same selections; `mine` are their cells."""

    def __init__(self, cells: ShardCells, mine: Mask, home: int, work: ShardWork):
        self.cells, self.mine, self.home, self.work = cells, mine, home, work
        self.slots = {slot.id: slot for reader in work.readers for slot in reader.query.slots}
        self.layout = Layout.of(work.readers[0].query, self.slots.values())
        numbers = {key: i for i, key in enumerate(self.slots)}
        self.places = [slot_columns(reader.query, numbers) for reader in work.readers]
        self.starts = cells.starts
        for window, unseen in dict.fromkeys(
            (reader.query.query.window, unseen)
            for reader, unseen in zip(work.readers, work.unseen, strict=True)
        ):
            if unseen:
                _, self.starts = crossed_slices(self.starts, cells.stops, window, unseen)

    def all(self) -> Iterator[LoweredPart]:
        """All windows that close for the readers."""
        held = self.starts[self.mine]
        low, high = int(held.min()), int(held.max())
        alike: dict[tuple[WindowSpec, int, int], list[int]] = {}
        others = []
        for i, reader in enumerate(self.work.readers):
            run = _few(reader, low, high)
            if run is None:
                others.append(i)
            elif run[0] < run[1]:
                alike.setdefault((reader.query.query.window, *run), []).append(i)
        for (spec, first, after), members in alike.items():
            for wid in range(first, after):
                yield from self._window(spec, wid, members)
        if others:
            yield from self._by_sheet(others)

    def _window(self, spec: WindowSpec, wid: int, readers: list[int]) -> Iterator[LoweredPart]:
        """One window of readers that have it in common."""
        cells, start, end = self.cells, windows.window_start(spec, wid), windows.window_end(spec, wid)
        at = np.flatnonzero(self.mine & (self.starts >= start) & (self.starts < end))
        if not len(at):
            return
        codes = cells.codes[at]
        firsts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        runs, rows, heads = (firsts, np.r_[firsts[1:], len(at)]), pa.array(at), pa.array(at[firsts])
        columns = {"wid": pa.array(np.full(len(firsts), wid))}
        columns |= {name: cells.taken(name, heads) for name in self.layout.key_names}
        columns[ROWS] = combine_runs(CountRows(), [cells.taken(ROWS, rows)], runs)[0]
        for i, (key, slot) in enumerate(self.slots.items()):
            states = combine_runs(slot.accumulator, cells.states(key, slot, rows), runs)
            columns |= dict(zip(self.layout.columns(i), states, strict=True))
        table, which = pa.table(columns), np.zeros(len(firsts), np.int64)
        for i in readers:
            query = self.work.readers[i].query
            found = lower_windows(self.layout, table, [query], which, self.places[i])
            asked = [query.name in self.work.partial]
            one = LoweredWindows(
                [query],
                which,
                found,
                [self.work.unseen[i]],
                asked,
                [self.work.arrivals[i]],
                [self.work.late[i]],
            )
            yield one, len(at)

    def _by_sheet(self, readers: list[int]) -> Iterator[LoweredPart]:
        """Close windows over a sheet in which slices may occur several times, also for some groups only."""
        cells, at = self.cells, np.flatnonzero(self.mine)
        at = at[np.lexsort((self.starts[at], cells.codes[at]))]
        groups, rows = 1 + int(np.count_nonzero(np.diff(cells.codes[at]))), pa.array(at)
        heads = (STOP, *self.layout.key_names, ROWS)
        columns = [pa.array(np.full(len(at), self.home)), pa.array(self.starts[at])]
        columns += [cells.taken(name, rows) for name in heads]
        for key, slot in self.slots.items():
            columns += cells.states(key, slot, rows)
        sheet = pa.Table.from_arrays(columns, schema=self.layout.schema)
        size = max(1, WINDOWS_AT_ONCE // groups)
        for start in range(0, len(readers), size):
            chosen = readers[start : start + size]
            part, places = self.work.of(chosen), [self.places[i] for i in chosen]
            done = close(self.layout, sheet, part.readers)
            asking, steps = [reader.query for reader in part.readers], done.steps
            unseen = {query.name: own for query, own in zip(asking, part.unseen, strict=True)}
            arrivals = {query.name: own for query, own in zip(asking, part.arrivals, strict=True)}
            late = {query.name: own for query, own in zip(asking, part.late, strict=True)}
            if done.table.num_rows:
                for lowered in lower_by_shape(
                    self.layout,
                    done.table,
                    asking,
                    places,
                    unseen.__getitem__,
                    lambda query, by_name=arrivals: by_name[query.name],  # type: ignore[misc]
                    lambda names, by_name=late: [by_name[name] for name in names],  # type: ignore[misc]
                    part.partial,
                ):
                    yield lowered, steps
                    steps = 0


def _few(reader: Reader, low: int, high: int) -> tuple[int, int] | None:
    """The windows that closed over slices that start from `low` to `high`, if they are few and one run."""
    if not (reader.before.is_simple and reader.after.is_simple):
        return None
    spec, specs = reader.query.query.window, specs_of([reader.query])
    first = max(int(reader.before.until(specs)[0]), windows.wid_from(spec, low))
    after = min(int(reader.after.until(specs)[0]), windows.wid_to(spec, high) + 1)
    return None if after - first > FEW_WINDOWS else (first, after)
