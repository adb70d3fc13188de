"""The results of row queries: each row that satisfies one is a result, with its event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.readable_values import readable_column
from transom.elements import Kind
from transom.kernel.row_matches import MATCH_TIME, RowMatches
from transom.plan.compiled_query import CompiledQuery
from transom.results.result_rows import Moment, ResultBatch, result_schema

RowShape = tuple[
    pa.Schema, tuple[str, ...]
]  # the columns of results, and the expressions that they consist of


def row_results(
    matches: Iterable[RowMatches], queries: Mapping[str, CompiledQuery], moment: Moment
) -> list[ResultBatch]:
    """The results of a batch, in the order of event time within each query.

    Queries that select the same expressions under the same names are finished together, in one table.
    """
    parts: dict[RowShape, list[tuple[RowMatches, list[int]]]] = {}
    for part in matches:
        places: dict[RowShape, list[int]] = {}
        for place, name in enumerate(part.names):
            if name in queries:
                places.setdefault(_shape(queries[name]), []).append(place)
        for shape, own in places.items():
            parts.setdefault(shape, []).append((part, own))
    return [_result_batch(shape, own, moment) for shape, own in parts.items()]


def _shape(query: CompiledQuery) -> RowShape:
    keys = query.query.keys
    return result_schema(query.query), tuple(keys[item.key_place].scalar.sql for item in query.query.items)


def _result_batch(
    shape: RowShape, parts: Sequence[tuple[RowMatches, list[int]]], moment: Moment
) -> ResultBatch:
    schema, expressions = shape
    names = list(dict.fromkeys(part.names[place] for part, places in parts for place in places))
    numbers = {name: number for number, name in enumerate(names)}
    columns = [*dict.fromkeys(expressions), MATCH_TIME]
    tables, owners = [], []
    for part, places in parts:
        found = [part.of(place) for place in places]
        tables.append(part.rows.select(columns).take(pa.array(np.concatenate(found))))
        owners.append(np.repeat([numbers[part.names[place]] for place in places], list(map(len, found))))
    rows, owner = pa.concat_tables(tables), np.concatenate(owners)
    order = np.lexsort((rows[MATCH_TIME].to_numpy(), owner))
    return ResultBatch(
        names, _bounds(owner, len(names)), _table(schema, expressions, rows.take(order), moment)
    )


def _bounds(owner: Ints, count: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def _table(schema: pa.Schema, expressions: Sequence[str], rows: pa.Table, moment: Moment) -> pa.Table:
    system = (Kind.FINAL.value, moment.batch_id, moment.made)
    fields = list(schema)
    columns = [rows[MATCH_TIME].cast(fields[0].type)]
    for name, field in zip(expressions, fields[1:], strict=False):
        column = rows[name]
        columns.append(readable_column(column if column.type == field.type else column.cast(field.type)))
    for value, field in zip(system, fields[-len(system) :], strict=True):
        columns.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
    return pa.Table.from_arrays(columns, schema=schema)
