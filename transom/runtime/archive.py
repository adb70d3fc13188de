"""Results, late rows and rejected rows of committed batches, read back."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from transom.backends.hidden_columns import TIME_TEXT
from transom.errors import CheckpointError
from transom.ingest.streams import Stream
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.registry import identity
from transom.state.commit_record import ResultFiles


class Archive:
    """Reads what batches wrote. `result_batches` are the batches with results that are retained."""

    def __init__(self, outputs: Outputs, result_batches: Iterable[ResultFiles]):
        self.outputs = outputs
        self.result_batches = list(result_batches)
        self._dropped_prods: frozenset[str] = frozenset()  # directories that are deleted with a later commit
        self._lock = threading.Lock()

    def results(self, name: str, schema: pa.Schema, since: int) -> pa.Table:
        """A query's results and the answers to its prods, from the batch that it joined with, in order."""
        batches = {batch.batch_id: batch for batch in self.result_batches if batch.batch_id >= since}
        prods = {b: found for b, found in self.outputs.prod_directories().items() if b >= since}
        tables = [schema.empty_table()]
        for batch_id in sorted({*batches, *prods}):
            if batch_id in batches:
                tables.append(self._read(name, schema, since, batches[batch_id]))
            for directory in prods.get(batch_id, ()):
                if self._dropped_prods & {directory, directory.rpartition("/")[0]}:
                    continue
                tables.append(self.outputs.read_prods(identity(name, since), schema, directory))
        return pa.concat_tables(tables)

    def batch_results(self, name: str, schema: pa.Schema, since: int, batch_id: int) -> pa.Table:
        """A query's results in one batch, without answers to prods; none if they are not retained any more."""
        batches = self.result_batches
        at = bisect_left(batches, batch_id, key=lambda batch: batch.batch_id)
        if at == len(batches) or batches[at].batch_id != batch_id:
            return schema.empty_table()
        return self._read(name, schema, since, batches[at])

    def _read(self, name: str, schema: pa.Schema, since: int, batch: ResultFiles) -> pa.Table:
        try:
            return self.outputs.read_results(identity(name, since), schema, batch)
        except CheckpointError:
            if batch in self.result_batches:
                raise
            return schema.empty_table()  # deleted meanwhile

    def drop_results(self, is_old: Callable[[int, int], bool]) -> list[str]:
        """Forget the results of old batches, recognised by their number and the time they were made; the
        directories that can be deleted once that is committed."""
        with self._lock:
            old = {batch for batch in self.result_batches if is_old(batch.batch_id, batch.made)}
            if old:
                self.result_batches = [batch for batch in self.result_batches if batch not in old]
            self._dropped_prods = frozenset(self.outputs.old_prods(is_old))
            return [*(results_of(batch.batch_id) for batch in old), *self._dropped_prods]

    def late(self, stream: Stream, since: Mapping[str, int] | None = None) -> pa.Table:
        """A stream's late rows up to the last committed batch, each with the queries that missed it.

        With `since`, only those that these queries missed, which joined with these batches.
        """
        schema = pa.schema([*stream.columns.items(), ("reason", pa.string())])
        return self.outputs.rows.read_late(stream.name, schema, since)

    def rejected(self, stream: Stream) -> pa.Table:
        """A stream's rejected rows up to the last committed batch, with the text of what could not be parsed."""
        read = dict(stream.source.columns)
        text = {TIME_TEXT: pa.string()} if read[stream.rules.clock.attribute] == pa.string() else {}
        columns = read | dict(stream.columns) | text
        schema = pa.schema([*columns.items(), ("reason", pa.string())])
        return self.outputs.rows.read("rejected", stream.name, schema)
