"""The commands `transom query`, `run` and `explain`, after their options are parsed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from transom.api.formats import PlanFormat
from transom.backends.file_problems import Problem
from transom.cli.backend_choice import BackendChoice
from transom.cli.build_engine import built_engine
from transom.cli.lookups import PeriodicLookups, final_answer
from transom.cli.pipeline import Pipeline
from transom.cli.result_text import Format, default_format, write_results
from transom.cli.small_input import adhoc_engine, check_before_start, planning_engine
from transom.cli.spinner import spinner
from transom.errors import SettingError
from transom.plan.explain.promising_text import coverage_text
from transom.plan.explain.text_parts import counted
from transom.runtime.engine import Engine

STOP_POLL_SECONDS = 0.2  # between checks whether to stop
SIGNAL_SECONDS = 2.0  # within which a signal for all processes reaches this one, too
BACKEND_STOPPED = (
    "stopped, and Spark's JVM before the engine: with a checkpoint, the batch that was running "
    "runs again at the next start"
)
PROGRESS_UPDATE_SECONDS = 1.0  # between updates of the progress on a terminal
LOG_SECONDS = 10.0  # between lines of progress in a log


def run_to_end(
    pipeline: Pipeline,
    choice: BackendChoice,
    form: Format | None,
    out: Path | None,
    full: bool,
    late: Path | None,
) -> None:
    """Run to the end of the input; results go to stdout or a file, the summary to stderr."""
    console = Console(stderr=True)
    form = (form or Format.JSON) if out is not None else default_format(form, sys.stdout)
    started = monotonic()
    with adhoc_engine(pipeline, choice) as engine:
        queries = {name: engine.query(name) for name in pipeline.queries}
        with spinner("Running the queries"):
            engine.drain()
        results = {name: final_answer(each, full, form) for name, each in queries.items()}
        if out is None:
            write_results(results, form, sys.stdout)
            sys.stdout.flush()
        else:
            with out.open("w", encoding="utf-8", newline="") as file:
                write_results(results, form, file)
        if late is not None:
            _write_late_rows(engine, list(pipeline.streams), late)
        print_summary(console, engine, monotonic() - started)


def _write_late_rows(engine: Engine, streams: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name in streams:
            write_results({name: engine.late(name)}, Format.JSON, file)
            write_results({name: engine.rejected(name)}, Format.JSON, file)


def print_summary(console: Console, engine: Engine, seconds: float) -> None:
    """Print a line per stream with its late, rejected and shed rows, and other warnings."""
    progress = engine.progress()
    for name, stream in progress.streams.items():
        console.print(
            f"{name}: {counted(stream.rows, 'row')} in {seconds:.1f} s, "
            f"{stream.late:,} late, {stream.rejected:,} rejected"
            + (f", {stream.shed:,} shed" if stream.shed else ""),
            style="yellow" if stream.late or stream.rejected or stream.shed else "dim",
            highlight=False,
        )
        if unreadable := stream.file_problems.get(Problem.UNREADABLE, 0):
            text = (
                f"{name}: {counted(unreadable, 'file')} could not be read, {_last_unreadable(engine, name)}"
            )
            console.print(text, style="red", highlight=False, markup=False)
        if 2 * stream.rejected > stream.rows:
            console.print(
                f"{name}: {_why_rejected(engine, name)}", style="red", highlight=False, markup=False
            )
    for name, guided in progress.promising.queries.items():
        if guided.regions or guided.skipped:
            coverage = coverage_text(guided.probes, guided.produced, guided.skipped, guided.share)
            console.print(f"{name}: {coverage}", style="yellow", highlight=False, markup=False)
    for name, reason in progress.suspended.items():
        console.print(f"{name} was suspended: {reason}", style="red", highlight=False)


def _last_unreadable(engine: Engine, stream: str) -> str:
    """The last file that could not be read, with the reason."""
    rows = reversed(engine.file_problems(stream).to_pylist())
    last = next((row for row in rows if row["problem"] == Problem.UNREADABLE), None)
    return "" if last is None else f"the last one is {last['file']}: {last['reason']}"


def _why_rejected(engine: Engine, stream: str) -> str:
    """Why most rows of a stream were rejected, with the first row as an example."""
    first = engine.rejected(stream).slice(0, 1).to_pylist()[0]
    text = first.get("_time_text") or first.get("_corrupt_record")
    hint = "; is a format missing, such as --option 'timestampFormat=M/d/yyyy H:mm:ss'?" if text else ""
    return f"most rows were rejected, the first because: {first['reason']}" + (
        f": {text}{hint}" if text else ""
    )


def print_adhoc_plan(pipeline: Pipeline, choice: BackendChoice) -> None:
    """Print the plan of `transom query` to stdout."""
    with adhoc_engine(pipeline, choice) as engine:
        print(engine.explain(), flush=True)


def print_plan(pipeline: Pipeline, form: PlanFormat = PlanFormat.TEXT, verbose: bool = False) -> None:
    """Print the plan of a pipeline file to stdout."""
    with planning_engine(pipeline) as engine:
        print(engine.explain(form.value, verbose), flush=True)


def check_pipeline(pipeline: Pipeline) -> None:
    """Declare and plan everything in a pipeline file, and print what it has."""
    with planning_engine(pipeline) as engine:
        engine.explain()
    parts = [
        counted(len(pipeline.streams), "stream"),
        counted(len(pipeline.tables), "table"),
        counted(len(pipeline.views), "view"),
        counted(len(pipeline.queries), "query", "queries"),
    ]
    print(f"fine: {', '.join(parts)}", flush=True)


def run_pipeline(
    pipeline: Pipeline,
    drain: bool,
    show_progress: bool,
    lookup_every: str | None = None,
    form: Format | None = None,
) -> None:
    """Run until stopped, with `drain` until the end of the input, or until the engine fails.

    On-demand queries are looked up at the end, and at the interval `lookup_every`.
    """
    console = Console(stderr=True)
    started = monotonic()
    for name, settings in pipeline.streams.items():
        if settings.get("push"):
            raise SettingError(f"streams.{name}: rows are pushed into a server: run it with `transom serve`")
    check_before_start(pipeline)
    with built_engine(pipeline) as engine:
        lookups = PeriodicLookups(engine, form, console)
        with suppress(_Stopped):
            with lookups.running(lookup_every), _progress_display(console, engine, show_progress):
                if drain:
                    engine.drain()
                else:
                    _run_until_stopped(engine)
            print_summary(console, engine, monotonic() - started)


class _Stopped(Exception):
    """The backend was stopped together with this process, so that nothing more can be asked of it."""


def _run_until_stopped(engine: Engine) -> None:
    with stop_requested() as requested:
        engine.start()
        try:
            while not requested.is_set() and not engine.await_termination(STOP_POLL_SECONDS):
                pass
        except Exception:
            if not backend_was_stopped(engine, requested):
                raise
        engine.stop()
        if backend_was_stopped(engine, requested):
            print(BACKEND_STOPPED, file=sys.stderr, flush=True)
            raise _Stopped


def backend_was_stopped(engine: Engine, requested: threading.Event) -> bool:
    """Whether the engine failed because the signal that stops this process has ended its backend, too.

    A service manager may signal all processes at once, and Spark's JVM may be the first to end.
    """
    return engine.lost_backend and requested.wait(SIGNAL_SECONDS)


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C raises KeyboardInterrupt."""
    requested = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        requested.set()

    handlers = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _progress_display(console: Console, engine: Engine, enabled: bool) -> Iterator[None]:
    """Show progress from a thread while the block runs."""
    ended = threading.Event()
    thread = threading.Thread(target=_show_progress, args=(console, engine, ended), daemon=True)
    if enabled:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if enabled:
            thread.join()


def _show_progress(console: Console, engine: Engine, ended: threading.Event) -> None:
    """Show progress in place on a terminal, otherwise as occasional lines."""
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            while not ended.wait(PROGRESS_UPDATE_SECONDS):
                live.update(Text(str(engine.progress())))
        return
    last = None
    while not ended.wait(LOG_SECONDS):
        progress = engine.progress()
        if progress.batch_id != last:
            print(progress, file=sys.stderr, flush=True)
        last = progress.batch_id
