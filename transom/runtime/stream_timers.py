"""What the clock asks of streams: reports that are due, and watermarks that idle partitions no longer hold back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from transom.ingest.stream_clocks import released_streams
from transom.plan.compiled_query import CompiledQuery
from transom.results.preference_input import preference_rules
from transom.results.prodder import due_streams
from transom.runtime.declarations import Declared
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import Registry
from transom.state.batch_intent import BatchIntent
from transom.state.state import State


class StreamTimers:
    """Names the streams that a batch concerns because of the time, whether rows come or not."""

    def __init__(self, declared: Declared, directory: QueryDirectory, clock: Callable[[], int]):
        self.declared, self.directory, self.clock = declared, directory, clock
        self._timed: tuple[Registry, dict[str, CompiledQuery]] | None = None  # the queries of the last poll

    def is_due(self, state: State) -> bool:
        """Whether the clock asks for a batch now, after the committed state."""
        return self._report_is_due(state) or self._is_released(state)

    def _report_is_due(self, state: State) -> bool:
        if not state.prodders:
            return False
        registry = self.directory.registry
        if self._timed is None or self._timed[0] is not registry:
            self._timed = registry, registry.compiled()
        return bool(self._due(state, self._timed[1], self.clock()))

    def _is_released(self, state: State) -> bool:
        """Whether the watermark of some stream advances because a partition has become idle."""
        return bool(released_streams(self.declared.streams, state, self.clock(), self.resumed()))

    def concerned(self, intent: BatchIntent, state: State, queries: Mapping[str, CompiledQuery]) -> list[str]:
        """The streams that the clock of a batch concerns."""
        released = released_streams(self.declared.streams, state, intent.clock, intent.resumed)
        return [*self._due(state, queries, intent.clock), *released]

    def resumed(self) -> dict[str, int]:
        """By stream, when its partitions were read from a checkpoint."""
        return {name: stream.resumed for name, stream in self.declared.streams.items() if stream.resumed}

    def _due(self, state: State, queries: Mapping[str, CompiledQuery], clock: int) -> list[str]:
        """The streams whose open windows are to be reported by the clock, whether rows come or not."""
        if not state.prodders:
            return []
        rules = {name: stream.rules for name, stream in self.declared.streams.items()}
        read = self.directory.registry.read_preferences()
        rules |= {name: preference_rules(name, query) for name, query in read.items()}
        due = due_streams(state, queries, rules, clock)
        return [read[name].streams[0] if name in read else name for name in due]
