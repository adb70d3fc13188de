"""Which structure a summary has, where that is the engine's to choose: it is looked at again now and then.

The paper's caution (figure 10): where tuples come fast and windows are small, summaries cost more than they
bring. A query whose budget is a time pays for insertion as well, so equation 1 says what pays; a budget of
probes is for probes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from transom.elements import Summary
from transom.promising.batch_tuples import NUMBER, BatchArrival, as_numbers, concat_tuples
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.structure_choice import Costs, best_structure, corrected, trial
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import PreferenceState, PromisingState, SummaryState, TupleRun

FIRST_REVIEW = 4  # batches after a summary came; then after twice as many, and so on
MOST_BATCHES = 256  # between two reviews
SAMPLE = 2_000  # tuples that a trial is made on
FREE = Costs(dict.fromkeys(Costs().inserting, 0.0), dict.fromkeys(Costs().planning, 0.0))


@dataclass(frozen=True)
class ReviewInput:
    """What a review goes by: the batch, what came with it, the queries, and what each may probe in a batch."""

    batch_id: int
    arrivals: Mapping[str, BatchArrival]
    queries: Mapping[str, PreferenceQuery]
    budgets: Mapping[str, int | None]


def review_structures(
    known: PromisingState, shapes: Mapping[str, Summary], review: ReviewInput
) -> PromisingState:
    """With the structures that pay best, for summaries whose time to be looked at has come.

    Only what is on the driver is ever built anew. Regions that waited in a structure that is given up are
    lost: what they are told by is gone.
    """
    for name, own in known.summaries.items():
        if shapes[name].structure != "auto" or own.far or not own.near or review.batch_id < own.review:
            continue
        best = _best(name, known, review)
        since = review.batch_id - own.since
        after = replace(own, review=review.batch_id + min(max(since, FIRST_REVIEW), MOST_BATCHES))
        if best is not None and best != own.representation.shape.structure:
            known = _without_waiting(known, name, review.queries)
            after = rebuilt(after, replace(shapes[name], structure=best))
        known = replace(known, summaries={**known.summaries, name: after})
    return known


def rebuilt(summary: SummaryState, shape: Summary) -> SummaryState:
    """A summary of the same tuples in another structure."""
    before, floor = summary.representation, summary.representation.floor
    whole = concat_tuples([run.tuples for run in summary.near]).since(floor)
    numbers = as_numbers(whole.table[NUMBER]) if shape.between is not None else None
    buckets = bucket_of(shape, whole.key, numbers)
    table = whole.table.set_column(1, "bucket", [buckets.astype(np.int32)])
    made = summarize_steps(shape, whole.time, whole.key, buckets, floor)
    known = Representation.new(shape).inserted(made, before.high or 0, before.since)
    return replace(summary, representation=known, near=(TupleRun(KeptTuples.of(table)),))


def _best(name: str, known: PromisingState, review: ReviewInput) -> str | None:
    """The structure that the queries with the least time for it are best served by; None if none can tell."""
    found = None
    least = np.inf
    for query, preferred in review.queries.items():
        sides = [side.summary for side in preferred.sides]
        budget = review.budgets.get(query)
        if name not in sides or budget is None or len(sides) != 2:
            continue
        arriving = review.arrivals.get(sides[1 - sides.index(name)])
        if arriving is None:
            continue
        tau = budget / arriving.rows
        if tau < least:
            least = tau
            found = _tried(known, name, preferred, known.queries[query], arriving, tau)
    return found


def _tried(
    known: PromisingState,
    name: str,
    query: PreferenceQuery,
    own: PreferenceState,
    arriving: BatchArrival,
    tau: float,
) -> str:
    """The best structure for a join's probes, tried on a sample of the tuples that they find there."""
    summary = known.summaries[name]
    kept, window = summary.representation, query.preference.window
    whole = concat_tuples([run.tuples for run in summary.near])
    newest = np.argsort(whole.time, kind="stable")[-SAMPLE:]
    if window is not None and kept.high is not None:
        newest = newest[whole.time[newest] >= kept.high - window]
    numbers = None
    if kept.shape.between is not None and arriving.values.number is not None:
        numbers = as_numbers(whole.table[NUMBER])[newest], arriving.values.number
    tuples = whole.time[newest], whole.key[newest]
    values = arriving.values
    per_output = trial(kept.shape, tuples, (values.key, values.count), numbers)
    present = kept.shape.structure
    if own.done.produced and np.isfinite(per_output[present]):
        per_output = corrected(per_output, present, own.done.probes / own.done.produced)
    costs = Costs() if query.preference.time is not None else FREE
    regions = len(kept.zones().since) * len(values) / max(arriving.rows, 1)
    return best_structure(tau, per_output, present, costs, regions)


def _without_waiting(
    known: PromisingState, name: str, queries: Mapping[str, PreferenceQuery]
) -> PromisingState:
    """Without the regions that wait in a summary."""
    states = dict(known.queries)
    for query, preferred in queries.items():
        sides = [side.summary for side in preferred.sides]
        if name in sides and query in states:
            own = states[query]
            arriving = len(sides) - 1 - sides.index(name)  # those of a selection are its own
            gone = own.pending[arriving]
            pending = tuple(
                Regions.none() if side == arriving else part for side, part in enumerate(own.pending)
            )
            lost, missed = float(gone.expected_left.sum()), int(gone.left.sum())
            states[query] = replace(own, pending=pending, lost=own.lost + lost, missed=own.missed + missed)
    return replace(known, queries=states)
