"""Burst processing strategies (section 6.2 a, figure 6.3): tuples in order of arrival, or bursts sidelined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reproduce.prodding.bursts import LATE, Q4_2, latencies
from reproduce.prodding.data import SECOND, Recording, wireless
from reproduce.prodding.simulation import STREAM, Script, SimulatedClock, Windows, simulate
from reproduce.report import Line, Options, Report
from transom.backends.local.backend import LocalBackend
from transom.elements import Overload, Prod, Punctuation, Register
from transom.ingest.sources import FeedSource
from transom.ingest.streams import Stream
from transom.overload.chunks import SidelinedChunk, chunk_rows
from transom.overload.resumption import chunks_to_resume, chunks_without_new_rows
from transom.plan.planner import Planner
from transom.results.result_rows import result_schema
from transom.runtime.loop import BatchLoop
from transom.runtime.options import stream_rules
from transom.runtime.runner import Runner
from transom.storage.file_store import Store

COST = (
    1 / 200
)  # slower than in table 4.3, where the backlog is gone before it delays a window without a burst
BUDGET = round(1 / COST)  # tuples that can be processed in a second
SHARE = 3  # new tuples per sidelined tuple


def run(options: Options) -> Report:
    """Figure 6.3: a burst delays the windows after it (a), unless its last rows are sidelined (b)."""
    query, windows = Q4_2
    stream = wireless(options.seconds(28_000), 0)
    script = Script(stream.served(COST)).close(windows).prod(windows, after=LATE).measure(windows)
    in_turn = simulate({"q": query}, script).results["q"]
    with TemporaryDirectory() as checkpoint:
        sidelined = Sidelining(stream, query, checkpoint).run()
    report = Report()
    for part, results in (("a", in_turn), ("b", sidelined)):
        report.tables[f"figure_6_3_{part}"] = latencies(results, "counter")
        early = float(pc.sum(pc.equal(results["kind"], "early")).as_py() or 0)
        worst = worst_without_burst(stream, results, windows)
        where = f"figure 6.3 {part}"
        report.lines.append(Line(where, "windows with an early result", None, early, ""))
        report.lines.append(Line(where, "worst delay of a final of a window without burst", None, worst, "s"))
    same = _finals(in_turn).equals(_finals(sidelined))
    report.lines.append(Line("figure 6.3", "final results that are the same", None, 100.0 * same))
    return report


def worst_without_burst(stream: Recording, results: pa.Table, windows: Windows) -> float:
    """The longest time from the end of a window without a burst to its final result, in seconds."""
    counts = np.bincount(stream.times // SECOND)
    worst = 0.0
    for row in results.filter(pc.equal(results["kind"], "final")).to_pylist():
        end = round(row["window_end"].timestamp())
        if end <= len(counts) and not (counts[max(end - windows.range, 0) : end] > BUDGET).any():
            worst = max(worst, row["made"].timestamp() - end)
    return worst


class Sidelining:
    """A stream in batches of a second; rows beyond the budget are sidelined and processed in lulls.

    It drives a batch loop itself, because a lull lasts until the next second of the simulated clock: a batch
    without new rows has the budget that fits into this time.
    """

    def __init__(self, stream: Recording, query: str, checkpoint: str):
        self.stream, self.clock = stream, SimulatedClock()
        backend, store = LocalBackend(), Store(checkpoint)
        self.loop = BatchLoop(backend, store, self.clock, max_failures=1, planner=Planner(), naive=False)
        columns = dict(zip(stream.rows.column_names, stream.rows.schema.types, strict=True))
        self.source = FeedSource(backend, store, STREAM, columns)
        self.rules = stream_rules(
            STREAM, columns, "ts", None, None, False, None, Overload(BUDGET, share=SHARE)
        )
        self.declared = Stream(STREAM, columns, self.rules, self.source)
        self.loop.declare(self.declared)
        self.loop.directory.push([Register("q", query)])
        self.runner = Runner(self.loop, poll_seconds=0)

    @property
    def waiting(self) -> Sequence[SidelinedChunk]:
        """The chunks that are sidelined now."""
        return self.loop.state.stream(STREAM).sidelined

    def run(self) -> pa.Table:
        """Process the whole stream and return all results of the query."""
        arrivals = self.stream.arrivals
        last = int(arrivals.max()) // SECOND + 1
        cuts = np.searchsorted(arrivals, np.arange(last + 1) * SECOND).tolist()
        for second in range(1, last + 1):
            start, stop = cuts[second - 1], cuts[second]
            self._batch(self.stream.rows.slice(start, stop - start), second * SECOND)
            spare = ((second + 1) * SECOND - self.clock.now) * BUDGET // SECOND
            if self.waiting and self.waiting[0].rows <= spare:
                self._lull_batch(spare)
        while self.waiting:
            self._lull_batch(BUDGET)
        self.loop.ends.end([STREAM])
        self.loop.control_batch()
        registry = self.loop.directory.registry
        return self.loop.outputs.results("q", result_schema(registry.query("q")), registry["q"].since)

    def _batch(self, rows: pa.Table, now: int) -> None:
        """Process a second's tuples, up to the budget, and prod the window that ends."""
        state = self.loop.state.stream(STREAM)
        resumed = chunk_rows(chunks_to_resume(state.sidelined, state.credit, SHARE))
        self.clock.now = max(self.clock.now, now)
        self._spend(resumed + min(rows.num_rows, max(BUDGET - resumed, 0)))
        self.source.push(rows)
        self.source.control(Punctuation(self.rules.clock, now))
        self.source.control(Prod(self.rules.clock, now, exactly=True))
        self.runner.batch()

    def _lull_batch(self, budget: int) -> None:
        self._spend(chunk_rows(chunks_without_new_rows(self.waiting, budget)))
        self.declared.rules = replace(self.rules, overload=Overload(budget, share=SHARE))
        self.loop.lull_batch(self.declared)
        self.declared.rules = self.rules

    def _spend(self, rows: int) -> None:
        """Advance the clock by the processing time of some rows."""
        self.clock.now += round(rows * COST * SECOND)


def _finals(results: pa.Table) -> pa.Table:
    finals = results.filter(pc.equal(results["kind"], "final"))
    return finals.select(["window_end", "counter", "rows"]).sort_by("window_end")
