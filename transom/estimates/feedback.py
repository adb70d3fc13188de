"""The link to the engine: early results get estimates, and estimators learn from finals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transom.aggregates.table import aggregate_function
from transom.estimates.batch_stacks import BatchStacks
from transom.estimates.early_values import Estimates, ItemKind
from transom.estimates.estimator import Estimator
from transom.estimates.estimator_stack import EarlyRows
from transom.estimates.monitor import Quality
from transom.estimates.result_values import ResultValues, compared_items, emitting, with_estimates
from transom.plan.compiled_query import CompiledQuery
from transom.results.result_rows import Results
from transom.sql.item_columns import aggregate_reference
from transom.sql.query import Item, Query
from transom.windows import ids as windows


@dataclass(frozen=True)
class BatchFeedback:
    """The finals and the early results of a batch, from which estimators learn.

    `emitted` are the early results for the user. `observed` are computed only to learn from them. `now` is the
    time of each query's clock; `closed` are the window ids below which a query's windows are closed.
    """

    final: Results
    emitted: Results
    observed: Results
    now: Mapping[str, int]
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
    """The estimators after a batch, and the batch's early results with estimates."""
    final, emitted, observed = (
        list(emitting(results, queries)) for results in (feedback.final, feedback.emitted, feedback.observed)
    )
    stacks = _stacks(before, [*final, *emitted, *observed], queries)
    stacks.learn(final, made, feedback.closed, qualities)
    early = stacks.estimate(emitted, feedback.now, made, is_emitted=True)
    stacks.estimate(observed, feedback.now, made, is_emitted=False)
    learned = dict(stacks.estimators())
    idle = {
        name: before[name].since(wid)
        for name, wid in feedback.closed.items()
        if name in before and name not in learned
    }
    return {**before, **idle, **learned}, _shown(feedback.emitted, early, queries)


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
    kinds = [
        ItemKind(item.name, item in bound.estimated, _grows(bound, item)) for item in compared_items(bound)
    ]
    return Estimator.of(bound.emit, kinds, windows.windows_per_row(bound.window))


def _grows(bound: Query, item: Item) -> bool:
    """Whether an item is an aggregate that grows with its tuples, and nothing more."""
    places = {aggregate_reference(i): call for i, call in enumerate(bound.calls)}
    return item.sql in places and aggregate_function(places[item.sql].function).grows
