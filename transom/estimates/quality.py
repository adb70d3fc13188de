"""The accuracy of each early result: by the thesis's formula (4.4), or by a function of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transom.estimates.monitor import Quality
from transom.estimates.pending import Sheet
from transom.estimates.sightings import Finals, Floats, Ints, ItemKind, accuracy

MOST_JUDGED = 512  # pairs of a closing that were only looked at; a function of the user's takes its time


def judged(
    items: Sequence[ItemKind],
    sheet: Sheet,
    final: Floats,
    finals: Finals,
    rows: Ints,
    quality: Quality | None,
) -> tuple[Floats, Floats]:
    """Accuracies of the raw and of the projected value, pairs x items; NaN where there is none to tell."""
    raw = np.full((len(sheet), len(items)), np.nan)
    projected = raw.copy()
    numeric = [place for place, item in enumerate(items) if item.is_number]
    if quality is None:
        raw[:, numeric] = accuracy(sheet.early, final)
        projected[:, numeric] = accuracy(sheet.projected, final)
        return raw, projected
    if sheet.items is None:
        raise ValueError("a quality function needs a query that names it: without, values are not kept")
    silent = np.flatnonzero(~sheet.told)
    few = np.sort(np.r_[np.flatnonzero(sheet.told), silent[:: -(-len(silent) // MOST_JUDGED) or 1]])
    seconds = ((finals.made - sheet.made[few]) / 1e6).tolist()
    for place, item in enumerate(items):
        then = sheet.items.column(place).take(pa.array(few)).to_pylist()
        now = finals.items.column(place).take(pa.array(rows[few])).to_pylist()
        raw[few, place] = projected[few, place] = _asked(quality, then, now, seconds)
        if item.is_number:
            said = sheet.projected[few, numeric.index(place)].tolist()
            known = [None if value != value else value for value in said]
            projected[few, place] = _asked(quality, known, now, seconds)
    return raw, projected


def _asked(quality: Quality, early: list[Any], final: list[Any], seconds: list[float]) -> list[float]:
    """What the user's function says; of a null, as in SQL, nothing."""
    return [
        float("nan")
        if then is None or now is None
        else min(max(float(quality(then, now, between)), 0.0), 1.0)
        for then, now, between in zip(early, final, seconds, strict=True)
    ]
