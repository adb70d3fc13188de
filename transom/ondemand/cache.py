"""A cache of OrderedSharing's answers, which lookups use while batches run; it reads committed stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from transom.aggregates.accumulators import Extreme
from transom.kernel.store_runs import StoreRun
from transom.ondemand.lookup import Lookup, ReadStore
from transom.ondemand.store_specs import StoreRead, StoreSet
from transom.ondemand.structures.grouped_ordered_sharing import GroupedOrderedSharing
from transom.ondemand.structures.runs import GroupAnswers
from transom.ondemand.structures.value_structures import RawTuples
from transom.state.state import State, StoreState

MAX_PENDING_BATCHES = 64  # beyond this number, answers that no lookup reads are evicted


@dataclass(frozen=True)
class StoreUsage:
    """How many lookups read a store, and how many of them needed no scan of its tuples."""

    lookups: int = 0
    hits: int = 0

    def __add__(self, other: StoreUsage) -> StoreUsage:
        return StoreUsage(self.lookups + other.lookups, self.hits + other.hits)


@dataclass(frozen=True)
class LookupTotals:
    """What lookups did since the process started, also in stores that are gone.

    `reads` are of stores of attributes, and `hits` those of them that needed no scan.
    """

    lookups: int = 0
    reads: int = 0
    hits: int = 0

    def __add__(self, other: LookupTotals) -> LookupTotals:
        return LookupTotals(self.lookups + other.lookups, self.reads + other.reads, self.hits + other.hits)


@dataclass
class _CachedAnswers:
    """The answers of OrderedSharing over one store, up to and including the tuples of batch `batch_id`.

    The runs of later batches wait in `pending` until a lookup needs them, so that no batch pays for them.
    """

    answers: GroupedOrderedSharing
    lengths: frozenset[int]
    batch_id: int
    tuples: int
    pending: deque[tuple[int, list[StoreRun]]] = field(default_factory=deque)
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def over(
        cls, accumulator: Extreme, lengths: frozenset[int], store: StoreState, batch_id: int
    ) -> _CachedAnswers:
        answers = GroupedOrderedSharing(accumulator, lengths)
        for run in store.tiers.runs:
            answers.insert(run)
        return cls(answers, lengths, batch_id, store.tuples)

    def catch_up(self, batch_id: int) -> None:
        """Insert the pending runs of batches up to `batch_id`; after a missing batch, none is inserted."""
        while self.pending and self.pending[0][0] <= batch_id:
            pending_id, store_runs = self.pending.popleft()
            if pending_id == self.batch_id + 1:
                self.batch_id = pending_id
                self.tuples += sum(store_run.tuples for store_run in store_runs)
                for store_run in store_runs:
                    self.answers.insert(store_run.run)

    def set_windows(self, lengths: frozenset[int], floor: int) -> None:
        """Register the windows that queries have now, and evict groups without tuples since `floor`."""
        for length in lengths - self.lengths:
            self.answers.windows.add(length)
        for length in self.lengths - lengths:
            self.answers.windows.remove(length)
        self.lengths = lengths
        self.answers.expire(floor)


@dataclass
class LookupCache:
    """Serves lookups in their callers' threads, while batches run.

    Cached answers are not part of the state: the cache receives the runs of each committed batch, and it
    rebuilds answers after a gap.
    """

    _usage: dict[str, StoreUsage] = field(default_factory=dict)  # by store
    _totals: LookupTotals = field(default_factory=LookupTotals)
    _lengths: dict[str, frozenset[int]] = field(default_factory=dict)  # of registered windows, by store
    _cached: dict[str, dict[Extreme, _CachedAnswers]] = field(default_factory=dict)  # by store
    _lock: Lock = field(default_factory=Lock)  # guards the maps and the totals; held only briefly

    def usage(self) -> dict[str, StoreUsage]:
        """How often each store was read."""
        with self._lock:
            return dict(self._usage)

    def totals(self) -> LookupTotals:
        """What lookups did so far."""
        with self._lock:
            return self._totals

    def batch_committed(
        self, after: State, store_runs: Iterable[StoreRun] = (), store_sets: Sequence[StoreSet] = ()
    ) -> None:
        """Record a committed batch: its runs, and all present store sets."""
        runs_of_store: dict[str, list[StoreRun]] = {}
        for store_run in store_runs:
            runs_of_store.setdefault(store_run.store, []).append(store_run)
        with self._lock:
            self._usage = {key: usage for key, usage in self._usage.items() if key in after.stores}
            self._lengths = {key: own for store_set in store_sets for key, own in store_set.lengths.items()}
            on_driver = {key for key, store in after.stores.items() if not store.on_executors}
            self._cached = {key: cached for key, cached in self._cached.items() if key in on_driver}
            for key, by_accumulator in self._cached.items():
                for accumulator, cached in list(by_accumulator.items()):
                    cached.pending.append((after.batch_id, runs_of_store.get(key, [])))
                    if len(cached.pending) > MAX_PENDING_BATCHES:
                        del by_accumulator[accumulator]

    def reader(self, lookup: Lookup, state: State) -> ReadStore:
        """The function with which a lookup reads the stores of a state."""

        def read(key: str, store_read: StoreRead, since: int) -> GroupAnswers:
            structure, answers = store_read.structure, None
            is_hit = not isinstance(structure, RawTuples)
            is_cached = lookup.query_stores.uses_ordered_sharing and not lookup.later
            if is_cached and isinstance(structure, RawTuples) and isinstance(structure.accumulator, Extreme):
                answers, is_hit = self._cached_answers(key, structure.accumulator, state, lookup)
            self.count_read(key, store_read, is_hit)
            if answers is not None:
                return answers
            return structure.lookup(state.stores[key].tiers.runs, since, lookup.pattern)

        return read

    def count_read(self, key: str, store_read: StoreRead, is_hit: bool) -> None:
        """Count a lookup's read of a store; each lookup reads the store of its groups once."""
        lists_groups = store_read.spec.keeps_times
        with self._lock:
            self._totals += LookupTotals(1) if lists_groups else LookupTotals(0, 1, int(is_hit))
            self._usage[key] = self._usage.get(key, StoreUsage()) + StoreUsage(1, int(is_hit))

    def _cached_answers(
        self, key: str, accumulator: Extreme, state: State, lookup: Lookup
    ) -> tuple[GroupAnswers | None, bool]:
        """The answers of OrderedSharing, and whether it found them without recalculation.

        There are none if another lookup already inserted the tuples of a later batch.
        """
        store = state.stores[key]
        with self._lock:
            lengths = self._lengths.get(key, frozenset([lookup.query.query.window.range]))
            cached = self._cached.setdefault(key, {}).get(accumulator)
        if cached is not None:
            with cached.lock:
                cached.catch_up(state.batch_id)
                if cached.batch_id > state.batch_id:
                    return None, False
                if cached.batch_id == state.batch_id and cached.tuples == store.tuples:
                    cached.set_windows(lengths, store.floor)
                    return _answers_from(cached, store, lookup)
        cached = _CachedAnswers.over(accumulator, lengths, store, state.batch_id)
        answers = _answers_from(cached, store, lookup)
        # If a batch was committed meanwhile, the next lookup detects the gap and rebuilds the answers.
        with self._lock:
            self._cached.setdefault(key, {})[accumulator] = cached
        return answers


def _answers_from(cached: _CachedAnswers, store: StoreState, lookup: Lookup) -> tuple[GroupAnswers, bool]:
    before = cached.answers.counters.recalculations
    answers = cached.answers.lookup(store.tiers.runs, lookup.start, lookup.end - 1, lookup.pattern)
    return answers, cached.answers.counters.recalculations == before
