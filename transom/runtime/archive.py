"""Results, late rows and rejected rows of committed batches, read back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from transom.backends.hidden_columns import TIME_TEXT
from transom.ingest.streams import Stream
from transom.runtime.outputs import Outputs
from transom.runtime.registry import identity


class Archive:
    """Reads what batches wrote. `result_batches` are the batches with results, and when they were made."""

    def __init__(self, outputs: Outputs, result_batches: Iterable[tuple[int, int]]):
        self.outputs = outputs
        self.result_batches = list(result_batches)
        self._lock = threading.Lock()

    def results(self, name: str, schema: pa.Schema, since: int) -> pa.Table:
        """A query's results, from the batch that it joined with."""
        batches = [batch_id for batch_id, _ in self.result_batches if batch_id >= since]
        return self.outputs.read_results(identity(name, since), schema, batches, since)

    def batch_results(self, name: str, schema: pa.Schema, since: int, batch_id: int) -> pa.Table:
        """A query's results in one batch, without answers to prods."""
        return self.outputs.read_results(identity(name, since), schema, [batch_id])

    def drop_results(self, is_old: Callable[[int, int], bool]) -> None:
        """Delete the results of old batches, which are recognised by their number and the time they were made."""
        with self._lock:
            for batch_id, made in self.result_batches:
                if is_old(batch_id, made):
                    self.outputs.clear_results(batch_id)
            self.result_batches = [
                (batch_id, made) for batch_id, made in self.result_batches if not is_old(batch_id, made)
            ]
            self.outputs.drop_prods(is_old)

    def late(self, stream: Stream, committed: int, since: Mapping[str, int] | None = None) -> pa.Table:
        """A stream's late rows up to the last committed batch, each with the queries that missed it.

        With `since`, only those that these queries missed, which joined with these batches.
        """
        schema = pa.schema([*stream.columns.items(), ("reason", pa.string())])
        return self.outputs.read_late_rows(stream.name, committed, schema, since)

    def rejected(self, stream: Stream, committed: int) -> pa.Table:
        """A stream's rejected rows up to the last committed batch, with the text of what could not be parsed."""
        read = dict(stream.source.columns)
        text = {TIME_TEXT: pa.string()} if read[stream.rules.clock.attribute] == pa.string() else {}
        columns = read | dict(stream.columns) | text
        schema = pa.schema([*columns.items(), ("reason", pa.string())])
        return self.outputs.read_rows("rejected", stream.name, committed, schema)
