"""The second half of a batch on Spark; what fails in one query suspends that query."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from transom.backends.spark.scalars import SparkScalars, short_message
from transom.errors import BatchError
from transom.kernel.aggregate import Outcome
from transom.results.emit import BatchOutput, EmitBackend, EmitContext, emit
from transom.results.presentation import LoweredWindows, Moment, Results, Stored, finish
from transom.results.shard_work import ShardWork
from transom.results.stream_progress import BatchInput
from transom.runtime.executor_state import Far
from transom.runtime.ingest import FirstHalf
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.registry import Registry
from transom.runtime.suspension import suspend_failed, suspend_failing
from transom.runtime.write_ahead_log import BatchIntent
from transom.state.state import State


class SecondHalf:
    """Turns what a batch's rows came to into results and the next state."""

    def __init__(self, scalars: SparkScalars, outputs: Outputs, far: Far, first_half: FirstHalf):
        self.scalars, self.outputs, self.far, self.first_half = scalars, outputs, far, first_half

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
        output = emit(state, inputs, registry.everyone(), said, self.far.shelf(state), effects)
        return replace(output, state=self.far.rolled_up(output.state, registry.living()))

    def effects(self, intent: BatchIntent, registry: Registry, directory: str) -> OnSpark:
        """What is done for a batch, its far results written to a directory."""
        return OnSpark(self, intent, registry, directory)


@dataclass
class OnSpark(EmitBackend):
    """What a batch's second half needs done, by Spark."""

    half: SecondHalf
    intent: BatchIntent
    registry: Registry
    directory: str
    _written: set[str] = field(default_factory=set)

    def finish(self, windows: Sequence[LoweredWindows], moment: Moment) -> Results:
        """Apply the SELECT lists; a query that can't because of a function of its own is suspended."""
        scalars, registry = self.half.scalars, self.registry
        living = [one for one in windows if registry[one.queries[0].name].suspended is None]
        try:
            return finish(living, moment, scalars)
        except Exception as error:
            tried = {
                query.name: partial(finish, [one], moment, scalars)
                for one in living
                for query in one.queries
                if query.query.functions
            }
            if not suspend_failing(registry, tried):
                raise BatchError(f"batch {moment.batch_id} failed: {short_message(error)}") from error
        return self.finish(living, moment)

    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        far = self.half.far.close(works, moment, self._identity, self.directory, self._written)
        suspend_failed(self.registry, far.failed)
        return far.stored, far.steps

    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        if not works:
            return {}
        directory = f"glances/{uuid.uuid4().hex}"
        try:
            far = self.half.far.close(works, moment, self._identity, directory, set())
            suspend_failed(self.registry, far.failed)
            return {name: stored.read() for name, stored in far.stored.items()}
        finally:
            self.half.far.store.delete(directory)

    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        return self.half.first_half.results(self.intent, batch, rows, self.registry, state)

    def _identity(self, name: str) -> str:
        return self.registry[name].identity
