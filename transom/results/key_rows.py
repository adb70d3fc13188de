"""The last rows of each key: numbers for new rows, and the windows that they end.

    [PARTITION BY card ROWS 3 SLIDE 1]

    rows of the stream   a  b  a  a  b  a        the rows of a card are numbered from 0
    of card a            0     1  2     3
    windows of a         [-) [---) [-----) then rows 1 to 3: each row ends a window of the last three

A sheet of such rows is in the order of selections, groups and numbers of the stream. The rows of a selection and group
are a lane. A window is a run of rows in a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.aggregates.run_tree import RunTree
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group
from transom.columns.table_columns import SELECTION, SLICE, STOP
from transom.kernel.closed_views import split_by_view
from transom.plan.layout import Layout
from transom.results.close import Boundary, Reader


@dataclass(frozen=True)
class Lanes:
    """The lanes of a sheet: where each begins and ends, its selection, and how many rows its group had and has."""

    begin: Ints
    end: Ints
    homes: Ints
    before: Ints
    after: Ints
    stops: Ints  # of all rows: how many rows the group had with it

    @classmethod
    def of(cls, layout: Layout, sheet: pa.Table, first_new: int) -> Lanes:
        """The lanes of a sheet whose rows from a number of the stream on are new."""
        homes, numbers, stops = (one_array(sheet[name]).to_numpy() for name in (SELECTION, SLICE, STOP))
        keys = [one_array(sheet[name]) for name in layout.key_names]
        codes = group([homes, *keys], len(homes)).codes
        begin = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        end = np.r_[begin[1:], len(codes)]
        is_new = numbers >= first_new
        before = np.maximum.reduceat(np.where(is_new, 0, stops), begin)
        lane = np.repeat(np.arange(len(begin)), end - begin)
        upto = np.cumsum(is_new)
        rank = upto - (upto[begin] - is_new[begin])[lane]
        stops = np.where(is_new, before[lane] + rank, stops)
        return cls(begin, end, homes[begin], before, stops[end - 1], stops)


@dataclass(frozen=True)
class KeyWindows:
    """Windows of lanes as runs of rows of a sheet: of which reader, and with which id.

    Their states are combined where they are read. Queries with other conditions have other states of the same rows, and
    read none of each other's.
    """

    layout: Layout
    sheet: pa.Table
    readers: Ints
    wids: Ints
    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.readers)

    def states(self, columns: Sequence[str], chosen: Ints) -> dict[str, pa.Array]:
        """Columns of states, combined for some of the windows."""
        order = np.lexsort((self.end[chosen], self.begin[chosen]))
        sorted_rows, back = chosen[order], np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        runs, at = RunTree(self.begin[sorted_rows], self.end[sorted_rows]), pa.array(back)
        states: dict[str, pa.Array] = {}
        for place in dict.fromkeys(self._places[column] for column in columns):
            names = self.layout.columns(place)
            parts = [one_array(self.sheet[name]) for name in names]
            combined = runs.combine(self.layout.accumulators[place], parts)
            states.update((name, part.take(at)) for name, part in zip(names, combined, strict=True))
        return states

    def groups(self, chosen: Ints) -> dict[str, pa.Array]:
        """The groups of some of the windows."""
        heads = pa.array(self.begin[chosen])
        return {name: one_array(self.sheet[name]).take(heads) for name in self.layout.key_names}

    @cached_property
    def _places(self) -> dict[str, int]:
        """The accumulator of each column of states."""
        places = range(len(self.layout.accumulators))
        return {name: place for place in places for name in self.layout.columns(place)}


def with_numbers(layout: Layout, sheet: pa.Table, first_new: int) -> pa.Table:
    """A sheet whose new rows have the numbers of their groups."""
    if not sheet.num_rows:
        return sheet
    place = sheet.column_names.index(STOP)
    return sheet.set_column(place, STOP, pa.array(Lanes.of(layout, sheet, first_new).stops))


def ended_windows(
    layout: Layout, sheet: pa.Table, readers: Sequence[Reader], first_new: int
) -> tuple[KeyWindows, Mask]:
    """The windows that new rows ended, and which rows later windows need."""
    lanes = Lanes.of(layout, sheet, first_new)
    at, which, spec = _pairs(lanes, readers)
    wids, of = expand_runs(lanes.before[at] // spec[1][which], lanes.after[at] // spec[1][which])
    windows = _windows(layout, sheet, lanes, at[of], which[of], wids, spec)
    longest = np.zeros(len(lanes.begin), np.int64)
    np.maximum.at(longest, at, spec[0][which])
    lane = np.repeat(np.arange(len(lanes.begin)), lanes.end - lanes.begin)
    # The last row stays in any case: the next one is numbered after it.
    is_needed = lanes.stops > (lanes.after - np.maximum(longest - 1, 1))[lane]
    return windows, is_needed


def requested_windows(layout: Layout, sheet: pa.Table, readers: Sequence[Reader]) -> KeyWindows:
    """The windows in progress that lie between the two boundaries of each reader: those that prods request."""
    lanes = Lanes.of(layout, sheet, np.iinfo(np.int64).max)
    at, which, spec = _pairs(lanes, readers)
    size, slide = spec[0][which], spec[1][which]
    # A window in progress ends after the last row, and holds it.
    wids, of = expand_runs(lanes.after[at] // slide, (lanes.after[at] - 1 + size) // slide)
    at, which = at[of], which[of]
    wanted = np.zeros(len(wids), bool)
    bounds = np.searchsorted(which, np.arange(len(readers) + 1)).tolist()
    for number, reader in enumerate(readers):
        mine = slice(bounds[number], bounds[number + 1])
        keys = [one_array(sheet[name]).take(pa.array(lanes.begin[at[mine]])) for name in layout.key_names]
        ends = (wids[mine] + 1) * spec[1][number]
        now, was = (
            _inside(boundary, wids[mine], ends - spec[0][number], ends, keys)
            for boundary in (reader.after, reader.before)
        )
        wanted[mine] = now & ~was
    return _windows(layout, sheet, lanes, at[wanted], which[wanted], wids[wanted], spec)


def _inside(boundary: Boundary, wids: Ints, starts: Ints, ends: Ints, keys: list[pa.Array]) -> Mask:
    inside = boundary.forced.meets(wids, wids + 1)
    for rows, (closed,) in split_by_view([boundary.view], keys, len(wids)):
        inside[rows] |= closed.covers(starts[rows], ends[rows] - 1)
    return inside


def _pairs(lanes: Lanes, readers: Sequence[Reader]) -> tuple[Ints, Ints, tuple[Ints, Ints]]:
    """Each lane with each reader of its selection, and the rows and the slide of each reader's windows."""
    homes = np.array([reader.home for reader in readers], np.int64)
    at, which = expand_runs(
        np.searchsorted(lanes.homes, homes), np.searchsorted(lanes.homes, homes, side="right")
    )
    specs = [reader.query.query.window for reader in readers]
    sizes, slides = (
        np.array([getattr(spec, name) for spec in specs], np.int64) for name in ("range", "slide")
    )
    return at, which, (sizes, slides)


def _windows(
    layout: Layout, sheet: pa.Table, lanes: Lanes, at: Ints, which: Ints, wids: Ints, spec: tuple[Ints, Ints]
) -> KeyWindows:
    """Windows of lanes: the rows that they hold."""
    ends = (wids + 1) * spec[1][which]
    first = lanes.stops[lanes.begin[at]] - 1  # the number of the first row that is kept
    begin = lanes.begin[at] + np.maximum(ends - spec[0][which], first) - first
    end = lanes.begin[at] + np.minimum(ends, lanes.after[at]) - first
    return KeyWindows(layout, sheet, which, wids, begin, end)
