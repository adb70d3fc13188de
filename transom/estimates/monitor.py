"""The monitor: the measured accuracy of emitted early results (thesis 4.4, figure 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.fading_average import SLOW, moved_toward, newest_weight
from transom.estimates.limits import DEFAULT_LIMITS
from transom.estimates.marks import LAST_SLIDE, MARKS, PER_SLIDE, MarkRuns

Quality = Callable[[Any, Any, float], float]

PAIRS, RAW_ERROR, PROJECTED, WORST_RAW, WORST_PROJECTED, BOUNDED, COVERED = range(7)


@dataclass(frozen=True)
class Score:
    """The accuracy of some early results, as parts of 1; NaN while there are none."""

    pairs: int
    raw: float  # average accuracy of the raw values
    projected: float  # average accuracy of the projections
    worst_raw: float
    worst_projected: float
    bounded: int  # pairs with bounds
    coverage: float  # the part of these with the final within


@dataclass(frozen=True)
class MarkAccuracy:
    """The accuracy of early values at one point of the slide, emitted or not."""

    point: float  # 0.75: after three quarters of the slide, an aggressiveness of 25 %
    raw: float
    projected: float


@dataclass(frozen=True)
class ItemAccuracy:
    """An item's accuracy: in total, over the last windows, and by point of the slide."""

    name: str
    total: Score
    recent: Score
    curve: tuple[MarkAccuracy, ...]


@dataclass(frozen=True)
class Accuracy:
    """The accuracy report of a query; `total` and `recent` are over all items."""

    total: Score
    recent: Score
    items: tuple[ItemAccuracy, ...]
    confidence: float  # of the bounds, to be compared with the coverage
    target: float | None  # the accuracy that the query asks for
    point: float | None  # the part of the slide at which windows are emitted; None without a target

    def __str__(self) -> str:
        if not self.total.pairs:
            return "nothing to compare yet"
        recent = self.recent
        covered = f", {recent.coverage:.1%} within bounds" if recent.bounded else ""
        return (
            f"{self.total.pairs:,} became final, {recent.raw:.1%} accurate, projected {recent.projected:.1%} "
            f"(worst {recent.worst_projected:.1%}){covered}"
        )


@dataclass(frozen=True)
class Monitor:
    """Running sums over emitted pairs, and accuracies by mark over all pairs; by item."""

    total: Floats  # counts (PAIRS, RAW_ERROR, ...) x items
    recent: Floats  # windows x counts x items
    windows: Floats  # windows compared, by mark and item
    raw: Floats
    projected: Floats

    @classmethod
    def empty(cls, items: int) -> Monitor:
        none = np.zeros((MARKS, items))
        return cls(_nothing(items), np.empty((0, 7, items)), none, none, none)

    def with_pairs(
        self,
        window: Ints,
        emitted: Mask,
        runs: MarkRuns,
        raw: Floats,
        projected: Floats,
        missed: Floats,
        recent_windows: int = DEFAULT_LIMITS.recent_windows,
    ) -> Monitor:
        """The monitor with more pairs; `missed` is 1 for a final out of bounds, 0 within, NaN without bounds."""
        windows = np.unique(window)
        valid = ~(np.isnan(raw) | np.isnan(projected))
        sums = runs.sums(np.where(valid, np.stack([valid, raw, projected]), 0.0))
        fresh = np.where(sums[0] > 0, float(len(windows)), 0.0)
        weight = newest_weight(self.windows, fresh, SLOW)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1:] / sums[0]
        after = replace(
            self,
            windows=self.windows + fresh,
            raw=moved_toward(self.raw, mean[0], weight),
            projected=moved_toward(self.projected, mean[1], weight),
        )
        if not emitted.any():
            return after
        raw, projected, missed, window = raw[emitted], projected[emitted], missed[emitted], window[emitted]
        latest = [window == one for one in np.unique(window)[-recent_windows:]]
        counts = [_counted(raw[own], projected[own], missed[own]) for own in latest]
        return replace(
            after,
            total=_merged(np.stack([self.total, _counted(raw, projected, missed)])),
            recent=np.concatenate([self.recent, counts])[-recent_windows:],
        )

    def curve(self) -> tuple[Floats, Floats, Floats]:
        """Windows, raw accuracy and projected accuracy at the marks of the last slide, the earliest first."""
        seen, raw, projected = (a[LAST_SLIDE][::-1] for a in (self.windows, self.raw, self.projected))
        return seen, np.where(seen > 0, raw, np.nan), np.where(seen > 0, projected, np.nan)

    def scores(self) -> tuple[Score, Score]:
        """The scores over all items: in total, and over the last windows."""
        return _score(_over_items(self.total)), _score(_over_items(_merged(self.recent)))

    def item(self, place: int, name: str) -> ItemAccuracy:
        """The accuracy of one item."""
        seen, raw, projected = (a[:, place] for a in self.curve())
        marks = tuple(
            MarkAccuracy(at / PER_SLIDE, float(raw[at]), float(projected[at]))
            for at in np.flatnonzero(seen).tolist()
        )
        return ItemAccuracy(name, _score(self.total[:, place]), _score(_merged(self.recent)[:, place]), marks)


def _nothing(items: int) -> Floats:
    counts = np.zeros((7, items))
    counts[[WORST_RAW, WORST_PROJECTED]] = np.inf
    return counts


def _counted(raw: Floats, projected: Floats, missed: Floats) -> Floats:
    valid = ~(np.isnan(raw) | np.isnan(projected))
    bounded = ~np.isnan(missed)
    return np.stack(
        [
            valid.sum(axis=0).astype(np.float64),
            np.where(valid, raw, 0.0).sum(axis=0),
            np.where(valid, projected, 0.0).sum(axis=0),
            np.where(valid, raw, np.inf).min(axis=0, initial=np.inf),
            np.where(valid, projected, np.inf).min(axis=0, initial=np.inf),
            bounded.sum(axis=0).astype(np.float64),
            (missed == 0).sum(axis=0).astype(np.float64),
        ]
    )


def _merged(counts: Floats) -> Floats:
    merged = counts.sum(axis=0)
    worst = [WORST_RAW, WORST_PROJECTED]
    merged[worst] = counts[:, worst].min(axis=0, initial=np.inf)
    return merged


def _over_items(counts: Floats) -> Floats:
    return _merged(counts.T[:, :, None])[:, 0]


def _score(counts: Floats) -> Score:
    pairs, bounded = counts[PAIRS], counts[BOUNDED]
    nan = float("nan")
    return Score(
        int(pairs),
        float(counts[RAW_ERROR] / pairs) if pairs else nan,
        float(counts[PROJECTED] / pairs) if pairs else nan,
        float(counts[WORST_RAW]) if pairs else nan,
        float(counts[WORST_PROJECTED]) if pairs else nan,
        int(bounded),
        float(counts[COVERED] / bounded) if bounded else nan,
    )
