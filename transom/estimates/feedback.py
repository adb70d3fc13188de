"""Early results meet their finals: they are projected and bounded, and judged when their windows close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.columns.hashing import hashed
from transom.estimates.learned import Learned
from transom.estimates.sightings import Estimates, Finals, ItemKind, Sight
from transom.kernel.sheets import one_array
from transom.plan.compiled import CompiledQuery
from transom.results.early import wids_of
from transom.results.presentation import ESTIMATES, ResultBatch, Results, result_schema
from transom.sql.query import Item, Query, free_name
from transom.windows import ids as windows

log = logging.getLogger("transom")

Quality = Callable[[Any, Any, float], float]


@dataclass(frozen=True)
class Lesson:
    """A batch's finals, its early results, told and silent, and how far the clock of each query has come.

    `closed` are the ids below which the windows of queries are closed.
    """

    final: Results
    told: Results
    silent: Results
    now: Mapping[str, int]
    closed: Mapping[str, int]


@dataclass(frozen=True)
class Seen:
    """What was seen of a query's open windows, and what was said of it."""

    query: str
    sight: Sight
    estimates: Estimates


def learn(
    known: Mapping[str, Learned],
    lesson: Lesson,
    queries: Mapping[str, CompiledQuery],
    made: int,
    qualities: Mapping[str, Quality],
) -> tuple[Mapping[str, Learned], Results]:
    """What is learned from a batch; and what it tells early, with estimates."""
    learned = dict(known)
    for query, table in _emitting(lesson.final, queries):
        own = learned.get(query.name) or beginner(query)
        emit = query.query.emit
        quality = qualities.get(emit.quality) if emit is not None and emit.quality is not None else None
        try:
            learned[query.name] = own.closed(_finals(query, table, made), quality)
        except Exception:  # its own results are right all the same, and those of others no concern of it
            log.exception("nothing can be learned from the finals of %s: it begins anew", query.name)
            learned[query.name] = beginner(query)
    for name, wid in lesson.closed.items():
        if name in learned:
            learned[name] = learned[name].since(wid)
    shown, told = estimated(learned, lesson.told, queries, lesson.now, made)
    _, silent = estimated(learned, lesson.silent, queries, lesson.now, made, told=False)
    return with_sights(learned, [*told, *silent], queries), shown


def with_sights(
    known: Mapping[str, Learned], seen: Iterable[Seen], queries: Mapping[str, CompiledQuery]
) -> Mapping[str, Learned]:
    """What is known, and what was seen."""
    learned = dict(known)
    for one in seen:
        if one.query in queries and queries[one.query].query.emit is not None:
            own = learned.get(one.query) or beginner(queries[one.query])
            learned[one.query] = own.seen(one.sight, one.estimates)
    return learned


def estimated(
    known: Mapping[str, Learned],
    early: Results,
    queries: Mapping[str, CompiledQuery],
    now: Mapping[str, int],
    made: int,
    told: bool = True,
) -> tuple[Results, list[Seen]]:
    """Early results with estimates; and what is to be remembered of them."""
    batches = [batch for batch in early.batches if queries[batch.names[0]].query.emit is None]
    seen = []
    for query, table in _emitting(early, queries):
        own = known.get(query.name) or beginner(query)
        sight = sight_of(query, table, now.get(query.name), made, np.full(table.num_rows, told))
        try:
            estimates = own.estimate(sight)
            seen.append(Seen(query.name, sight, estimates))
            shown = with_estimates(query, table, estimates)
        except Exception:  # what was asked for is known, though nothing is known of what it will become
            log.exception("nothing can be estimated of %s", query.name)
            shown = table
        batches.append(ResultBatch([query.name], np.array([0, shown.num_rows]), shown))
    return Results(batches), seen


def _emitting(
    results: Results, queries: Mapping[str, CompiledQuery]
) -> Iterator[tuple[CompiledQuery, pa.Table]]:
    """The results of queries that say EMIT EARLY, as far as they are near."""
    for batch in results.batches:
        for i, name in enumerate(batch.names):
            if queries[name].query.emit is not None:
                start, stop = int(batch.bounds[i]), int(batch.bounds[i + 1])
                yield queries[name], batch.table.slice(start, stop - start)


def beginner(query: CompiledQuery) -> Learned:
    """A query of which nothing is known yet."""
    bound = query.query
    assert bound.emit is not None
    kinds = [ItemKind(item.name, item in bound.estimated, _grows(bound, item)) for item in judged(bound)]
    return Learned.of(bound.emit, kinds, bound.window.range / bound.window.slide)


def judged(bound: Query) -> list[Item]:
    """The items that early and final values are compared of: all but the groups."""
    return [item for item in bound.items if not item.is_key]


def _grows(bound: Query, item: Item) -> bool:
    """Whether an item is nothing but an aggregate that grows with its tuples."""
    places = {f"`a{i}`": call for i, call in enumerate(bound.calls)}
    return item.sql in places and aggregate_function(places[item.sql].function).grows


def sight_of(query: CompiledQuery, table: pa.Table, now: int | None, made: int, told: np.ndarray) -> Sight:
    """Early results as the estimates see them."""
    spec, wids = query.query.window, wids_of(query, table)
    ends = windows.window_end(spec, wids)
    left = np.zeros(len(ends)) if now is None else (ends - now) / spec.slide
    rows = table[_column(query.query, "rows")].to_numpy()
    return Sight(_groups(query, table), wids, left, rows, _items(query, table), made, told)


def _finals(query: CompiledQuery, table: pa.Table, made: int) -> Finals:
    rows = table[_column(query.query, "rows")].to_numpy()
    return Finals(_groups(query, table), wids_of(query, table), rows, _items(query, table), made)


def _groups(query: CompiledQuery, table: pa.Table) -> np.ndarray:
    keys = [one_array(table[item.name]) for item in query.query.items if item.is_key]
    return hashed(keys, table.num_rows).view(np.int64)


def _items(query: CompiledQuery, table: pa.Table) -> pa.Table:
    return table.select([item.name for item in judged(query.query)])


def _column(bound: Query, name: str) -> str:
    """What a system column is called in a query's results."""
    return free_name(name, {item.name for item in bound.items})


def with_estimates(query: CompiledQuery, table: pa.Table, estimates: Estimates) -> pa.Table:
    """Early results with what is expected of their finals."""
    bound, schema = query.query, result_schema(query.query)
    columns = dict(zip(schema.names, table.columns, strict=True))
    start = 2 + len(bound.items)
    for i in range(len(bound.estimated)):
        for j, what in enumerate((estimates.projected, estimates.low, estimates.high)):
            name = schema.names[start + i * len(ESTIMATES) + j]
            columns[name] = pa.chunked_array([pa.array(what[:, i], from_pandas=True)])
    return pa.Table.from_arrays(list(columns.values()), schema=schema)
