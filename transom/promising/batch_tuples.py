"""What rows of a batch come to for a summary: tuples that are kept, and what the driver is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.elements import Summary
from transom.promising.joins import Values, values_of
from transom.promising.representation import Arrived, arrived, bucket_of, together
from transom.promising.selections import counts_of
from transom.promising.tuples import Tuples
from transom.sql.preferred_query import Preferred, Side
from transom.sql.promise import Column, leaves
from transom.sql.query import Scalar, scalars_of
from transom.state.promising import SummaryState, TupleRun
from transom.storage.shard_refs import ShardRef

Floats = NDArray[np.float64]

NUMBER = "number"  # the column with the summarized value as a number, where buckets go by that
MOST_RUNS = 8  # of about one size, before they are merged


@dataclass(frozen=True)
class Wanted:
    """What is kept of a summary's tuples: columns of the stream, and scalars that Spark computes.

    `numbers` are the columns whose means a promise reads, `guides` the scalars that are computed of the
    summarized column alone.
    """

    columns: tuple[str, ...]
    computed: tuple[str, ...]
    numbers: tuple[str, ...]
    guides: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The names under which they are kept: `.item` for a column, `=a + 1` if computed."""
        return [*(f".{column}" for column in self.columns), *(f"={text}" for text in self.computed)]


def wanted(shape: Summary, queries: Mapping[str, Preferred]) -> Wanted:
    """What the queries that read a summary need of its tuples."""
    columns, computed = {shape.column: None}, dict[str, None]()
    numbers, guides = dict[str, None](), dict[str, None]()
    for query in queries.values():
        for side in (side for side in query.sides if side.summary == shape.name):
            columns |= dict.fromkeys(side.columns)
            guides |= {scalar.sql: None for scalar in scalars_of(side.guide) if scalar.column is None}
            for scalar in scalars_read(query, side):
                (columns if scalar.column is not None else computed)[scalar.column or scalar.sql] = None
        if len(query.sides) == 1 and query.sides[0].summary == shape.name:
            read = (leaf.column for leaf in leaves(query.promise) if isinstance(leaf, Column))
            numbers |= dict.fromkeys(column for column in read if column != shape.column)
    return Wanted(tuple(columns), tuple(computed), tuple(numbers), tuple(guides))


def scalars_read(query: Preferred, side: Side) -> list[Scalar]:
    arguments = [figure.argument for figure in query.figures if figure.argument is not None]
    return [*scalars_of(side.where), *arguments]


def kept_as(scalar: Scalar) -> str:
    """The name under which a scalar is kept with the tuples."""
    return f"={scalar.sql}" if scalar.column is None else f".{scalar.column}"


@dataclass(frozen=True)
class Arrival:
    """What rows of a batch came to for one summary; those of the partitions of a batch add up.

    For each of the distinct `values`, which are numbers where they can be, there is the summarized column's
    value, whatever guides compute of it, and the means of other columns. The tuples themselves are on the
    driver (`near`) or in files (`far`).
    """

    arrived: Arrived
    values: Values
    column: pa.Array
    rows: int
    low: int
    high: int
    guides: Mapping[str, pa.Array] = field(default_factory=dict)
    means: Mapping[str, Floats] = field(default_factory=dict)
    near: TupleRun | None = None
    far: ShardRef | None = None


def tuples_of(table: pa.Table, shape: Summary, want: Wanted, batch_id: int) -> Tuples:
    """The tuples that rows of a batch are, given with key, time, and at the end what is wanted of them."""
    keys = table["key"].to_numpy().view(np.uint64)
    numbers = numbers_of(table[NUMBER]) if shape.between is not None else None
    columns = {
        "key": pa.array(keys),
        "bucket": pa.array(bucket_of(shape, keys, numbers), pa.int32()),
        "time": table["time"],
        "batch": pa.array(np.full(table.num_rows, batch_id, np.int64)),
    }
    if numbers is not None:
        columns[NUMBER] = pa.array(numbers)
    first = table.num_columns - len(want.names)
    columns |= {name: table.column(first + i) for i, name in enumerate(want.names)}
    return Tuples.of(pa.table(columns))


def arrival_of(shape: Summary, tuples: Tuples, want: Wanted, floor: int | None = None) -> Arrival:
    """What tuples come to; only those before a `floor` are left out, however long a time they are of."""
    runs = tuples.by_key
    counts = np.bincount(runs.codes // len(tuples), minlength=len(runs.keys))
    first = pa.array(runs.rows[np.cumsum(counts) - counts])  # a tuple of each value
    column = tuples.table[f".{shape.column}"].combine_chunks().take(first)
    guides = {text: tuples.table[f"={text}"].combine_chunks().take(first) for text in want.guides}
    which = np.repeat(np.arange(len(counts)), counts)
    means = {
        name: np.bincount(which, weights=numbers_of(tuples.table[f".{name}"])[runs.rows]) / counts
        for name in want.numbers
    }
    values = values_of(tuples, numbers_of(tuples.table[NUMBER if shape.between else f".{shape.column}"]))
    low, high = int(tuples.time.min()), int(tuples.time.max())
    made = arrived(shape, tuples.time, tuples.key, tuples.bucket, low if floor is None else floor)
    return Arrival(made, values, column, len(tuples), low, high, guides, means)


def all_arrived(parts: Sequence[Arrival]) -> Arrival:
    """What the partitions of a batch came to; none has a value that another has."""
    values = Values(
        **{
            one.name: np.concatenate([getattr(part.values, one.name) for part in parts])
            for one in fields(Values)
        }
    )
    return Arrival(
        together([part.arrived for part in parts]),
        values,
        pa.concat_arrays([part.column for part in parts]),
        sum(part.rows for part in parts),
        min(part.low for part in parts),
        max(part.high for part in parts),
        {text: pa.concat_arrays([part.guides[text] for part in parts]) for text in parts[0].guides},
        {name: np.concatenate([part.means[name] for part in parts]) for name in parts[0].means},
    )


def with_arrival(summary: SummaryState, arrival: Arrival) -> SummaryState:
    """A summary with a batch's tuples in it; nothing is let go before the batch is over."""
    before = summary.representation
    since = arrival.low if before.floor is None else min(arrival.low, before.floor)
    since = since if summary.floor is None else max(since, summary.floor)
    known = before.inserted(arrival.arrived, arrival.high, since)
    return replace(
        summary,
        representation=known,
        near=summary.near if arrival.near is None else (*summary.near, arrival.near),
        far=summary.far if arrival.far is None else (*summary.far, arrival.far),
        came=summary.came + arrival.rows,
        late=summary.late + arrival.rows - int(counts_of(arrival.arrived, known).sum()),
    )


def kept_since(
    name: str, summaries: Mapping[str, SummaryState], queries: Mapping[str, Preferred]
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


def tidied(summary: SummaryState, since: int | None) -> SummaryState:
    """A summary without the tuples that it lets go, which came before a time, and with its runs made few."""
    known = summary.representation.advanced(since)
    floor = known.floor
    near, far = list(summary.near), summary.far
    if floor is not None:
        near = [run for run in near if run.rows and int(run.tuples.time.max()) >= floor]
        far = tuple(ref for ref in far if ref.held[0][0][1] >= floor)
    return replace(summary, representation=known, near=_merged(near, floor), far=far)


def _merged(runs: Sequence[TupleRun], floor: int | None) -> tuple[TupleRun, ...]:
    """Runs with many of about one size made into one, so that a tuple is moved seldom and runs stay few."""
    runs = sorted(runs, key=lambda run: -run.rows)
    while len(runs) > MOST_RUNS and runs[-MOST_RUNS].rows <= MOST_RUNS * (runs[-1].rows + 1):
        small, runs = runs[-MOST_RUNS:], runs[:-MOST_RUNS]
        runs.append(TupleRun(in_one([run.tuples for run in small]).since(floor)))
        runs.sort(key=lambda run: -run.rows)
    return tuple(run for run in runs if run.rows)


def in_one(parts: Sequence[Tuples]) -> Tuples:
    """Tuples of batches that kept different columns: null where one was not kept."""
    if len(parts) == 1:
        return parts[0]
    return Tuples.of(pa.concat_tables([part.table for part in parts], promote_options="default"))


def numbers_of(column: pa.Array | pa.ChunkedArray) -> Floats:
    """Values as numbers, for promises; what is no number promises nothing."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.zeros(len(column))
    return np.nan_to_num(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy())
