"""The accuracy of each early result: by the thesis's formula (4.4), or by a function of the user's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transom.estimates.monitor import Quality
from transom.estimates.pending import Sheet
from transom.estimates.sight import Floats, Ints, ItemKind, accuracy

MOST_JUDGED = 512  # pairs of a closing that were only looked at; a function of the user's takes its time


def judged(
    items: Sequence[ItemKind],
    sheet: Sheet,
    final: Floats,
    finals: pa.Table,
    rows: Ints,
    made: int,
    quality: Quality | None,
) -> tuple[Floats, Floats]:
    """Accuracies of the raw and of the projected value, pairs x items; NaN where there is none to tell."""
    raw = np.full((len(sheet), len(items)), np.nan)
    projected = raw.copy()
    numeric = [place for place, item in enumerate(items) if item.is_number]
    if quality is None or sheet.items is None:
        raw[:, numeric] = accuracy(sheet.early, final)
        projected[:, numeric] = accuracy(sheet.projected, final)
        return raw, projected
    silent = np.flatnonzero(~sheet.told)
    few = np.sort(np.r_[np.flatnonzero(sheet.told), silent[:: -(-len(silent) // MOST_JUDGED) or 1]])
    seconds = ((made - sheet.made[few]) / 1e6).tolist()
    for place, item in enumerate(items):
        then = sheet.items.column(place).take(pa.array(few)).to_pylist()
        now = finals.column(place).take(pa.array(rows[few])).to_pylist()
        raw[few, place] = [quality(*pair) for pair in zip(then, now, seconds, strict=True)]
        if not item.is_number:
            projected[few, place] = raw[few, place]
            continue
        column = sheet.projected[few, numeric.index(place)].tolist()
        projected[few, place] = [
            quality(value if value == value else None, *rest)
            for value, *rest in zip(column, now, seconds, strict=True)
        ]
    return raw, projected
