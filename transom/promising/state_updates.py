"""Updates of the state of summaries and queries with a preference: registration, arrivals, and eviction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from transom.elements import Summary
from transom.promising.batch_tuples import BatchArrival, concat_tuples
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.selections import cell_counts
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import PreferenceState, PromisingState, SummaryState, TupleRun

MAX_SIMILAR_RUNS = 8  # runs of about one size, before they are merged


def with_structure(shape: Summary, structure: str = "adjusting") -> Summary:
    """A summary whose structure is settled: the given one, where it is the engine's to choose."""
    return replace(shape, structure=structure) if shape.structure == "auto" else shape


def with_registered(
    known: PromisingState,
    summaries: Mapping[str, tuple[Summary, int]],
    queries: Mapping[str, tuple[PreferenceQuery, int]],
) -> PromisingState:
    """With states for those that joined, without those that left; each is given with its first batch."""
    kept = {
        name: own
        for name, own in known.summaries.items()
        if name in summaries and own.since == summaries[name][1]
    }
    for name, (shape, since) in summaries.items():
        if name not in kept:
            kept[name] = SummaryState(Representation.new(with_structure(shape)), since)
    preference_queries = {
        name: own for name, own in known.queries.items() if name in queries and own.since == queries[name][1]
    }
    for name, (query, since) in queries.items():
        if name not in preference_queries:
            preference_queries[name] = PreferenceState(tuple(Regions.none() for _ in query.sides), since)
    return PromisingState(kept, preference_queries)


def with_arrival(summary: SummaryState, arrival: BatchArrival) -> SummaryState:
    """A summary with a batch's tuples in it; nothing is let go before the batch is over."""
    before = summary.representation
    since = arrival.low if before.floor is None else min(arrival.low, before.floor)
    since = since if summary.floor is None else max(since, summary.floor)
    known = before.inserted(arrival.steps, arrival.high, since)
    return replace(
        summary,
        representation=known,
        near=summary.near if arrival.near is None else (*summary.near, arrival.near),
        far=summary.far if arrival.far is None else (*summary.far, arrival.far),
        came=summary.came + arrival.rows,
        late=summary.late + arrival.rows - int(cell_counts(arrival.steps, known).sum()),
    )


def retention_start(
    name: str, summaries: Mapping[str, SummaryState], queries: Mapping[str, PreferenceQuery]
) -> int | None:
    """The time from which on a summary keeps its tuples: as far back as it reaches, from where it is or the
    streams are that it is joined with; all of them while one of these has brought nothing."""
    own = summaries[name].representation
    if own.high is None:
        return None
    highs: list[int | None] = [own.high]
    for query in queries.values():
        names = [side.summary for side in query.sides]
        if name in names:
            highs += [summaries[other].representation.high for other in names]
    known = [high for high in highs if high is not None]
    floor = summaries[name].floor
    since = min(known) - own.shape.reach if len(known) == len(highs) else own.floor
    return since if floor is None or since is None else max(since, floor)


def without_evicted(summary: SummaryState, since: int | None) -> SummaryState:
    """A summary without the tuples that it lets go, which came before a time, and with its runs made few."""
    known = summary.representation.advanced(since)
    floor = known.floor
    near, far = list(summary.near), summary.far
    if floor is not None:
        near = [run for run in near if run.rows and int(run.tuples.time.max()) >= floor]
        far = tuple(ref for ref in far if ref.held[0][0][1] >= floor)
    return replace(summary, representation=known, near=_merged(near, floor), far=far)


def _merged(runs: Sequence[TupleRun], floor: int | None) -> tuple[TupleRun, ...]:
    """KeyRuns with many of about one size made into one, so that a tuple is moved seldom and runs stay few."""
    runs = sorted(runs, key=lambda run: -run.rows)
    while len(runs) > MAX_SIMILAR_RUNS and runs[-MAX_SIMILAR_RUNS].rows <= MAX_SIMILAR_RUNS * (
        runs[-1].rows + 1
    ):
        small, runs = runs[-MAX_SIMILAR_RUNS:], runs[:-MAX_SIMILAR_RUNS]
        runs.append(TupleRun(concat_tuples([run.tuples for run in small]).since(floor)))
        runs.sort(key=lambda run: -run.rows)
    return tuple(run for run in runs if run.rows)
