"""The tuples of a batch for a summary: the columns that are kept, and the data that the driver needs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, one_array
from transom.elements import Summary
from transom.promising.joins import BatchValues, batch_values
from transom.promising.step_summaries import StepSummaries, merge_steps, summarize_steps
from transom.promising.tuples import FIELDS, KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.preference_query import PreferenceQuery
from transom.sql.promise import Column, leaves
from transom.sql.query import Join, Scalar, merged_table_joins, scalars_of
from transom.state.promising import TupleRun
from transom.storage.shard_refs import ShardRef

NUMBER_COLUMN = "number"  # the column with the summarized value as a number, where buckets go by that


@dataclass(frozen=True)
class TupleColumns:
    """The columns that are kept of a summary's tuples: columns of the stream, and computed scalars.

    `numbers` are the columns whose means a promise reads, `guides` the scalars that read only the summarized
    column. `joins` are the static tables whose columns are among them.
    """

    columns: tuple[str, ...]
    computed: tuple[str, ...]
    numbers: tuple[str, ...]
    guides: tuple[str, ...]
    joins: tuple[Join, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names under which they are kept: `.item` for a column, `=a + 1` for a computed scalar."""
        return [*(f".{column}" for column in self.columns), *(f"={text}" for text in self.computed)]


def tuple_columns(shape: Summary, queries: Mapping[str, PreferenceQuery]) -> TupleColumns:
    """The columns that the queries over a summary need of its tuples."""
    columns, computed = {shape.column: None}, dict[str, None]()
    numbers, guides = dict[str, None](), dict[str, None]()
    joins: list[Join] = []
    for query in queries.values():
        for number, side in enumerate(query.sides):
            if side.summary != shape.name:
                continue
            columns |= dict.fromkeys(side.columns)
            joins += side.joins
            guides |= {scalar.sql: None for scalar in scalars_of(side.guide) if scalar.column is None}
            for scalar in scalars_read_by(query, number):
                (columns if scalar.column is not None else computed)[scalar.column or scalar.sql] = None
        if len(query.sides) == 1 and query.sides[0].summary == shape.name:
            read = (leaf.column for leaf in leaves(query.promise) if isinstance(leaf, Column))
            numbers |= dict.fromkeys(column for column in read if column != shape.column)
    return TupleColumns(
        tuple(columns), tuple(computed), tuple(numbers), tuple(guides), tuple(merged_table_joins(joins))
    )


def scalars_read_by(query: PreferenceQuery, side: int) -> list[Scalar]:
    """The scalars that a query reads of one side: in its conditions, as keys, and as arguments of aggregates."""
    arguments = [figure.argument for figure in query.figures if figure.side == side]
    keys = [key.scalar for key in query.keys if key.side == side]
    return [*scalars_of(query.sides[side].where), *keys, *(one for one in arguments if one is not None)]


def column_name(scalar: Scalar) -> str:
    """The name under which a scalar is kept with the tuples."""
    return f"={scalar.sql}" if scalar.column is None else f".{scalar.column}"


@dataclass(frozen=True)
class ArrivalSummary:
    """What the driver needs to know of new tuples to plan by summaries: their steps, and their distinct values.

    There is one entry per distinct value: the `column` has the summarized value, `guides` the scalars
    computed of it, and `means` the means of other columns.
    """

    steps: StepSummaries
    values: BatchValues
    column: pa.Array
    guides: Mapping[str, pa.Array] = field(default_factory=dict)
    means: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchArrival:
    """The new tuples of a batch for one summary; the arrivals of a batch's partitions can be merged.

    The tuples themselves are a `run` on the driver or a `file`. Tasks that write a file also summarize its tuples.
    Those of a run are summarized when that is first needed, which is never if the budgets suffice. `late` tuples
    came too late, and are not among them.
    """

    shape: Summary
    want: TupleColumns
    rows: int = 0
    low: int = 0
    high: int = 0
    summarized: ArrivalSummary | None = None
    run: TupleRun | None = None
    file: ShardRef | None = None
    late: int = 0

    @classmethod
    def of_run(cls, shape: Summary, tuples: KeptTuples, want: TupleColumns, late: int = 0) -> BatchArrival:
        """The arrival of tuples that stay on the driver, after the `late` ones were left out."""
        if not len(tuples):
            return batch_arrival(shape, tuples, want, late)
        low, high = tuples.times
        return cls(shape, want, len(tuples), low, high, run=TupleRun(tuples), late=late)

    @cached_property
    def steps(self) -> StepSummaries:
        """The summaries of the tuples by step."""
        if self.summarized is not None:
            return self.summarized.steps
        tuples = self._tuples
        return summarize_steps(self.shape, tuples.time, tuples.key, tuples.bucket, self.low)

    @cached_property
    def values(self) -> BatchValues:
        """The distinct values."""
        return _values(self.shape, self._tuples) if self.summarized is None else self.summarized.values

    @property
    def column(self) -> pa.Array:
        """The summarized value of each distinct value."""
        return self._described.column

    @property
    def guides(self) -> Mapping[str, pa.Array]:
        """The scalars that are computed of each distinct value."""
        return self._described.guides

    @cached_property
    def means(self) -> Mapping[str, Floats]:
        """The mean of other columns for each distinct value."""
        return _means(self._tuples, self.want) if self.summarized is None else self.summarized.means

    @cached_property
    def _described(self) -> ArrivalSummary:
        if self.summarized is not None:
            return self.summarized
        return _summarized(self.shape, self._tuples, self.want, self.steps, self.values)

    @property
    def _tuples(self) -> KeptTuples:
        if self.run is None:
            raise ValueError(
                f"summary {self.shape.name}: the tuples of a batch are neither summarized nor at hand"
            )
        return self.run.tuples


def batch_tuples(table: pa.Table, shape: Summary, want: TupleColumns, batch_id: int) -> KeptTuples:
    """The tuples of a batch, from a table with key, time, and the kept columns at the end."""
    keys = table["key"].to_numpy().view(np.uint64)
    numbers = as_numbers(table[NUMBER_COLUMN]) if shape.between is not None else None
    columns = {
        "key": pa.array(keys),
        "bucket": pa.array(bucket_of(shape, keys, numbers), pa.int32()),
        "time": table["time"],
        "batch": pa.array(np.full(table.num_rows, batch_id, np.int64)),
    }
    if numbers is not None:
        columns[NUMBER_COLUMN] = pa.array(numbers)
    first = table.num_columns - len(want.names)
    columns |= {name: table.column(first + i) for i, name in enumerate(want.names)}
    return KeptTuples.of(pa.table(columns))


def batch_arrival(shape: Summary, tuples: KeptTuples, want: TupleColumns, late: int = 0) -> BatchArrival:
    """The arrival of some tuples with their summaries, after the `late` ones were left out."""
    if not len(tuples):
        none = np.zeros(0, np.int64)
        values = BatchValues(none.view(np.uint64), none, none, none, none, np.zeros(0))
        column = pa.array([], tuples.table[f".{shape.column}"].type)
        nothing = ArrivalSummary(StepSummaries.none(shape), values, column)
        return BatchArrival(shape, want, summarized=nothing, late=late)
    low, high = tuples.times
    steps = summarize_steps(shape, tuples.time, tuples.key, tuples.bucket, low)
    summarized = _summarized(shape, tuples, want, steps, _values(shape, tuples))
    return BatchArrival(shape, want, len(tuples), low, high, summarized, late=late)


def _summarized(
    shape: Summary, tuples: KeptTuples, want: TupleColumns, steps: StepSummaries, values: BatchValues
) -> ArrivalSummary:
    first = pa.array(tuples.by_key.firsts)  # one tuple per value
    column = tuples.table[f".{shape.column}"].combine_chunks().take(first)
    guides = {text: tuples.table[f"={text}"].combine_chunks().take(first) for text in want.guides}
    return ArrivalSummary(steps, values, column, guides, _means(tuples, want))


def _values(shape: Summary, tuples: KeptTuples) -> BatchValues:
    column = one_array(tuples.table[NUMBER_COLUMN if shape.between else f".{shape.column}"])
    number = as_numbers(column.take(pa.array(tuples.by_key.firsts)))
    return replace(batch_values(tuples), number=number)


def _means(tuples: KeptTuples, want: TupleColumns) -> dict[str, Floats]:
    """The mean of the columns that promises read, for each distinct value."""
    runs = tuples.by_key
    which = np.repeat(np.arange(len(runs.keys)), runs.counts)
    return {
        name: np.bincount(which, weights=as_numbers(tuples.table[f".{name}"])[runs.rows]) / runs.counts
        for name in want.numbers
    }


def merge_arrivals(parts: Sequence[BatchArrival]) -> BatchArrival:
    """The arrival of a batch from those of its partitions, which have no values in common."""
    late = sum(part.late for part in parts)
    parts = [part for part in parts if part.rows] or parts[:1]
    values = BatchValues(
        **{
            one.name: np.concatenate([getattr(part.values, one.name) for part in parts])
            for one in fields(BatchValues)
        }
    )
    summarized = ArrivalSummary(
        merge_steps([part.steps for part in parts]),
        values,
        pa.concat_arrays([part.column for part in parts]),
        {text: pa.concat_arrays([part.guides[text] for part in parts]) for text in parts[0].guides},
        {name: np.concatenate([part.means[name] for part in parts]) for name in parts[0].means},
    )
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    rows = sum(part.rows for part in parts)
    return BatchArrival(parts[0].shape, parts[0].want, rows, low, high, summarized, late=late)


def concat_tuples(parts: Sequence[KeptTuples]) -> KeptTuples:
    """The tuples of several parts, which may have different columns; missing columns are null."""
    if len(parts) == 1:
        return parts[0]
    return KeptTuples.of(pa.concat_tables([part.table for part in parts], promote_options="default"))


def no_tuples(column: str) -> KeptTuples:
    """No tuples of a summary of some column."""
    return KeptTuples(pa.schema([*FIELDS, pa.field(f".{column}", pa.null())]).empty_table())


def as_numbers(column: pa.Array | pa.ChunkedArray) -> Floats:
    """Values as numbers, for promises; any value that is not a number counts as 0."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.zeros(len(column))
    return np.nan_to_num(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy())
