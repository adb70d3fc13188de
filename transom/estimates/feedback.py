"""The link to the engine: early results get estimates, and estimators learn from finals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from transom.estimates.batch_decisions import BatchDecisions, new_decisions, undecided
from transom.estimates.batch_stacks import BatchStacks
from transom.estimates.early_values import Estimates
from transom.estimates.estimator import Estimator
from transom.estimates.estimator_stack import EarlyRows
from transom.estimates.monitor import Quality
from transom.estimates.result_values import ResultValues, emitting, item_kinds, with_estimates
from transom.plan.compiled_query import CompiledQuery
from transom.results.result_rows import Results
from transom.windows import ids as windows


@dataclass(frozen=True)
class BatchFeedback:
    """The finals and the early results of a batch, from which estimators learn.

    `emitted` are the early results for the user. `observed` are computed only to learn from them, and `looks` to
    decide HAVING. `now` is the time of each query's clock, `before` the same after the batch before; `closed` are the
    window ids below which a query's windows are closed.
    """

    final: Results
    emitted: Results
    observed: Results
    looks: Results
    now: Mapping[str, int]
    before: Mapping[str, int]
    closed: Mapping[str, int]


@dataclass(frozen=True)
class Observation:
    """Early values of a query's open windows, with the estimates that were made of them."""

    query: str
    values: EarlyRows
    estimates: Estimates


def learn_from_batch(
    before: Mapping[str, Estimator],
    feedback: BatchFeedback,
    queries: Mapping[str, CompiledQuery],
    made: int,
    qualities: Mapping[str, Quality],
) -> tuple[Mapping[str, Estimator], Results]:
    """The estimators after a batch, and its results: early ones with estimates, finals, and early decisions."""
    final, emitted, observed, looks = (
        list(emitting(results, queries))
        for results in (feedback.final, feedback.emitted, feedback.observed, feedback.looks)
    )
    stacks = _stacks(before, [*final, *emitted, *observed, *looks], queries)
    stacks.learn(final, made, feedback.closed, qualities)
    decisions = BatchDecisions(before, queries)
    settled = decisions.settle(final, made, feedback.closed)
    early = stacks.estimate(emitted, feedback.now, made, is_emitted=True)
    stacks.estimate(observed, feedback.now, made, is_emitted=False)
    estimated = stacks.estimate(looks, feedback.now, made, is_emitted=False, before=feedback.before)
    announced = decisions.announce(estimated, feedback.now, made)
    learned = {
        name: estimator if name not in before else replace(estimator, decisions=before[name].decisions)
        for name, estimator in stacks.estimators()
    }
    idle = {
        name: before[name].since(wid)
        for name, wid in feedback.closed.items()
        if name in before and name not in learned
    }
    after = {**before, **idle, **learned}
    after |= {name: replace(after[name], decisions=own) for name, own in decisions.changed.items()}
    shown = _shown(feedback.emitted, early, queries)
    return after, Results([*undecided(feedback.final, queries), *settled, *shown.batches, *announced])


def with_observations(
    before: Mapping[str, Estimator], observations: Iterable[Observation], queries: Mapping[str, CompiledQuery]
) -> Mapping[str, Estimator]:
    """The estimators with observations, pending until their finals arrive."""
    estimators = dict(before)
    for observation in observations:
        name = observation.query
        if name in queries and queries[name].query.is_projected:
            estimator = estimators.get(name) or new_estimator(queries[name])
            estimators[name] = estimator.with_early(observation.values, observation.estimates)
    return estimators


def add_estimates(
    estimators: Mapping[str, Estimator],
    early: Results,
    queries: Mapping[str, CompiledQuery],
    now: Mapping[str, int],
    made: int,
) -> tuple[Results, list[Observation]]:
    """Early results with estimates, and the observations to learn from."""
    values = list(emitting(early, queries))
    estimated = _stacks(estimators, values, queries).estimate(values, now, made, is_emitted=True)
    observations = []
    for own, estimates in estimated:
        rows = own.early_rows(own.slides_left(now), made)
        bounds = own.batch.bounds.tolist()
        for name, start, stop in zip(own.batch.names, bounds[:-1], bounds[1:], strict=True):
            observations.append(Observation(name, rows.part(start, stop), estimates.take(slice(start, stop))))
    return _shown(early, estimated, queries), observations


def _stacks(
    before: Mapping[str, Estimator], results: Iterable[ResultValues], queries: Mapping[str, CompiledQuery]
) -> BatchStacks:
    """The estimators of the queries that have some results."""
    names = dict.fromkeys(name for values in results for name in values.batch.names)
    return BatchStacks(before, list(names), lambda name: new_estimator(queries[name]))


def _shown(
    early: Results,
    estimated: Iterable[tuple[ResultValues, Estimates]],
    queries: Mapping[str, CompiledQuery],
) -> Results:
    """Early results with their estimates, and those of queries without EMIT EARLY."""
    batches = [batch for batch in early.batches if not queries[batch.names[0]].query.is_projected]
    for values, estimates in estimated:
        batches.append(with_estimates(queries[values.batch.names[0]], values.batch, estimates))
    return Results(batches)


def new_estimator(query: CompiledQuery) -> Estimator:
    """A new estimator for a query."""
    bound = query.query
    assert bound.emit is not None
    estimator = Estimator.of(bound.emit, item_kinds(bound), windows.windows_per_row(bound.window))
    decided = bound.early_decision is not None
    return replace(estimator, decisions=new_decisions(bound)) if decided else estimator
