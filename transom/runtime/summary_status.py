"""The status of summaries and of the queries that they guide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.api.records import SummaryStatus
from transom.elements import Summary
from transom.runtime.loop import BatchLoop
from transom.runtime.registry import Registry
from transom.sql.promise import counts
from transom.state.promising import PromisingState


@dataclass(frozen=True)
class PreferenceProgress:
    """How a query has used its budget so far, and how many regions are deferred."""

    probes: int
    produced: int
    skipped: float
    share: float
    regions: int


def summary_reports(loop: BatchLoop) -> dict[str, SummaryStatus]:
    """The status of the summaries of a batch loop."""
    return summary_infos(loop.state.promising, loop.directory.registry)


def summary_infos(state: PromisingState, registry: Registry) -> dict[str, SummaryStatus]:
    """The status of summaries."""
    if not registry.created:
        return {}
    preference_queries, status = registry.preference_queries(), {}
    overloads = {name: query.overload for name, query in registry.queries().items()}
    for name, created in registry.created.items():
        summary_state = state.summaries.get(name)
        if created.summary is not None and created.suspended is not None:
            status[name] = _suspended_info(created.summary, created.text, created.suspended)
        if summary_state is None or created.summary is None:
            continue
        representation = summary_state.representation
        shape = representation.shape
        status[name] = SummaryStatus(
            name,
            created.text,
            shape.stream,
            shape.column,
            shape.structure,
            created.summary.structure == "auto",
            representation.tuples,
            summary_state.arrived,
            summary_state.late,
            representation.zone_count,
            representation.nbytes,
            bool(summary_state.files),
            (
                *(
                    query
                    for query, bound in preference_queries.items()
                    if name in (side.summary for side in bound.sides)
                ),
                *(
                    query
                    for query, overload in overloads.items()
                    if overload is not None and counts(overload.promise, shape.stream, shape.column)
                ),
            ),
        )
    return status


def _suspended_info(shape: Summary, text: str, reason: str) -> SummaryStatus:
    """The status of a summary that takes in no rows: what it kept is gone."""
    is_chosen, nothing = shape.structure == "auto", (0, 0, 0, 0, 0, False, ())
    return SummaryStatus(
        shape.name, text, shape.stream, shape.column, shape.structure, is_chosen, *nothing, suspended=reason
    )


def queries_of(state: PromisingState, registry: Registry) -> Mapping[str, PreferenceProgress]:
    """The progress of the active queries with a preference."""
    progress = {}
    for name in registry.preference_queries():
        if (query := state.queries.get(name)) is not None:
            done = query.coverage
            waiting = sum(map(len, query.pending))
            progress[name] = PreferenceProgress(done.probes, done.produced, done.skipped, done.share, waiting)
    return progress
