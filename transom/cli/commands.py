"""What the commands do, once their options are understood."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from transom.api.formats import PlanFormat
from transom.cli.build_engine import building
from transom.cli.lookups import Looking, answer, default_format
from transom.cli.pipeline import Pipeline
from transom.cli.result_text import Format, write
from transom.plan.explain.promising_text import coverage_text
from transom.plan.explain.words import counted

if TYPE_CHECKING:
    from transom.runtime.engine import Engine

LOOK_EVERY = 0.2  # seconds between looks at whether to stop
REFRESH = 1.0  # seconds between updates of the progress on a terminal
LINES_EVERY = 10.0  # seconds between lines of progress in a log


def query(pipeline: Pipeline, form: Format | None, out: Path | None, full: bool, late: Path | None) -> None:
    """Run to the end of the input; results to stdout or a file, the summary to stderr."""
    console = Console(stderr=True)
    form = (form or Format.JSON) if out is not None else default_format(form, sys.stdout)
    started = monotonic()
    with building(pipeline) as engine:
        queries = {name: engine.query(name) for name in pipeline.queries}
        with console.status("running ..."):
            engine.drain()
        results = {name: answer(each, full, form) for name, each in queries.items()}
        if out is None:
            write(results, form, sys.stdout)
            sys.stdout.flush()
        else:
            with out.open("w", encoding="utf-8", newline="") as file:
                write(results, form, file)
        if late is not None:
            _write_left_out(engine, list(pipeline.streams), late)
        summary(console, engine, monotonic() - started)


def _write_left_out(engine: Engine, streams: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name in streams:
            write({name: engine.late(name)}, Format.JSON, file)
            write({name: engine.rejected(name)}, Format.JSON, file)


def summary(console: Console, engine: Engine, seconds: float) -> None:
    """One line a stream, so that no row is left out in silence."""
    progress = engine.progress()
    for name, stream in progress.streams.items():
        console.print(
            f"{name}: {counted(stream.rows, 'row')} in {seconds:.1f} s, "
            f"{stream.late:,} late, {stream.rejected:,} rejected"
            + (f", {stream.shed:,} shed" if stream.shed else ""),
            style="yellow" if stream.late or stream.rejected or stream.shed else "dim",
            highlight=False,
        )
        if 2 * stream.rejected > stream.rows:
            console.print(
                f"{name}: {_why_rejected(engine, name)}", style="red", highlight=False, markup=False
            )
    for name, led in progress.promising.queries.items():
        if led.regions or led.skipped:
            done = coverage_text(led.probes, led.produced, led.skipped, led.share)
            console.print(f"{name}: {done}", style="yellow", highlight=False, markup=False)
    for name, reason in progress.suspended.items():
        console.print(f"{name} was suspended: {reason}", style="red", highlight=False)


def _why_rejected(engine: Engine, stream: str) -> str:
    """Why most rows of a stream were rejected, by the example of the first."""
    first = engine.rejected(stream).slice(0, 1).to_pylist()[0]
    text = first.get("_time_text") or first.get("_corrupt_record")
    hint = "; is a format missing, such as --option 'timestampFormat=M/d/yyyy H:mm:ss'?" if text else ""
    return f"most rows were rejected, the first because: {first['reason']}" + (
        f": {text}{hint}" if text else ""
    )


def explain(pipeline: Pipeline, form: PlanFormat = PlanFormat.TEXT, verbose: bool = False) -> None:
    """Print the plan to stdout."""
    with building(pipeline) as engine:
        print(engine.explain(form.value, verbose), flush=True)


def run(
    pipeline: Pipeline, drain: bool, show: bool, every: str | None = None, form: Format | None = None
) -> None:
    """Run until stopped, until the end with `drain`, or until it fails.

    On-demand queries are looked up at the end, and meanwhile as often as `every` says.
    """
    console = Console(stderr=True)
    started = monotonic()
    with building(pipeline) as engine:
        with Looking(engine, form, console).meanwhile(every), _showing(console, engine, show):
            if drain:
                engine.drain()
            else:
                _run_until_asked(engine)
        summary(console, engine, monotonic() - started)


def _run_until_asked(engine: Engine) -> None:
    """Ctrl-C and SIGTERM end it after the batch at hand; a second Ctrl-C breaks off."""
    with asked_to_stop() as asked:
        engine.start()
        while not asked.is_set() and not engine.await_termination(LOOK_EVERY):
            pass
        engine.stop()


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM meanwhile; a second Ctrl-C breaks off."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _showing(console: Console, engine: Engine, show: bool) -> Iterator[None]:
    """Show progress meanwhile, from a thread of its own."""
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(console, engine, ended), daemon=True)
    if show:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if show:
            thread.join()


def _show(console: Console, engine: Engine, ended: threading.Event) -> None:
    """Progress in place on a terminal, otherwise as lines now and then."""
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            while not ended.wait(REFRESH):
                live.update(Text(str(engine.progress())))
        return
    last = None
    while not ended.wait(LINES_EVERY):
        progress = engine.progress()
        if progress.batch_id != last:
            print(progress, file=sys.stderr, flush=True)
        last = progress.batch_id
