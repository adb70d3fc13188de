"""The link to the engine: early results get estimates, and estimators learn from finals."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.columns.hashes import row_hashes
from transom.estimates.early_values import EarlyValues, Estimates, FinalValues, ItemKind
from transom.estimates.estimator import Estimator
from transom.estimates.monitor import Quality
from transom.kernel.sheets import one_array
from transom.plan.compiled_query import CompiledQuery
from transom.results.early_results import wids_of
from transom.results.result_rows import ESTIMATES, ResultBatch, Results, result_schema
from transom.sql.item_columns import aggregate_reference
from transom.sql.query import Item, Query, free_name
from transom.windows import ids as windows

log = logging.getLogger("transom")


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
    values: EarlyValues
    estimates: Estimates


def learn_from_batch(
    before: Mapping[str, Estimator],
    feedback: BatchFeedback,
    queries: Mapping[str, CompiledQuery],
    made: int,
    qualities: Mapping[str, Quality],
) -> tuple[Mapping[str, Estimator], Results]:
    """The estimators after a batch, and the batch's early results with estimates."""
    estimators = dict(before)
    for query, table in _emitting(feedback.final, queries):
        estimator = estimators.get(query.name) or new_estimator(query)
        emit = query.query.emit
        quality = qualities.get(emit.quality) if emit is not None and emit.quality is not None else None
        try:
            estimators[query.name] = estimator.with_finals(_finals(query, table, made), quality)
        except Exception:  # such as an error in the user's quality function; results are not affected
            log.exception("the estimator of %s failed to learn from finals and starts anew", query.name)
            estimators[query.name] = new_estimator(query)
    for name, wid in feedback.closed.items():
        if name in estimators:
            estimators[name] = estimators[name].since(wid)
    early, emitted = add_estimates(estimators, feedback.emitted, queries, feedback.now, made)
    _, observed = add_estimates(estimators, feedback.observed, queries, feedback.now, made, emitted=False)
    return with_observations(estimators, [*emitted, *observed], queries), early


def with_observations(
    before: Mapping[str, Estimator], observations: Iterable[Observation], queries: Mapping[str, CompiledQuery]
) -> Mapping[str, Estimator]:
    """The estimators with observations, pending until their finals arrive."""
    estimators = dict(before)
    for observation in observations:
        name = observation.query
        if name in queries and queries[name].query.emit is not None:
            estimator = estimators.get(name) or new_estimator(queries[name])
            estimators[name] = estimator.with_observation(observation.values, observation.estimates)
    return estimators


def add_estimates(
    estimators: Mapping[str, Estimator],
    early: Results,
    queries: Mapping[str, CompiledQuery],
    now: Mapping[str, int],
    made: int,
    emitted: bool = True,
) -> tuple[Results, list[Observation]]:
    """Early results with estimates, and the observations to learn from."""
    batches = [batch for batch in early.batches if queries[batch.names[0]].query.emit is None]
    observations = []
    for query, table in _emitting(early, queries):
        estimator = estimators.get(query.name) or new_estimator(query)
        is_emitted = np.full(table.num_rows, emitted)
        values = early_values_of(query, table, now.get(query.name), made, is_emitted)
        try:
            estimates = estimator.estimate(values)
            observations.append(Observation(query.name, values, estimates))
            table = with_estimates(query, table, estimates)
        except Exception:  # the early result itself is correct
            log.exception("the estimator of %s failed; its early results have no estimates", query.name)
        batches.append(ResultBatch([query.name], np.array([0, table.num_rows]), table))
    return Results(batches), observations


def _emitting(
    results: Results, queries: Mapping[str, CompiledQuery]
) -> Iterator[tuple[CompiledQuery, pa.Table]]:
    """The results of queries with EMIT EARLY whose state is on the driver."""
    for batch in results.batches:
        for i, name in enumerate(batch.names):
            if queries[name].query.emit is not None:
                start, stop = int(batch.bounds[i]), int(batch.bounds[i + 1])
                yield queries[name], batch.table.slice(start, stop - start)


def new_estimator(query: CompiledQuery) -> Estimator:
    """A new estimator for a query."""
    bound = query.query
    assert bound.emit is not None
    kinds = [ItemKind(item.name, item in bound.estimated, _grows(bound, item)) for item in _compared(bound)]
    return Estimator.of(bound.emit, kinds, windows.windows_per_row(bound.window))


def _compared(bound: Query) -> list[Item]:
    """The items whose early and final values are compared: all but the group attributes."""
    return [item for item in bound.items if not item.is_key]


def _grows(bound: Query, item: Item) -> bool:
    """Whether an item is an aggregate that grows with its tuples, and nothing more."""
    places = {aggregate_reference(i): call for i, call in enumerate(bound.calls)}
    return item.sql in places and aggregate_function(places[item.sql].function).grows


def early_values_of(
    query: CompiledQuery, table: pa.Table, now: int | None, made: int, emitted: np.ndarray
) -> EarlyValues:
    """Early results in the form that estimators read."""
    spec, wids = query.query.window, wids_of(query, table)
    ends = windows.window_end(spec, wids)
    slides_left = np.zeros(len(ends)) if now is None else windows.slides_to_end(spec, ends, now)
    rows = table[_column(query.query, "rows")].to_numpy()
    return EarlyValues(_groups(query, table), wids, slides_left, rows, _items(query, table), made, emitted)


def _finals(query: CompiledQuery, table: pa.Table, made: int) -> FinalValues:
    rows = table[_column(query.query, "rows")].to_numpy()
    return FinalValues(_groups(query, table), wids_of(query, table), rows, _items(query, table), made)


def _groups(query: CompiledQuery, table: pa.Table) -> np.ndarray:
    keys = [one_array(table[item.name]) for item in query.query.items if item.is_key]
    return row_hashes(keys, table.num_rows).view(np.int64)


def _items(query: CompiledQuery, table: pa.Table) -> pa.Table:
    return table.select([item.name for item in _compared(query.query)])


def _column(bound: Query, name: str) -> str:
    """The name of a system column in a query's results."""
    return free_name(name, {item.name for item in bound.items})


def with_estimates(query: CompiledQuery, table: pa.Table, estimates: Estimates) -> pa.Table:
    """Early results with the estimates of their finals."""
    bound, schema = query.query, result_schema(query.query)
    columns = dict(zip(schema.names, table.columns, strict=True))
    start = 2 + len(bound.items)
    for i in range(len(bound.estimated)):
        for j, values in enumerate((estimates.projected, estimates.low, estimates.high)):
            name = schema.names[start + i * len(ESTIMATES) + j]
            columns[name] = pa.chunked_array([pa.array(values[:, i], from_pandas=True)])
    return pa.Table.from_arrays(list(columns.values()), schema=schema)
