"""The demo: real flights replayed at speed, their delays as disorder, dozens of queries in one pass."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from threading import Semaphore
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from transom.api.value_text import plain_text
from transom.cli.build_engine import open_engine
from transom.cli.commands import LOOK_EVERY
from transom.cli.flights import (
    EARLY,
    LOOKUPS,
    SCHEMA,
    batches,
    data_file,
    demo_queries,
    flights,
    most_queries,
)
from transom.cli.result_text import LOOKUP_COLUMNS, SYSTEM_COLUMNS
from transom.durations import format_instant
from transom.errors import SettingError, StateError
from transom.plan.explain.words import counted, queries_text
from transom.server.lifecycle import serving
from transom.server.settings import ServerSettings

if TYPE_CHECKING:
    from transom.runtime.engine import Engine
    from transom.runtime.handles import Feed
    from transom.runtime.progress import StreamProgress

SLACK = "1 hour"  # most flights leave within it; those that don't may be late in both senses
BATCH, WATCHED = timedelta(hours=4), timedelta(hours=1)  # of the stream in one batch; for those who watch
PACE = 0.5  # seconds that such a batch takes at least
PORTS = (8710, 0)  # where the dashboard is; a free one if that is taken
SHOWN = 14  # queries in the live table
LINE_EVERY = 4  # batches, without a terminal


@dataclass
class Tally:
    """What the queries have answered so far."""

    windows: int = 0  # closed, each counted once for a query, whatever its groups
    results: int = 0
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)  # a row of the newest results, by query

    def add(self, name: str, results: pa.Table) -> None:
        """Count a batch's new results of a query."""
        if results.num_rows:
            self.results += results.num_rows
            self.windows += len(results["window_end"].unique())
            newest = results.sort_by("window_end").slice(results.num_rows - 1)
            self.latest[name] = newest.to_pylist()[0]


@dataclass
class Replay:
    """A replay under way: the engine, how far it is, and what it shows."""

    engine: Engine
    feed: Feed
    tally: Tally
    queries: int
    total: int | None  # batches, if there is an end
    url: str = ""  # of the dashboard
    done: int = 0
    committed: Semaphore = field(default_factory=lambda: Semaphore(0))  # batches of flights
    started: float = field(default_factory=monotonic)

    def step(self, batch: pa.Table) -> None:
        """Push one batch through the engine, which runs by itself."""
        began = monotonic()
        self.feed.push(batch)
        while not self.committed.acquire(timeout=LOOK_EVERY):
            if self.engine.await_termination(0):
                raise StateError("the engine was stopped")
        self.done += 1
        if self.total is None:
            self.engine.await_termination(max(PACE - (monotonic() - began), 0))

    def status(self) -> str:
        """One line that says how it goes."""
        stream = self.stream()
        seconds = monotonic() - self.started
        mark = "none" if stream.watermark is None else format_instant(stream.watermark)
        return (
            f"batch {self.done}, {counted(stream.rows, 'flight')}, {queries_text(self.queries)}, "
            f"{self.tally.windows:,} windows closed, {stream.late:,} late, watermark {mark}, "
            f"{stream.rows / seconds:,.0f} rows/s"
        )

    def stream(self) -> StreamProgress:
        """The engine's own account of the flights."""
        return self.engine.progress().streams["flights"]

    def screen(self) -> Group:
        """Progress, and the newest answers of some queries."""
        bar = ProgressBar(total=self.total, completed=self.done, pulse=self.total is None)
        where = Text.assemble("The dashboard: ", (self.url, "bold cyan"), "   Ctrl-C ends it.")
        return Group(where, bar, Text(self.status(), style="bold"), self.newest())

    def newest(self) -> Table:
        """The newest answers as a table."""
        table = Table(expand=True)
        table.add_column("query", ratio=3, no_wrap=True)
        table.add_column("window (UTC)", ratio=2, no_wrap=True)
        table.add_column("newest answer", ratio=4, no_wrap=True)
        for name, row in list(self.tally.latest.items())[:SHOWN]:
            start, end, answer = shown(row, SYSTEM_COLUMNS)
            table.add_row(name, f"{start:%b %d %H:%M} - {end:%H:%M}", answer)
        hidden = self.queries - min(self.queries, SHOWN)
        table.caption = (
            f"and {queries_text(hidden)} more over the same stream, in the same pass" if hidden else None
        )
        return table


def shown(row: dict[str, Any], about: int) -> tuple[datetime, datetime, str]:
    """A result's window and its values, without those about itself."""
    values = dict(list(row.items())[:-about])
    start, end = values.pop("window_start"), values.pop("window_end")
    short = {name: round(value, 1) if isinstance(value, float) else value for name, value in values.items()}
    return (
        start,
        end,
        "  ".join(f"{key}={'null' if v is None else plain_text(v)}" for key, v in short.items()),
    )


def run_demo(count: int, days: int, keep_running: bool | None, master: str | None) -> None:
    """Replay the flights and serve the dashboard; without a terminal it ends by itself, unless it is to keep
    running until Ctrl-C."""
    if count > most_queries():
        raise SettingError(f"--queries {count}: the demo has {most_queries()} different queries")
    console = Console()
    keep_running = console.is_terminal if keep_running is None else keep_running
    with console.status("Starting Spark, and reading the flights of 2013 ..."):
        table = flights()
        stream = batches(table, WATCHED, None) if keep_running else list(batches(table, BATCH, days))
        engine = open_engine({} if master is None else {"master": master})
    with console.status(f"Registering {queries_text(count)} ..."):
        replay = declare(engine, count, len(stream) if isinstance(stream, list) else None)
    with serving(engine, ServerSettings(port=free_port())) as served:
        replay.url = served.url
        if not console.is_terminal:
            print(f"The dashboard is at {served.url} while the flights come.", flush=True)
        try:
            show(console, replay, stream)
            engine.drain()  # the last windows close too
        except KeyboardInterrupt:
            pass  # the way to end what keeps running
        summary(console, replay)


def free_port() -> int:
    """The server's own port, or if somebody has it, whichever is free."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as tried:
            return int(tried.getsockname()[1])
    raise SettingError("there is no free port on 127.0.0.1")


def declare(engine: Engine, count: int, total: int | None) -> Replay:
    """The demo's stream, table and queries."""
    feed = engine.feed("flights", schema=SCHEMA, time="sched", slack=SLACK)
    engine.table("airlines", str(data_file("airlines.csv")))
    tally = Tally()
    for name, query in engine.register_all(demo_queries(count)).items():
        query.subscribe(partial(tally.add, name))
    engine.register_all(EARLY | LOOKUPS)
    replay = Replay(engine, feed, tally, len(engine.queries()), total)
    engine.follow(lambda batch: replay.committed.release() if batch.stream == "flights" else None)
    return replay


def show(console: Console, replay: Replay, stream: Iterable[pa.Table]) -> None:
    """Push batch after batch and show how it goes: live on a terminal, else a line now and then."""
    if console.is_terminal:
        with Live(replay.screen(), console=console, auto_refresh=False) as live:
            for batch_id in stream:
                replay.step(batch_id)
                live.update(replay.screen(), refresh=True)
    else:
        for batch_id in stream:
            replay.step(batch_id)
            if replay.done % LINE_EVERY == 0:
                print(replay.status(), flush=True)


def summary(console: Console, replay: Replay) -> None:
    """The closing account: every row is somewhere."""
    seconds = monotonic() - replay.started
    stream = replay.stream()
    lines = {
        "rows": f"{stream.rows:,} flights, in the order in which they left",
        "queries": f"{replay.queries:,}, answered in one pass",
        "windows closed": f"{replay.tally.windows:,}, with {replay.tally.results:,} results",
        "late rows": f"{stream.late:,} (all windows that wanted them were closed; slack {SLACK})",
        "rejected rows": f"{stream.rejected:,}",
        "rows a second": f"{stream.rows / seconds:,.0f} ({seconds:.1f} s)",
    }
    console.print()
    for name, value in lines.items():
        console.print(f"  {name:<14}  {value}", highlight=False)
    for name in LOOKUPS:
        for row in replay.engine.query(name).lookup().to_pylist():
            _, end, answer = shown(row, LOOKUP_COLUMNS)
            until = f"in the 24 hours up to {end:%b %d %H:%M}, looked up"
            console.print(f"  {name:<14}  {answer}  ({until})", highlight=False, soft_wrap=True)
