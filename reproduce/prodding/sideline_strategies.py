"""Burst processing strategies (section 6.2 a, figure 6.3): every tuple in its turn, or bursts sidelined."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reproduce.local_engine import LocalEngine
from reproduce.prodding.bursts import LATE, Q4_2, latencies
from reproduce.prodding.data import SECOND, Recording, wireless
from reproduce.prodding.simulation import STREAM, Script, Windows, simulate
from reproduce.report import Line, Options, Report
from transom.elements import Prod
from transom.overload.bursts import split_burst
from transom.overload.chunks import BurstOutcome, SidelinedChunk, chunk_rows
from transom.overload.resumption import chunks_to_resume, chunks_without_new_rows
from transom.overload.settings import Overload

COST = 1 / 200  # slower than for table 4.3, whose backlog is gone before it delays a window without burst
BUDGET = round(1 / COST)  # tuples that a second has time for
SHARE = 3  # new tuples per sidelined tuple


def run(options: Options) -> Report:
    """Figure 6.3: (a) a burst delays windows after it, (b) its trailing rows wait, later windows don't."""
    query, windows = Q4_2
    stream = wireless(options.seconds(28_000), 0)
    script = Script(stream.served(COST)).close(windows).prod(windows, after=LATE).measure(windows)
    in_turn = simulate({"q": query}, script).results["q"]
    sidelined = Sidelining(stream, query).run()
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
    """How long after its end a window got its final result at worst, of those that hold no burst."""
    counts = np.bincount(stream.times // SECOND)
    worst = 0.0
    for row in results.filter(pc.equal(results["kind"], "final")).to_pylist():
        end = round(row["window_end"].timestamp())
        if end <= len(counts) and not (counts[max(end - windows.range, 0) : end] > BUDGET).any():
            worst = max(worst, row["made"].timestamp() - end)
    return worst


class Sidelining:
    """A stream in batches of a second; rows beyond the budget are sidelined and processed in lulls."""

    def __init__(self, stream: Recording, query: str):
        columns = dict(zip(stream.rows.column_names, stream.rows.schema.types, strict=True))
        overload = Overload(BUDGET, share=SHARE)
        self.engine = LocalEngine(STREAM, columns, "ts", {"q": query}, slack=None, overload=overload)
        self.stream, self.free = stream, 0
        self.aside: dict[str, pa.Table] = {}

    def run(self) -> pa.Table:
        arrivals = self.stream.arrivals
        last = int(arrivals.max()) // SECOND + 1
        cuts = np.searchsorted(arrivals, np.arange(last + 1) * SECOND).tolist()
        for second in range(1, last + 1):
            start, stop = cuts[second - 1], cuts[second]
            self._batch(self.stream.rows.slice(start, stop - start), second * SECOND)
            spare = ((second + 1) * SECOND - self.free) * BUDGET // SECOND
            waiting = self.engine.state.stream(STREAM).sidelined
            if waiting and waiting[0].rows <= spare:
                self._take_in(chunks_without_new_rows(waiting, spare))
        while waiting := self.engine.state.stream(STREAM).sidelined:
            self._take_in(chunks_without_new_rows(waiting, BUDGET))
        self.engine.batch(clock=self.free, ended=True)
        return self.engine.results("q")

    def _batch(self, rows: pa.Table, now: int) -> None:
        """A second's tuples, as many as there is time for, and a prod for the window that ends."""
        known, time = self.engine.state.stream(STREAM), self.engine.time
        resumed = chunks_to_resume(known.sidelined, known.credit, SHARE)
        times = rows["ts"].cast(pa.int64()).to_numpy()
        columns = {time: (times, np.ones(len(times), bool))}
        closed = {time: known.clock(time).closed}
        kept, chunks = np.ones(len(times), bool), list[SidelinedChunk]()
        for places, ranges in split_burst(columns, time, closed, None, BUDGET, chunk_rows(resumed)):
            chunk = SidelinedChunk(f"{now}-{len(chunks)}", len(places), now, ranges)
            self.aside[chunk.name] = rows.take(pa.array(places))
            kept[places] = False
            chunks.append(chunk)
        table = pa.concat_tables([rows.filter(pa.array(kept)), *(self.aside.pop(c.name) for c in resumed)])
        self.free = max(self.free, now) + round(table.num_rows * COST * SECOND)
        self.engine.batch(
            table,
            clock=self.free,
            punctuations=[self.engine.punctuation(now)],
            prods=[Prod(time, now, exactly=True)],
            burst=BurstOutcome(tuple(chunks), resumed),
        )

    def _take_in(self, chunks: tuple[SidelinedChunk, ...]) -> None:
        table = pa.concat_tables([self.aside.pop(chunk.name) for chunk in chunks])
        self.free += round(table.num_rows * COST * SECOND)
        self.engine.batch(table, clock=self.free, burst=BurstOutcome(resumed=chunks))


def _finals(results: pa.Table) -> pa.Table:
    finals = results.filter(pc.equal(results["kind"], "final"))
    return finals.select(["window_end", "counter", "rows"]).sort_by("window_end")
