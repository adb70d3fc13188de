"""Limits of the data that estimators keep in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EstimateLimits:
    """How much an estimator keeps of a query's early results and groups, however large the stream is."""

    groups: int = 131_072  # with a profile; of more groups, a fixed sample
    observed_groups: int = 128  # kept at a mark, if their early results were not emitted
    pending_rows: int = 131_072  # early values of open windows; windows that never close must not fill memory
    pending_parts: int = 32  # tables of such values before they are concatenated
    windows_behind: int = 256  # a window this far behind the newest final will have no final (HAVING)
    recent_windows: int = 64  # that the monitor scores separately
    judged_pairs: int = 512  # of values that were not emitted, in one closing; a user's function is slow


DEFAULT_LIMITS = EstimateLimits()
