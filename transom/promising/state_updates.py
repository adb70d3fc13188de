"""Updates of the state of summaries and queries with a preference: registration, arrivals, and eviction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from transom.elements import Summary
from transom.promising.batch_tuples import BatchArrival, concat_tuples
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import PreferenceState, PromisingState, SummaryState, TupleRun

MAX_SIMILAR_RUNS = 8  # runs of about the same size, before they are merged


def with_structure(shape: Summary, structure: str = "adjusting") -> Summary:
    """A summary with a definite structure: `structure` replaces `auto`."""
    return replace(shape, structure=structure) if shape.structure == "auto" else shape


def with_registered(
    promising_state: PromisingState,
    summaries: Mapping[str, tuple[Summary, int]],
    queries: Mapping[str, tuple[PreferenceQuery, int]],
    batch_id: int = 0,
) -> PromisingState:
    """The state with exactly the registered summaries and queries, each given with its first batch.

    New ones get an empty state; dropped ones are removed. A query that was paused is new in this batch: columns that
    only it reads were not kept meanwhile.
    """
    summaries_kept = {
        name: summary_state
        for name, summary_state in promising_state.summaries.items()
        if name in summaries and summary_state.since == summaries[name][1]
    }
    for name, (shape, since) in summaries.items():
        if name not in summaries_kept:
            summaries_kept[name] = SummaryState(Representation.new(with_structure(shape)), since)
    preference_queries = {
        name: summary_state
        for name, summary_state in promising_state.queries.items()
        if name in queries and summary_state.registered_with == queries[name][1]
    }
    for name, (query, since) in queries.items():
        if name not in preference_queries:
            nothing = tuple(Regions.none() for _ in query.sides)
            registered = since if since < batch_id else None
            preference_queries[name] = PreferenceState(nothing, max(since, batch_id), registered=registered)
    return PromisingState(summaries_kept, preference_queries)


def with_arrival(summary: SummaryState, arrival: BatchArrival) -> SummaryState:
    """A summary with a batch's tuples inserted; nothing is evicted before the batch is over."""
    before = summary.representation
    if arrival.rows:
        since = arrival.low if before.floor is None else min(arrival.low, before.floor)
        if arrival.run is not None and arrival.summarized is None:
            before = before.awaiting(arrival.run.tuples, since)
        else:
            before = before.inserted(arrival.steps, arrival.high, since)
    return replace(
        summary,
        representation=before,
        runs=summary.runs if arrival.run is None else (*summary.runs, arrival.run),
        files=summary.files if arrival.file is None else (*summary.files, arrival.file),
        arrived=summary.arrived + arrival.rows + arrival.late,
        late=summary.late + arrival.late,
    )


def late_before(
    name: str, summaries: Mapping[str, SummaryState], queries: Mapping[str, PreferenceQuery]
) -> int | None:
    """The time before which a tuple of a summary is late when it arrives; None while no tuple can be.

    It lies the summary's reach before the newest tuple of the summary, or of a stream that it is joined with,
    whichever is oldest. It never moves back, since older tuples may have been evicted.
    """
    summary = summaries[name]
    highs = [summary.representation.high]
    for query in queries.values():
        names = [side.summary for side in query.sides]
        if name in names:
            highs += [summaries[other].representation.high for other in names]
    known = [high for high in highs if high is not None]
    if len(known) < len(highs):
        return summary.late_before
    now = min(known) - summary.representation.shape.reach
    return now if summary.late_before is None else max(now, summary.late_before)


def retention_start(
    name: str, summaries: Mapping[str, SummaryState], queries: Mapping[str, PreferenceQuery]
) -> int | None:
    """The time from which on a summary keeps its tuples: those that are not late, and their possible partners.

    A tuple of a joined stream that is not late may have partners that are older by the join's window. While
    one of the streams has no tuples, all tuples are kept.
    """
    summary = summaries[name]
    starts = [late_before(name, summaries, queries)]
    for query in queries.values():
        names = [side.summary for side in query.sides]
        if name in names and len(names) == 2 and query.preference.window is not None:
            other = late_before(names[1 - names.index(name)], summaries, queries)
            starts.append(None if other is None else other - query.preference.window)
    known = [start for start in starts if start is not None]
    since = min(known) if len(known) == len(starts) else summary.representation.floor
    return since if summary.floor is None or since is None else max(since, summary.floor)


def evicted(
    summaries: Mapping[str, SummaryState], queries: Mapping[str, PreferenceQuery]
) -> dict[str, SummaryState]:
    """The summaries after a batch, without the tuples that can't find a partner any more."""
    return {
        name: replace(
            without_evicted(summary, retention_start(name, summaries, queries)),
            late_before=late_before(name, summaries, queries),
        )
        for name, summary in summaries.items()
    }


def without_evicted(summary: SummaryState, since: int | None) -> SummaryState:
    """A summary without the tuples before a time, as far as its granularities allow, and with merged runs."""
    representation = summary.representation.advanced(since)
    floor = representation.floor
    runs, files = list(summary.runs), summary.files
    if floor is not None:
        runs = [run for run in runs if run.rows and run.tuples.times[1] >= floor]
        files = tuple(ref for ref in files if ref.held[0][0][1] >= floor)
    # A selection resumes a batch only while all its tuples are kept, and on the driver.
    rankings = tuple(one for one in summary.rankings if floor is None or one.since >= floor)
    return replace(
        summary,
        representation=representation,
        runs=_merged(runs, floor),
        files=files,
        rankings=() if files else rankings,
    )


def _merged(runs: Sequence[TupleRun], floor: int | None) -> tuple[TupleRun, ...]:
    """Merge runs if many have about the same size, so that tuples are seldom moved and there are few runs."""
    runs = sorted(runs, key=lambda run: -run.rows)
    while len(runs) > MAX_SIMILAR_RUNS and runs[-MAX_SIMILAR_RUNS].rows <= MAX_SIMILAR_RUNS * (
        runs[-1].rows + 1
    ):
        small, runs = runs[-MAX_SIMILAR_RUNS:], runs[:-MAX_SIMILAR_RUNS]
        runs.append(TupleRun(concat_tuples([run.tuples for run in small]).since(floor)))
        runs.sort(key=lambda run: -run.rows)
    return tuple(run for run in runs if run.rows)
