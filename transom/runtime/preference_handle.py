"""Queries WITH PREFERENCE, as a program holds them in its hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn

import pyarrow as pa

from transom.errors import SettingError, SQLError, StateError
from transom.estimates import Accuracy
from transom.runtime.handles import EngineParts, QueryHandle
from transom.sql.clauses.summary import is_statement
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import preference_schema
from transom.sql.syntax.spark_parser import query_tokens
from transom.state.promising import Coverage


def refuse_statement(text: object, of: str = "") -> None:
    """Refuse CREATE and DROP in place of a query, and name the call that runs them."""
    if not isinstance(text, str) or not is_statement(text):
        return
    first = query_tokens(text)[0]
    message = f"{of}{first.text.upper()} is not a query: engine.execute() runs CREATE and DROP of views and summaries"
    raise SQLError(message, text, first.start, first.end + 1)


class PreferenceHandle(QueryHandle):
    """A registered query WITH PREFERENCE."""

    def __init__(self, parts: EngineParts, name: str, text: str, query: PreferenceQuery | None = None):
        super().__init__(parts, name, text)
        self._preference_query = query

    @property
    def on_demand(self) -> bool:
        """Never: what is found is pushed."""
        return False

    @property
    def is_row_query(self) -> bool:
        """Never: it has a preference."""
        return False

    @property
    def has_preference(self) -> bool:
        return True

    def late(self, rows: bool = False) -> NoReturn:
        raise SettingError(
            f"{self.name} has no windows: engine.summaries() has the tuples that came too late for its summaries"
        )

    def results(self) -> pa.Table:
        """All results so far: the select items, rows (behind an aggregate), batch, made, whether nothing was
        left out of the batch (complete), the share of its estimated output that it produced, and how many
        tuples it probably passed over (skipped)."""
        query, since = self._bound_preference_query()
        return self._parts.loop.outputs.results(self.stored_name, preference_schema(query), since)

    def coverage(self) -> Coverage:
        """What became of the budget so far: probes made, tuples produced, tuples probably passed over (for
        good, or waiting until there is time), and the share of the output that was produced."""
        query_state = self._parts.loop.state.promising.queries.get(self.name)
        _, since = self._bound_preference_query()
        return query_state.coverage if query_state is not None and query_state.since == since else Coverage()

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

    def tune(self, aggressiveness: float | None) -> None:
        self._refuse("there are no windows to tell early")

    @property
    def bound(self) -> PreferenceQuery:
        return self._bound_preference_query()[0]

    def _refuse(self, why: str) -> NoReturn:
        raise SettingError(f"{self.name} has WITH PREFERENCE: {why}")

    def _remember(self) -> None:
        self._stored_name = self.stored_name
        self._preference_query, self._since = self._bound_preference_query()

    def _bound_preference_query(self) -> tuple[PreferenceQuery, int]:
        """The query and the batch it joined with, as far as they are known."""
        loop = self._parts.loop
        if self._entry() is not None:
            loop.directory.bind()
            registry = loop.directory.registry
            return registry.executable(self.name, PreferenceQuery), registry[self.name].since
        query = self._preference_query or loop.directory.bound_preference_queries.get(self.text)
        if query is None:
            raise StateError(f"there is no query named {self.name}")
        return query, self._since
