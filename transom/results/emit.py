"""A batch as a pure function: what was known, what its rows came to, what was said -> what is known now.

The first half, rows to partials, is `partial.kernel` and runs wherever the rows are; this is the second,
which runs once a batch: windows close, results of queries become rows of others, prods are answered, and
what was said early is compared with what it became.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.elements import Kind, Prod
from transom.estimates.feedback import Lesson, Quality, Seen, learn, with_sights
from transom.kernel.aggregate import Outcome
from transom.kernel.shards import Shelf
from transom.ondemand.store_specs import store_sets
from transom.plan.compiled import CompiledQuery
from transom.results.advance import boundary, conclude, with_rows
from transom.results.cascade import derived_batch, derived_rules, in_order, passed_on, rows_of
from transom.results.early import EVERYTHING, Ask, sweep
from transom.results.presentation import Lowered, Moment, Results, Stored
from transom.results.prodder import look
from transom.results.shard_work import FarWork
from transom.results.stream_progress import BatchInput
from transom.state.state import State
from transom.windows.intervals import LOWEST

Cascade = Sequence[tuple[CompiledQuery, Sequence[CompiledQuery]]]


@dataclass(frozen=True)
class BatchOutput:
    """The state after a batch, its results, and how many slices were combined into them."""

    state: State
    results: Results
    finals: int = 0


class Effects(ABC):
    """What a batch's second half needs done that it can't do itself."""

    @abstractmethod
    def finish(self, windows: Sequence[Lowered], moment: Moment) -> Results:
        """Apply SELECT lists."""

    @abstractmethod
    def read_far(self, works: Sequence[FarWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        """Results of windows over shards, kept; and how many slices were combined into them."""

    @abstractmethod
    def fetch_far(self, works: Sequence[FarWork], moment: Moment) -> Mapping[str, pa.Table]:
        """The same, for the moment only."""

    @abstractmethod
    def fold(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        """The first half for the rows of a stream of results; they must not go far."""


@dataclass(frozen=True)
class Said:
    """What is said with a batch: prods, the batch's clock, the time now, and how early results are judged."""

    prods: Sequence[Prod] = ()
    clock: int = 0
    made: int = 0
    qualities: Mapping[str, Quality] = field(default_factory=dict)
    sights: Sequence[Seen] = ()  # what prods were told since the last batch, beside the batches
    streams: Collection[str] = ()  # all that are declared: queries of their names are not read by others


def second_half(
    state: State,
    batches: Sequence[BatchInput],
    living: Sequence[CompiledQuery],
    said: Said,
    shelf: Shelf | None,
    effects: Effects,
) -> BatchOutput:
    """Process the second half of a batch. All that is said takes effect at its end."""
    return _SecondHalf(state, living, said, effects).run(batches, shelf)


class _SecondHalf:
    def __init__(self, state: State, living: Sequence[CompiledQuery], said: Said, effects: Effects):
        self.before, self.said, self.effects = state, said, effects
        self.everyone = living
        self.living = [query for query in living if query.query.demand is None]
        self.queries = {query.name: query for query in self.living}
        self.final: list[Results] = []
        self.stored: dict[str, Stored] = {}
        self.finals = 0

    def run(self, batches: Sequence[BatchInput], shelf: Shelf | None) -> BatchOutput:
        concerned = {batch.rules.clock.stream: batch for batch in batches}
        declared = {*concerned, *self.said.streams}
        cascade = in_order(self.living, declared)
        state = self._closed(self.before, batches, shelf, batches_on=1)
        for inner, outers in in_order(self.everyone, declared):
            if inner.query.stream in concerned and inner.name in state.queries:
                batch, state = self._flow(inner, outers, concerned[inner.query.stream], state)
                concerned[inner.name] = batch
        prods = passed_on(self.said.prods, cascade)
        telling = look(state, list(concerned.values()), prods, self.said.clock)
        partial = frozenset[str]().union(*(batch.partial for batch in batches))
        moment = Moment(state.batch_id, Kind.EARLY, self.said.made)
        asks = [*telling.told, *telling.silent]
        store_read = with_early(state, asks, cascade, self.living, partial, self.effects, moment)
        told, silent = (
            sweep(store_read, own, self.living, partial) for own in (telling.told, telling.silent)
        )
        stored, _ = self.effects.read_far(told.far, moment)
        self._keep(stored)
        final = Results([part for results in self.final for part in results.batches])
        lesson = Lesson(
            final,
            told.finished(self.effects, moment),
            silent.finished(self.effects, moment),
            telling.now,
            self._closed_below(telling.now, state),
        )
        known = with_sights(state.learned, self.said.sights, self.queries)
        learned, shown = learn(known, lesson, self.queries, self.said.made, self.said.qualities)
        after = replace(state, prodders=telling.prodders, learned=learned)
        return BatchOutput(after, Results([*final.batches, *shown.batches], self.stored), self.finals)

    def _closed(
        self, state: State, batches: Sequence[BatchInput], shelf: Shelf | None, batches_on: int
    ) -> State:
        done = conclude(state, batches, shelf, batches_on)
        moment = Moment(done.state.batch_id, Kind.FINAL, self.said.made)
        stored, steps = self.effects.read_far(done.far, moment)
        self._keep(stored)
        self.finals += done.finals + steps
        self.final.append(self.effects.finish(done.closed, moment))
        return done.state

    def _keep(self, stored: Mapping[str, Stored]) -> None:
        for name, more in stored.items():
            self.stored[name] = self.stored[name].and_also(more) if name in self.stored else more

    def _flow(
        self, inner: CompiledQuery, outers: Sequence[CompiledQuery], batch: BatchInput, state: State
    ) -> tuple[BatchInput, State]:
        """The finals of one query become rows of those that read them."""
        standing = [outer for outer in outers if outer.query.demand is None]
        own = derived_batch(inner, standing, batch, self.before, state)
        own = replace(own, store_sets=store_sets([one for one in outers if one.query.demand is not None]))
        found = [results[inner.name] for results in self.final if inner.name in results]
        if inner.name in self.stored:
            found.append(self.stored[inner.name].read())
        if found:
            rows = rows_of(inner, pa.concat_tables(found))
            own = replace(own, outcome=self.effects.fold(own, rows, state))
        return own, self._closed(state, [own], None, batches_on=0)

    def _closed_below(self, names: Iterable[str], state: State) -> dict[str, int]:
        """The ids below which the windows of queries are closed for all groups."""
        found = {}
        for name in names:
            query, own = self.queries[name], state.queries[name]
            known = boundary(query, state.stream(query.query.stream), own)
            first = next(iter(known.wids(query, known.view.general)), None)
            if first is not None and first[0] <= LOWEST:
                found[name] = first[1]
        return found


def with_early(
    state: State,
    asks: Sequence[Ask],
    cascade: Cascade,
    living: Sequence[CompiledQuery],
    partial: frozenset[str],
    effects: Effects,
    moment: Moment,
) -> State:
    """A state to glance at. What a query over a query is told is made of the other's open windows too: their
    early results are put on top of its slices, and forgotten with the glance."""
    named = {inner.name: inner for inner, _ in cascade}
    needed: set[str] = set()
    for ask in asks:
        stream = ask.query.query.stream
        while stream in named and stream not in needed:
            needed.add(stream)
            stream = named[stream].query.stream
    for inner, outers in cascade:
        if inner.name not in needed or inner.name not in state.queries:
            continue
        swept = sweep(state, [Ask(inner, EVERYTHING)], living, partial)
        found = [*swept.finished(effects, moment).values(), *effects.fetch_far(swept.far, moment).values()]
        if found:
            batch_id = BatchInput(derived_rules(inner), outers, partial=partial)
            outcome = effects.fold(batch_id, rows_of(inner, pa.concat_tables(found)), state)
            state = with_rows(state, replace(batch_id, outcome=outcome))
    return state
