"""The monitor: the measured accuracy of emitted early results (thesis 4.4, figure 6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Callable

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.decision_score import DecisionReport
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

    def __str__(self) -> str:
        # An accuracy of 0 says only that a value was off by its size or more, as values near zero often are.
        worst = f" (worst {self.worst_projected:.1%})" if self.worst_projected > 0 else ""
        covered = f", {self.coverage:.1%} within bounds" if self.bounded else ""
        return f"{self.raw:.1%} accurate, projected {self.projected:.1%}{worst}{covered}"


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
    decisions: DecisionReport | None = None  # of a query WITH CONFIDENCE

    def __str__(self) -> str:
        compared = [item for item in self.items if item.recent.pairs]
        if not self.total.pairs or not compared:
            return "nothing to compare yet"
        parts = (
            [f"{item.name}: {item.recent}" for item in compared] if len(compared) > 1 else [str(self.recent)]
        )
        return f"{self.total.pairs:,} became final, {'; '.join(parts)}"


@dataclass(frozen=True)
class Monitor:
    """Running sums over emitted pairs, and accuracies by mark over all pairs; by item, of one query or of several."""

    total: Floats  # queries x counts (PAIRS, RAW_ERROR, ...) x items
    recent: Floats  # windows x counts x items
    recent_query: Ints  # the number of the query that each of these windows is of, ascending
    windows: Floats  # windows compared, by mark and item
    raw: Floats
    projected: Floats

    @classmethod
    def empty(cls, items: int) -> Monitor:
        none = np.zeros((MARKS, items))
        nothing = _nothing(items)[None]
        return cls(nothing, np.empty((0, 7, items)), np.empty(0, np.int64), none, none, none)

    @classmethod
    def stacked(cls, parts: Sequence[Monitor]) -> Monitor:
        """The monitors of several queries, each of which is a part."""
        if len(parts) == 1:
            return parts[0]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS}
        of = np.repeat(np.arange(len(parts)), [len(part.recent) for part in parts])
        return cls(**(arrays | {"recent_query": of}))

    def split(self, queries: int) -> Iterator[Monitor]:
        """The monitor of each of several queries."""
        firsts = np.searchsorted(self.recent_query, np.arange(queries + 1)).tolist()
        for i in range(queries):
            mine, recent = slice(i * MARKS, (i + 1) * MARKS), self.recent[firsts[i] : firsts[i + 1]]
            yield Monitor(
                self.total[i : i + 1],
                recent,
                np.zeros(len(recent), np.int64),
                self.windows[mine],
                self.raw[mine],
                self.projected[mine],
            )

    def with_pairs(
        self,
        window: Ints,
        windows: Ints,
        emitted: Mask,
        runs: MarkRuns,
        raw: Floats,
        projected: Floats,
        missed: Floats,
        recent_windows: int = DEFAULT_LIMITS.recent_windows,
    ) -> Monitor:
        """The monitor with more pairs; `missed` is 1 for a final out of bounds, 0 within, NaN without bounds.

        `windows` is how many windows the pairs of each run are of.
        """
        valid = ~(np.isnan(raw) | np.isnan(projected))
        sums = runs.sums(np.where(valid, np.stack([valid, raw, projected]), 0.0))
        at, fresh = runs.marks, np.where(sums[0] > 0, windows.astype(np.float64)[:, None], 0.0)
        weight = newest_weight(self.windows[at], fresh, SLOW)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1:] / sums[0]
        seen, raw_after, projected_after = self.windows.copy(), self.raw.copy(), self.projected.copy()
        seen[at] += fresh
        raw_after[at] = moved_toward(self.raw[at], mean[0], weight)
        projected_after[at] = moved_toward(self.projected[at], mean[1], weight)
        after = replace(self, windows=seen, raw=raw_after, projected=projected_after)
        if not emitted.any():
            return after
        query = (runs.mark // MARKS)[emitted]
        pairs = raw[emitted], projected[emitted], missed[emitted]
        return after._with_emitted(query, window[emitted], pairs, recent_windows)

    def _with_emitted(
        self, query: Ints, window: Ints, pairs: tuple[Floats, Floats, Floats], recent_windows: int
    ) -> Monitor:
        """The monitor with pairs whose early values were emitted: in total, and window by window."""
        total = self.total.copy()
        firsts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
        mine = query[firsts]
        total[mine] = _merged(np.stack([self.total[mine], _counted(firsts, *pairs)]))
        order = np.lexsort((window, query))
        query, window = query[order], window[order]
        firsts = np.flatnonzero(np.r_[True, (query[1:] != query[:-1]) | (window[1:] != window[:-1])])
        of = np.r_[self.recent_query, query[firsts]]
        recent = np.concatenate([self.recent, _counted(firsts, *(part[order] for part in pairs))])
        order = np.argsort(of, kind="stable")
        of, recent = of[order], recent[order]
        later = np.searchsorted(of, of, side="right") - np.arange(len(of))  # 1 for the newest of a query
        return replace(
            self,
            total=total,
            recent=recent[later <= recent_windows],
            recent_query=of[later <= recent_windows],
        )

    def curve(self, query: int = 0) -> tuple[Floats, Floats, Floats]:
        """Windows, raw accuracy and projected accuracy at the marks of the last slide, the earliest first."""
        mine = slice(query * MARKS, (query + 1) * MARKS)
        by_mark = (self.windows, self.raw, self.projected)
        seen, raw, projected = (values[mine][LAST_SLIDE][::-1] for values in by_mark)
        return seen, np.where(seen > 0, raw, np.nan), np.where(seen > 0, projected, np.nan)

    def scores(self) -> tuple[Score, Score]:
        """The scores over all items: in total, and over the last windows."""
        return _score(_over_items(self.total[0])), _score(_over_items(_merged(self.recent)))

    def item(self, place: int, name: str) -> ItemAccuracy:
        """The accuracy of one item."""
        seen, raw, projected = (a[:, place] for a in self.curve())
        marks = tuple(
            MarkAccuracy(at / PER_SLIDE, float(raw[at]), float(projected[at]))
            for at in np.flatnonzero(seen).tolist()
        )
        return ItemAccuracy(
            name, _score(self.total[0, :, place]), _score(_merged(self.recent)[:, place]), marks
        )


_FIELDS = tuple(field.name for field in fields(Monitor) if field.name != "recent_query")


def _nothing(items: int) -> Floats:
    counts = np.zeros((7, items))
    counts[[WORST_RAW, WORST_PROJECTED]] = np.inf
    return counts


def _counted(firsts: Ints, raw: Floats, projected: Floats, missed: Floats) -> Floats:
    """The counts of runs of pairs that start at `firsts`: runs x counts x items."""
    valid = ~(np.isnan(raw) | np.isnan(projected))
    bounded = ~np.isnan(missed)
    sums = [
        valid.astype(np.float64),
        np.where(valid, raw, 0.0),
        np.where(valid, projected, 0.0),
        bounded.astype(np.float64),
        (missed == 0).astype(np.float64),
    ]
    pairs, raw_sum, projected_sum, bounded_sum, covered = (np.add.reduceat(one, firsts) for one in sums)
    worst_raw, worst_projected = (
        np.minimum.reduceat(np.where(valid, one, np.inf), firsts) for one in (raw, projected)
    )
    counts = pairs, raw_sum, projected_sum, worst_raw, worst_projected, bounded_sum, covered
    return np.stack(counts, axis=1)


def _merged(counts: Floats) -> Floats:
    """Counts merged along the first axis; the last two axes are counts and items."""
    merged = counts.sum(axis=0)
    worst = [WORST_RAW, WORST_PROJECTED]
    merged[..., worst, :] = counts[..., worst, :].min(axis=0, initial=np.inf)
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
