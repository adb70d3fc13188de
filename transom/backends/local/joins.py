"""Left joins with static tables in this process: by hash where the condition equates columns, else by trying."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from transom.backends.expressions import quoted
from transom.sql.catalog import Scalars
from transom.sql.query import Join

PAIRS_AT_ONCE = 100_000


def left_join(table: pa.Table, right: pa.Table, join: Join, scalars: Scalars) -> pa.Table:
    """The rows of `table` with the columns of the rows of `right` that match them, named `<id>.column`.

    The column `<id>` tells whether a row matched. A row that matches several rows is repeated.
    """
    names = dict.fromkeys((*join.keys, *join.columns))
    side = pa.table([right[name] for name in names], names=[f"{join.id}.{name}" for name in names])
    lefts, rights = _matches(table, side, join, scalars)
    unmatched = np.setdiff1d(np.arange(table.num_rows), lefts)
    left_rows = np.concatenate([lefts, unmatched])
    order = np.argsort(left_rows, kind="stable")
    right_rows = np.concatenate([rights, np.full(len(unmatched), -1)])[order]
    joined = table.take(pa.array(left_rows[order]))
    taken = side.take(pa.array(right_rows, mask=right_rows < 0)) if side.num_rows else None
    for field in side.schema:
        column = pa.nulls(joined.num_rows, field.type) if taken is None else taken[field.name]
        joined = joined.append_column(field.name, column)
    return joined.append_column(join.id, pa.array(right_rows >= 0))


def _matches(table: pa.Table, side: pa.Table, join: Join, scalars: Scalars) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of rows for which the condition is true."""
    lefts, rights = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for left, right in _candidates(table, side, join):
        pairs = table.take(pa.array(left))
        taken = side.take(pa.array(right))
        for name in taken.column_names:
            pairs = pairs.append_column(name, taken[name])
        is_match = pc.fill_null(scalars.project(pairs, {"on": join.on})["on"], False).to_numpy()
        lefts.append(left[is_match])
        rights.append(right[is_match])
    return np.concatenate(lefts), np.concatenate(rights)


def _candidates(table: pa.Table, side: pa.Table, join: Join) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows that may match, some at a time: those with equal keys if the condition equates columns
    of one type, else all."""
    if not table.num_rows or not side.num_rows:
        return
    equal = _equated(table, side, join)
    if not equal:
        step = max(PAIRS_AT_ONCE // side.num_rows, 1)
        for start in range(0, table.num_rows, step):
            rows = np.arange(start, min(start + step, table.num_rows))
            yield np.repeat(rows, side.num_rows), np.tile(np.arange(side.num_rows), len(rows))
        return
    by_key: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*(side[name].to_pylist() for _, name in equal), strict=True)):
        by_key[key].append(row)
    pairs = [
        (left, right)
        for left, key in enumerate(zip(*(table[name].to_pylist() for name, _ in equal), strict=True))
        for right in by_key.get(key, ())
    ]
    if pairs:
        left_rows, right_rows = np.array(pairs, np.int64).T
        yield left_rows, right_rows


def _equated(table: pa.Table, side: pa.Table, join: Join) -> list[tuple[str, str]]:
    """The columns that the condition equates: of the rows and of the table, both of one exact type."""
    condition = sqlglot.parse_one(join.on, dialect="spark")
    parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
    equated = []
    for part in parts:
        if not isinstance(part, exp.EQ):
            continue
        names = [_column_name(operand) for operand in (part.this, part.expression)]
        for left, right in (names, names[::-1]):
            if left in table.column_names and right in side.column_names:
                kind = table.schema.field(left).type
                is_exact = not pa.types.is_floating(kind) and not pa.types.is_nested(kind)
                if kind == side.schema.field(right).type and is_exact:
                    equated.append((left, right))
    return equated


def _column_name(node: exp.Expression) -> str:
    """The name of a plain column, or nothing that a column is named."""
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        return str(node.name)
    return quoted(node.sql("spark"))
