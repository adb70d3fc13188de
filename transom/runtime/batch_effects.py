"""What emit needs from the backend: windows on executors, and rows that are results of other queries."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from transom.kernel.aggregate import Outcome
from transom.results.batch_input import BatchInput
from transom.results.emit import EmitBackend
from transom.results.result_rows import Moment, Stored
from transom.results.shard_work import ShardWork
from transom.results.top_rows import top_of_parts
from transom.runtime.executor_state import ExecutorState
from transom.runtime.ingest import Ingest
from transom.runtime.registry import Registry
from transom.sql.catalog import Scalars
from transom.state.batch_intent import BatchIntent
from transom.state.state import State


@dataclass
class BatchEffects(EmitBackend):
    """The side effects of one batch or prod; results that executors make are written to `directory`."""

    scalars: Scalars
    executors: ExecutorState
    ingest: Ingest
    intent: BatchIntent
    registry: Registry
    directory: str
    _written: set[str] = field(default_factory=set)

    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        closed = self.executors.close(works, moment, self._identity, self.directory, self._written)
        return closed.stored, closed.steps

    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        if not works:
            return {}
        directory = f"glances/{uuid.uuid4().hex}"
        try:
            closed = self.executors.close(works, moment, self._identity, directory, set())
            queries = {reader.query.name: reader.query.query for work in works for reader in work.readers}
            return {
                name: top_of_parts(queries[name], stored.read()) for name, stored in closed.stored.items()
            }
        finally:
            self.executors.store.delete(directory)

    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        return self.ingest.ingest_results(self.intent, batch, rows, self.registry, state)

    def _identity(self, name: str) -> str:
        return self.registry[name].identity
