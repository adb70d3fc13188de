"""How a running engine fares, as an object and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.durations import format_instant
from transom.elements import ClockKind
from transom.final.page import open_windows

if TYPE_CHECKING:
    from transom.spark.loop import PageLoop


@dataclass(frozen=True)
class StreamProgress:
    """A stream: every row accounted for, and how far its time has come."""

    rows: int
    counted: int
    unasked: int
    late: int
    rejected: int
    high: int | None  # the highest accepted time
    watermark: int | None  # everything before is closed
    open_windows: int
    is_time: bool

    def __str__(self) -> str:
        shown = [
            f"{name} {getattr(self, name):,}" for name in ("rows", "counted", "unasked", "late", "rejected")
        ]
        mark = self.watermark
        shown.append(
            f"watermark {'none' if mark is None else format_instant(mark) if self.is_time else mark}"
        )
        return ", ".join([*shown, f"open windows {self.open_windows:,}"])


@dataclass(frozen=True)
class Progress:
    """The engine after its last committed page."""

    page: int
    page_seconds: float
    state_bytes: int
    queries: int
    suspended: Mapping[str, str]
    streams: Mapping[str, StreamProgress]

    def __str__(self) -> str:
        first = (
            f"page {self.page}, {self.page_seconds:.3f} s, {self.queries:,} queries "
            f"({len(self.suspended)} suspended), state {self.state_bytes:,} bytes"
        )
        return "\n".join([first, *(f"  {name}: {stream}" for name, stream in self.streams.items())])


def progress_of(loop: PageLoop) -> Progress:
    """How a page loop fares."""
    state, registry, report = (
        loop.state,
        loop.registry,
        loop.report,
    )  # each is replaced whole: no need to wait
    streams = {}
    for name, stream in loop.streams.items():
        own, clock = state.stream(name), stream.rules.clock
        known = own.clock(clock)
        opened = open_windows(state, registry.reading(name), own)
        totals = own.totals
        streams[name] = StreamProgress(
            totals.rows,
            totals.counted,
            totals.unasked,
            totals.late,
            totals.rejected,
            known.high,
            known.closed.watermark(),
            opened,
            clock.kind is ClockKind.TIME,
        )
    suspended = {entry.name: entry.suspended for entry in registry if entry.suspended is not None}
    seconds = report.seconds if report is not None else 0.0
    return Progress(state.page, seconds, loop.state_bytes, len(registry.entries), suspended, streams)
