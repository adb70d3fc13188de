"""What prods report between two batches: the next batch learns from it."""

from __future__ import annotations

from collections.abc import Sequence

from transom.elements import Edit, Rename
from transom.estimates.feedback import Observation
from transom.runtime.registry import Registry
from transom.state.batch_intent import BatchIntent

MAX_OBSERVATIONS = 16  # of a query between two batches: more of them would say the same


class ProdObservations:
    """The windows that prods reported since the last batch. Callers hold the lock of the directory."""

    def __init__(self) -> None:
        self._by_query: dict[str, list[Observation]] = {}  # by identity

    def add(self, identity: str, observation: Observation) -> None:
        """Note what a prod reported of a query."""
        recent = self._by_query.setdefault(identity, [])
        recent.append(observation)
        del recent[:-MAX_OBSERVATIONS]

    def for_batch(self, intent: BatchIntent, registry: Registry) -> list[Observation]:
        """What a batch learns from, given the registry that it makes."""
        ids = _unchanged(registry, intent) if self._by_query else set()
        recent = (observed for identity, observed in self._by_query.items() if identity in ids)
        return [observation for observed in recent for observation in observed]

    def batch_committed(self, intent: BatchIntent, registry: Registry, seen: Sequence[Observation]) -> None:
        """Forget what a batch has seen, and what was reported of queries that it changed or dropped."""
        seen_ids = {id(observation) for observation in seen}
        ids = _unchanged(registry, intent) if self._by_query else set()
        self._by_query = {
            identity: left
            for identity, observed in self._by_query.items()
            if identity in ids and (left := [each for each in observed if id(each) not in seen_ids])
        }


def _unchanged(registry: Registry, intent: BatchIntent) -> set[str]:
    """The identities of the queries whose text and name a batch leaves as they are.

    What prods reported of the others is of another text, or has another name.
    """
    changed = {element.name for element in intent.control if isinstance(element, Edit)}
    changed |= {element.to for element in intent.control if isinstance(element, Rename)}
    return {entry.identity for entry in registry if entry.name not in changed}
