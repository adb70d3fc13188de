"""Frames in this process: an Arrow table, and the scalars that evaluate expressions over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transom.backends.arrow_joins import KeyIndexes, left_join
from transom.backends.arrow_types import plain_table
from transom.backends.base import Frame, PositionedFrame, TableJoin, Task
from transom.backends.expressions import quoted
from transom.columns.arrays import Ints
from transom.columns.groups import group, normalized
from transom.columns.sort_order import sort_codes
from transom.sql.catalog import Scalars

LOCAL_FILES = "file://"  # what addresses of this machine begin with


class ArrowFrame(Frame):
    """An Arrow table as the runtime sees it."""

    def __init__(self, table: pa.Table, scalars: Scalars):
        self.table, self.scalars = table, scalars
        self._partition: str | None = None  # the expression that rows are distributed by
        self.key_indexes = KeyIndexes(table, scalars)  # for joins with these rows

    def _with(self, table: pa.Table) -> ArrowFrame:
        return ArrowFrame(table, self.scalars)

    def _values(self, text: str) -> pa.ChunkedArray:
        return self.scalars.project(self.table, {"value": text})["value"]

    @property
    def driver_rows(self) -> int:
        return self.table.num_rows

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return dict(zip(self.table.column_names, self.table.schema.types, strict=True))

    def filter(self, condition: str) -> Frame:
        return self._with(self.table.filter(self._values(condition)))

    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> Frame:
        table = self.table
        for joined in joins:
            assert isinstance(joined.frame, ArrowFrame)
            table = left_join(table, joined.frame.key_indexes, joined.join, self.scalars)
        computed = self.scalars.project(table, scalars)
        columns = {name: table[name] for name in keep} | {name: computed[name] for name in scalars}
        return self._with(_table(columns, table.num_rows))

    def extend(self, scalars: Mapping[str, str]) -> Frame:
        computed = self.scalars.project(self.table, scalars)
        columns = {name: self.table[name] for name in self.table.column_names}
        return self._with(_table(columns | {name: computed[name] for name in scalars}, self.table.num_rows))

    @contextmanager
    def with_row_ids(self, name: str) -> Iterator[ArrowFrame]:
        yield self._with(self.table.append_column(name, pa.array(np.arange(self.table.num_rows))))

    def with_positions(self, name: str) -> PositionedFrame:
        positions = pa.array(np.arange(self.table.num_rows))
        frame = self._with(self.table.append_column(name, positions))
        return PositionedFrame(frame, lambda chosen: self.table.take(pa.array(chosen)))

    def number(self, name: str, order: Sequence[str], where: str, first: int) -> Frame:
        chosen = np.flatnonzero(pc.fill_null(self._values(where), False).to_numpy())
        sorted_rows = chosen[np.lexsort([codes[chosen] for codes in reversed(self._sort_codes(order))])]
        numbers = np.zeros(self.table.num_rows, np.int64)
        numbers[sorted_rows] = np.arange(first, first + len(sorted_rows))
        is_null = np.ones(self.table.num_rows, bool)
        is_null[chosen] = False
        return self._with(self.table.append_column(name, pa.array(numbers, mask=is_null)))

    def rank(self, name: str, within: str, order: Sequence[str], ties: bool = False) -> Frame:
        groups = group([self.table[within].combine_chunks()], self.table.num_rows).codes
        codes = self._sort_codes(order)
        rows = np.lexsort([*reversed(codes), groups])
        sorted_groups = groups[rows]
        starts = np.r_[True, sorted_groups[1:] != sorted_groups[:-1]] if len(rows) else np.zeros(0, bool)
        positions = np.arange(len(rows))
        first_of_group = np.maximum.accumulate(np.where(starts, positions, 0))
        counted = positions
        if ties:
            is_new = starts.copy()
            for column in codes:
                ordered = column[rows]
                is_new[1:] |= ordered[1:] != ordered[:-1]
            counted = np.maximum.accumulate(np.where(is_new, positions, 0))
        ranks = np.empty(len(rows), np.int64)
        ranks[rows] = counted - first_of_group + 1
        columns = {column: self.table[column] for column in self.table.column_names}
        return self._with(_table(columns | {name: pa.array(ranks)}, self.table.num_rows))

    def _sort_codes(self, order: Sequence[str]) -> list[Ints]:
        """Numbers that sort rows as some expressions do: null first, NaN last."""
        computed = self.scalars.project(self.table, {str(i): text for i, text in enumerate(order)})
        return [sort_codes(computed[str(i)].combine_chunks()) for i in range(len(order))]

    def order_of(self, column: str) -> str:
        kind = self.table.schema.field(column).type
        return f"to_json(struct({quoted(column)}))" if pa.types.is_nested(kind) else quoted(column)

    def union(self, other: Frame) -> Frame:
        assert isinstance(other, ArrowFrame)
        return self._with(pa.concat_tables([self.table, other.table], promote_options="default"))

    def lookup(self, key: str, other: Frame, other_key: str) -> Frame:
        assert isinstance(other, ArrowFrame)
        keys = normalized(other.table[other_key].combine_chunks())
        matches = pc.index_in(normalized(self._values(key).combine_chunks()), keys, skip_nulls=True)
        left = self.table.filter(matches.is_valid())
        right = other.table.drop_columns([other_key]).take(matches.drop_null())
        columns = {name: left[name] for name in left.column_names}
        columns |= {name: right[name] for name in right.column_names}
        return self._with(_table(columns, left.num_rows))

    def aggregate(self, by: Mapping[str, str], functions: Mapping[str, tuple[str, str]]) -> Frame:
        computed = self.scalars.project(self.table, by)
        keys = [computed[name].combine_chunks() for name in by]
        rows = self.table.num_rows
        groups = group(keys, rows)
        count = groups.count if by else 1  # a global aggregate has one row, also over no rows
        codes = groups.codes if by else np.zeros(rows, np.int64)
        columns = {name: key.take(pa.array(groups.firsts)) for name, key in zip(by, keys, strict=True)}
        for name, (function, text) in functions.items():
            values = pa.array(np.ones(rows, bool)) if text == "*" else self._values(text).combine_chunks()
            columns[name] = _aggregated(function, values, codes, count)
        return self._with(_table(columns, count))

    def distribute(self, key: str, partitions: int) -> Frame:
        frame = self._with(self.table)
        frame._partition = key
        return frame

    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> Frame:
        batches = [
            batch for part in self._parts() for batch in task(iter(part.combine_chunks().to_batches()))
        ]
        tables = [pa.Table.from_batches([batch]).rename_columns(schema.names) for batch in batches]
        whole = plain_table(pa.concat_tables(tables)).cast(schema) if tables else schema.empty_table()
        return self._with(whole)

    def _parts(self) -> list[pa.Table]:
        """The rows by the key that they are distributed by; in one part otherwise."""
        if self._partition is None or not self.table.num_rows:
            return [self.table]
        codes = group([self._values(self._partition).combine_chunks()], self.table.num_rows).codes
        return [self.table.filter(pa.array(codes == code)) for code in range(int(codes.max()) + 1)]

    @contextmanager
    def held(self) -> Iterator[ArrowFrame]:
        yield self

    def to_table(self, few: bool = False) -> pa.Table:
        return self.table

    def first(self, count: int) -> pa.Table:
        return self.table.slice(0, count)

    def write_parquet(self, path: str, partition_by: str | None = None) -> None:
        directory = local_path(path)
        for old in sorted(directory.glob("**/*"), reverse=True) if directory.exists() else ():
            old.unlink() if old.is_file() else old.rmdir()
        if partition_by is None:
            _write(self.table, directory)
        else:
            groups = group([self.table[partition_by].combine_chunks()], self.table.num_rows)
            rows = self.table.drop_columns([partition_by]).take(
                pa.array(np.argsort(groups.codes, kind="stable"))
            )
            starts = np.r_[0, np.cumsum(np.bincount(groups.codes, minlength=groups.count))].tolist()
            values = self.table[partition_by].take(pa.array(groups.firsts)).to_pylist()
            for value, start, stop in zip(values, starts[:-1], starts[1:], strict=True):
                if value is None:  # as Spark names it
                    value = "__HIVE_DEFAULT_PARTITION__"
                _write(rows.slice(start, stop - start), directory / f"{partition_by}={value}")
        (directory / "_SUCCESS").touch()


def _aggregated(function: str, values: pa.Array, groups: Ints, count: int) -> pa.Array:
    """`count`, `min` or `max` of the values of each group: nulls do not count, and NaN is the largest number."""
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if function == "count":
        return pa.array(np.bincount(groups[rows], minlength=count).astype(np.int64))
    order = sort_codes(values)[rows]
    ordered = rows[np.lexsort([order if function == "max" else -order, groups[rows]])]
    last = np.full(count, -1, np.int64)
    last[groups[ordered]] = ordered  # of rows that are assigned to one group, the last one stays
    return values.take(pa.array(last, mask=last < 0))


def _write(table: pa.Table, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, directory / "part.parquet")


def _table(columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.Table:
    """A table of some columns; one without columns still has rows."""
    if not columns:
        return pa.table({"_": pa.nulls(rows)}).select([])
    return pa.table(list(columns.values()), names=list(columns))


def read_parquet_directories(paths: Sequence[str]) -> pa.Table:
    """The rows of the Parquet files in directories of this machine; times may be of any year."""
    files = [file for path in paths for file in sorted(local_path(path).glob("*.parquet"))]
    tables = []
    for file in files:  # not by a dataset, which costs as much as a thousand rows
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            tables.append(parquet.read())
    return plain_table(pa.concat_tables(tables))


def local_path(path: str) -> Path:
    """A path or a file's address, which is not escaped (as Hadoop has it), as a path of this machine."""
    return Path(path.removeprefix(LOCAL_FILES))
