"""Where lookups are answered: it reads committed stores, remembers what OrderedSharing found, and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from transom.aggregates.accumulators import Extreme
from transom.final.lookup import Lookup, Read
from transom.partial.demands import Brought
from transom.plan.demands import Gathering, Glance
from transom.state.state import State, StoreState
from transom.structures.exact import Raw
from transom.structures.ordered import OrderedAnswers
from transom.structures.runs import Found


@dataclass(frozen=True)
class Asked:
    """How often a store was read, and how often that took no scan of its tuples."""

    lookups: int = 0
    hits: int = 0

    def __add__(self, other: Asked) -> Asked:
        return Asked(self.lookups + other.lookups, self.hits + other.hits)


@dataclass
class _Shared:
    """What OrderedSharing has found in a store, of which it has seen so many tuples."""

    answers: OrderedAnswers
    lengths: frozenset[int]
    tuples: int

    @classmethod
    def over(cls, accumulator: Extreme, lengths: frozenset[int], store: StoreState) -> _Shared:
        answers = OrderedAnswers(accumulator, lengths)
        for run in store.kept.runs:
            answers.insert(run)
        return cls(answers, lengths, store.tuples)

    def agree(self, lengths: frozenset[int]) -> None:
        """Other windows are registered now."""
        for length in lengths - self.lengths:
            self.answers.windows.add(length)
        for length in self.lengths - lengths:
            self.answers.windows.remove(length)
        self.lengths = lengths


@dataclass
class Desk:
    """Answers beside the pages, in the threads of whoever asks.

    What OrderedSharing has found is no state: it is fed with what each committed page brings, and begins
    anew where it has missed something.
    """

    _asked: dict[str, Asked] = field(default_factory=dict)
    _lengths: dict[str, frozenset[int]] = field(default_factory=dict)  # of registered windows, by store
    _shared: dict[str, dict[Extreme, _Shared]] = field(default_factory=dict)  # by store
    _lock: Lock = field(default_factory=Lock)

    def asked(self) -> dict[str, Asked]:
        """By store, how often it was read."""
        with self._lock:
            return dict(self._asked)

    def committed(
        self, after: State, runs: Iterable[Brought] = (), gatherings: Sequence[Gathering] = ()
    ) -> None:
        """A page is committed that brought these runs to stores."""
        with self._lock:
            for known in (self._asked, self._lengths, self._shared):
                for key in known.keys() - after.stores.keys():
                    del known[key]
            for gathering in gatherings:
                for key in gathering.stores:
                    self._lengths[key] = gathering.lengths
            for brought in runs:
                for shared in self._shared.get(brought.store, {}).values():
                    shared.answers.insert(brought.run)
                    shared.tuples += brought.tuples
            for key, own in self._shared.items():
                for shared in own.values():
                    shared.answers.expire(after.stores[key].floor)
                    shared.agree(self._lengths.get(key, shared.lengths))

    def reader(self, lookup: Lookup, state: State) -> Read:
        """How a lookup reads the stores of a state."""

        def read(key: str, glance: Glance, since: int) -> Found:
            recipe, found = glance.recipe, None
            is_hit, is_shared = not isinstance(recipe, Raw), lookup.needs.is_shared and not lookup.later
            if is_shared and isinstance(recipe, Raw) and isinstance(recipe.accumulator, Extreme):
                found, is_hit = self._recalled(key, recipe.accumulator, state.stores[key], lookup)
            self.note(key, is_hit)
            return recipe.lookup(state.stores[key].kept.runs, since) if found is None else found

        return read

    def note(self, key: str, is_hit: bool) -> None:
        """A store was read."""
        with self._lock:
            self._asked[key] = self._asked.get(key, Asked()) + Asked(1, int(is_hit))

    def _recalled(
        self, key: str, accumulator: Extreme, store: StoreState, lookup: Lookup
    ) -> tuple[Found | None, bool]:
        """What OrderedSharing answers, and whether it had not to recalculate anything for that.

        Nothing, if a page was committed since the state that is asked: its tuples are in already.
        """
        with self._lock:
            own = self._shared.setdefault(key, {})
            shared = own.get(accumulator)
            if shared is None or shared.tuples < store.tuples:
                lengths = self._lengths.get(key, frozenset([lookup.query.query.window.range]))
                shared = own[accumulator] = _Shared.over(accumulator, lengths, store)
            if shared.tuples > store.tuples:
                return None, False
            before = shared.answers.counters.recalculations
            found = shared.answers.lookup(store.kept.runs, lookup.start, lookup.end - 1)
            return found, shared.answers.counters.recalculations == before
