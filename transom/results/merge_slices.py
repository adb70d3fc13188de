"""Merge slices of cumulative windows: each window is the one before it and one more slice.

All open windows end after every closed slice. So two closed slices are in the same open windows if no open window
starts between them. Cumulative windows start together, so all closed slices since their start become one: each moves to
the start of the open windows that contain it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.table_columns import SELECTION, SLICE, STOP
from transom.results.close import AlikeReaders
from transom.windows import ids as windows
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import HIGHEST, LOWEST

FEWEST_SLICES = 16  # that move at once: fewer are left for a later batch
MOST_OPEN = 1 << 16  # starts of open windows that are looked at


def closed_until(alike: Sequence[AlikeReaders], specs: WindowSpecs) -> tuple[Ints, Ints] | None:
    """For each reader the first window that is needed, and the time that is closed; None if that is not one time.

    Needed are open windows, and closed ones that late rows may still correct.
    """
    ends = [one.after if one.passed is None else one.passed for one in alike]
    if not all(end.is_simple for end in ends):
        return None
    wids, times = np.full(len(specs), LOWEST), np.full(len(specs), LOWEST)
    for one, end in zip(alike, ends, strict=True):
        general = end.view.general
        times[one.numbers] = general.pairs[0][1] if general else LOWEST
        until = end.until(specs[one.numbers])
        is_forced = one.forced is not None and one.passed is None
        wids[one.numbers] = np.maximum(until, one.forced[1]) if is_forced and one.forced else until
    return wids, times


def with_moved_slices(
    sheet: pa.Table, homes: Ints, specs: WindowSpecs, wids: Ints, times: Ints
) -> pa.Table | None:
    """A sheet whose closed slices start where open windows do; None if too few slices would move.

    `homes` are the selections of the sheet's readers, `wids` and `times` what is closed for them.
    """
    grows = np.broadcast_to(specs.is_cumulative, homes.shape)
    is_growing = np.flatnonzero(np.isin(homes, homes[grows]))
    homes, specs, wids, times = homes[is_growing], specs[is_growing], wids[is_growing], times[is_growing]
    grows = grows[is_growing]
    numbers, place_of = np.unique(homes, return_inverse=True)
    until = np.full(len(numbers), HIGHEST)
    np.minimum.at(until, place_of, times)
    starts = _open_starts(specs, wids, until[place_of], grows, place_of)
    if starts is None or not len(starts[0]):
        return None
    selections, own_starts, stops = (one_array(sheet[name]).to_numpy() for name in (SELECTION, SLICE, STOP))
    places = np.minimum(np.searchsorted(numbers, selections), len(numbers) - 1)
    can_move = (numbers[places] == selections) & (stops <= until[places])
    moved = _moved(places, own_starts, *starts)
    new_starts = np.where(can_move, moved, own_starts)
    moving = int(np.count_nonzero(new_starts != own_starts))
    if moving < FEWEST_SLICES or 2 * moving < len(own_starts):
        return None
    column = sheet.schema.get_field_index(SLICE)
    return sheet.set_column(column, sheet.schema.field(column), pa.array(new_starts))


def _open_starts(
    specs: WindowSpecs, wids: Ints, until: Ints, grows: Mask, places: Ints
) -> tuple[Ints, Ints] | None:
    """The selections of readers, by their places, and where their open windows start; up to what is closed."""
    known = (until > LOWEST) & (until < HIGHEST) & (wids > LOWEST)
    if not known.all():
        return None
    last = windows.wid_to(specs, until)
    firsts = np.where(
        grows, last, wids
    )  # all open cumulative windows start with the first or with the last of them
    if int(np.maximum(last + 1 - firsts, 0).sum()) > MOST_OPEN:
        return None
    open_wids, of = expand_runs(firsts, np.maximum(last + 1, firsts))
    first = np.flatnonzero(grows & (wids <= last))
    of, open_wids = np.concatenate([of, first]), np.concatenate([open_wids, wids[first]])
    return places[of], windows.window_start(specs[of], open_wids)


def _moved(places: Ints, own_starts: Ints, of: Ints, starts: Ints) -> Ints:
    """The last start of an open window at or before each slice; the slice's own if there is none."""
    ladder = np.unique(starts)
    room = len(ladder) + 1
    codes = np.unique(of * room + np.searchsorted(ladder, starts) + 1)
    at = (
        np.searchsorted(
            codes, places * room + np.searchsorted(ladder, own_starts, side="right"), side="right"
        )
        - 1
    )
    found = codes[np.maximum(at, 0)]
    exists = (at >= 0) & (found // room == places)
    return np.where(exists, ladder[np.maximum(found % room - 1, 0)], own_starts)
