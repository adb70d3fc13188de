"""Left joins with static tables in this process: by hash where the condition equates columns, by an index of intervals
where it bounds them, otherwise by comparing all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from transom.backends.expressions import quoted
from transom.columns.arrays import Ints
from transom.columns.groups import normalized
from transom.columns.hashes import Hashes, row_hashes
from transom.columns.interval_index import (
    IntervalIndex,
    IntervalMatches,
    are_ordered_alike,
    is_ordered_by_numbers,
    ordered_numbers,
)
from transom.errors import SQLError
from transom.sql.catalog import Scalars
from transom.sql.interpreter.types import TYPE_NAMES, compared
from transom.sql.query import ColumnBound, Join

PAIRS_AT_ONCE = 100_000
RowPairs = tuple[Ints, Ints]  # numbers of rows on the left and on the right
_NO_PAIRS: RowPairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class EquatedKey:
    """A column of the rows and one of the table that a condition equates, and the type in which it compares them."""

    left: str
    right: str  # the table's own name of it
    type: pa.DataType


class KeyIndex:
    """The rows of a table by the hash of their keys; rows with a null among them match nothing."""

    def __init__(self, keys: Sequence[pa.Array], rows: int):
        usable, hashes = _hashed(keys, rows)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], usable[order]
        self.is_unique = not np.any(self._hashes[1:] == self._hashes[:-1])

    def count(self, keys: Sequence[pa.Array], rows: int) -> int:
        """How many pairs of rows have keys with the same hash."""
        _, hashes = _hashed(keys, rows)
        starts = np.searchsorted(self._hashes, hashes, "left")
        return int((np.searchsorted(self._hashes, hashes, "right") - starts).sum())

    def candidates(self, keys: Sequence[pa.Array], rows: int) -> RowPairs:
        """The pairs of rows whose keys have the same hash."""
        usable, hashes = _hashed(keys, rows)
        starts = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - starts
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(usable, counts), self._rows[np.repeat(starts, counts) + within]


class KeyIndexes:
    """A table that rows are joined with, and the indexes that joins have made of it."""

    def __init__(self, table: pa.Table, scalars: Scalars):
        self.table, self._scalars = table, scalars
        self._by_keys: dict[tuple[tuple[str, pa.DataType], ...], tuple[list[pa.Array], KeyIndex]] = {}
        self._by_bounds: dict[tuple[str, str], IntervalIndex] = {}
        self._meeting: dict[str, Ints] = {}

    def of(self, equated: Sequence[EquatedKey]) -> tuple[list[pa.Array], KeyIndex]:
        """The keys in the types in which they are compared, and their index."""
        wanted = tuple((key.right, key.type) for key in equated)
        if wanted not in self._by_keys:
            keys = _key_columns(self.table, wanted, self._scalars)
            self._by_keys[wanted] = keys, KeyIndex(keys, self.table.num_rows)
        return self._by_keys[wanted]

    def intervals(self, low: str, high: str) -> IntervalIndex:
        """The index of the intervals from one column to another."""
        if (low, high) not in self._by_bounds:
            self._by_bounds[low, high] = IntervalIndex(*(ordered_numbers(self.table[c]) for c in (low, high)))
        return self._by_bounds[low, high]

    def meeting(self, condition: str, prefix: str) -> Ints:
        """The rows that satisfy a condition over the table alone, in which its columns have a prefix."""
        if condition not in self._meeting:
            renamed = self.table.rename_columns([f"{prefix}.{name}" for name in self.table.column_names])
            self._meeting[condition] = rows_meeting(renamed, condition, self._scalars)
        return self._meeting[condition]


def rows_meeting(table: pa.Table, condition: str, scalars: Scalars) -> Ints:
    """The rows for which a condition is true."""
    if condition == "true" or not table.num_rows:
        return np.arange(table.num_rows)
    return np.flatnonzero(pc.fill_null(scalars.project(table, {"on": condition})["on"], False).to_numpy())


def left_join(table: pa.Table, right: KeyIndexes, join: Join, scalars: Scalars) -> pa.Table:
    """The rows of `table` with the columns of the rows of `right` that match them, named `<id>.column`.

    The column `<id>` tells whether a row matched. A row that matches several rows is repeated.
    """
    names = dict.fromkeys((*join.keys, *join.columns))
    side = _table([right.table[name] for name in names], [f"{join.id}.{name}" for name in names], right.table)
    lefts, rights = _matches(table, right, side, join, scalars)
    if join.is_membership:
        is_member = np.zeros(table.num_rows, bool)
        is_member[lefts] = True
        return table.append_column(join.id, pa.array(is_member))
    unmatched = np.ones(table.num_rows, bool)
    unmatched[lefts] = False
    left_rows = np.concatenate([lefts, np.flatnonzero(unmatched)])
    order = np.argsort(left_rows, kind="stable")
    right_rows = np.concatenate([rights, np.full(int(unmatched.sum()), -1)])[order]
    is_same = len(left_rows) == table.num_rows and np.array_equal(left_rows[order], np.arange(len(left_rows)))
    joined = table if is_same else table.take(pa.array(left_rows[order]))
    taken = side.take(pa.array(right_rows, mask=right_rows < 0)) if side.num_rows else None
    for field in side.schema:
        column = pa.nulls(joined.num_rows, field.type) if taken is None else taken[field.name]
        joined = joined.append_column(field.name, column)
    return joined.append_column(join.id, pa.array(right_rows >= 0))


def pairs_to_try(table: pa.Table, right: pa.Table, join: Join) -> int:
    """How many pairs of rows a join evaluates its condition for because it equates no columns."""
    if join.apart is not None or equated_keys(table, right, join)[0] or _interval(right, join) is not None:
        return 0
    return table.num_rows * right.num_rows


def _matches(table: pa.Table, right: KeyIndexes, side: pa.Table, join: Join, scalars: Scalars) -> RowPairs:
    """The pairs of rows for which the condition is true."""
    if not table.num_rows or not side.num_rows:
        return _NO_PAIRS
    if join.apart is not None:
        ours, theirs = (join.apart[0], join.apart[1])
        lefts = rows_meeting(table, ours, scalars)
        return (lefts, np.zeros(len(lefts), np.int64)) if len(right.meeting(theirs, join.id)) else _NO_PAIRS
    equated, is_all = equated_keys(table, right.table, join)
    interval = None if is_all else _interval(right.table, join)
    ranges = None if interval is None else _ranges(table, right, interval, scalars)
    if not equated and ranges is None:
        return _meeting(table, side, _all_pairs(table.num_rows, side.num_rows), join, scalars)
    if not equated and ranges is not None:
        return _meeting(table, side, _in_parts(*ranges.pairs()), join, scalars)
    right_keys, index = right.of(equated)
    left_keys = _key_columns(table, [(key.left, key.type) for key in equated], scalars)
    if is_all and index.is_unique and len(equated) == 1 and _is_compared_by_bytes(equated[0].type):
        found = pc.index_in(left_keys[0], value_set=right_keys[0], skip_nulls=True)
        lefts = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        return lefts, found.drop_null().to_numpy().astype(np.int64)
    if ranges is not None and ranges.count < index.count(left_keys, table.num_rows):
        return _meeting(table, side, _in_parts(*ranges.pairs()), join, scalars)
    lefts, rights = index.candidates(left_keys, table.num_rows)
    is_equal = np.ones(len(lefts), bool)
    for left_key, right_key in zip(left_keys, right_keys, strict=True):
        is_equal &= _are_equal(left_key.take(pa.array(lefts)), right_key.take(pa.array(rights)))
    lefts, rights = lefts[is_equal], rights[is_equal]
    if is_all:
        return lefts, rights
    return _meeting(table, side, _in_parts(lefts, rights), join, scalars)


def _interval(right: pa.Table, join: Join) -> tuple[ColumnBound, ColumnBound] | None:
    """The columns of the table between which the row has to lie, if their values can be ordered as numbers."""
    lows = [bound for bound in join.bounds if not bound.is_least]
    highs = [bound for bound in join.bounds if bound.is_least]
    if not lows or not highs:
        return None
    kinds = [right.schema.field(bound.column).type for bound in (lows[0], highs[0])]
    return (lows[0], highs[0]) if kinds[0] == kinds[1] and is_ordered_by_numbers(kinds[0]) else None


def _ranges(
    table: pa.Table, right: KeyIndexes, interval: tuple[ColumnBound, ColumnBound], scalars: Scalars
) -> IntervalMatches | None:
    """The rows of the table that may satisfy the bounds of each row; None if the types are not alike."""
    low, high = interval
    values = scalars.project(table, {"low": low.sql, "high": high.sql})
    kind = right.table.schema.field(low.column).type
    if any(not are_ordered_alike(values.schema.field(name).type, kind) for name in ("low", "high")):
        return None
    upper, lower = (ordered_numbers(values[name]) for name in ("low", "high"))
    return right.intervals(low.column, high.column).matches(upper, lower)


def _meeting(
    table: pa.Table, side: pa.Table, candidates: Iterator[RowPairs], join: Join, scalars: Scalars
) -> RowPairs:
    """The pairs among some for which the condition is true."""
    lefts, rights = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for left, right in candidates:
        pairs = table.take(pa.array(left))
        taken = side.take(pa.array(right))
        for name in taken.column_names:
            pairs = pairs.append_column(name, taken[name])
        is_match = pc.fill_null(scalars.project(pairs, {"on": join.on})["on"], False).to_numpy()
        lefts.append(left[is_match])
        rights.append(right[is_match])
    return np.concatenate(lefts), np.concatenate(rights)


def _all_pairs(left_rows: int, right_rows: int) -> Iterator[RowPairs]:
    step = max(PAIRS_AT_ONCE // right_rows, 1)
    for start in range(0, left_rows, step):
        rows = np.arange(start, min(start + step, left_rows))
        yield np.repeat(rows, right_rows), np.tile(np.arange(right_rows), len(rows))


def _in_parts(lefts: Ints, rights: Ints) -> Iterator[RowPairs]:
    for start in range(0, len(lefts), PAIRS_AT_ONCE):
        yield lefts[start : start + PAIRS_AT_ONCE], rights[start : start + PAIRS_AT_ONCE]


def _key_columns(
    table: pa.Table, keys: Sequence[tuple[str, pa.DataType]], scalars: Scalars
) -> list[pa.Array]:
    """Columns in the types in which they are compared."""
    casts = {
        str(i): f"CAST({quoted(name)} AS {cast_type_name(kind)})"
        for i, (name, kind) in enumerate(keys)
        if table.schema.field(name).type != kind
    }
    used = [name for i, (name, _) in enumerate(keys) if str(i) in casts]
    computed = scalars.project(table.select(list(dict.fromkeys(used))), casts) if casts else table
    columns = [computed[str(i)] if str(i) in casts else table[name] for i, (name, _) in enumerate(keys)]
    return [normalized(column.combine_chunks()) for column in columns]


def _hashed(keys: Sequence[pa.Array], rows: int) -> tuple[Ints, Hashes]:
    """The rows without a null key, and the hashes of their keys."""
    is_usable = np.ones(rows, bool)
    for key in keys:
        if key.null_count:
            is_usable &= key.is_valid().to_numpy(zero_copy_only=False)
    usable = np.flatnonzero(is_usable)
    # Decimals of one type are equal if their texts are; their hashes would be made one by one.
    plain = [key.cast(pa.string()) if pa.types.is_decimal(key.type) else key for key in keys]
    return usable, row_hashes(plain, rows)[usable]


def _is_compared_by_bytes(kind: pa.DataType) -> bool:
    """Whether values are equal if and only if their bytes are."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _are_equal(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Where values are equal; NaN equals itself."""
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return equal.to_numpy(zero_copy_only=False).astype(bool)


def _table(columns: list[pa.ChunkedArray], names: list[str], source: pa.Table) -> pa.Table:
    """A table of some columns of another; one without columns still has rows."""
    return pa.table(columns, names=names) if columns else source.select([])


def equated_keys(table: pa.Table, right: pa.Table, join: Join) -> tuple[list[EquatedKey], bool]:
    """The columns that the condition equates, and whether it says nothing else."""
    pairs, others = _equalities(join.on)
    names = {f"{join.id}.{name}": name for name in right.column_names}
    equated = []
    for pair in pairs:
        for left, theirs in (pair, pair[::-1]):
            if left in table.column_names and theirs in names:
                kinds = table.schema.field(left).type, right.schema.field(names[theirs]).type
                kind = _compared(*kinds)
                if kind is not None:
                    equated.append(EquatedKey(left, names[theirs], kind))
                    break
    return equated, not others and len(equated) == len(pairs)


def _compared(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two columns are compared, if a hash can stand for its values."""
    try:
        kind = left if left == right else compared(left, right)
    except SQLError:
        return None
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return None
    return kind if left == right or cast_type_name(kind) is not None else None


def cast_type_name(kind: pa.DataType) -> str | None:
    """The name of a type in SQL, if a value can be cast to it."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return TYPE_NAMES.get(kind)


@lru_cache(maxsize=1024)
def _equalities(condition: str) -> tuple[list[tuple[str, str]], bool]:
    """The pairs of plain columns that a condition equates, and whether it says anything else."""
    tree = sqlglot.parse_one(condition, dialect="spark")
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    pairs = []
    for part in parts:
        part = part.unnest()
        names = (
            [_column_name(side) for side in (part.this, part.expression)] if isinstance(part, exp.EQ) else []
        )
        if len(names) == 2 and None not in names:
            pairs.append((str(names[0]), str(names[1])))
    return pairs, len(pairs) < len(parts)


def _column_name(node: exp.Expression) -> str | None:
    column = node.unnest()
    return str(column.name) if isinstance(column, exp.Column) and len(column.parts) == 1 else None
