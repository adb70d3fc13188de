"""What all kinds of bound queries have in common: standing, on-demand, row queries and WITH PREFERENCE."""

from __future__ import annotations

from typing import Protocol


class BoundQuery(Protocol):
    """A query whose names and types are resolved; `Query`, `OnDemandQuery`, `RowQuery` and
    `PreferenceQuery` are the kinds.

    Code that treats the kinds differently is a `singledispatch` function, with one implementation for each kind.
    """

    @property
    def functions(self) -> frozenset[str]:
        """The user-defined functions that it calls."""
        ...

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, in the order of FROM."""
        ...

    @property
    def selected(self) -> tuple[tuple[str, bool], ...]:
        """The names of its result columns without system columns, and whether each is a group column."""
        ...
