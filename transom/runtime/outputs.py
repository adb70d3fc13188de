"""The results of batches under the checkpoint, a directory per batch, and those of prods."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.packed_tables import packed_stream
from transom.columns.readable_values import readable_table
from transom.errors import CheckpointError
from transom.results.result_rows import ResultBatch, Results
from transom.runtime.registry import identity
from transom.runtime.row_outputs import RowOutputs
from transom.state.commit_record import CommitRecord, ResultFiles
from transom.storage.file_store import Store
from transom.storage.sealed_directory import SEAL, seal, sealed_files

QUERY_COLUMN = "transom_query"  # the column that says which query a result is of
TABLES = "transom_tables"  # the column of a batch's file: a table for each schema


class Outputs:
    """Writes the outputs of batches and the answers to prods, and reads back what is retained of them.

    `result_batches` are the committed batches whose results are retained.
    """

    def __init__(self, store: Store):
        self.store, self.rows = store, RowOutputs(store)
        self.result_batches: list[ResultFiles] = []
        self._dropped_prods: frozenset[str] = frozenset()  # directories that are deleted with a later commit
        self._lock = threading.Lock()

    def resume(self, record: CommitRecord) -> None:
        """Continue with the outputs that a commit lists."""
        self.result_batches = list(record.result_batches)
        self.rows.resume(record.row_files)

    # --- writing ---

    def write_results(self, directory: str, results: Results, identity: Callable[[str], str]) -> int | None:
        """Write one file, with a table for each schema that occurs; the number of files, 0 or 1.

        Results that tasks stored are there already. The directory is sealed then, and the number None.
        """
        alike: dict[pa.Schema, list[ResultBatch]] = defaultdict(list)
        for batch in results.batches:
            alike[batch.table.schema].append(batch)
        if alike:
            packed = [packed_stream(_together(batches, identity)) for batches in alike.values()]
            self.store.write_table(
                _file(directory, 0), pa.table({TABLES: pa.array(packed, pa.large_binary())})
            )
        if results.stored:
            seal(self.store, directory)
            return None
        return int(bool(alike))

    # --- reading ---

    def results(self, name: str, schema: pa.Schema, since: int) -> pa.Table:
        """A query's results and the answers to its prods, from the batch that it joined with, in order."""
        batches = {batch.batch_id: batch for batch in self.result_batches if batch.batch_id >= since}
        prods = {batch: answers for batch, answers in self._prod_directories().items() if batch >= since}
        tables = [schema.empty_table()]
        for batch_id in sorted({*batches, *prods}):
            if batch_id in batches:
                tables.append(self._batch_results(name, schema, since, batches[batch_id]))
            for directory in prods.get(batch_id, ()):
                if self._dropped_prods & {directory, directory.rpartition("/")[0]}:
                    continue
                tables.append(self._prod_results(identity(name, since), schema, directory))
        return pa.concat_tables(tables)

    def batch_results(self, name: str, schema: pa.Schema, since: int, batch_id: int) -> pa.Table:
        """A query's results in one batch, without answers to prods; none if they are not retained any more."""
        batches = self.result_batches
        at = bisect_left(batches, batch_id, key=lambda batch: batch.batch_id)
        if at == len(batches) or batches[at].batch_id != batch_id:
            return schema.empty_table()
        return self._batch_results(name, schema, since, batches[at])

    def _batch_results(self, name: str, schema: pa.Schema, since: int, batch: ResultFiles) -> pa.Table:
        directory = results_of(batch.batch_id)
        try:
            if batch.files is None:
                files = sealed_files(self.store, directory)
            else:
                files = [_file(directory, i) for i in range(batch.files)]
            return self._read_files(identity(name, since), schema, files)
        except CheckpointError:
            if batch in self.result_batches:
                raise
            return schema.empty_table()  # deleted meanwhile

    def batch_tables(self, batch: ResultFiles) -> Iterator[pa.Table]:
        """The results of a batch, a table for each schema, with the column that says which query they are of."""
        directory = results_of(batch.batch_id)
        is_sealed = batch.files is None
        files = (
            sealed_files(self.store, directory)
            if is_sealed
            else [_file(directory, number) for number in range(batch.files or 0)]
        )
        for file in files:
            for table in _tables_of(self.store, file):
                yield readable_table(table)

    def _prod_results(self, identity: str, schema: pa.Schema, directory: str) -> pa.Table:
        """The results of a query in an answer to a prod; none if the answer was deleted meanwhile."""
        files = [f"{directory}/{file}" for file in self.store.list(directory) if file != SEAL]
        try:
            return self._read_files(identity, schema, files)
        except FileNotFoundError:
            return schema.empty_table()

    def _read_files(self, identity: str, schema: pa.Schema, files: Sequence[str]) -> pa.Table:
        tables = [schema.empty_table()]
        for file in files:
            if parts := list(rows_of_query(self.store, file, identity, schema)):
                tables.append(pa.Table.from_batches(parts).cast(schema))
        return readable_table(pa.concat_tables(tables))

    def _prod_directories(self) -> dict[int, list[str]]:
        """The directories of answers to prods, by the batch that they are as of, in order."""
        return {
            int(batch_id): [
                f"prods/{batch_id}/{name}" for name in sorted(self.store.list(f"prods/{batch_id}"))
            ]
            for batch_id in self.store.list("prods")
        }

    # --- retention ---

    def drop_results(self, is_old: Callable[[int, int], bool]) -> list[str]:
        """Forget the results of old batches, recognised by their number and the time they were made; the
        directories that can be deleted once that is committed."""
        with self._lock:
            old = {batch for batch in self.result_batches if is_old(batch.batch_id, batch.made)}
            if old:
                self.result_batches = [batch for batch in self.result_batches if batch not in old]
            self._dropped_prods = frozenset(self._old_prods(is_old))
            return [*(results_of(batch.batch_id) for batch in old), *self._dropped_prods]

    def _old_prods(self, is_old: Callable[[int, int], bool]) -> Iterator[str]:
        """Directories of old answers to prods, recognised by their batch and the time they were made."""
        for batch_id, directories in self._prod_directories().items():
            old = [
                path for path in directories if is_old(batch_id, int(path.rpartition("/")[2].split("-")[0]))
            ]
            yield from [f"prods/{batch_id:010d}"] if len(old) == len(directories) else old


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
    return _together([batch], identity)


def _together(batches: Sequence[ResultBatch], identity: Callable[[str], str]) -> pa.Table:
    """Results of one schema in few record batches: readers of one query go through all of them."""
    table = batches[0].table
    if len(batches) > 1:
        table = pa.concat_tables([batch.table for batch in batches]).combine_chunks()
    names = pa.array([identity(name) for batch in batches for name in batch.names], pa.string())
    rows = np.concatenate([np.diff(batch.bounds) for batch in batches])
    return table.append_column(QUERY_COLUMN, names.take(pa.array(np.repeat(np.arange(len(names)), rows))))


def rows_of_query(store: Store, file: str, identity: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The results of one query in a file, a batch at a time; none if the file is of another schema."""
    with store.batches(file) as reader:
        if reader.schema.names != [TABLES]:  # a task wrote it, or an engine before results had one file
            parts = (reader.get_batch(i) for i in range(reader.num_record_batches))
            yield from _rows_of_query(reader.schema, parts, identity, schema)
            return
        for packed in reader.read_all()[TABLES]:
            with pa.ipc.open_stream(packed.as_buffer()) as table:
                yield from _rows_of_query(table.schema, table, identity, schema)


def _tables_of(store: Store, file: str) -> Iterator[pa.Table]:
    """The results in a file, a table for each schema."""
    with store.batches(file) as reader:
        if reader.schema.names != [TABLES]:
            yield reader.read_all().replace_schema_metadata()
            return
        for packed in reader.read_all()[TABLES]:
            with pa.ipc.open_stream(packed.as_buffer()) as table:
                yield table.read_all().replace_schema_metadata()


def _rows_of_query(
    file_schema: pa.Schema, batches: Iterable[pa.RecordBatch], identity: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    file_schema = file_schema.remove_metadata()
    if file_schema.remove(file_schema.get_field_index(QUERY_COLUMN)) != schema:
        return
    for batch in batches:
        mine = batch.filter(pc.equal(batch[QUERY_COLUMN], identity))
        if mine.num_rows:
            yield mine.drop_columns([QUERY_COLUMN])
