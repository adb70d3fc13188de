"""The rules of a stream: its time column, the disorder to expect, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.elements import Clock, ClockKind, Overload
from transom.windows.intervals import HIGHEST, LOWEST
from transom.windows.learned_slack import SlackRule

FIRST_INSTANT, LAST_INSTANT = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999


@dataclass(frozen=True)
class StreamRules:
    """The settings that decide the progress of a stream; durations are in the unit of the clock.

    With `slack` None the watermark follows from punctuations alone, not from rows; `slacks` has the slack of
    other windowing attributes. `idle` is the time without data after which windows close. `max_ahead` is how far a row
    may be ahead of the engine's clock.
    `overload` decides what happens to rows beyond the budget of a batch. With a `partition`, an expression over a row,
    the watermark follows the partition that is furthest behind, of those that brought a row within `partition_idle`.
    With `learned`, `slack` is used until the slack has been learned. With `group`, the partitions are the values of
    this column, and each closes the windows of its own group.
    """

    clock: Clock
    slack: int | None = 0
    slacks: Mapping[str, int | None] = field(default_factory=dict)
    horizon: int | None = None
    live: bool = False
    idle: int | None = None
    overload: Overload | None = None
    max_ahead: int | None = None
    partition: str | None = None
    partition_idle: int | None = None  # on the engine's clock; None: the watermark waits for any partition
    learned: SlackRule | None = None
    group: str | None = None  # a column whose values have a clock of their own
    most_clocks: int = 100_000  # partitions or groups with a clock of their own

    @property
    def usable_times(self) -> tuple[int, int]:
        """The least and the greatest time that a row can have: SQL's timestamps are of the years 1 to 9999."""
        if self.clock.kind is ClockKind.TIME:
            return FIRST_INSTANT, LAST_INSTANT
        return LOWEST + 1, HIGHEST - 1

    def latest_time(self, clock: int) -> int | None:
        """The greatest time that a row may have when the engine's clock reads `clock`; None: any."""
        bounds = (self.max_ahead, self.horizon if self.live else None)
        ahead = [bound for bound in bounds if bound is not None]
        return clock + min(ahead) if ahead else None

    @property
    def clock_slack(self) -> int | SlackRule | None:
        """The slack of the stream's own clock, or how it is learned."""
        return self.learned or self.slack

    def greatest_slack(self, clock: Clock) -> int | None:
        """The largest disorder along a clock; None: any."""
        slack = self.slack_of(clock)
        if self.learned is None or slack is None or not self.shares_slack(clock):
            return slack
        return self.learned.high

    def slack_of(self, clock: Clock) -> int | None:
        """The disorder to expect along a clock."""
        if clock.kind is ClockKind.ROWS:
            return 0
        if clock.attribute in self.slacks:
            return self.slacks[clock.attribute]
        return self.slack if self.shares_slack(clock) or self.slack is None else 0

    def shares_slack(self, clock: Clock) -> bool:
        """Whether a clock has the slack of the stream's own: it is in the same unit, and the clock has none itself."""
        is_alike = clock == self.clock or clock.kind is self.clock.kind is ClockKind.TIME
        return is_alike and clock.attribute not in self.slacks


@dataclass(frozen=True)
class DerivedRules:
    """The rules of a derived stream, and those of its inputs.

    With `keeps_columns` it has the columns of its only input, so that patterns on these hold for it, too.
    """

    rules: StreamRules
    inputs: tuple[StreamRules, ...]
    keeps_columns: bool = False
