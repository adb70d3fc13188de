"""Early against final results: accuracy and latency gain as in the thesis (section 4.4), and our measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from reproduce.prodding.data import SECOND

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """Early results of one item of the SELECT list, each with the final result of its window and group.

    `projected`, `low` and `high` are NaN where the engine had no estimate yet.
    """

    end: Floats  # of the window, in seconds
    aggressiveness: Floats  # the time before the window's end, in per cent of the slide
    early: Floats
    final: Floats
    projected: Floats
    low: Floats
    high: Floats
    early_latency: Floats  # seconds
    final_latency: Floats

    def __len__(self) -> int:
        return len(self.early)

    def at(self, aggressiveness: float) -> Pairs:
        """The pairs of one degree of aggressiveness."""
        return self.where(np.isclose(self.aggressiveness, aggressiveness, atol=0.01))

    def where(self, chosen: NDArray[np.bool_]) -> Pairs:
        return Pairs(*(column[chosen] for column in vars(self).values()))

    @staticmethod
    def together(parts: Sequence[Pairs]) -> Pairs:
        """The pairs of several runs."""
        return Pairs(
            *(np.concatenate(columns) for columns in zip(*(vars(p).values() for p in parts), strict=True))
        )

    # --- the thesis's measures ---

    @property
    def accuracies(self) -> Floats:
        return accuracies(self.early, self.final)

    @property
    def gain(self) -> float:
        """The mean latency gain in seconds."""
        return float(np.mean(self.final_latency - self.early_latency))

    @property
    def gain_percent(self) -> float:
        """The mean latency gain in per cent of the final results' mean latency."""
        return 100 * self.gain / float(np.mean(self.final_latency))

    # --- our measures ---

    @property
    def learned(self) -> Pairs:
        """The pairs with a projected value."""
        return self.where(~np.isnan(self.projected))

    @property
    def bounded(self) -> Pairs:
        """The pairs with an interval."""
        return self.where(~np.isnan(self.low) & ~np.isnan(self.high))

    @property
    def coverage(self) -> float:
        """The percentage of final values that lie in their intervals; NaN if there are no intervals."""
        pairs = self.bounded
        inside = (pairs.low <= pairs.final) & (pairs.final <= pairs.high)
        return 100 * float(np.mean(inside)) if len(pairs) else float("nan")


def accuracies(early: Floats, final: Floats) -> Floats:
    """The accuracy of each early result in per cent; final values of zero are left out.

    >>> accuracies(np.array([80.0, 120.0, 1.0]), np.array([100.0, 100.0, 0.0])).tolist()
    [80.0, 80.0]
    """
    has = (final != 0) & ~np.isnan(final) & ~np.isnan(early)
    return 100 * (1 - np.abs(final[has] - early[has]) / np.abs(final[has]))


def mean(values: Floats) -> float:
    """The mean; NaN if there are no values."""
    return float(np.mean(values)) if len(values) else float("nan")


def best_constant(early: Floats, final: Floats) -> float:
    """The factor that makes early results most accurate on average, chosen in hindsight.

    The mean of |1 - c * r|, r = early / final, is least at the median of 1 / r weighted by r.

    >>> best_constant(np.array([50.0, 80.0, 80.0]), np.array([100.0, 100.0, 100.0]))
    1.25
    """
    has = (final != 0) & (early / np.where(final == 0, 1, final) > 0)
    ratios = early[has] / final[has]
    order = np.argsort(1 / ratios)
    weights = np.cumsum(ratios[order])
    return float(1 / ratios[order[np.searchsorted(weights, weights[-1] / 2)]])


@dataclass(frozen=True)
class Matched:
    """Early results of a query, each with the final result of its window and group."""

    early: pa.Table
    final: pa.Table
    slide: int  # in seconds

    @staticmethod
    def of(results: pa.Table, slide: int, keys: Sequence[str] = ()) -> Matched:
        """Match the results of a query; early results without a final are left out."""
        finals = results.filter(pc.equal(results["kind"], "final"))
        early = results.filter(pc.equal(results["kind"], "early"))
        place = {key: i for i, key in enumerate(_keys(finals, keys))}
        found = np.array([place.get(key, -1) for key in _keys(early, keys)], np.int64)
        has = pa.array(found >= 0)
        return Matched(early.filter(has), finals.take(pa.array(found[found >= 0])), slide)

    def pairs(self, item: str) -> Pairs:
        """The values of one item of the SELECT list."""
        ends = self.early["window_end"].cast(pa.int64()).to_numpy()
        made = self.early["made"].cast(pa.int64()).to_numpy()
        return Pairs(
            ends / SECOND,
            100 * (ends - made) / (self.slide * SECOND),
            _floats(self.early, item),
            _floats(self.final, item),
            _floats(self.early, f"{item}_projected"),
            _floats(self.early, f"{item}_low"),
            _floats(self.early, f"{item}_high"),
            _floats(self.early, "latency"),
            _floats(self.final, "latency"),
        )


def paired(results: pa.Table, item: str, slide: int, keys: Sequence[str] = ()) -> Pairs:
    """The early results of an item, each with its final result."""
    return Matched.of(results, slide, keys).pairs(item)


def _floats(table: pa.Table, name: str) -> Floats:
    """A column as floats; NaN where it is null, and everywhere if the query has no estimates."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return table[name].cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)


def _keys(table: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    ends = table["window_end"].cast(pa.int64()).to_pylist()
    return list(zip(ends, *(table[key].to_pylist() for key in keys), strict=True))
