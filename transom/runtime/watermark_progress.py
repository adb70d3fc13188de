"""How the watermark of a stream follows its rows: the slack, the share of rows in time, and the slowest clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from transom.api.records import WatermarkClock
from transom.durations import format_duration
from transom.elements import ClockKind
from transom.ingest.streams import Stream
from transom.windows.intervals import LOWEST
from transom.windows.learned_slack import MOST_SKETCHES
from transom.windows.partition_clocks import SHARED

MOST_CLOCKS_SHOWN = 100  # clocks


@dataclass(frozen=True)
class WatermarkProgress:
    """The slack of a stream and what it achieves; without `target` it is not learned.

    `rows` are those whose delay was learned, `missed` those of them that were behind the watermark.
    """

    clocks: int = 0
    target: float | None = None
    slack: int | None = None  # the largest of all live partitions
    rows: int = 0
    missed: int = 0
    by_group: str | None = None
    slowest: tuple[WatermarkClock, ...] = ()

    @property
    def in_time(self) -> float | None:
        """The share of rows that were not behind the watermark."""
        return None if self.target is None or not self.rows else 1 - self.missed / self.rows

    def slack_text(self, is_time: bool) -> str:
        """The slack with three digits.

        >>> WatermarkProgress(slack=11_544_941).slack_text(is_time=True)
        '11 seconds 600 milliseconds'
        """
        assert self.slack is not None
        unit = 10 ** max(len(str(self.slack)) - 3, 0)
        rounded = -(-self.slack // unit) * unit
        return format_duration(rounded) if is_time else f"{rounded:,}"

    def text(self, is_time: bool) -> str:
        """The slack and the share of rows in time."""
        if self.target is None or self.slack is None:
            return ""
        slack = self.slack_text(is_time)
        achieved = (
            "" if self.in_time is None else f", {share_text(self.in_time)} of {self.rows:,} rows in time"
        )
        return f"slack {slack} for {share_text(self.target)}{achieved}"

    def as_dict(self) -> dict[str, Any]:
        """The progress as plain values."""
        return {**vars(self), "slowest": [vars(clock) for clock in self.slowest], "in_time": self.in_time}


def share_text(share: float) -> str:
    """A share in percent, with as many digits as tell it from 100 %.

    >>> share_text(0.999), share_text(0.99876), share_text(1.0)
    ('99.9%', '99.876%', '100%')
    """
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def watermark_progress(stream: Stream, now: int) -> WatermarkProgress:
    """How a stream's watermark follows its rows after its last batch."""
    rules, clocks = stream.rules, stream.partitions
    if rules.partition is None or not clocks.names:
        target = None if rules.learned is None else rules.learned.share
        return WatermarkProgress(
            target=target, slack=None if target is None else rules.slack, by_group=rules.group
        )
    live = clocks.live(now, rules.partition_idle, stream.resumed)
    learned = clocks.learned if rules.learned is not None else None
    slacks = None if rules.learned is None else clocks.slacks(rules.learned)
    order = np.lexsort((clocks.closed, ~live))[:MOST_CLOCKS_SHOWN].tolist()
    unit = 1e6 if rules.clock.kind is ClockKind.TIME else 1
    shown = []
    for place in order if clocks.names != (SHARED,) else ():
        has_sketch = learned is not None and place < min(MOST_SKETCHES, len(learned.rows))
        rows = int(learned.rows[place]) if learned is not None and has_sketch else None
        missed = int(learned.missed[place]) if learned is not None and has_sketch else 0
        closed, slack = int(clocks.closed[place]), rules.slack if slacks is None else int(slacks[place])
        shown.append(
            WatermarkClock(
                _shown_name(clocks.names[place], rules.group is not None),
                int(clocks.newest[place]),
                None if closed <= LOWEST else closed,
                bool(live[place]),
                None if slack is None else slack / unit,
                rows,
                None if not rows else 1 - missed / rows,
            )
        )
    widest = None
    if slacks is not None and rules.learned is not None:
        widest = int((slacks[live] if live.any() else slacks).max())
    return WatermarkProgress(
        0 if clocks.names == (SHARED,) else len(clocks.names),
        None if rules.learned is None else rules.learned.share,
        widest,
        0 if learned is None else int(learned.rows.sum()),
        0 if learned is None else int(learned.missed.sum()),
        rules.group,
        tuple(shown),
    )


def _shown_name(name: str, by_group: bool) -> str | None:
    if name == SHARED:
        return None
    return name.removeprefix("=") if by_group else name
