"""What the engine tells about early results: windows seen before they close, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST = 1e150  # so that sums, products and squares are finite


@dataclass(frozen=True)
class ItemKind:
    """An item of a query's SELECT that is no group attribute."""

    name: str
    is_number: bool
    grows: bool = False  # like SUM and COUNT: more tuples, larger value


@dataclass(frozen=True)
class Sight:
    """Windows of one query as seen at one moment; arrays of equal length."""

    group: Ints  # a hash of the group's keys
    window: Ints
    left: Floats  # until the window's end on the stream's own time, in slides; negative after the end
    rows: Ints  # tuples behind it
    items: pa.Table  # the query's non-group items, in their own types
    made: int  # the engine's clock, microseconds
    told: Flags  # reported to the user; the others were only looked at, to learn


@dataclass(frozen=True)
class Finals:
    """Final results of one query; arrays of equal length."""

    group: Ints
    window: Ints
    rows: Ints
    items: pa.Table
    made: int


@dataclass(frozen=True)
class Estimates:
    """What finals will be, by numeric item; NaN where nothing can be said."""

    projected: Floats
    low: Floats
    high: Floats


def numbers(items: pa.Table, kinds: Sequence[ItemKind]) -> Floats:
    """The numeric items as columns of doubles; NaN for nulls, and for what is too large to reckon with.

    >>> table = pa.table({"n": pa.array([1, None]), "who": ["a", "b"], "x": [0.5, float("inf")]})
    >>> numbers(table, [ItemKind("n", True, True), ItemKind("who", False), ItemKind("x", True)])
    array([[1. , 0.5],
           [nan, nan]])
    """
    asked = [place for place, kind in enumerate(kinds) if kind.is_number]
    found = np.empty((items.num_rows, len(asked)))
    for column, place in enumerate(asked):
        values = items.column(place)
        if not pa.types.is_float64(values.type):
            values = values.cast(pa.float64())
        found[:, column] = values.to_numpy()
    found[~(np.abs(found) <= MOST)] = np.nan
    return found


def accuracy(early: Floats, final: Floats) -> Floats:
    """The thesis's formula (4.4) as a part of 1; it goes by size below zero, and is never negative.

    >>> accuracy(np.array([80.0, 250.0, -90.0, 0.0, 1.0]), np.array([100.0, 100.0, -100.0, 0.0, 0.0]))
    array([0.8, 0. , 0.9, 1. , 0. ])
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        part = np.maximum(1 - np.abs(final - early) / np.abs(final), 0.0)
    found = np.where(final == 0, (early == 0).astype(np.float64), part)
    return np.where(np.isfinite(early) & np.isfinite(final), found, np.nan)
