"""Margins: by how much a condition over estimated values is expected to hold, in units of the usual error.

    margin of  sum(x) > 10,000        (projected - 10,000) / usual error of the projection
    of AND, OR                        the least, the greatest margin of the parts

A condition holds where its margin is positive. One margin stands for the whole condition, so the error budget is
not split between its parts: what is calibrated is the error of the margin itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Mask
from transom.kernel.predicates import evaluate
from transom.sql.early_decision import is_estimated
from transom.sql.query import And, Comparison, Or, Predicate, Scalar

ROUNDING = 1e-9  # a sum of doubles may differ by such a part if it is added up in another order


# By an expression, how it changes while rows arrive: 1 if it never falls, -1 if it never rises, 0 otherwise.
Rises = Callable[[str], int]


@dataclass(frozen=True)
class ConditionValues:
    """The values that a condition reads, by row. `column` are those now; the others have a column for each leaf."""

    column: Callable[[Scalar], pa.Array]
    projected: Floats  # rows x estimated leaves
    spread: Floats  # the usual errors of the projections


def margins(condition: Predicate, values: ConditionValues) -> Floats:
    """The margin of a condition, by row; -inf where it is not known."""
    number = iter(range(values.projected.shape[1]))

    def of(part: Predicate) -> Floats:
        if isinstance(part, And | Or):
            combined = np.minimum if isinstance(part, And) else np.maximum
            return reduce(combined, [of(inner) for inner in part.parts])
        if not is_estimated(part):
            truth = evaluate(part, values.column).fill_null(False).to_numpy(zero_copy_only=False)
            return np.where(truth, np.inf, -np.inf)
        assert isinstance(part, Comparison)
        place = next(number)
        return _leaf_margin(part, values.projected[:, place], values.spread[:, place])

    return of(condition)


def _leaf_margin(leaf: Comparison, projected: Floats, spread: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        above = (projected - float(leaf.value)) / spread
    match leaf.op:
        case ">" | ">=":
            margin = above
        case "<" | "<=":
            margin = -above
        case "!=":
            margin = np.abs(above)
        case _:
            margin = -np.abs(above)
    return np.where(np.isnan(margin), -np.inf, margin)


def certain(condition: Predicate, column: Callable[[Scalar], pa.Array], rises: Rises) -> Mask:
    """Where a condition holds now and can't become false: a count that has passed its limit, a maximum, a minimum."""
    if isinstance(condition, And | Or):
        combined = np.logical_and if isinstance(condition, And) else np.logical_or
        return reduce(combined, [certain(part, column, rises) for part in condition.parts])
    if is_estimated(condition):
        assert isinstance(condition, Comparison)
        way = rises(condition.scalar.sql)
        if not ((condition.op in (">", ">=") and way > 0) or (condition.op in ("<", "<=") and way < 0)):
            return np.zeros(len(column(condition.scalar)), np.bool_)
    truth: Mask = evaluate(condition, column).fill_null(False).to_numpy(zero_copy_only=False)
    if is_estimated(condition) and isinstance(condition, Comparison):
        values = column(condition.scalar)
        if not pa.types.is_integer(values.type):
            number = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            limit = float(condition.value)
            clear = np.abs(number - limit) > ROUNDING * np.maximum(np.abs(number), abs(limit))
            truth = truth & (clear | ~np.isfinite(number))
    return truth


def estimated_places(condition: Predicate, places: Mapping[str, int]) -> list[int]:
    """The place of each estimated leaf's expression among the items whose finals are estimated."""
    if isinstance(condition, And | Or):
        return [place for part in condition.parts for place in estimated_places(part, places)]
    if not is_estimated(condition):
        return []
    assert isinstance(condition, Comparison)
    return [places[condition.scalar.sql]]
