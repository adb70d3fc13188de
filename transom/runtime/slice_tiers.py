"""Tiers of sealed slices: seconds, minutes and hours, the windows that are made of them, and the rows in them.

A slice of a tier answers for all windows that contain it as a whole. A row is in it only if it was in time for every
such window: when the row's batch began, the time before the end of its slice was not closed. Slices of hours have all
rows of slices of minutes, and more. Rows that are in no slice are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, one_array
from transom.columns.groups import group
from transom.columns.table_columns import SELECTION, SLICE, STOP
from transom.durations import HOUR, MINUTE, SECOND
from transom.elements import WindowSpec
from transom.kernel.sheets import regroup
from transom.plan.layout import Layout
from transom.state.retained_rows import RetainedBatch

TIERS = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}  # from fine to coarse
ROWS_PER_SLICE = 8  # a tier with fewer rows for each slice is not kept: rows are as good


def fits(window: WindowSpec, unit: int) -> bool:
    """Whether windows are made of whole slices of a tier, and each slice is in some window.

    >>> hourly = WindowSpec.ending(range=12 * HOUR, slide=HOUR)
    >>> [name for name, unit in TIERS.items() if fits(hourly, unit)]
    ['seconds', 'minutes', 'hours']
    >>> fits(WindowSpec.ending(range=SECOND, slide=5 * SECOND), SECOND)
    False
    """
    if window.is_session or window.is_keyed or window.calendar is not None or window.slide > window.range:
        return False
    return not (window.range % unit or window.slide % unit or window.phase % unit)


def can_be_sealed(batches: Sequence[RetainedBatch]) -> bool:
    """Whether slices can take the place of rows of a file: time was closed from its beginning on, and by nothing else.

    When a stream fell idle, the rows until then decide which windows were closed.
    """
    is_plain = all(
        one.before.is_prefix and one.after.is_prefix and not one.ended and not one.shed for one in batches
    )
    return is_plain and all(one.after == other.before for one, other in pairwise(batches))


def finest_tier(batch: RetainedBatch) -> int:
    """The place of the finest tier whose slices can have all rows of a batch; beyond the last one if there is none."""
    closed = batch.before.watermark()
    if batch.low is None or closed is None:
        return 0
    low = batch.low
    ends = [low - low % unit + unit for unit in TIERS.values()]
    return next((place for place, end in enumerate(ends) if end > closed), len(TIERS))


@dataclass(frozen=True)
class TierRecord:
    """What a file of sealed slices says of one of its tiers.

    `rows` rows are in its slices. `batches` are those of the file of rows: neighbours whose rows are in slices are one,
    without rows. The rows of those in `left_out` are not in slices.
    """

    unit: int
    rows: int
    batches: tuple[RetainedBatch, ...]
    left_out: tuple[int, ...]

    @classmethod
    def of(cls, place: int, batches: Sequence[RetainedBatch]) -> Self:
        """The record of the tier at a place, given the batches of a file of rows."""
        inside = {one.batch_id for one in batches if finest_tier(one) <= place}
        runs: list[RetainedBatch] = []
        for one in batches:
            if one.batch_id not in inside:
                runs.append(one)
                continue
            before = runs.pop().before if runs and runs[-1].batch_id in inside else one.before
            runs.append(replace(one, rows=0, low=None, before=before))
        rows = sum(one.rows for one in batches if one.batch_id in inside)
        left_out = tuple(one.batch_id for one in batches if one.batch_id not in inside)
        return cls(list(TIERS.values())[place], rows, tuple(runs), left_out)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "batches": [one.to_json() for one in self.batches]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        batches = tuple(map(RetainedBatch.from_json, stored["batches"]))
        return cls(**{**stored, "batches": batches, "left_out": tuple(stored["left_out"])})


def rolled_up(layout: Layout, table: pa.Table, unit: int) -> pa.Table:
    """Slices of one selection as those of a coarser tier."""
    starts: Ints = one_array(table[SLICE]).to_numpy()
    starts = starts - starts % unit
    coarse = {SLICE: pa.array(starts), STOP: pa.array(starts + unit)}
    table = pa.table({name: coarse.get(name, table[name]) for name in table.column_names})
    return combined_groups(layout, table)


def combined_groups(layout: Layout, table: pa.Table) -> pa.Table:
    """Slices of one selection with the states of equal groups and times combined."""
    if not table.num_rows:
        return table
    keys = [one_array(table[name]) for name in layout.key_names]
    groups = group([one_array(table[SLICE]).to_numpy(), *keys], table.num_rows)
    leading = (SELECTION, SLICE, STOP)
    return regroup(layout, table, groups.codes, groups.firsts, leading).select(layout.schema.names)


def worthwhile_tiers(
    layout: Layout, parts: Sequence[pa.Table], records: Sequence[TierRecord], base: int
) -> list[tuple[TierRecord, pa.Table]]:
    """The tiers to keep, from fine to coarse: with much fewer slices than rows, and than the tier before.

    `parts` are slices of the tier at the place `base`, of the rows that each tier has and finer ones have not.
    """
    kept: list[tuple[TierRecord, pa.Table]] = []
    table = layout.empty
    for place, (part, record) in enumerate(zip(parts, records, strict=True)):
        table = pa.concat_tables([table, part])
        if place < base:
            continue
        table = rolled_up(layout, table, record.unit)
        slices = table.num_rows
        is_small = slices > 0 and slices * ROWS_PER_SLICE <= record.rows
        if is_small and (not kept or slices * 2 <= kept[-1][1].num_rows):
            kept.append((record, table))
    return kept


def slices_between(table: pa.Table, start: int, end: int) -> pa.Table:
    """The slices of a stretch of time; no slice lies across its ends."""
    starts = one_array(table[SLICE]).to_numpy()
    if not len(starts) or (int(np.min(starts)) >= start and int(np.max(starts)) < end):
        return table
    return table.filter(pa.array((starts >= start) & (starts < end)))
