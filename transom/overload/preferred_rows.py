"""The rows of a burst that queries with ON OVERLOAD PREFER keep: those with the highest promise.

The backend counts how often each value occurs in the batch. Tasks add the count that a summary estimates, once
for each distinct value. The promise of a row is then a SQL expression, so that no row passes through Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from transom.backends.base import Frame, RecordBatches, Task
from transom.backends.expressions import quoted
from transom.columns.record_batches import in_large_tables
from transom.ingest.batch import DataBatch, IngestRun
from transom.plan.compiled_query import CompiledQuery
from transom.promising.batch_tuples import NUMBER_COLUMN, as_numbers
from transom.promising.execution import key_sql
from transom.promising.representation import Representation
from transom.promising.zones import bucket_of
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise, leaves
from transom.sql.query import OverloadPreference

BUCKET, RANK = "__bucket__", "__rank__"
TIMED_COLUMN, SCORE_COLUMN, DROPPED_COLUMN = "__timed__", "__score__", "__dropped__"

Clauses = Mapping[OverloadPreference, int]


def clauses_of(queries: Iterable[CompiledQuery]) -> Clauses:
    """The distinct ON OVERLOAD PREFER clauses of queries, each with the number of queries that have it."""
    counted = Counter(query.query.overload for query in queries if query.query.overload is not None)
    return {clause: counted[clause] for clause in sorted(counted, key=repr)}


def preferred(
    run: IngestRun, frame: Frame, limit: int | None, affected: Frame, keeps: str, clauses: Clauses
) -> Frame:
    """The affected rows of a batch, numbered within their buckets: first the rows to keep, then the others.

    Both parts are in the order of time. `keeps` is an expression: the number of rows that a row's bucket keeps.

    Each clause ranks the rows of a bucket; rows with equal promises have equal ranks. The rows with the lowest
    sum of ranks are kept, where a clause weighs as much as the number of queries that have it. Time breaks ties.
    """
    timed = affected.rank(TIMED_COLUMN, BUCKET, run.order(affected))
    counts = {leaf: f"__count{i}__" for i, leaf in enumerate(_counted(clauses))}
    accepted = frame.filter(run.is_accepted(limit))
    for leaf, name in counts.items():
        key = key_sql(leaf.column, run.batch.columns[leaf.column])
        timed = timed.lookup(key, _estimates(run.batch, accepted, leaf.column, key, name), _by(name))

    def value(leaf: EstimatedCount | Column) -> str:
        return quoted(counts[leaf]) if isinstance(leaf, EstimatedCount) else number_sql(leaf.column)

    scores = {f"{SCORE_COLUMN}{i}": _score(clause, value, run) for i, clause in enumerate(clauses)}
    scored = timed.extend(scores)
    if len(scores) == 1:  # a single clause needs no ranks, which saves a sort
        total = f"{SCORE_COLUMN}0"
    else:
        for name in scores:
            scored = scored.rank(f"{name}rank", BUCKET, [name], ties=True)
        weighted = zip(scores, clauses.values(), strict=True)
        total = " + ".join(f"{weight} * {name}rank" for name, weight in weighted)
    best = scored.extend({SCORE_COLUMN: total}).rank(RANK, BUCKET, [SCORE_COLUMN, TIMED_COLUMN])
    is_dropped = best.extend({DROPPED_COLUMN: f"{RANK} > {keeps}"})
    names = list(affected.columns)
    return is_dropped.rank(RANK, BUCKET, [DROPPED_COLUMN, TIMED_COLUMN]).project({RANK: RANK}, names)


def _counted(clauses: Clauses) -> list[EstimatedCount]:
    found = (leaf for clause in clauses for leaf in leaves(clause.promise))
    return list(dict.fromkeys(leaf for leaf in found if isinstance(leaf, EstimatedCount)))


# --- counts -----------------------------------------------------------------------------------


def _by(name: str) -> str:
    return f"{name}key"


def _estimates(batch: DataBatch, accepted: Frame, column: str, key: str, name: str) -> Frame:
    """How often each value of a batch occurs: its count in the batch, and its estimate by the column's summary."""
    summary = _representation(batch, column)
    if summary is None:
        counts = accepted.aggregate({_by(name): key}, {name: ("count", "*")})
        return counts.project({name: f"CAST({quoted(name)} AS DOUBLE)"}, [_by(name)])
    number = "0D" if summary.shape.between is None else f"CAST({quoted(column)} AS DOUBLE)"
    values = accepted.aggregate({"key": key}, {"rows": ("count", "*"), NUMBER_COLUMN: ("min", number)})
    schema = pa.schema([(_by(name), pa.int64()), (name, pa.float64())])
    return values.map(estimate_task(summary), schema, few=True)


def _representation(batch: DataBatch, column: str) -> Representation | None:
    """The summary of a column before the batch, with a single zone; of several summaries, the first by name."""
    summaries = batch.state.promising.summaries
    stream = batch.rules.clock.stream
    for name in sorted(summaries):
        representation = summaries[name].representation
        if (representation.shape.stream, representation.shape.column) == (stream, column):
            return None if representation.high is None else representation.flat()
    return None


def estimate_task(summary: Representation) -> Task:
    """A task that adds the estimate of a summary to the count of each value."""

    def task(batches: RecordBatches) -> RecordBatches:
        for table in in_large_tables(batches):
            keys = table["key"].to_numpy().view("uint64")
            buckets = bucket_of(summary.shape, keys, as_numbers(table[NUMBER_COLUMN]))
            counts = table["rows"].to_numpy() + summary.total(keys, buckets)
            columns = [table["key"].combine_chunks(), pa.array(counts)]
            yield pa.RecordBatch.from_arrays(columns, ["key", "count"])

    return task


# --- promises ---------------------------------------------------------------------------------


def number_sql(column: str) -> str:
    """A column as a number; null and NaN are 0."""
    return f"coalesce(nanvl(CAST({quoted(column)} AS DOUBLE), 0D), 0D)"


def promise_sql(promise: Promise, leaf_sql: Callable[[EstimatedCount | Column], str]) -> str:
    """The promise of a row as a SQL expression, to be evaluated with ANSI mode off.

    >>> twice = Arithmetic("*", Number(2.0), EstimatedCount("store1", "item"))
    >>> promise_sql(twice, lambda leaf: leaf.column)
    '(2.0D * item)'
    """
    match promise:
        case Number(value):
            return f"{value!r}D"
        case Arithmetic(op, left, right):
            shown = f"({promise_sql(left, leaf_sql)} {op} {promise_sql(right, leaf_sql)})"
            return f"coalesce({shown}, 0D)" if op == "/" else shown  # a division by zero is null
    return leaf_sql(promise)


def _score(
    clause: OverloadPreference, leaf_sql: Callable[[EstimatedCount | Column], str], run: IngestRun
) -> str:
    """The score of a row for one clause, as a SQL expression; rows with the lowest scores are kept.

    For a weighted choice the score is an exponential variate whose rate is the promise. The rows with the lowest
    scores are then a sample that contains each row with a chance in proportion to its promise.
    """
    promise = f"nanvl({promise_sql(clause.promise, leaf_sql)}, 0D)"
    if clause.order != "weighted":
        return promise if clause.order == "asc" else f"- {promise}"
    hashed = f"shiftrightunsigned(xxhash64({run.time}, {BUCKET}, {TIMED_COLUMN}), 11)"
    even = f"(({hashed} + 0.5D) / {float(1 << 53)!r}D)"
    return f"CASE WHEN {promise} > 0 THEN - ln({even}) / {promise} ELSE DOUBLE('Infinity') END"
