"""The emit of a batch: windows close, results are written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.backends.base import Backend
from transom.kernel.aggregate import Outcome
from transom.results.emit import BatchOutput, EmitBackend, EmitContext, emit
from transom.results.result_rows import LoweredWindows, Moment, Results, Stored, finish
from transom.results.shard_work import ShardWork
from transom.results.stream_progress import BatchInput
from transom.runtime.executor_state import ExecutorState
from transom.runtime.ingest import Ingest
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.registry import Registry
from transom.state.batch_intent import BatchIntent
from transom.state.state import State


class Emitter:
    """Turns the partial aggregates of a batch into results and the next state."""

    def __init__(self, backend: Backend, outputs: Outputs, executors: ExecutorState, ingest: Ingest):
        self.backend, self.outputs, self.executors, self.ingest = backend, outputs, executors, ingest

    def process(
        self,
        intent: BatchIntent,
        state: State,
        inputs: Sequence[BatchInput],
        registry: Registry,
        said: EmitContext,
    ) -> BatchOutput:
        """Close the windows that close with a batch, and read those that are prodded."""
        self.outputs.clear_results(intent.batch_id)
        effects = self.effects(intent, registry, results_of(intent.batch_id))
        output = emit(state, inputs, registry.everyone(), said, self.executors.shelf(state), effects)
        return replace(output, state=self.executors.rolled_up(output.state, registry.living()))

    def effects(self, intent: BatchIntent, registry: Registry, directory: str) -> BatchEffects:
        """The side effects of a batch; results that executors make are written to a directory."""
        return BatchEffects(self, intent, registry, directory)


@dataclass
class BatchEffects(EmitBackend):
    """The side effects of one batch, by the backend."""

    emit: Emitter
    intent: BatchIntent
    registry: Registry
    directory: str
    _written: set[str] = field(default_factory=set)

    def finish(self, windows: Sequence[LoweredWindows], moment: Moment) -> Results:
        """Apply the SELECT lists."""
        return finish(windows, moment, self.emit.backend.scalars)

    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        closed = self.emit.executors.close(works, moment, self._identity, self.directory, self._written)
        return closed.stored, closed.steps

    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        if not works:
            return {}
        directory = f"glances/{uuid.uuid4().hex}"
        try:
            closed = self.emit.executors.close(works, moment, self._identity, directory, set())
            return {name: stored.read() for name, stored in closed.stored.items()}
        finally:
            self.emit.executors.store.delete(directory)

    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        return self.emit.ingest.ingest_results(self.intent, batch, rows, self.registry, state)

    def _identity(self, name: str) -> str:
        return self.registry[name].identity
