"""The status of summaries and of the queries that they guide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.elements import Summary
from transom.runtime.loop import BatchLoop
from transom.runtime.registry import Registry
from transom.sql.promise import counts
from transom.state.promising import PromisingState


@dataclass(frozen=True)
class SummaryInfo:
    """A summary: what it keeps, in which structure, and how much memory its cells take."""

    name: str
    text: str  # as it was created
    stream: str
    column: str
    structure: str
    chosen: bool  # whether the structure is the engine's choice
    tuples: int  # that are kept
    came: int
    late: int  # that were older than all that was kept
    zones: int
    bytes: int  # of the summaries of cells, without the tuples
    on_executors: bool  # whether its tuples are in files
    queries: tuple[str, ...]
    suspended: str | None = None  # why it takes in no rows, if it does not


@dataclass(frozen=True)
class PreferenceProgress:
    """How a query has used its budget so far, and how many regions are deferred."""

    probes: int
    produced: int
    skipped: float
    share: float
    regions: int


def summary_reports(loop: BatchLoop) -> dict[str, SummaryInfo]:
    """The status of the summaries of a batch loop."""
    return summary_infos(loop.state.promising, loop.directory.registry)


def summary_infos(state: PromisingState, registry: Registry) -> dict[str, SummaryInfo]:
    """The status of summaries."""
    if not registry.created:
        return {}
    led, found = registry.preference_queries(), {}
    overloads = {name: query.overload for name, query in registry.queries().items()}
    for name, created in registry.created.items():
        own = state.summaries.get(name)
        if created.summary is not None and created.suspended is not None:
            found[name] = _suspended_info(created.summary, created.text, created.suspended)
        if own is None or created.summary is None:
            continue
        shape, zones = own.representation.shape, own.representation.zones()
        found[name] = SummaryInfo(
            name,
            created.text,
            shape.stream,
            shape.column,
            shape.structure,
            created.summary.structure == "auto",
            int(zones.counts.sum()),
            own.came,
            own.late,
            len(zones.since),
            own.representation.nbytes,
            bool(own.files),
            (
                *(query for query, one in led.items() if name in (side.summary for side in one.sides)),
                *(
                    query
                    for query, one in overloads.items()
                    if one is not None and counts(one.promise, shape.stream, shape.column)
                ),
            ),
        )
    return found


def _suspended_info(shape: Summary, text: str, reason: str) -> SummaryInfo:
    """The status of a summary that takes in no rows: what it kept is gone."""
    is_chosen, nothing = shape.structure == "auto", (0, 0, 0, 0, 0, False, ())
    return SummaryInfo(
        shape.name, text, shape.stream, shape.column, shape.structure, is_chosen, *nothing, suspended=reason
    )


def queries_of(state: PromisingState, registry: Registry) -> Mapping[str, PreferenceProgress]:
    """The progress of the active queries with a preference."""
    found = {}
    for name in registry.preference_queries():
        if (own := state.queries.get(name)) is not None:
            done = own.coverage
            waiting = sum(map(len, own.pending))
            found[name] = PreferenceProgress(done.probes, done.produced, done.skipped, done.share, waiting)
    return found
