"""The ends of streams: a stream that is silent for long ends, and derived streams end with their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from transom.ingest.streams import Stream
from transom.runtime.declarations import Declared
from transom.runtime.query_directory import QueryDirectory
from transom.state.batch_intent import BatchIntent
from transom.state.state import State


class StreamEnds:
    """Decides which streams end with the next batch: all of their open windows close.

    `idle_closed` says, by stream, whether it was closed since its last data.
    """

    def __init__(
        self,
        declared: Declared,
        directory: QueryDirectory,
        clock: Callable[[], int],
        idle_closed: Mapping[str, bool],
    ):
        self.declared, self.directory, self.clock = declared, directory, clock
        self.idle_closed = dict(idle_closed)

    def declare(self, stream: Stream) -> None:
        """Let a declared stream continue. The time that the engine was down is not its silence: that begins now."""
        stream.last_data, stream.idle_closed = self.clock(), self.idle_closed.get(stream.name, True)

    def end(self, streams: Iterable[str]) -> None:
        """Close every window of some streams with the next batch."""
        with self.directory.lock:
            self.directory.waiting.ended += streams

    def close_idle(self, state: State) -> None:
        """Close the windows of streams that have been silent for as long as their rules allow."""
        now = self.clock()
        for stream in self.declared.streams.values():
            if stream.rules.idle is None or stream.idle_closed or now - stream.last_data < stream.rules.idle:
                continue
            if state.stream(stream.name).sidelined:
                continue  # there is something to do still
            self.end([stream.name])
            stream.idle_closed = True

    def with_derived(self, ended: Sequence[str]) -> tuple[str, ...]:
        """Streams that end, with the derived streams that end with them."""
        return (*ended, *self._derived(ended))

    def _derived(self, ended: Sequence[str]) -> list[str]:
        """The derived streams that end: all of their inputs do, or have ended since they last brought rows."""
        streams = self.declared.streams
        return [
            name
            for name, derived in self.declared.derived(streams).items()
            if name not in ended
            and any(rules.clock.stream in ended for rules in derived.inputs)
            and all(
                rules.clock.stream in ended or streams[rules.clock.stream].idle_closed
                for rules in derived.inputs
            )
        ]

    def results(self, ended: Sequence[str], state: State) -> tuple[str, ...]:
        """The identities of queries WITH PREFERENCE whose results end: all of their streams do, or have ended as above.

        It makes a difference for those that others read, and for outer joins, which return tuples without a partner. An
        outer join does not end as long as one of its streams has brought nothing, unless that stream ends now.
        """
        if not ended:
            return ()
        registry = self.directory.registry
        read = registry.read_preferences()

        def has_ended(stream: str, is_outer: bool) -> bool:
            declared = self.declared.streams[stream]
            has_begun = state.stream(stream).clock(declared.rules.clock).high is not None
            return stream in ended or (declared.idle_closed and (has_begun or not is_outer))

        return tuple(
            registry[name].identity
            for name, query in registry.preference_queries().items()
            if (name in read or query.outer is not None)
            and any(stream in ended for stream in query.streams)
            and all(has_ended(stream, query.outer is not None) for stream in query.streams)
        )

    def is_idle(self, name: str) -> bool:
        """Whether a stream brought nothing since it fell idle; a derived stream, if none of its inputs did."""
        stream = self.declared.streams[name]
        derived = self.declared.derived([name]).get(name)
        inputs = () if derived is None else (rules.clock.stream for rules in derived.inputs)
        return all(self.is_idle(each) for each in inputs) if derived is not None else stream.idle_closed

    def batch_ended(self, intent: BatchIntent) -> None:
        """Note, before a batch is committed, which stream brought rows, and which have ended."""
        streams = self.declared.streams
        if intent.stream is not None and intent.reference:
            stream = streams[intent.stream]
            stream.last_data, stream.idle_closed = self.clock(), False
        for name in intent.ended:
            if name in streams:
                streams[name].idle_closed = True
        self.idle_closed |= {name: stream.idle_closed for name, stream in streams.items()}
