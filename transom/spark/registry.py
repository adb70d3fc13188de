"""The queries that live: their texts, what they compile to, and how they fare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transom.elements import Drop, Register
from transom.errors import SQLError, StateError
from transom.plan.compiled import CompiledQuery, compile_query
from transom.sql.catalog import Catalog, Scalars
from transom.sql.derived import bind_all
from transom.sql.query import Query


@dataclass(frozen=True)
class Entry:
    """A query as registered. A suspended one says why, and takes no part in pages."""

    name: str
    text: str
    partial: bool = False
    since: int = 0  # the page it joined with
    suspended: str | None = None
    failing: int = 0  # pages in a row in which a function of its own failed
    compiled: CompiledQuery | None = None

    @property
    def identity(self) -> str:
        """What tells it from other queries that had its name before."""
        return identity(self.name, self.since)

    def stored(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            name: getattr(self, name) for name in ("name", "text", "partial", "since", "suspended", "failing")
        }


def identity(name: str, since: int) -> str:
    """A query's name and the page it joined with: names may be used again, this may not."""
    return f"{name}@{since}"


class Registry:
    """All entries by name. Entries of a checkpoint are bound when the streams they read are known."""

    def __init__(self, stored: Iterable[Mapping[str, Any]] = (), naive: bool = False):
        self.entries: dict[str, Entry] = {one["name"]: Entry(**one) for one in stored}
        self.naive = naive
        self.is_bound = not self.entries  # whether all entries are

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> Entry:
        try:
            return self.entries[name]
        except KeyError:
            raise StateError(f"there is no query named {name}") from None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def stored(self) -> list[dict[str, Any]]:
        return [entry.stored() for entry in self]

    def bind(self, catalog: Catalog, scalars: Scalars, leaving: Collection[str] = ()) -> None:
        """Compile the entries that came from a checkpoint, but for those that are about to leave."""
        waiting = {e.name: e.text for e in self if e.compiled is None and e.name not in leaving}
        for name, query in bind_all(waiting, catalog, scalars, self.queries()).items() if waiting else ():
            if isinstance(query, SQLError):
                raise StateError(
                    f"the query {name} of the checkpoint can't be read any more: {query}"
                ) from query
            self.entries[name] = replace(self.entries[name], compiled=compile_query(name, query, self.naive))
        self.is_bound = all(entry.compiled is not None for entry in self)

    def add(self, control: Register, query: Query, page: int) -> CompiledQuery:
        compiled = compile_query(control.name, query, self.naive)
        self.entries[control.name] = Entry(
            control.name, control.text, control.partial, page, compiled=compiled
        )
        return compiled

    def queries(self) -> dict[str, Query]:
        """All that are bound, by name."""
        return {entry.name: entry.compiled.query for entry in self if entry.compiled is not None}

    def query(self, name: str) -> Query:
        """A query that is bound already."""
        compiled = self[name].compiled
        assert compiled is not None
        return compiled.query

    def remove(self, control: Drop) -> None:
        self.entries.pop(control.name, None)

    def update(self, name: str, **changes: Any) -> None:
        self.entries[name] = replace(self.entries[name], **changes)

    def everyone(self) -> list[CompiledQuery]:
        """The queries that take part in pages, standing or on demand."""
        return [e.compiled for e in self if e.compiled is not None and e.suspended is None]

    def living(self) -> list[CompiledQuery]:
        """The standing queries that take part in pages."""
        return [query for query in self.everyone() if query.query.demand is None]

    def demanding(self) -> list[CompiledQuery]:
        """The on-demand queries that take part in pages."""
        return [query for query in self.everyone() if query.query.demand is not None]

    def compiled(self) -> dict[str, CompiledQuery]:
        """The standing queries that take part in pages, by name."""
        return {query.name: query for query in self.living()}

    def reading(self, stream: str) -> list[CompiledQuery]:
        """The standing queries over a stream that take part in pages."""
        return [query for query in self.living() if query.query.stream == stream]

    def looking(self, stream: str) -> list[CompiledQuery]:
        """The on-demand queries over a stream that take part in pages."""
        return [query for query in self.demanding() if query.query.stream == stream]

    def copy(self) -> Registry:
        other = Registry(naive=self.naive)
        other.entries, other.is_bound = dict(self.entries), self.is_bound
        return other
