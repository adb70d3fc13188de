"""Where lookups are answered: it reads committed stores, remembers what OrderedSharing found, and counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from transom.aggregates.accumulators import Extreme
from transom.kernel.store_runs import StoreRun
from transom.ondemand.lookup import Lookup, StoreReader
from transom.ondemand.store_specs import StoreRead, StoreSet
from transom.ondemand.structures.grouped_ordered_sharing import GroupedOrderedSharing
from transom.ondemand.structures.runs import GroupAnswers
from transom.ondemand.structures.values import RawTuples
from transom.state.state import State, StoreState

MOST_PENDING = 64  # batches that wait for somebody to ask


@dataclass(frozen=True)
class StoreUsage:
    """How often a store was read, and how often that took no scan of its tuples."""

    lookups: int = 0
    hits: int = 0

    def __add__(self, other: StoreUsage) -> StoreUsage:
        return StoreUsage(self.lookups + other.lookups, self.hits + other.hits)


@dataclass
class _Shared:
    """What OrderedSharing has found in a store, of which it has seen the tuples up to a batch.

    What batches bring waits until somebody asks: nobody else pays for it, and no batch waits for a lookup.
    """

    answers: GroupedOrderedSharing
    lengths: frozenset[int]
    batch_id: int
    tuples: int
    pending: deque[tuple[int, list[StoreRun]]] = field(default_factory=deque)
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def over(cls, accumulator: Extreme, lengths: frozenset[int], store: StoreState, batch_id: int) -> _Shared:
        answers = GroupedOrderedSharing(accumulator, lengths)
        for run in store.kept.runs:
            answers.insert(run)
        return cls(answers, lengths, batch_id, store.tuples)

    def catch_up(self, batch_id: int) -> None:
        """Take in what the batches up to one brought; of one that it has missed it knows nothing."""
        while self.pending and self.pending[0][0] <= batch_id:
            number, runs = self.pending.popleft()
            if number == self.batch_id + 1:
                self.batch_id = number
                self.tuples += sum(brought.tuples for brought in runs)
                for brought in runs:
                    self.answers.insert(brought.run)

    def agree(self, lengths: frozenset[int], floor: int) -> None:
        """Other windows are registered now, and tuples before a time are gone."""
        for length in lengths - self.lengths:
            self.answers.windows.add(length)
        for length in self.lengths - lengths:
            self.answers.windows.remove(length)
        self.lengths = lengths
        self.answers.expire(floor)


@dataclass
class LookupCache:
    """Answers beside the batches, in the threads of whoever asks.

    What OrderedSharing has found is no state: it is told what each committed batch brings, and begins anew
    where it has missed something.
    """

    _asked: dict[str, StoreUsage] = field(default_factory=dict)
    _lengths: dict[str, frozenset[int]] = field(default_factory=dict)  # of registered windows, by store
    _shared: dict[str, dict[Extreme, _Shared]] = field(default_factory=dict)  # by store
    _lock: Lock = field(default_factory=Lock)  # of these; held for moments only

    def asked(self) -> dict[str, StoreUsage]:
        """By store, how often it was read."""
        with self._lock:
            return dict(self._asked)

    def committed(
        self, after: State, runs: Iterable[StoreRun] = (), store_sets: Sequence[StoreSet] = ()
    ) -> None:
        """A batch is committed that brought these runs to stores; `gatherings` are all there are."""
        brought: dict[str, list[StoreRun]] = {}
        for one in runs:
            brought.setdefault(one.store, []).append(one)
        with self._lock:
            self._asked = {key: own for key, own in self._asked.items() if key in after.stores}
            self._lengths = {key: own for one in store_sets for key, own in one.lengths.items()}
            near = {key for key, store in after.stores.items() if not store.far}
            self._shared = {key: own for key, own in self._shared.items() if key in near}
            for key, own in self._shared.items():
                for accumulator, shared in list(own.items()):
                    shared.pending.append((after.batch_id, brought.get(key, [])))
                    if len(shared.pending) > MOST_PENDING:  # nobody asks: whoever does will begin anew
                        del own[accumulator]

    def reader(self, lookup: Lookup, state: State) -> StoreReader:
        """How a lookup reads the stores of a state."""

        def read(key: str, store_read: StoreRead, since: int) -> GroupAnswers:
            structure, found = store_read.structure, None
            is_hit, uses_ordered_sharing = (
                not isinstance(structure, RawTuples),
                lookup.query_stores.uses_ordered_sharing and not lookup.later,
            )
            if (
                uses_ordered_sharing
                and isinstance(structure, RawTuples)
                and isinstance(structure.accumulator, Extreme)
            ):
                found, is_hit = self._recalled(key, structure.accumulator, state, lookup)
            self.note(key, is_hit)
            return structure.lookup(state.stores[key].kept.runs, since) if found is None else found

        return read

    def note(self, key: str, is_hit: bool) -> None:
        """A store was read."""
        with self._lock:
            self._asked[key] = self._asked.get(key, StoreUsage()) + StoreUsage(1, int(is_hit))

    def _recalled(
        self, key: str, accumulator: Extreme, state: State, lookup: Lookup
    ) -> tuple[GroupAnswers | None, bool]:
        """What OrderedSharing answers, and whether it had not to recalculate anything for that.

        Nothing, if others have asked for a later batch already: its tuples are in.
        """
        store = state.stores[key]
        with self._lock:
            lengths = self._lengths.get(key, frozenset([lookup.query.query.window.range]))
            shared = self._shared.setdefault(key, {}).get(accumulator)
        if shared is not None:
            with shared.lock:
                shared.catch_up(state.batch_id)
                if shared.batch_id > state.batch_id:
                    return None, False
                if shared.batch_id == state.batch_id and shared.tuples == store.tuples:
                    shared.agree(lengths, store.floor)
                    return _answer(shared, store, lookup)
        shared = _Shared.over(accumulator, lengths, store, state.batch_id)
        found = _answer(shared, store, lookup)
        with self._lock:  # batches that were committed meanwhile it will find that it has missed
            self._shared.setdefault(key, {})[accumulator] = shared
        return found


def _answer(shared: _Shared, store: StoreState, lookup: Lookup) -> tuple[GroupAnswers, bool]:
    before = shared.answers.counters.recalculations
    found = shared.answers.lookup(store.kept.runs, lookup.start, lookup.end - 1)
    return found, shared.answers.counters.recalculations == before
