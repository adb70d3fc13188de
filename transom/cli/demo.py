"""The demo: a replay of real flights, whose delays are the disorder, through dozens of queries."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from threading import Semaphore
from time import monotonic
from typing import Any

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from transom.api.value_text import value_to_text
from transom.cli.build_engine import open_engine
from transom.cli.commands import STOP_POLL_SECONDS
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
from transom.cli.result_text import LOOKUP_COLUMNS, SYSTEM_COLUMN_COUNT
from transom.durations import format_instant
from transom.errors import SettingError, StateError
from transom.plan.explain.text_parts import counted, queries_text
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed
from transom.runtime.progress import StreamProgress
from transom.server.settings import ServerSettings
from transom.web_service import serving

SLACK = "1 hour"  # most flights leave within an hour of their schedule; rows of others may be late
DEMO_BATCH = timedelta(hours=4)  # of the stream, in a batch
LIVE_BATCH = timedelta(hours=1)  # if it keeps running, for users who watch
LIVE_BATCH_SECONDS = 0.5  # the shortest time between such batches
PORTS = (8710, 0)  # of the dashboard; 0: any free port, if the first is taken
TABLE_QUERIES = 14  # in the live table
LINE_BATCHES = 4  # between lines of progress, without a terminal


@dataclass
class Tally:
    """Counts of the results so far."""

    windows: int = 0  # closed windows, counted once per query
    results: int = 0
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)  # a row of the newest results by query

    def add(self, name: str, results: pa.Table) -> None:
        """Count the new results of a query."""
        if results.num_rows:
            self.results += results.num_rows
            self.windows += len(results["window_end"].unique())
            newest = results.sort_by("window_end").slice(results.num_rows - 1)
            self.latest[name] = newest.to_pylist()[0]


@dataclass
class FlightReplay:
    """A running replay: the engine, its progress, and its display."""

    engine: Engine
    feed: Feed
    tally: Tally
    queries: int
    total: int | None  # the number of batches; None: endless
    url: str = ""  # of the dashboard
    done: int = 0
    committed: Semaphore = field(default_factory=lambda: Semaphore(0))  # batches of flights
    started: float = field(default_factory=monotonic)

    def step(self, batch: pa.Table) -> None:
        """Push a batch and wait until the engine has committed it."""
        began = monotonic()
        self.feed.push(batch)
        while not self.committed.acquire(timeout=STOP_POLL_SECONDS):
            if self.engine.await_termination(0):
                raise StateError("the engine was stopped")
        self.done += 1
        if self.total is None:
            self.engine.await_termination(max(LIVE_BATCH_SECONDS - (monotonic() - began), 0))

    def status(self) -> str:
        """The progress as one line."""
        stream = self.stream()
        seconds = monotonic() - self.started
        mark = "none" if stream.watermark is None else format_instant(stream.watermark)
        return (
            f"batch {self.done}, {counted(stream.rows, 'flight')}, {queries_text(self.queries)}, "
            f"{self.tally.windows:,} windows closed, {stream.late:,} late, watermark {mark}, "
            f"{stream.rows / seconds:,.0f} rows/s"
        )

    def stream(self) -> StreamProgress:
        """The engine's progress report on the stream of flights."""
        return self.engine.progress().streams["flights"]

    def screen(self) -> Group:
        """The progress and the newest results of some queries."""
        bar = ProgressBar(total=self.total, completed=self.done, pulse=self.total is None)
        where = Text.assemble("The dashboard: ", (self.url, "bold cyan"), "   Ctrl-C ends it.")
        return Group(where, bar, Text(self.status(), style="bold"), self.newest())

    def newest(self) -> Table:
        """The newest results as a table."""
        table = Table(expand=True)
        table.add_column("query", ratio=3, no_wrap=True)
        table.add_column("window (UTC)", ratio=2, no_wrap=True)
        table.add_column("newest result", ratio=4, no_wrap=True)
        for name, row in list(self.tally.latest.items())[:TABLE_QUERIES]:
            start, end, values = window_and_values(row, SYSTEM_COLUMN_COUNT)
            table.add_row(name, f"{start:%b %d %H:%M} - {end:%H:%M}", values)
        hidden = self.queries - min(self.queries, TABLE_QUERIES)
        table.caption = (
            f"and {queries_text(hidden)} more over the same stream, in the same pass" if hidden else None
        )
        return table


def window_and_values(row: dict[str, Any], system_columns: int) -> tuple[datetime, datetime, str]:
    """A result's window and its values as text, without the system columns."""
    values = dict(list(row.items())[:-system_columns])
    start, end = values.pop("window_start"), values.pop("window_end")
    rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in values.items()}
    return (
        start,
        end,
        "  ".join(f"{key}={'null' if v is None else value_to_text(v)}" for key, v in rounded.items()),
    )


def run_demo(count: int, days: int, keep_running: bool | None, master: str | None) -> None:
    """Replay the flights and serve the dashboard, for some days or until Ctrl-C.

    By default, the demo keeps running if stdout is a terminal.
    """
    if count > most_queries():
        raise SettingError(f"--queries {count}: the demo has {most_queries()} different queries")
    console = Console()
    keep_running = console.is_terminal if keep_running is None else keep_running
    with console.status("Starting Spark, and reading the flights of 2013 ..."):
        table = flights()
        stream = batches(table, LIVE_BATCH, None) if keep_running else list(batches(table, DEMO_BATCH, days))
        engine = open_engine({} if master is None else {"master": master})
    with console.status(f"Registering {queries_text(count)} ..."):
        replay = declare_demo(engine, count, len(stream) if isinstance(stream, list) else None)
    with serving(engine, ServerSettings(port=free_port())) as served:
        replay.url = served.url
        if not console.is_terminal:
            print(f"The dashboard is at {served.url} while the flights come.", flush=True)
        try:
            play(console, replay, stream)
            engine.drain()  # closes the last windows
        except KeyboardInterrupt:
            pass  # Ctrl-C ends a demo that keeps running
        print_totals(console, replay)


def free_port() -> int:
    """The server's default port or, if it is taken, any free port."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            return int(listener.getsockname()[1])
    raise SettingError("there is no free port on 127.0.0.1")


def declare_demo(engine: Engine, count: int, total: int | None) -> FlightReplay:
    """Declare the demo's stream, table and queries."""
    feed = engine.feed("flights", schema=SCHEMA, time="sched", slack=SLACK)
    engine.table("airlines", str(data_file("airlines.csv")))
    tally = Tally()
    for name, query in engine.register_all(demo_queries(count)).items():
        if name not in EARLY and name not in LOOKUPS:
            query.subscribe(partial(tally.add, name))
    replay = FlightReplay(engine, feed, tally, len(engine.queries()), total)
    engine.follow(lambda report: replay.committed.release() if report.stream == "flights" else None)
    return replay


def play(console: Console, replay: FlightReplay, stream: Iterable[pa.Table]) -> None:
    """Push batch after batch and show progress: live on a terminal, otherwise as occasional lines."""
    if console.is_terminal:
        with Live(replay.screen(), console=console, auto_refresh=False) as live:
            for batch in stream:
                replay.step(batch)
                live.update(replay.screen(), refresh=True)
    else:
        for batch in stream:
            replay.step(batch)
            if replay.done % LINE_BATCHES == 0:
                print(replay.status(), flush=True)


def print_totals(console: Console, replay: FlightReplay) -> None:
    """Print the totals: how many rows were processed, late and rejected."""
    seconds = monotonic() - replay.started
    stream = replay.stream()
    lines = {
        "rows": f"{stream.rows:,} flights, in the order of departure",
        "queries": f"{replay.queries:,}, answered in one pass",
        "windows closed": f"{replay.tally.windows:,}, with {replay.tally.results:,} results",
        "late rows": f"{stream.late:,} (some query missed them: a window was closed; slack {SLACK})",
        "rejected rows": f"{stream.rejected:,}",
        "rows per second": f"{stream.rows / seconds:,.0f} ({seconds:.1f} s)",
    }
    lookups = [name for name in LOOKUPS if name in replay.engine.queries()]
    width = max(map(len, (*lines, *lookups)))
    console.print()
    for name, value in lines.items():
        console.print(f"  {name:<{width}}  {value}", highlight=False)
    for name in lookups:
        for row in replay.engine.query(name).lookup().to_pylist():
            _, end, answer = window_and_values(row, LOOKUP_COLUMNS)
            until = f"in the 24 hours up to {end:%b %d %H:%M}, looked up"
            console.print(f"  {name:<{width}}  {answer}  ({until})", highlight=False, soft_wrap=True)
