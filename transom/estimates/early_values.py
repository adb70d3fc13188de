"""The data that estimators exchange with the engine: early values, finals, and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints, Mask

LARGEST_VALUE = 1e150  # larger values count as unknown, so that sums, products and squares are finite


@dataclass(frozen=True)
class ItemKind:
    """An item of a query's SELECT list that is not a group attribute."""

    name: str
    is_number: bool
    grows: bool = False  # as SUM and COUNT do: more tuples, larger value
    is_condition: bool = False  # HAVING reads it, and SELECT does not have it


@dataclass(frozen=True)
class EarlyValues:
    """The values of a query's open windows at one moment; arrays of equal length."""

    group: Ints  # a hash of the group's keys
    window: Ints
    slides_left: Floats  # slides until the window's end, in event time; negative after the end
    rows: Ints  # how many tuples arrived
    items: pa.Table  # the query's non-group items, in their own types
    made: int  # the engine's clock, microseconds
    emitted: Mask  # reported to the user; the others are observed only to learn
    end: Ints | None = None  # of the window, in microseconds; None if the clock does not tell the time


@dataclass(frozen=True)
class FinalValues:
    """Final results of one query; arrays of equal length."""

    group: Ints
    window: Ints
    rows: Ints
    items: pa.Table
    made: int
    end: Ints | None = None  # of the window, in microseconds; None if the clock does not tell the time


@dataclass(frozen=True)
class Estimates:
    """Estimates of finals by numeric item; NaN where there is none."""

    projected: Floats
    low: Floats
    high: Floats
    spread: Floats  # the usual absolute error of the projection

    @classmethod
    def none(cls, rows: int, items: int) -> Estimates:
        """No estimates."""
        return cls(*(np.full((rows, items), np.nan) for _ in range(4)))

    def take(self, rows: slice | Ints) -> Estimates:
        """The estimates of some rows."""
        return Estimates(self.projected[rows], self.low[rows], self.high[rows], self.spread[rows])


def numbers(items: pa.Table, kinds: Sequence[ItemKind]) -> Floats:
    """The numeric items as columns of doubles; NaN for nulls and for values above LARGEST_VALUE.

    >>> table = pa.table({"n": pa.array([1, None]), "who": ["a", "b"], "x": [0.5, float("inf")]})
    >>> numbers(table, [ItemKind("n", True, True), ItemKind("who", False), ItemKind("x", True)])
    array([[1. , 0.5],
           [nan, nan]])
    """
    given = [place for place, kind in enumerate(kinds) if kind.is_number]
    numbers_by_row = np.empty((items.num_rows, len(given)))
    for column, place in enumerate(given):
        values = items.column(place)
        if not pa.types.is_float64(values.type):
            values = values.cast(pa.float64())
        numbers_by_row[:, column] = values.to_numpy()
    numbers_by_row[~(np.abs(numbers_by_row) <= LARGEST_VALUE)] = np.nan
    return numbers_by_row


def value_accuracy(early: Floats, final: Floats) -> Floats:
    """The thesis's formula (4.4) as a part of 1, by absolute values and never negative.

    >>> value_accuracy(np.array([80.0, 250.0, -90.0, 0.0, 1.0]), np.array([100.0, 100.0, -100.0, 0.0, 0.0]))
    array([0.8, 0. , 0.9, 1. , 0. ])
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        part = np.maximum(1 - np.abs(final - early) / np.abs(final), 0.0)
    found = np.where(final == 0, (early == 0).astype(np.float64), part)
    return np.where(np.isfinite(early) & np.isfinite(final), found, np.nan)
