"""What a batch brings to each stream that it concerns: rows, punctuations, a later clock, or its end."""

from __future__ import annotations

from transom.elements import Punctuation
from transom.ingest.stream_clocks import watermark_after
from transom.kernel.aggregate import Outcome
from transom.overload.chunks import NO_BURST
from transom.plan.planner import Planner
from transom.promising.execution import PromisingOutput
from transom.results.batch_input import BatchInput
from transom.results.derived_input import DerivedInput
from transom.results.preference_input import PreferenceInput, result_reach
from transom.runtime.declarations import Declared
from transom.runtime.ingest import IngestedBatch
from transom.runtime.registry import Registry
from transom.runtime.stream_timers import StreamTimers
from transom.state.batch_intent import BatchIntent
from transom.state.state import State


class BatchInputs:
    """Hands emit what came of a batch, stream by stream."""

    def __init__(self, declared: Declared, planner: Planner, timers: StreamTimers):
        self.declared, self.planner, self.timers = declared, planner, timers

    def of_streams(
        self, intent: BatchIntent, registry: Registry, state: State, ingested: IngestedBatch
    ) -> tuple[list[BatchInput], list[DerivedInput]]:
        """What the batch brings to the declared streams, and to the derived streams that queries read."""
        read = self.declared.derived(registry.streams())
        concerned = self._concerned(intent, registry, state, ingested)
        for name, derived_rules in read.items():
            if any(rules.clock.stream in concerned for rules in derived_rules.inputs):
                concerned[name] = None
        queried = self.declared.queried()
        batches = {
            name: self._of_stream(name, intent, registry, ingested) for name in concerned if name in queried
        }
        derived = [DerivedInput(batches.pop(name), rules) for name, rules in read.items() if name in batches]
        unread = self.declared.derived(batches)
        return [batch for name, batch in batches.items() if name not in unread], derived

    def _concerned(
        self, intent: BatchIntent, registry: Registry, state: State, ingested: IngestedBatch
    ) -> dict[str, None]:
        """The streams that the batch concerns, in order."""
        return dict.fromkeys(
            [
                *filter(None, [intent.stream]),
                *(element.clock.stream for element in ingested.carried),
                *intent.ended,
                *self.timers.concerned(intent, state, registry.compiled()),
            ]
        )

    def _of_stream(
        self, name: str, intent: BatchIntent, registry: Registry, ingested: IngestedBatch
    ) -> BatchInput:
        stream, brings_rows = self.declared.streams[name], name == intent.stream
        return BatchInput(
            stream.rules,
            registry.reading(name),
            ingested.outcome if brings_rows else ingested.derived.get(name, Outcome()),
            [e for e in ingested.carried if isinstance(e, Punctuation) and e.clock.stream == name],
            name in intent.ended,
            registry.partial_readers(),
            intent.clock,
            burst=ingested.burst if brings_rows else NO_BURST,
            store_sets=self.planner.store_sets(name, registry.looking(name)),
            watermark=watermark_after(stream, intent, ingested.clocks if brings_rows else None),
        )

    def of_preferences(
        self, intent: BatchIntent, registry: Registry, committed: State, preferred: PromisingOutput
    ) -> list[PreferenceInput]:
        """What the batch adds to the results of queries WITH PREFERENCE that others read."""
        summaries = registry.living_summaries()
        return [
            PreferenceInput(
                name,
                query,
                tuple(self.declared.streams[stream].rules.clock for stream in query.streams),
                result_reach(query, summaries),
                name not in committed.promising.queries,
                registry[name].identity in intent.ended_results,
                preferred.new.get(name),
            )
            for name, query in registry.read_preferences().items()
        ]
