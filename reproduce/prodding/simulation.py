"""Runs a recording through the engine on a simulated clock, with prods and punctuations at exact times.

    arrivals     . ...  . | ...  .. |  .  .... |
    batches        [-------][--------][----------]
    moments               ^         ^          ^     marks, prods and punctuations take effect

A batch ends at every moment, so that a mark, a prod or a punctuation sees exactly the rows that arrived
before it, and aggressiveness is exact. A batch also ends with the first tuple of each window, since latency
is measured from its arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from reproduce.prodding.data import INSTANT, SECOND, Numbers, Recording
from transom import Engine

STREAM = "S"
SQL_TYPES = {INSTANT: "timestamp", pa.float64(): "double", pa.int64(): "bigint", pa.string(): "string"}
ScriptedPunctuation = tuple[int, tuple[tuple[str, Any], ...]]  # until when, and for which group


@dataclass(frozen=True)
class Windows:
    """The sliding windows of an experiment, in seconds."""

    range: int
    slide: int

    @property
    def clause(self) -> str:
        return f"[RANGE {self.range} seconds SLIDE {self.slide} seconds]"

    def ends(self, times: Numbers) -> list[int]:
        """The ends, in microseconds, of all windows that contain one of the times."""
        slide, first, last = self.slide * SECOND, int(times.min()), int(times.max())
        return list(range(first // slide * slide + slide, last + self.range * SECOND + 1, slide))

    def first_arrivals(self, recording: Recording) -> set[int]:
        """When the first tuple of each window arrives."""
        order = np.argsort(recording.times, kind="stable")
        times, arrivals = recording.times[order], recording.arrivals[order]
        ends = np.array(self.ends(times))
        begin, end = np.searchsorted(times, ends - self.range * SECOND), np.searchsorted(times, ends)
        return {int(arrivals[i:j].min()) for i, j in zip(begin, end, strict=True) if i < j}


def emit_at(parts: Iterable[float]) -> str:
    """The clause that emits early results at parts of the slide.

    >>> emit_at([0.5, 0.9])
    'EMIT EARLY AT 50%, 90% OF SLIDE'
    """
    return f"EMIT EARLY AT {', '.join(f'{100 * part:g}%' for part in parts)} OF SLIDE"


@dataclass
class Script:
    """The times of punctuations, of prods, and of the engine's own checks for due marks."""

    recording: Recording
    punctuations: dict[int, list[ScriptedPunctuation]] = field(
        default_factory=lambda: defaultdict(list)
    )  # by moment
    prods: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    looks: set[int] = field(default_factory=set)
    firsts: set[int] = field(default_factory=set)

    @property
    def moments(self) -> set[int]:
        return {*self.punctuations, *self.prods, *self.looks}

    def measure(self, windows: Windows) -> Script:
        """End a batch with each window's first tuple, so that its arrival time is exact."""
        self.firsts |= windows.first_arrivals(self.recording)
        return self

    def close(self, windows: Windows) -> Script:
        """Punctuate each window's end as soon as the clock has reached it and all earlier rows have arrived."""
        order = np.argsort(self.recording.times, kind="stable")
        times, last = self.recording.times[order], np.maximum.accumulate(self.recording.arrivals[order])
        for end in windows.ends(times):
            before = int(np.searchsorted(times, end))
            self.punctuations[max(end, int(last[before - 1]) + 1 if before else end)].append((end, ()))
        return self

    def close_each(self, windows: Windows, column: str) -> Script:
        """Punctuate a group's window when the group's first tuple after the window arrives."""
        groups = self.recording.rows[column].to_numpy()
        times, arrivals = self.recording.times, self.recording.arrivals
        ends = windows.ends(times)
        for group in np.unique(groups).tolist():
            own = groups == group
            for end in ends:
                before, after = arrivals[own & (times < end)], arrivals[own & (times >= end)]
                arrived = [
                    end,
                    *before.max(initial=end, keepdims=True),
                    *([after.min()] if len(after) else []),
                ]
                self.punctuations[int(max(arrived)) + 1].append((end, ((column, group),)))
        return self

    def look(self, windows: Windows, parts: Iterable[float]) -> Script:
        """Make the engine check for due marks at parts of the slide."""
        for part in parts:
            early = round((1 - part) * windows.slide * SECOND)
            self.looks.update(end - early for end in windows.ends(self.recording.times))
        return self

    def prod(self, windows: Windows, after: int = 0) -> Script:
        """Prod every window when the clock reaches its end, or `after` microseconds later."""
        for end in windows.ends(self.recording.times):
            self.prods[end + after].append(end)
        return self


@dataclass(frozen=True)
class Run:
    """The results of a run and its processor time."""

    results: Mapping[str, pa.Table]
    seconds: float  # of processor time
    made: Mapping[int, float]  # batch id -> when the batch was done, by a clock that includes processing time


class SimulatedClock:
    """A clock that stands still until it is set, in microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def simulate(
    queries: Mapping[str, str],
    script: Script,
    *,
    slack: str | None = None,
) -> Run:
    """Run queries over a recording; the script's punctuations, the slack or the end close windows."""
    recording, clock = script.recording, SimulatedClock()
    engine = Engine(backend="local", clock=clock)
    feed = engine.feed(STREAM, schema_of(recording.rows), time="ts", slack=slack, horizon=None, live=True)
    handles = engine.register_all(queries)
    order = np.argsort(recording.arrivals, kind="stable")
    rows, arrivals = recording.rows.take(pa.array(order)), recording.arrivals[order]
    moments, begin = script.moments, int(recording.times.min())
    stops = sorted(moments | {first + 1 for first in script.firsts} | {int(arrivals[-1]) + 1})
    free, seconds, made, start = 0.0, 0.0, dict[int, float](), 0
    engine.follow(lambda report: made.update({report.batch_id: free}))
    for stop, cut in zip(stops, np.searchsorted(arrivals, stops).tolist(), strict=True):
        if cut == start and stop not in moments:
            continue
        clock.now = stop if stop in moments else int(arrivals[cut - 1])
        began = process_time()
        feed.push(rows.slice(start, cut - start))
        for until, group in script.punctuations.get(stop, ()):
            feed.punctuate(until, where=dict(group))
        for until in script.prods.get(stop, ()):
            feed.prod(at=until)
        feed.punctuate(
            begin
        )  # repeats the last punctuation, so that a batch runs even at a moment without rows
        engine.step()
        spent, start = process_time() - began, cut
        seconds, free = seconds + spent, max(free, clock.now / SECOND) + spent
        made[max(made)] = free
    clock.now = stops[-1]
    engine.drain()
    return Run({name: handle.results() for name, handle in handles.items()}, seconds, made)


def schema_of(rows: pa.Table) -> str:
    """The columns of some rows as a feed declares them.

    >>> schema_of(pa.table({"ts": pa.array([0]).cast(pa.timestamp("us", tz="UTC")), "speed": [1.5]}))
    'ts timestamp, speed double'
    """
    return ", ".join(f"{column.name} {SQL_TYPES[column.type]}" for column in rows.schema)
