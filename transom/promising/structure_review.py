"""Reviews of the structure of summaries with STRUCTURE auto: from time to time the engine chooses the best one.

The paper's caution (figure 10): if tuples arrive fast and windows are small, summaries cost more than they
save. A budget of time also pays for insertion, so equation 1 decides. A budget of probes pays for probes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from transom.elements import Summary
from transom.plan.limits import Limits
from transom.plan.planner import Planner
from transom.promising.batch_tuples import NUMBER_COLUMN, BatchArrival, as_numbers, concat_tuples
from transom.promising.regions import WHOLE_BATCH
from transom.promising.representation import Representation
from transom.promising.structure_choice import Costs, best_structure, corrected, trial
from transom.promising.structure_trials import MeasuredStructures
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import PreferenceState, PromisingState, SummaryState, TupleRun

FREE = Costs(dict.fromkeys(Costs().inserting, 0.0), dict.fromkeys(Costs().planning, 0.0))


@dataclass(frozen=True)
class ReviewInput:
    """The input of a review: the batch, its arrivals, the queries, and each query's probes per batch.

    For a budget of time, these are the probes that would fit if nothing else took time: each structure pays for
    its own insertion. `produced` is the output of the batch by summary, and `seconds` the time that it took.
    """

    batch_id: int
    arrivals: Mapping[str, BatchArrival]
    queries: Mapping[str, PreferenceQuery]
    budgets: Mapping[str, int | None]
    produced: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class ChosenStructure:
    """The structure that a review chose for a summary, and why."""

    structure: str
    reason: str


def choose_structure(
    name: str, promising_state: PromisingState, given: ReviewInput, sample: int
) -> ChosenStructure | None:
    """The best structure of a summary for the join with the least time per tuple; None without such a join.

    A trial on a sample of the summary's tuples decides.
    """
    best = None
    least = np.inf
    for query, preferred in given.queries.items():
        sides = [side.summary for side in preferred.sides]
        budget = given.budgets.get(query)
        if name not in sides or budget is None or len(sides) != 2 or preferred.is_combined:
            continue
        arriving = given.arrivals.get(sides[1 - sides.index(name)])
        if arriving is None or not arriving.rows:
            continue
        tau = budget / arriving.rows
        if tau < least:
            least = tau
            structure = _best_for_join(
                promising_state, name, preferred, promising_state.queries[query], arriving, tau, sample
            )
            reason = (
                f"it costs query {query} the least per result, in a trial with {tau:,.3g} probes per tuple"
            )
            best = ChosenStructure(structure, reason)
    return best


@dataclass(frozen=True)
class StructureReview:
    """Decides when a structure is reviewed, and which one is chosen.

    A summary is reviewed `first_review` batches after it was created, then after twice as many, and so on, but
    at least every `longest_review` batches. `choose` is what a trial predicts; what the structures produce in the
    running engine is `measured`, by summary, and has the last word.
    """

    limits: Limits = field(default_factory=Limits)
    choose: Callable[[str, PromisingState, ReviewInput, int], ChosenStructure | None] = choose_structure
    measured: dict[str, MeasuredStructures] = field(default_factory=dict, compare=False)
    is_judged: bool = True  # by what is measured

    def apply(
        self,
        promising_state: PromisingState,
        shapes: Mapping[str, Summary],
        given: ReviewInput,
        planner: Planner,
    ) -> PromisingState:
        """The state with the best structures for the summaries that are due for a review.

        Only summaries on the driver are rebuilt. Regions that are cells of the old structure are lost, since its
        zones are gone. Regions by key stay.
        """
        limits = self.limits
        for name, summary_state in promising_state.summaries.items():
            if shapes[name].structure != "auto" or summary_state.files or not summary_state.runs:
                continue
            measured = self._measured(name, summary_state, given)
            if given.batch_id < summary_state.review:
                continue
            best = self.choose(name, promising_state, given, limits.review_tuples)
            best = None if best is None else _judged(best, summary_state, measured, given.batch_id)
            age = given.batch_id - summary_state.since
            after = replace(
                summary_state,
                review=given.batch_id + min(max(age, limits.first_review), limits.longest_review),
            )
            if best is not None and best.structure != summary_state.representation.shape.structure:
                shape = replace(shapes[name], structure=best.structure)
                promising_state = _without_deferred(promising_state, name, given.queries, shape)
                after = rebuilt(after, shape)
                planner.record_structure(name, shapes[name].stream, best.structure, best.reason)
            promising_state = replace(promising_state, summaries={**promising_state.summaries, name: after})
        return promising_state

    def _measured(self, name: str, summary: SummaryState, given: ReviewInput) -> MeasuredStructures:
        """What the structures of a summary have produced, including this batch."""
        measured = self.measured.setdefault(name, MeasuredStructures())
        if name in given.produced and self.is_judged:
            structure = summary.representation.shape.structure
            measured.note(structure, given.batch_id, given.produced[name], given.seconds)
        return measured


def _judged(
    predicted: ChosenStructure, summary: SummaryState, measured: MeasuredStructures, batch_id: int
) -> ChosenStructure:
    """The structure that a trial predicts to be best, unless what was measured says otherwise."""
    structure = measured.judged(summary.representation.shape.structure, predicted.structure, batch_id)
    if structure == predicted.structure:
        return predicted
    return ChosenStructure(
        structure, f"it produced the most per second when it was used; a trial predicts {predicted.structure}"
    )


def rebuilt(summary: SummaryState, shape: Summary) -> SummaryState:
    """A summary of the same tuples in another structure."""
    before, floor = summary.representation, summary.representation.floor
    whole = concat_tuples([run.tuples for run in summary.runs]).since(floor)
    numbers = as_numbers(whole.table[NUMBER_COLUMN]) if shape.between is not None else None
    buckets = bucket_of(shape, whole.key, numbers)
    table = whole.table.set_column(1, "bucket", [buckets.astype(np.int32)])
    tuples = KeptTuples.of(table)
    known = Representation.new(shape).awaiting(tuples, before.since).advanced(before.since)
    return replace(summary, representation=known, runs=(TupleRun(tuples),))


def _best_for_join(
    promising_state: PromisingState,
    name: str,
    query: PreferenceQuery,
    query_state: PreferenceState,
    arriving: BatchArrival,
    tau: float,
    sample: int,
) -> str:
    """The best structure for a join's probes, by a trial on a sample of the summary's tuples."""
    summary = promising_state.summaries[name]
    representation, window = summary.representation, query.preference.window
    whole = concat_tuples([run.tuples for run in summary.runs])
    newest = np.argsort(whole.time, kind="stable")[-sample:]
    if window is not None and representation.high is not None:
        newest = newest[whole.time[newest] >= representation.high - window]
    numbers = None
    if representation.shape.between is not None and arriving.values.number is not None:
        numbers = as_numbers(whole.table[NUMBER_COLUMN])[newest], arriving.values.number
    tuples = whole.time[newest], whole.key[newest]
    values = arriving.values
    per_output = trial(representation.shape, tuples, (values.key, values.count), numbers)
    present = representation.shape.structure
    if query_state.done.produced and np.isfinite(per_output[present]):
        per_output = corrected(per_output, present, query_state.done.probes / query_state.done.produced)
    costs = Costs() if query.preference.time is not None else FREE
    regions = len(representation.zones().since) * len(values) / max(arriving.rows, 1)
    return best_structure(tau, per_output, present, costs, regions)


def _without_deferred(
    promising_state: PromisingState, name: str, queries: Mapping[str, PreferenceQuery], shape: Summary
) -> PromisingState:
    """The state without the deferred regions that are cells of a summary, which is to get another shape."""
    states = dict(promising_state.queries)
    for query, preferred in queries.items():
        sides = [side.summary for side in preferred.sides]
        if name in sides and query in states:
            # A selection has one side, whose tuples arrive.
            arriving = [len(sides) - 1 - place for place, side in enumerate(sides) if side == name]
            states[query] = _without_cells(states[query], arriving, shape)
    return replace(promising_state, queries=states)


def _without_cells(query_state: PreferenceState, arriving: Sequence[int], shape: Summary) -> PreferenceState:
    """A query without the deferred regions of some arriving sides that are cells; those by key get new buckets."""
    pending, lost, missed = list(query_state.pending), 0.0, 0
    for side in arriving:
        regions = pending[side]
        # The buckets of values between two numbers are not known by their keys.
        stays = regions.by_key if shape.between is None else np.zeros(len(regions), bool)
        lost_regions, kept = regions.where(~stays), regions.where(stays)
        is_whole = kept.bucket == WHOLE_BATCH  # a line for all values
        pending[side] = replace(kept, bucket=np.where(is_whole, WHOLE_BATCH, bucket_of(shape, kept.key)))
        lost += float(lost_regions.expected_left.sum())
        missed += int(lost_regions.left.sum())
    return replace(
        query_state, pending=tuple(pending), lost=query_state.lost + lost, missed=query_state.missed + missed
    )
