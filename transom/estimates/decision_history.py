"""How large a margin must be: calibrated on past windows, over all moments at which they were looked at.

Two samples are kept, each of the last few windows:

- Errors: of some groups, by how much the margin was ever too large, `max over looks (margin - final margin)`. A
  margin above the greatest such error of all but a part p of the windows is wrong with a probability of at most p,
  however often one looks. That bounds wrong decisions as a part of all windows. So that they are at most a part
  `miss` of the decisions, p is `miss` times the share of windows in which the condition held.
- Candidates: of windows with a positive margin at some look, the greatest margin and whether the condition held in
  the end. Once there are enough of them, they answer the question itself: the least limit with which at most a part
  `miss` of the windows decided early would have been wrong (as in conformal selection: Jin and Candès 2023).

The part `miss` is corrected by the decisions that were withdrawn (adaptive conformal inference), so that drift does
not go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.conformal_bounds import LEAST_WINDOWS, PACE

ERRORS = 512
CANDIDATES = 2048
ERRORS_AT_ONCE = 32  # of one closing, so that the groups of one window don't evict all others
CANDIDATES_AT_ONCE = 64
LEAST_MISS, MOST_MISS = 0.2, 1.25  # of the corrected part, as parts of the promised one
TAIL = 0.5  # exponent by which limits grow beyond the greatest error
MOST_STRETCH = 3.0
LEAST_MARGIN = 1e-6


@dataclass(frozen=True)
class DecisionHistory:
    """The samples, the oldest entry first, and the corrected part of decisions that may be wrong."""

    promised: float  # the part of decisions that may be wrong
    miss: float
    error: Floats
    error_held: Mask  # whether the condition held in the end
    error_window: Ints
    margin: Floats
    held: Mask
    window: Ints

    @classmethod
    def empty(cls, confidence: float) -> DecisionHistory:
        none, no, whole = np.empty(0), np.empty(0, np.bool_), np.empty(0, np.int64)
        return cls(1 - confidence, 1 - confidence, none, no, whole, none, no, whole)

    def with_errors(self, error: Floats, held: Mask, window: Ints) -> DecisionHistory:
        """The history with the errors of more windows; of many groups, those that come first."""
        some = slice(ERRORS_AT_ONCE)
        return replace(
            self,
            error=np.r_[self.error, error[some]][-ERRORS:],
            error_held=np.r_[self.error_held, held[some]][-ERRORS:],
            error_window=np.r_[self.error_window, window[some]][-ERRORS:],
        )

    def with_candidates(self, margin: Floats, held: Mask, window: Ints) -> DecisionHistory:
        """The history with more candidates; of many groups, those that come first."""
        some = slice(CANDIDATES_AT_ONCE)
        return replace(
            self,
            margin=np.r_[self.margin, margin[some]][-CANDIDATES:],
            held=np.r_[self.held, held[some]][-CANDIDATES:],
            window=np.r_[self.window, window[some]][-CANDIDATES:],
        )

    def with_outcomes(self, confirmed: int, withdrawn: int) -> DecisionHistory:
        """The history after some decisions, which did not follow from what had arrived, were confirmed or withdrawn."""
        if not confirmed + withdrawn:
            return self
        correction = PACE * np.clip(self.promised * (confirmed + withdrawn) - withdrawn, -4, 4)
        miss = float(np.clip(self.miss + correction, LEAST_MISS * self.promised, MOST_MISS * self.promised))
        return replace(self, miss=miss)

    @cached_property
    def limit(self) -> float:
        """The margin from which on a condition is decided; inf while too little is known."""
        selected = self._selected
        return self._bounded if selected is None else selected

    @property
    def _selected(self) -> float | None:
        """The least limit that candidates allow; None if there are too few."""
        if not len(self.margin) or len(np.unique(self.window)) < LEAST_WINDOWS:
            return None
        order = np.argsort(-self.margin, kind="stable")
        wrong = np.cumsum(~self.held[order])
        allowed = np.flatnonzero((wrong + 1) <= self.miss * (np.arange(len(order)) + 2))
        return None if not len(allowed) else max(float(self.margin[order[allowed[-1]]]), LEAST_MARGIN)

    @property
    def _bounded(self) -> float:
        """The limit by the errors of all windows."""
        count = len(self.error)
        if count < 1 / self.promised - 1e-9 or len(np.unique(self.error_window)) < LEAST_WINDOWS:
            return float("inf")
        share = (self.error_held.sum() + 1) / (count + 2)
        rank = self.miss * share * (count + 1)  # how many errors may be greater
        ordered = np.sort(self.error)[::-1]
        if rank < 1:
            limit = ordered[0] * min((1 / rank) ** TAIL, MOST_STRETCH)
        else:
            limit = ordered[min(int(rank) - 1, count - 1)]
        return max(float(limit), LEAST_MARGIN)
