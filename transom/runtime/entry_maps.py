"""What is made of each registered query, by name: a query that joins, leaves or changes changes its own value only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry")
EntryValue = TypeVar("EntryValue")

MOST_CHANGES = 4_096  # after so many the maps are made again, so that the list of changes stays short


class Change(Enum):
    """What happened to an entry."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class EntryMaps(Generic[Entry]):
    """Maps from the names of entries to values made of them, in the order of the entries.

    A map stays the same object while no entry changes. It is a new one afterwards, in which only the values of entries
    that changed were made again.
    """

    def __init__(self) -> None:
        self._maps: dict[object, tuple[dict[str, Any], int]] = {}  # each with the changes that it has
        self._changes: list[tuple[str, Change]] = []

    def note(self, name: str, change: Change) -> None:
        """Note a change of an entry."""
        self._changes.append((name, change))
        if len(self._changes) > MOST_CHANGES:
            self.clear()

    def clear(self) -> None:
        """Forget all maps: the order of the entries changed."""
        self._maps, self._changes = {}, []

    def copy(self) -> EntryMaps[Entry]:
        """An independent copy."""
        other: EntryMaps[Entry] = EntryMaps()
        other._maps, other._changes = dict(self._maps), list(self._changes)
        return other

    def of(
        self, what: object, entries: Mapping[str, Entry], value: Callable[[Entry], EntryValue | None]
    ) -> dict[str, EntryValue]:
        """The map of a name; an entry without a value is not in it. Callers do not change it."""
        known = self._maps.get(what)
        made: dict[str, EntryValue] | None = None
        if known is not None:
            before, seen = known
            made = before if seen == len(self._changes) else self._after(before, seen, entries, value)
        if made is None:
            made = {}
            for name, entry in entries.items():
                if (one := value(entry)) is not None:
                    made[name] = one
        self._maps[what] = made, len(self._changes)
        return made

    def _after(
        self,
        before: Mapping[str, EntryValue],
        seen: int,
        entries: Mapping[str, Entry],
        value: Callable[[Entry], EntryValue | None],
    ) -> dict[str, EntryValue] | None:
        """A map after the changes that it has not seen; None if an entry gets a value in the middle of the others."""
        made = dict(before)
        for name, change in self._changes[seen:]:
            one = value(entries[name]) if change is not Change.REMOVED and name in entries else None
            if one is None:
                made.pop(name, None)
            elif change is Change.ADDED or name in made:
                made[name] = one
            else:
                return None
        return made
