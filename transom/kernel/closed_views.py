"""Split rows by the times that are closed for their groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.plan.compiled_query import pattern_value
from transom.windows.closed_time import View
from transom.windows.intervals import LOWEST, IntervalSet


def split_by_view(
    views: Sequence[View], keys: list[pa.Array], rows: int
) -> Iterable[tuple[NDArray[np.int64], list[IntervalSet]]]:
    """The rows in parts, each with what is closed for its groups in every view."""
    places = sorted({place for view in views for place in view.columns})
    if not places:
        yield np.arange(rows), [view.of({}) for view in views]
        return
    untils = [view.until(keys, rows) for view in views]
    if all(until is not None for until in untils):
        yield from _by_time([until for until in untils if until is not None])
        return
    groups = group([keys[place] for place in places], rows)
    values = [keys[place].take(pa.array(groups.firsts)).to_pylist() for place in places]
    order = np.argsort(groups.codes, kind="stable")
    bounds = np.searchsorted(groups.codes[order], np.arange(groups.count + 1))
    for g in range(groups.count):
        cell = {place: pattern_value(values[i][g]) for i, place in enumerate(places)}
        yield order[bounds[g] : bounds[g + 1]], [view.of(cell) for view in views]


def _by_time(untils: list[Ints]) -> Iterator[tuple[Ints, list[IntervalSet]]]:
    """The rows in parts with the same times in every view."""
    order = np.lexsort(untils)
    times = np.stack(untils)[:, order]
    firsts = np.flatnonzero(np.r_[True, (times[:, 1:] != times[:, :-1]).any(axis=0)]) if len(order) else order
    for first, last in pairwise([*firsts.tolist(), len(order)]):
        yield order[first:last], [IntervalSet.of((LOWEST, until)) for until in times[:, first].tolist()]
