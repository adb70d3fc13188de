"""Results in the form that estimators read, and early results with estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.columns.arrays import Floats, Ints, one_array
from transom.columns.hashes import row_hashes
from transom.elements import ClockKind
from transom.estimates.early_values import Estimates, ItemKind, numbers
from transom.estimates.estimator_stack import EarlyRows
from transom.estimates.seasons import NO_TIME
from transom.plan.compiled_query import CompiledQuery
from transom.results.condition_columns import estimated_items, having_truth, without_condition
from transom.results.result_rows import ESTIMATES, ResultBatch, Results
from transom.sql.item_columns import aggregate_reference
from transom.sql.query import Item, Query
from transom.windows import ids as windows
from transom.windows.ids import WindowSpecs


@dataclass(frozen=True)
class ResultValues:
    """The results of queries of one shape with EMIT EARLY; row i is of query `which[i]`."""

    batch: ResultBatch
    which: Ints  # ascending
    specs: WindowSpecs  # by row
    group: Ints  # a hash of the group's keys
    window: Ints
    end: Ints  # of the window, in microseconds, or NO_TIME
    numbers: Floats  # by numeric item
    items: pa.Table  # in their own types

    @classmethod
    def of(cls, batch: ResultBatch, queries: Mapping[str, CompiledQuery]) -> ResultValues:
        members, table = [queries[name] for name in batch.names], batch.table
        bound = members[0].query
        which = np.repeat(np.arange(len(members)), np.diff(batch.bounds))
        specs = WindowSpecs.of([query.query.window for query in members])[which]
        ends = one_array(table.column(1)).cast(pa.int64()).to_numpy()
        wids = windows.last_ended(specs, ends)
        tells_time = np.array([query.query.clock.kind is ClockKind.TIME for query in members], np.bool_)[
            which
        ]
        end = np.where(tells_time, ends, NO_TIME)
        keys = [one_array(table[item.name]) for item in bound.items if item.is_key]
        group = row_hashes(keys, table.num_rows).view(np.int64)
        kinds = item_kinds(bound)
        items = table.select([kind.name for kind in kinds])
        return cls(batch, which, specs, group, wids, end, numbers(items, kinds), items)

    def slides_left(self, now: Mapping[str, int]) -> Floats:
        """How many slides each window's end is away; 0 for queries without a time of their clock."""
        names = self.batch.names
        is_known = np.array([name in now for name in names], np.bool_)[self.which]
        nows = np.array([now.get(name, 0) for name in names], np.int64)[self.which]
        ends = windows.window_end(self.specs, self.window)
        return np.where(is_known, windows.slides_to_end(self.specs, ends, nows), 0.0)

    def early_rows(self, slides_left: Floats, made: int) -> EarlyRows:
        """The results as emitted early values, each query's as those of the only query of a stack."""
        rows = len(self.which)
        return EarlyRows(
            np.zeros(rows, np.int64),
            self.group,
            self.window,
            slides_left,
            self.numbers,
            made,
            np.ones(rows, np.bool_),
            self.items,
            self.end,
        )


def emitting(results: Results, queries: Mapping[str, CompiledQuery]) -> Iterator[ResultValues]:
    """The results of queries with EMIT EARLY whose state is on the driver."""
    for batch in results.batches:
        if queries[batch.names[0]].query.is_projected:
            yield ResultValues.of(batch, queries)


def compared_items(bound: Query) -> list[Item]:
    """The items whose early and final values are compared: all but the group attributes, and what HAVING compares."""
    return [*(item for item in bound.items if not item.is_key), *estimated_items(bound)]


def item_kinds(bound: Query) -> list[ItemKind]:
    """What estimates depend on of the items that are compared."""
    conditions = estimated_items(bound)
    return [
        ItemKind(
            item.name, item in bound.estimated or item in conditions, _grows(bound, item), item in conditions
        )
        for item in compared_items(bound)
    ]


def _grows(bound: Query, item: Item) -> bool:
    """Whether an item is an aggregate that grows with its tuples, and nothing more."""
    places = {aggregate_reference(i): call for i, call in enumerate(bound.calls)}
    return item.sql in places and aggregate_function(places[item.sql].function).grows


def with_estimates(query: CompiledQuery, batch: ResultBatch, estimates: Estimates) -> ResultBatch:
    """Early results with the estimates of their finals."""
    bound, table = query.query, estimate_columns(query.query, batch.table, estimates)
    if bound.early_decision is None:
        return ResultBatch(batch.names, batch.bounds, table)
    kept = one_array(having_truth(bound, table)).to_numpy(zero_copy_only=False)
    counts = np.add.reduceat(np.r_[kept, False].astype(np.int64), batch.bounds[:-1])
    return ResultBatch(batch.names, np.r_[0, np.cumsum(counts)], without_condition(bound, table))


def estimate_columns(bound: Query, table: pa.Table, estimates: Estimates) -> pa.Table:
    """Early results with the estimates in their columns."""
    columns: list[pa.ChunkedArray | pa.Array] = list(table.columns)
    start = 2 + len(bound.items)
    for i in range(len(bound.estimated)):
        for j, values in enumerate((estimates.projected, estimates.low, estimates.high)):
            columns[start + i * len(ESTIMATES) + j] = pa.array(values[:, i], from_pandas=True)
    return pa.Table.from_arrays(columns, names=table.column_names)
