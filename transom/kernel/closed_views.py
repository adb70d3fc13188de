"""Split rows by the times that are closed for their groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.groups import group
from transom.plan.compiled_query import pattern_value
from transom.windows.closed_time import View
from transom.windows.intervals import IntervalSet


def split_by_view(
    views: Sequence[View], keys: list[pa.Array], rows: int
) -> Iterable[tuple[NDArray[np.int64], list[IntervalSet]]]:
    """The rows in parts, each with what is closed for its groups in every view."""
    places = sorted({place for view in views for place in view.columns})
    if not places:
        yield np.arange(rows), [view.of({}) for view in views]
        return
    groups = group([keys[place] for place in places], rows)
    values = [keys[place].take(pa.array(groups.firsts)).to_pylist() for place in places]
    order = np.argsort(groups.codes, kind="stable")
    bounds = np.searchsorted(groups.codes[order], np.arange(groups.count + 1))
    for g in range(groups.count):
        cell = {place: pattern_value(values[i][g]) for i, place in enumerate(places)}
        yield order[bounds[g] : bounds[g + 1]], [view.of(cell) for view in views]
