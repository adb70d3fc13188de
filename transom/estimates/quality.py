"""The accuracy of each early value: by the thesis's formula (4.4), or by a user's quality function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints
from transom.estimates.early_values import ItemKind, value_accuracy
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits
from transom.estimates.monitor import Quality
from transom.estimates.pending_values import PendingRows


def pair_accuracies(
    items: Sequence[ItemKind],
    pairs: PendingRows,
    final: Floats,
    final_items: pa.Table | None,
    made: int,
    final_rows: Ints,
    quality: Quality | None,
    limits: EstimateLimits = DEFAULT_LIMITS,
) -> tuple[Floats, Floats]:
    """The accuracies of raw and of projected values, pairs x items; NaN where they are unknown.

    `final` are the numeric items of each pair's final, `final_rows` their rows in `final_items`, which a user's
    quality function needs. The finals were made at `made`.
    """
    raw = np.full((len(pairs), len(items)), np.nan)
    projected = raw.copy()
    numeric = [place for place, item in enumerate(items) if item.is_number]
    if quality is None:
        raw[:, numeric] = value_accuracy(pairs.early, final)
        projected[:, numeric] = value_accuracy(pairs.projected, final)
        return raw, projected
    if pairs.items is None or final_items is None:
        raise ValueError("a quality function needs a query that names it: without, values are not kept")
    chosen = _judged_rows(pairs, limits.judged_pairs)
    seconds = ((made - pairs.made[chosen]) / 1e6).tolist()
    for place, item in enumerate(items):
        early = pairs.items.column(place).take(pa.array(chosen)).to_pylist()
        last = final_items.column(place).take(pa.array(final_rows[chosen])).to_pylist()
        raw[chosen, place] = projected[chosen, place] = _qualities(quality, early, last, seconds)
        if item.is_number:
            estimates = pairs.projected[chosen, numeric.index(place)].tolist()
            with_nulls = [None if value != value else value for value in estimates]
            projected[chosen, place] = _qualities(quality, with_nulls, last, seconds)
    return raw, projected


def _judged_rows(pairs: PendingRows, limit: int) -> Ints:
    """The rows of all emitted pairs, and of a sample of the others."""
    others = np.flatnonzero(~pairs.emitted)
    return np.sort(np.r_[np.flatnonzero(pairs.emitted), others[:: -(-len(others) // limit) or 1]])


def _qualities(quality: Quality, early: list[Any], final: list[Any], seconds: list[float]) -> list[float]:
    """The results of the user's function, from 0 to 1; NaN where a value is null."""
    return [
        float("nan")
        if then is None or now is None
        else min(max(float(quality(then, now, between)), 0.0), 1.0)
        for then, now, between in zip(early, final, seconds, strict=True)
    ]
