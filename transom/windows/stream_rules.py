"""A stream's rules: which column is its time, how much disorder it has, what it may not do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.elements import Clock, ClockKind
from transom.overload.settings import Overload


@dataclass(frozen=True)
class StreamRules:
    """How a stream's progress is judged; durations are microseconds, or plain numbers on integer clocks.

    `slack` None means that no watermark follows from the data, only from punctuations; `slacks` gives
    windowing attributes a slack of their own. `idle` is the time without data after which windows close.
    `overload` says what becomes of rows beyond a batch's budget.
    """

    clock: Clock
    slack: int | None = 0
    slacks: Mapping[str, int | None] = field(default_factory=dict)
    horizon: int | None = None
    live: bool = False
    idle: int | None = None
    overload: Overload | None = None

    def slack_of(self, clock: Clock) -> int | None:
        """The disorder that is expected along a clock."""
        if clock.kind is ClockKind.ROWS:
            return 0
        if clock.attribute in self.slacks:
            return self.slacks[clock.attribute]
        is_alike = clock == self.clock or clock.kind is self.clock.kind is ClockKind.TIME
        return self.slack if is_alike or self.slack is None else 0  # the unit of another column is not known
