"""Derived streams: a window closes when it is closed for all inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from transom.elements import Prod, Punctuation
from transom.results.batch_input import BatchInput, Origin
from transom.results.prodder import now_of
from transom.state.state import ClockState, State, StreamState
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.stream_rules import DerivedRules


@dataclass(frozen=True)
class DerivedInput:
    """What a batch adds to a derived stream, and its rules."""

    batch: BatchInput
    derived: DerivedRules

    def completed(self, before: State, after: State) -> BatchInput:
        """With what is closed by the inputs after the batch, and which times its queries can have missed before it."""
        clock = self.batch.rules.clock
        closed = closed_by_all(self.derived, after)
        punctuations = [
            Punctuation(clock, stop, None if start <= LOWEST else start) for start, stop in closed.general
        ]
        punctuations += [
            Punctuation(clock, stop, None if start <= LOWEST else start, tuple(sorted(pattern)))
            for pattern, ranges in closed.patterns()
            for start, stop in ranges
        ]
        high = _highest(self.derived, before)
        missed = IntervalSet() if high is None else IntervalSet.of((LOWEST, high + 1))
        came = self.batch.outcome.clocks.get(clock)
        nows = [
            now_of(rules.clock, after.stream(rules.clock.stream), rules, self.batch.clock)
            for rules in self.derived.inputs
        ]
        now = max((each for each in nows if each is not None), default=None)
        origin = Origin(now, came.occupied() if came is not None else IntervalSet(), missed)
        return replace(self.batch, punctuations=punctuations, origin=origin)


def closed_by_all(derived: DerivedRules, state: State) -> Closed:
    """The time that is closed for every input, and the patterns if they hold for the derived stream."""
    closed = [state.stream(rules.clock.stream).clock(rules.clock).closed for rules in derived.inputs]
    if derived.keeps_columns:
        return closed[0]
    return Closed(reduce(IntervalSet.__and__, (each.general for each in closed)))


def _highest(derived: DerivedRules, state: State) -> int | None:
    highs = [state.stream(rules.clock.stream).clock(rules.clock).high for rules in derived.inputs]
    return max((high for high in highs if high is not None), default=None)


def with_derived_streams(state: State, derived: Mapping[str, DerivedRules], unread: Sequence[str]) -> State:
    """The state with derived streams that are new to it, as far as their inputs have come, and without unread ones."""
    streams = {name: stream for name, stream in state.streams.items() if name not in unread}
    for name, derived_rules in derived.items():
        if name not in streams:
            high = _highest(derived_rules, state)
            occupied = IntervalSet() if high is None else None
            begun = ClockState(high, closed_by_all(derived_rules, state), occupied)
            streams[name] = StreamState({derived_rules.rules.clock: begun})
    return state if streams == state.streams else replace(state, streams=streams)


def prods_of_derived(prods: Sequence[Prod], derived: Mapping[str, DerivedRules]) -> list[Prod]:
    """Prods of declared streams, and the same prods of the streams derived from them."""
    return [
        *prods,
        *(
            replace(prod, clock=derived_rules.rules.clock)
            for derived_rules in derived.values()
            for prod in prods
            if prod.clock in [each.clock for each in derived_rules.inputs]
            and (derived_rules.keeps_columns or not prod.where)
        ),
    ]
