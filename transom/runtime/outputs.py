"""The results of batches under the checkpoint, a directory per batch, and those of prods."""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.backends.base import Frame
from transom.durations import format_instant
from transom.elements import ClockKind
from transom.results.result_rows import SYSTEM_COLUMNS, ResultBatch, Results
from transom.runtime.row_outputs import RowOutputs
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query, free_name
from transom.state.commit_record import ResultFiles
from transom.storage.file_store import Store
from transom.storage.sealed_directory import SEAL, seal, sealed_files

QUERY_COLUMN = "transom_query"  # the column that says which query a result is of
_INSTANT = pa.timestamp("us", tz="UTC")
FIXED = pa.schema(
    [
        ("query", pa.string()),
        ("window_start", _INSTANT),
        ("window_end", _INSTANT),
        ("window_from", pa.int64()),
        ("window_to", pa.int64()),
        *SYSTEM_COLUMNS,
        ("keys", pa.string()),
        ("values", pa.string()),
    ]
)


class Outputs:
    """Writes the outputs of a batch, and reads them back."""

    def __init__(self, store: Store):
        self.store, self.rows = store, RowOutputs(store)

    def clear_results(self, batch_id: int) -> None:
        """Delete the results that an earlier attempt at a batch left."""
        self.store.delete(results_of(batch_id))

    def write_results(self, directory: str, results: Results, identity: Callable[[str], str]) -> int | None:
        """Write one file for each schema that occurs, however many queries have it; the number of files.

        Results that tasks stored are there already. The directory is sealed then, and the number None.
        """
        alike: dict[pa.Schema, list[pa.Table]] = defaultdict(list)
        for batch in results.batches:
            alike[batch.table.schema].append(with_names(batch, identity))
        for i, tables in enumerate(alike.values()):
            # In few record batches: readers of one query go through all of them.
            self.store.write_table(_file(directory, i), pa.concat_tables(tables).combine_chunks())
        if results.stored:
            seal(self.store, directory)
            return None
        return len(alike)

    def read_results(self, identity: str, schema: pa.Schema, batch: ResultFiles) -> pa.Table:
        """The results of a query in a batch; CheckpointError if files of the batch are missing."""
        directory = results_of(batch.batch_id)
        if batch.files is None:
            files = sealed_files(self.store, directory)
        else:
            files = [_file(directory, i) for i in range(batch.files)]
        return self._read_files(identity, schema, files)

    def read_prods(self, identity: str, schema: pa.Schema, directory: str) -> pa.Table:
        """The results of a query in an answer to a prod; none if the answer was deleted meanwhile."""
        files = [f"{directory}/{file}" for file in self.store.list(directory) if file != SEAL]
        try:
            return self._read_files(identity, schema, files)
        except FileNotFoundError:
            return schema.empty_table()

    def _read_files(self, identity: str, schema: pa.Schema, files: Sequence[str]) -> pa.Table:
        found = [schema.empty_table()]
        for file in files:
            if parts := list(own_rows(self.store, file, identity, schema)):
                found.append(pa.Table.from_batches(parts).cast(schema))
        return pa.concat_tables(found)

    def prod_directories(self) -> dict[int, list[str]]:
        """The directories of answers to prods, by the batch that they are as of, in order."""
        return {
            int(batch_id): [
                f"prods/{batch_id}/{name}" for name in sorted(self.store.list(f"prods/{batch_id}"))
            ]
            for batch_id in self.store.list("prods")
        }

    def old_prods(self, is_old: Callable[[int, int], bool]) -> Iterator[str]:
        """Directories of old answers to prods, recognised by their batch and the time they were made."""
        for batch_id, directories in self.prod_directories().items():
            old = [one for one in directories if is_old(batch_id, int(one.rpartition("/")[2].split("-")[0]))]
            yield from [f"prods/{batch_id:010d}"] if len(old) == len(directories) else old

    def write_rows(
        self, kind: str, stream: str, batch_id: int, rows: Frame | None, on_driver: bool = False
    ) -> None:
        """Write a batch's late or rejected rows."""
        self.rows.write(kind, stream, batch_id, rows, on_driver)


def _file(directory: str, number: int) -> str:
    return f"{directory}/{number:04d}.arrow"


def prod_directory(batch_id: int, made: int) -> str:
    """A new directory for the answer to a prod; concurrent prods never share one."""
    return f"prods/{batch_id:010d}/{made:020d}-{uuid.uuid4().hex}"


def results_of(batch_id: int) -> str:
    """The directory of a batch's results."""
    return f"results/{batch_id:010d}"


def with_names(batch: ResultBatch, identity: Callable[[str], str]) -> pa.Table:
    """Results with the column that says which query they are of."""
    names = pa.array([identity(name) for name in batch.names], pa.string())
    which = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(batch.bounds))
    whose = pa.DictionaryArray.from_arrays(pa.array(which), names).cast(pa.string())
    return batch.table.append_column(QUERY_COLUMN, whose)


def own_rows(store: Store, file: str, identity: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The results of one query in a file, a batch at a time; none if the file is of another schema."""
    with store.batches(file) as reader:
        found = reader.schema.remove_metadata()
        if found.remove(found.get_field_index(QUERY_COLUMN)) != schema:
            return
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            mine = batch.filter(pc.equal(batch[QUERY_COLUMN], identity))
            if mine.num_rows:
                yield mine.drop_columns([QUERY_COLUMN])


def fixed_rows(results: Mapping[str, pa.Table], queries: Mapping[str, BoundQuery]) -> pa.Table:
    """Results of any queries in the one schema that fits all: keys and values as JSON objects."""
    rows: list[dict[str, Any]] = []
    for name, table in results.items():
        rows += _fixed(queries[name], name, table)
    columns = {
        field.name: pa.array([row[field.name] for row in rows], _storage(field.type)) for field in FIXED
    }
    return pa.table(
        {name: column.cast(FIXED.field(name).type) for name, column in columns.items()}, schema=FIXED
    )


@singledispatch
def _fixed(query: BoundQuery, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of one query's results."""
    raise TypeError(f"results of {type(query).__name__} have no fixed schema")


@_fixed.register
def _(query: Query, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """Results of a window query."""
    rows: list[dict[str, Any]] = []
    keys = [key for key, is_key in query.selected if is_key]
    start, end, *columns = table.column_names
    columns, system = columns[: -len(SYSTEM_COLUMNS)], columns[-len(SYSTEM_COLUMNS) :]
    values = [name for name in columns if name not in keys]
    kind, complete, count, late, batch_id, made, latency = system
    is_time = query.clock.kind is ClockKind.TIME
    bounds = {side: table[side].cast(pa.int64()).to_pylist() for side in (start, end)}
    times = table[made].cast(pa.int64()).to_pylist()
    for i, row in enumerate(table.to_pylist()):
        low, high = bounds[start][i], bounds[end][i]
        rows.append(
            {
                "query": name,
                "window_start": low if is_time else None,
                "window_end": high if is_time else None,
                "window_from": low,
                "window_to": high,
                "kind": row[kind],
                "complete": row[complete],
                "rows": row[count],
                "late": row[late],
                "batch": row[batch_id],
                "made": times[i],
                "latency": row[latency],
                "keys": as_json({key: row[key] for key in keys}),
                "values": as_json({value: row[value] for value in values}),
            }
        )
    return rows


@_fixed.register
def _(query: PreferenceQuery, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """Results of a query with a preference: they have no window, and are complete if nothing was skipped."""
    values = [value for value, _ in query.selected]
    system = {column: free_name(column, values) for column in ("batch", "made", "complete")}
    made = table[system["made"]].cast(pa.int64()).to_pylist()
    nothing = dict.fromkeys(
        ("window_start", "window_end", "window_from", "window_to", "rows", "late", "latency"), None
    )
    return [
        nothing
        | {
            "query": name,
            "kind": "final",
            "complete": row[system["complete"]],
            "batch": row[system["batch"]],
            "made": made[i],
            "keys": "{}",
            "values": as_json({value: row[value] for value in values}),
        }
        for i, row in enumerate(table.to_pylist())
    ]


def as_json(values: Mapping[str, Any]) -> str:
    """A JSON object; numbers that JSON does not have are texts, as in Spark's `to_json`."""
    strange = {name: repr(v) for name, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return json.dumps({**values, **{name: names[text] for name, text in strange.items()}}, default=plain_json)


def plain_json(value: Any) -> Any:
    """Values that JSON can't express: instants in ISO form, others as text."""
    if isinstance(value, datetime):
        return format_instant(pa.scalar(value, pa.timestamp("us")).value)
    return str(value)


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind
