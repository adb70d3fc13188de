"""The batches: a timeline of what took the time, the newest batches, and the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from transom.api.records import BatchInfo, CheckpointInfo
from transom.dashboard.display_text import (
    esc,
    format_bytes,
    format_clock,
    format_count,
    format_number,
    format_percent,
    format_seconds,
)
from transom.dashboard.frame import DashboardView, stream_link
from transom.dashboard.widgets import Panel, box, empty_state, skeleton, table_html, tile, tiles

SHOWN_BATCHES = 60
LISTED_BATCHES = 20
CHECKPOINT_TICKS = 10  # refreshes between two looks at the checkpoint's files
PHASES = {  # in the order of a batch: what happens, and its colour
    "planning": ("queries join and leave, the plan is made", "c1"),
    "ingest": ("rows are read and aggregated", "c6"),
    "emit": ("windows close, results are made", "c3"),
    "delivery": ("sinks and subscribers get results", "c2"),
    "commit": ("the state is written to the checkpoint", "c5"),
    "quarantine": ("attempts that failed", "c4"),
}
PARTS = {  # directories of a checkpoint
    "state": "the engine's state, as of the last batches",
    "log": "what each batch was going to do, and that it is committed",
    "results": "results, to be read back",
    "late": "late rows",
    "rejected": "rejected rows",
    "feeds": "rows that a program pushed, for a batch that is repeated",
    "runs": "rows that on-demand queries read",
    "tables": "versions of static tables",
    "replays": "recordings, in the order of their delivery",
    "sidelined": "rows of bursts that wait to be processed",
    "lease": "which engine owns the checkpoint",
}


@dataclass(frozen=True)
class BatchesData:
    """What the view shows."""

    batches: Sequence[BatchInfo]
    checkpoint: CheckpointInfo


class BatchesView(DashboardView):
    """What the engine spends its time on, batch by batch, and where its state is kept."""

    section = "batches"
    title = "Batches"
    _ticks = 0
    _checkpoint: CheckpointInfo

    def build(self) -> None:
        Panel(
            '<div><h1>Batches</h1><p class="sub">The engine works in batches. Each is committed to the checkpoint '
            "before the next one begins.</p></div>",
            classes="head",
        )
        self.figures = Panel(
            f'<div class="card">{skeleton(2)}</div>', classes="section", data_testid="batch-figures"
        )
        with box("card section", "section", aria_label="Timeline"):
            Panel(f"<h2>What took the time</h2>{legend_html()}", classes="bar")
            self.timeline = Panel(skeleton(4), classes="pad", data_testid="timeline")
        with box("card section", "section", aria_label="Checkpoint"):
            Panel("<h2>Checkpoint</h2>", classes="bar")
            self.checkpoint = Panel(skeleton(3), data_testid="checkpoint")
        with box("card section", "section", aria_label="Newest batches"):
            Panel("<h2>Newest batches</h2>", classes="bar")
            self.rows = Panel(skeleton(6), data_testid="batches")

    def fetch(self) -> BatchesData:
        if self._ticks % CHECKPOINT_TICKS == 0:
            self._checkpoint = self.service.checkpoint()
        self._ticks += 1
        return BatchesData(self.service.batches(SHOWN_BATCHES), self._checkpoint)

    def show(self, data: BatchesData) -> None:
        if not data.batches:
            waiting = empty_state(
                "batches", "No batches yet", "A batch runs when rows come or queries change."
            )
            self.figures.set("")
            self.timeline.set(waiting)
            self.rows.set("")
        else:
            self.figures.set(_figures_html(data.batches))
            self.timeline.set(timeline_html(data.batches))
            self.rows.set(_rows_html(data.batches[-LISTED_BATCHES:]))
        self.checkpoint.set(checkpoint_html(data.checkpoint))


def phase_colour(name: str) -> str:
    """The colour of a phase."""
    return f"var(--{PHASES[name][1]})" if name in PHASES else "var(--c8)"


def legend_html() -> str:
    """The phases of a batch with their colours."""
    shown = (name for name in PHASES if name != "quarantine")
    return (
        '<span class="legend">'
        + "".join(
            f'<span title="{esc(PHASES[name][0])}"><i style="background:{phase_colour(name)}"></i>{name}</span>'
            for name in shown
        )
        + "</span>"
    )


def _figures_html(batches: Sequence[BatchInfo]) -> str:
    times = sorted(batch.seconds for batch in batches)
    slow = times[min(len(times) - 1, int(len(times) * 0.95))]
    span = (batches[-1].finished - batches[0].finished) / 1e6
    busy = sum(times[:-1]) / span if span > 0 else float("nan")
    by_phase: dict[str, float] = {}
    for batch in batches:
        for name, seconds in batch.spent.items():
            by_phase[name] = by_phase.get(name, 0.0) + seconds
    longest = max(by_phase, key=lambda name: by_phase[name], default="")
    share = by_phase[longest] / (sum(by_phase.values()) or 1.0) if longest else float("nan")
    return tiles(
        [
            tile(
                "Last batch", format_number(batches[-1].batch), f"took {format_seconds(batches[-1].seconds)}"
            ),
            tile("Typical batch", format_seconds(median(times)), f"median of {len(times)}"),
            tile("Slow batch", format_seconds(slow), "19 of 20 are faster"),
            tile("Busy", format_percent(min(busy, 1.0) if busy == busy else busy, 0), "of the time"),
            tile("Most time in", longest or "–", f"{format_percent(share, 0)} of all batches"),
            tile("Rows in a batch", format_count(median(batch.rows for batch in batches)), "median"),
        ]
    )


def timeline_html(batches: Sequence[BatchInfo]) -> str:
    """A column for each batch, as high as it took long, divided by phase; the oldest on the left."""
    most = max((batch.seconds for batch in batches), default=0.0) or 1.0
    columns = "".join(
        f'<div class="bar-of" data-key="{batch.batch}" data-testid="bar" title="{esc(batch_text(batch))}">'
        f'<div style="height:{max(1.0, 100 * batch.seconds / most):.1f}%">{_phases(batch)}</div></div>'
        for batch in batches
    )
    first, last = batches[0], batches[-1]
    label = f"{len(batches)} batches, the slowest took {format_seconds(most)}"
    return (
        f'<div class="timeline-scale small muted">{format_seconds(most)}</div>'
        f'<div class="timeline" role="img" aria-label="{esc(label)}">{columns}</div>'
        f'<div class="row apart small muted"><span>batch {first.batch:,}, {format_clock(first.finished)}</span>'
        f"<span>batch {last.batch:,}, {format_clock(last.finished)}</span></div>"
    )


def _phases(batch: BatchInfo) -> str:
    total = sum(batch.spent.values()) or 1.0
    return "".join(
        f'<i style="flex:{seconds / total:.4f};background:{phase_colour(name)}"></i>'
        for name, seconds in batch.spent.items()
        if seconds > 0
    )


def batch_text(batch: BatchInfo) -> str:
    """A batch in one line."""
    phases = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in batch.spent.items())
    rows = f"{batch.rows:,} rows of {batch.stream}" if batch.stream is not None else "no rows"
    return f"Batch {batch.batch:,}: {format_seconds(batch.seconds)}, {rows}, {batch.results:,} results ({phases})"


def _rows_html(batches: Sequence[BatchInfo]) -> str:
    rows = "".join(_batch_row(batch) for batch in reversed(batches))
    return table_html(["Batch", "#Took", "By phase", "Stream", "#Rows", "#Late", "#Results", "#Ended"], rows)


def _batch_row(batch: BatchInfo) -> str:
    stream = (
        f'<a href="{esc(stream_link(batch.stream))}">{esc(batch.stream)}</a>'
        if batch.stream is not None
        else '<span class="muted">no rows</span>'
    )
    slowest = max(batch.spent, key=lambda name: batch.spent[name], default="")
    share = batch.spent[slowest] / (sum(batch.spent.values()) or 1.0) if slowest else 0.0
    return (
        f'<tr data-key="{batch.batch}" data-testid="batch-row"><td class="name">{batch.batch:,}</td>'
        f'<td class="num">{format_seconds(batch.seconds)}</td><td title="{esc(batch_text(batch))}">'
        f'<div class="spent" style="width:160px" aria-hidden="true">{_phases(batch)}</div>'
        f'<span class="small muted">{esc(slowest)} {format_percent(share, 0)}</span></td><td>{stream}</td>'
        f'<td class="num">{format_number(batch.rows)}</td><td class="num">{format_number(batch.late)}</td>'
        f'<td class="num">{format_number(batch.results)}</td>'
        f'<td class="num muted">{format_clock(batch.finished)}</td></tr>'
    )


def checkpoint_html(checkpoint: CheckpointInfo) -> str:
    """Where the checkpoint is, and the size of its parts."""
    size = (
        "not known: it is on another machine" if checkpoint.bytes is None else format_bytes(checkpoint.bytes)
    )
    committed = f"batch {checkpoint.batch:,}" if checkpoint.batch >= 0 else "no batch yet"
    facts = (
        f'<dl class="facts"><dt>Directory</dt><dd class="mono" title="{esc(checkpoint.path)}">'
        f"{esc(checkpoint.path)}</dd>"
        f"<dt>Committed</dt><dd>{committed}</dd><dt>Size</dt><dd>{size}</dd>"
        f"<dt>Format</dt><dd>{checkpoint.format}</dd></dl>"
    )
    if not checkpoint.parts:
        return facts
    rows = "".join(
        f'<tr data-key="{esc(part.name)}" data-testid="checkpoint-part"><td class="name mono">{esc(part.name)}</td>'
        f'<td class="num">{format_bytes(part.bytes)}</td><td class="num">{part.files:,}</td>'
        f'<td class="muted">{esc(PARTS.get(part.name, ""))}</td></tr>'
        for part in checkpoint.parts
    )
    return facts + table_html(["Part", "#Size", "#Files", "What it holds"], rows)
