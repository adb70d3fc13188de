"""Where lookups are answered: it reads committed stores, and counts how often."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

from transom.final.lookup import Lookup, Read
from transom.partial.demands import Brought
from transom.plan.demands import Glance
from transom.state.state import State
from transom.structures.exact import Raw
from transom.structures.runs import Found


@dataclass(frozen=True)
class Asked:
    """How often a store was read, and how often that took no scan of its tuples."""

    lookups: int = 0
    hits: int = 0

    def __add__(self, other: Asked) -> Asked:
        return Asked(self.lookups + other.lookups, self.hits + other.hits)


@dataclass
class Desk:
    """Answers beside the pages, in the threads of whoever asks."""

    _asked: dict[str, Asked] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def asked(self) -> dict[str, Asked]:
        """By store, how often it was read."""
        with self._lock:
            return dict(self._asked)

    def committed(self, before: State, after: State, runs: Iterable[Brought]) -> None:
        """A page is committed that brought these runs to stores."""
        with self._lock:
            self._asked = {key: own for key, own in self._asked.items() if key in after.stores}

    def reader(self, lookup: Lookup, state: State) -> Read:
        """How a lookup reads the stores of a state."""

        def read(key: str, glance: Glance, since: int) -> Found:
            with self._lock:
                known, is_hit = self._asked.get(key, Asked()), not isinstance(glance.recipe, Raw)
                self._asked[key] = known + Asked(1, int(is_hit))
            return glance.recipe.lookup(state.stores[key].kept.runs, since)

        return read
