"""What came out of batches, read back: results, and rows that were set apart."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from transom.backends.hidden_columns import TIME_TEXT
from transom.runtime.ledger import Ledger
from transom.runtime.outputs import Outputs
from transom.runtime.registry import identity
from transom.runtime.streams import Stream
from transom.state.state import State


class Archive(Ledger):
    """The ledger with what was made for its queries so far."""

    outputs: Outputs
    state: State
    lock: threading.RLock
    result_batches: list[tuple[int, int]]  # batches that made results, with their readings of the clock

    def results(self, name: str, schema: pa.Schema, since: int) -> pa.Table:
        """A query's results, from the batch it joined with."""
        batches = [batch_id for batch_id, _ in self.result_batches if batch_id >= since]
        return self.outputs.read_results(identity(name, since), schema, batches, since)

    def batch_results(self, name: str, schema: pa.Schema, since: int, batch_id: int) -> pa.Table:
        """A query's results in one batch, without what prods were told."""
        return self.outputs.read_results(identity(name, since), schema, [batch_id])

    def drop_results(self, is_old: Callable[[int, int], bool]) -> None:
        """Forget the results of old batches, told by their number and their reading of the clock."""
        with self.lock:
            for batch_id, at in self.result_batches:
                if is_old(batch_id, at):
                    self.outputs.clear_results(batch_id)
            self.result_batches = [
                (batch_id, at) for batch_id, at in self.result_batches if not is_old(batch_id, at)
            ]
            self.outputs.drop_told(is_old)

    def apart(self, kind: str, stream: Stream) -> pa.Table:
        """A stream's late or rejected rows."""
        columns = dict(stream.columns)
        if kind == "rejected":  # with what could not be read
            read = dict(stream.source.columns)
            text = {TIME_TEXT: pa.string()} if read[stream.rules.clock.attribute] == pa.string() else {}
            columns = read | columns | text
        schema = pa.schema([*columns.items(), ("reason", pa.string())])
        return self.outputs.read_rows(kind, stream.name, self.state.batch_id, schema)
