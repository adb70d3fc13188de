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

from reproduce.local_engine import LocalEngine
from reproduce.prodding.data import SECOND, Numbers, Recording
from transom.elements import Prod

STREAM = "S"
ScriptedPunctuation = tuple[int, tuple[tuple[str, Any], ...]]  # until when, and for which group


@dataclass(frozen=True)
class Windows:
    """Sliding windows of an experiment, in seconds."""

    range: int
    slide: int

    @property
    def clause(self) -> str:
        return f"[RANGE {self.range} seconds SLIDE {self.slide} seconds]"

    def ends(self, times: Numbers) -> list[int]:
        """The ends of all windows that hold some of the times, in microseconds."""
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
    """The clause that reports at parts of the slide.

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
        """Punctuate each window's end, once that time has come and all rows before it have arrived."""
        order = np.argsort(self.recording.times, kind="stable")
        times, last = self.recording.times[order], np.maximum.accumulate(self.recording.arrivals[order])
        for end in windows.ends(times):
            before = int(np.searchsorted(times, end))
            self.punctuations[max(end, int(last[before - 1]) + 1 if before else end)].append((end, ()))
        return self

    def close_each(self, windows: Windows, column: str) -> Script:
        """Punctuate each group's windows with the first tuple of the group after them."""
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
        """Prod for every window at its end by the clock, or this much later."""
        for end in windows.ends(self.recording.times):
            self.prods[end + after].append(end)
        return self


@dataclass(frozen=True)
class Run:
    """The results of a run and its processor time."""

    results: Mapping[str, pa.Table]
    seconds: float  # of processor time
    made: Mapping[int, float]  # by batch: when it was done, by a clock that also counts its processing


def simulate(
    queries: Mapping[str, str],
    script: Script,
    *,
    slack: int | None = None,
) -> Run:
    """Run queries over a recording; the script's punctuations, the slack or the end close windows."""
    recording = script.recording
    columns = dict(zip(recording.rows.column_names, recording.rows.schema.types, strict=True))
    engine = LocalEngine(STREAM, columns, "ts", queries, slack=slack, live=True)
    order = np.argsort(recording.arrivals, kind="stable")
    rows, arrivals = recording.rows.take(pa.array(order)), recording.arrivals[order]
    moments = script.moments
    stops = sorted(moments | {first + 1 for first in script.firsts} | {int(arrivals[-1]) + 1})
    free, seconds, made, start = 0.0, 0.0, dict[int, float](), 0
    for stop, cut in zip(stops, np.searchsorted(arrivals, stops).tolist(), strict=True):
        if cut == start and stop not in moments:
            continue
        clock = stop if stop in moments else int(arrivals[cut - 1])
        began = process_time()
        engine.batch(
            rows.slice(start, cut - start),
            clock=clock,
            punctuations=[engine.punctuation(*said) for said in script.punctuations.get(stop, ())],
            prods=[Prod(engine.time, until, exactly=True) for until in script.prods.get(stop, ())],
        )
        spent, start = process_time() - began, cut
        seconds, free = seconds + spent, max(free, clock / SECOND) + spent
        made[engine.state.batch_id] = free
    engine.batch(clock=stops[-1], ended=True)
    made[engine.state.batch_id] = free
    return Run({name: engine.results(name) for name in queries}, seconds, made)
