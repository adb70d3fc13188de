"""Queries WITH PREFERENCE and the summaries they are guided by, as a program holds them in its hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from transom.errors import SettingError, StateError
from transom.estimates.monitor import Accuracy
from transom.final.preferred import preferred_schema
from transom.spark.handles import QueryHandle
from transom.sql.preferred import Preferred
from transom.state.preferring import Coverage

if TYPE_CHECKING:
    from transom.spark.engine import Engine
    from transom.spark.loop import PageLoop


class PreferredHandle(QueryHandle):
    """A registered query WITH PREFERENCE."""

    def __init__(self, engine: Engine, name: str, text: str, preferred: Preferred | None = None):
        super().__init__(engine, name, text)
        self._preferred = preferred

    @property
    def on_demand(self) -> bool:
        """Never: what is found is pushed."""
        return False

    def results(self) -> pa.Table:
        """All results so far: the select items, rows (behind an aggregate), page, made, whether nothing was
        left out of the page (complete), the share of its estimated output that it produced, and how many
        tuples it probably passed over (skipped)."""
        preferred, since = self._bound()
        return self._engine._loop.results(self.name, preferred_schema(preferred), since)

    def coverage(self) -> Coverage:
        """What became of the budget so far: probes made, tuples produced, tuples probably passed over (for
        good, or waiting until there is time), and the share of the output that was produced."""
        known = self._engine._loop.state.preferring.queries.get(self.name)
        _, since = self._bound()
        return known.coverage if known is not None and known.since == since else Coverage()

    def prod(self, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        self._refuse("there are no windows to prod")

    def lookup(
        self,
        range: str | int | timedelta | None = None,
        rows: int | None = None,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        self._refuse("what it finds is pushed; read its results()")

    def accuracy(self) -> Accuracy:
        self._refuse("ask for its coverage()")

    def _refuse(self, why: str) -> NoReturn:
        raise SettingError(f"{self.name} says WITH PREFERENCE: {why}")

    def _remember(self) -> None:
        self._preferred, self._since = self._bound()

    def _bound(self) -> tuple[Preferred, int]:
        """The query and the page it joined with, as far as they are known."""
        loop = self._engine._loop
        joined = self.name in loop.registry and loop.registry[self.name].text == self.text
        if joined and not self._has_left:
            loop.bind()
            entry = loop.registry[self.name]
            assert entry.preferred is not None
            return entry.preferred, entry.since
        known = self._preferred or loop.preferred.get(self.text)
        if known is None:
            raise StateError(f"there is no query named {self.name}")
        return known, self._since


@dataclass(frozen=True)
class SummaryInfo:
    """How a summary fares: what is kept, in which structure, and how much memory its cells take."""

    name: str
    stream: str
    column: str
    structure: str
    chosen: bool  # whether the structure is the engine's choice
    tuples: int  # that are kept
    came: int
    late: int  # that were older than all that was kept
    zones: int
    bytes: int  # of the summaries of cells, without the tuples
    far: bool  # whether tuples are in files
    queries: tuple[str, ...]


def summaries_of(loop: PageLoop) -> dict[str, SummaryInfo]:
    """How the summaries of a page loop fare."""
    state, registry = loop.state.preferring, loop.registry
    found = {}
    for name, created in registry.created.items():
        own = state.summaries.get(name)
        if own is None or created.summary is None:
            continue
        shape = own.representation.shape
        users = [
            query
            for query, preferred in registry.preferring().items()
            if name in (side.summary for side in preferred.sides)
        ]
        found[name] = SummaryInfo(
            name,
            shape.stream,
            shape.column,
            shape.structure,
            created.summary.structure == "auto",
            int(own.representation.zones().counts.sum()),
            own.came,
            own.late,
            len(own.representation.zones().since),
            own.representation.nbytes,
            bool(own.far),
            tuple(users),
        )
    return found
