"""The profile of a batch: runs of times without large gaps, with the number of rows in each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.windows.intervals import IntervalSet

MOST_RUNS = 1024


@dataclass(frozen=True)
class Profile:
    """Disjoint runs (first time, last time, rows), in order; no gap inside a run exceeds `gap`."""

    runs: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of(cls, times: NDArray[np.int64], gap: int | None = None, cut: int | None = None) -> Profile:
        """The profile of some times.

        Runs end at gaps that are larger than `gap` (a horizon) or than a share of the whole that keeps runs
        few, whichever is smaller. A run always ends at the time `cut`.
        """
        if not len(times):
            return cls()
        if len(times) > 1 and np.any(times[1:] < times[:-1]):
            times = np.sort(times)
        fine = max(1, (int(times[-1]) - int(times[0])) // MOST_RUNS)
        gaps = np.diff(
            times.view(np.uint64)
        )  # unsigned, so that the differences of sorted times can't overflow
        breaks = np.flatnonzero(gaps > np.uint64(fine if gap is None else min(fine, gap)))
        if cut is not None:
            at = int(np.searchsorted(times, cut, side="right")) - 1
            if 0 <= at < len(times) - 1:
                breaks = np.union1d(breaks, [at])
        starts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(times) - 1]
        return cls(
            tuple(
                zip(times[starts].tolist(), times[lasts].tolist(), (lasts - starts + 1).tolist(), strict=True)
            )
        )

    @classmethod
    def merged(cls, profiles: Iterable[Profile]) -> Profile:
        """Merge profiles: overlapping runs become one run."""
        runs: list[tuple[int, int, int]] = []
        for low, top, count in sorted(run for profile in profiles for run in profile.runs):
            if runs and low <= runs[-1][1]:
                first, last, before = runs[-1]
                runs[-1] = (first, max(last, top), before + count)
            else:
                runs.append((low, top, count))
        return cls(tuple(runs))

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.runs)

    @property
    def top(self) -> int | None:
        return self.runs[-1][1] if self.runs else None

    def count_above(self, time: int) -> int:
        """The number of rows after a time at which a run ends."""
        return sum(count for low, _, count in self.runs if low > time)

    def median_run(self) -> tuple[int, int, int]:
        """The run that holds the lower median."""
        rank = (self.count - 1) // 2
        for run in self.runs:
            if rank < run[2]:
                return run
            rank -= run[2]
        raise ValueError("an empty profile has no median")

    def upto(self, limit: int | None) -> Profile:
        """The runs up to a limit at which a run ends."""
        return self if limit is None else Profile(tuple(run for run in self.runs if run[0] <= limit))

    def occupied(self) -> IntervalSet:
        """The stretches of time that hold rows."""
        return IntervalSet.of(*((low, top + 1) for low, top, _ in self.runs))
