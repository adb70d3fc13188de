"""A slack that is learned: large enough that a given share of the rows is in time.

The delays of the last rows of each partition are in a sketch whose counts fade. The slack is a quantile of the sketch,
as in split conformal prediction. The level of this quantile follows the rows that were really late: while more rows
than allowed are late, the level is lower and the slack is larger. The allowance that was exceeded, or not used, is
remembered, so that the share of late rows converges to the target also when the delays drift (adaptive conformal
inference: Gibbs and Candès 2021; the integral term of Angelopoulos, Candès and Tibshirani 2023).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints
from transom.errors import SettingError
from transom.windows.delays import BOUNDS, BUCKETS, DelayCounts

MOST_SKETCHES = 64  # partitions with a sketch of their own; all others share one
REACTION = 20.0  # late rows beyond the allowance that divide the level by e
REMEMBERED_MISSES = 50.0  # late rows that the allowance has in as many rows as a sketch remembers
LEAST_REMEMBERED_ROWS, MOST_REMEMBERED_ROWS = 5_000, 100_000  # rows
LOWEST_LEVEL = 1 / 50  # of the share that may be late
HIGHEST_LEVEL = 0.5
MOST_DEBT = 10_000 * REACTION  # late rows beyond the allowance that are remembered

SLACK_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_NUMBER = re.compile(r"\s*\d*\.?\d+\s*")
LEAST_SLACK_SHARE, MOST_SLACK_SHARE = 0.5, 0.99999


def slack_share(slack: Any) -> float | None:
    """The share of rows of a slack such as 99.9%; None if it is not a share.

    >>> slack_share("99.5%"), slack_share("5 seconds")
    (0.995, None)
    """
    found = SLACK_PERCENT.fullmatch(slack) if isinstance(slack, str) else None
    if found is None:
        if isinstance(slack, float) or (isinstance(slack, str) and _NUMBER.fullmatch(slack)):
            share = float(slack) * 100 if float(slack) < 1 else float(slack)
            shown = f"{share:.10g}" if LEAST_SLACK_SHARE * 100 <= share <= MOST_SLACK_SHARE * 100 else "99"
            raise SettingError(
                f"the slack {slack!r} has no unit; write one like '5 seconds', or '{shown}%' to learn it"
            )
        return None
    share = round(float(found[1]) / 100, 9)
    if not LEAST_SLACK_SHARE <= share <= MOST_SLACK_SHARE:
        raise SettingError(f"a slack can be learned for 50% to 99.999% of the rows, not for {slack.strip()}")
    return share


@dataclass(frozen=True)
class SlackRule:
    """The share of rows that a learned slack shall have in time, its bounds, and its value until it is learned."""

    share: float
    start: int
    low: int = 0
    high: int | None = None

    @property
    def miss(self) -> float:
        """The share of rows that may be late."""
        return 1 - self.share

    @property
    def least_rows(self) -> int:
        """How many rows must have come before the slack is learned: so many that one of them may be late."""
        return int(min(max(np.rint(1 / self.miss), 100), 10_000))

    @property
    def memory(self) -> float:
        """After how many rows the count of a delay has faded to 1/e."""
        return min(max(REMEMBERED_MISSES / self.miss, LEAST_REMEMBERED_ROWS), MOST_REMEMBERED_ROWS)

    @property
    def first(self) -> int:
        """The first slack, within the bounds."""
        return max(self.low, self.start if self.high is None else min(self.start, self.high))


@dataclass(frozen=True, eq=False)
class LearnedSlack:
    """What is known of the delays: by sketch, its fading counts, rows, rows in time, and the allowance that is used.

    `debt` is how many more rows than allowed were late because of the slack; it is negative if there were fewer.
    """

    weights: NDArray[np.float32]  # sketches x BUCKETS
    rows: Ints
    missed: Ints
    debt: Floats

    @classmethod
    def empty(cls) -> LearnedSlack:
        """What is known before the first batch."""
        none = np.zeros(0, np.int64)
        return cls(np.zeros((0, BUCKETS), np.float32), none, none, np.zeros(0))

    def after(self, counts: DelayCounts, rule: SlackRule) -> LearnedSlack:
        """What is known after a batch."""
        added = len(counts.missed) - len(self.rows)
        known = self if added <= 0 else self._extended(added)
        arrived = counts.rows
        grown = len(known.rows) - len(arrived)
        if grown:  # the batch has no rows of the last sketches
            counts = DelayCounts(
                np.pad(counts.buckets, ((0, grown), (0, 0))),
                np.pad(counts.missed, (0, grown)),
                np.pad(counts.behind_own, (0, grown)),
            )
            arrived = counts.rows
        fading = np.exp(-arrived / rule.memory)[:, None]
        surplus = REACTION * np.log(max(HIGHEST_LEVEL, rule.miss) / rule.miss)
        debt = (known.debt + counts.behind_own - rule.miss * arrived).clip(-surplus, MOST_DEBT)
        weights = (known.weights * fading + counts.buckets).astype(np.float32)
        return LearnedSlack(weights, known.rows + arrived, known.missed + counts.missed, debt)

    def _extended(self, added: int) -> LearnedSlack:
        none = np.zeros(added, np.int64)
        return LearnedSlack(
            np.concatenate([self.weights, np.zeros((added, BUCKETS), np.float32)]),
            np.concatenate([self.rows, none]),
            np.concatenate([self.missed, none]),
            np.concatenate([self.debt, np.zeros(added)]),
        )

    def slacks(self, rule: SlackRule, sketches: int) -> Ints:
        """The slack of each sketch within the bounds; those that have seen too few rows have the first slack."""
        slacks = np.full(max(sketches, len(self.rows)), rule.start)
        if rule not in self._learned:
            ready = np.flatnonzero(self.rows >= rule.least_rows)
            self._learned[rule] = ready, self._quantiles(ready, rule) if len(ready) else np.zeros(0)
        ready, quantiles = self._learned[rule]
        slacks[ready] = quantiles
        return slacks.clip(rule.low, rule.high)

    @cached_property
    def _learned(self) -> dict[SlackRule, tuple[Ints, Floats]]:
        """The sketches with enough rows, and their quantiles: a batch asks for them several times."""
        return {}

    def levels(self, rule: SlackRule) -> Floats:
        """By sketch, the share of delays that shall be above the slack."""
        wanted = rule.miss * np.exp(-(self.debt / REACTION).clip(-30, 30))
        levels: Floats = wanted.clip(rule.miss * LOWEST_LEVEL, max(HIGHEST_LEVEL, rule.miss))
        return levels

    def _quantiles(self, sketches: Ints, rule: SlackRule) -> Floats:
        """By sketch, the delay that so many rows exceed; interpolated within its bucket.

        Beyond the largest delay that is remembered, the slack is up to twice as large.
        """
        above = self._above[sketches]
        ranks = self.levels(rule)[sketches] * (above[:, 0] + 1)
        buckets = (above >= np.maximum(ranks, 0.5)[:, None]).sum(axis=1) - 1
        held, beyond = (np.take_along_axis(above, (buckets + i)[:, None], axis=1)[:, 0] for i in (0, 1))
        low, high = BOUNDS[buckets].astype(float), BOUNDS[np.minimum(buckets + 1, BUCKETS - 1)].astype(float)
        parts = ((ranks - beyond) / np.maximum(held - beyond, 1e-12)).clip(0.0, 1.0)
        inside = np.ceil(high - (high - low) * parts)
        outside = high * (1 / np.maximum(ranks, 0.5)).clip(1.0, 2.0)
        quantiles: Floats = np.where(buckets <= 0, 0.0, np.where(ranks < 1, outside, inside))
        return quantiles

    @cached_property
    def _above(self) -> Floats:
        """By sketch, how many delays are in a bucket or above; none are above the last one."""
        above: Floats = self.weights[:, ::-1].cumsum(axis=1, dtype=np.float64)[:, ::-1]
        return np.pad(above, ((0, 0), (0, 1)))

    def to_json(self) -> Any:
        """What is known, for a checkpoint."""
        used = int(np.flatnonzero(self.weights.any(axis=0)).max(initial=-1)) + 1
        return {
            "buckets": used,
            "weights": b64encode(self.weights[:, :used].tobytes()).decode(),
            "rows": self.rows.tolist(),
            "missed": self.missed.tolist(),
            "debt": self.debt.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Any) -> LearnedSlack:
        """What a checkpoint knows."""
        rows, used = np.array(stored["rows"], np.int64), stored["buckets"]
        weights = np.zeros((len(rows), BUCKETS), np.float32)
        weights[:, :used] = np.frombuffer(b64decode(stored["weights"]), np.float32).reshape(len(rows), used)
        return cls(weights, rows, np.array(stored["missed"], np.int64), np.array(stored["debt"], float))
