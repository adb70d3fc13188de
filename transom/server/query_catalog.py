"""The queries of an engine, with their descriptions and status."""

from __future__ import annotations

from dataclasses import asdict

from transom.api.errors import NotFound
from transom.api.records import DecisionInfo, QueryDetail, QueryStatus
from transom.errors import StateError
from transom.plan.explain.early_text import emit_text
from transom.plan.explain.text_parts import readable
from transom.runtime.engine import Engine
from transom.runtime.handles import QueryHandle
from transom.runtime.registry import identity
from transom.server.batch_history import BatchHistory
from transom.server.earlier_results import EarlierResults
from transom.server.query_description import QueryDescription, description_of


class QueryCatalog:
    """Finds queries by name and reports their status."""

    def __init__(self, engine: Engine, history: BatchHistory, earlier: EarlierResults):
        self.engine, self.history, self.earlier = engine, history, earlier
        self.descriptions: dict[tuple[str, str], QueryDescription] = {}  # by name and text

    def handle(self, name: str) -> QueryHandle:
        """The engine's handle of a query."""
        try:
            return self.engine.query(name)
        except StateError as error:
            raise NotFound(str(error)) from None

    def description(self, handle: QueryHandle) -> QueryDescription:
        """The properties of a query that do not change; computed once."""
        key = handle.name, handle.text
        description = self.descriptions.get(key)
        if description is None:
            try:
                bound = handle.bound
            except StateError:  # the batch that the query joins with has begun, but is not committed yet
                bound = self.engine.check(handle.text)
            description = self.descriptions[key] = description_of(bound)
        return description

    def status(self, handle: QueryHandle) -> QueryStatus:
        """The status of a query."""
        description, name, since = self.description(handle), handle.name, handle.since
        tuned, emit = handle.tuned, description.emit
        earlier, last = (
            (0, None) if since is None else self.earlier.count(identity(handle.stored_name, since))
        )
        early = None if emit is None else emit_text(emit, None, None if tuned is None else 1 - tuned)
        return QueryStatus(
            name=name,
            sql=handle.text,
            kind=description.kind,
            streams=description.streams,
            window=description.window,
            columns=description.columns,
            early=early,
            emits_early=emit is not None,
            aggressiveness=_own_aggressiveness(handle, description) if tuned is None else tuned,
            tuned=tuned is not None,
            suspended=handle.suspended,
            paused=handle.paused,
            description=handle.description,
            tags=handle.tags,
            units=handle.units,
            pending=since is None,
            partial=handle.partial,
            backfill=None if (progress := handle.backfill) is None else progress.share,
            since=since,
            edited=handle.edited,
            **asdict(handle.account),
            results=self.history.results[name] + earlier,
            last=self.history.last.get(name, last),
        )

    def detail(self, handle: QueryHandle) -> QueryDetail:
        """The status of a query and the planner's decisions about it."""
        decisions = (
            DecisionInfo(one.pass_name, readable(one.about), readable(one.chosen), one.reason, one.kind)
            for one in handle.decisions()
        )
        return QueryDetail(**vars(self.status(handle)), decisions=tuple(decisions))

    def forget(self, name: str) -> None:
        """Drop the cached description of a dropped query; another query may take its name."""
        self.history.forget(name)
        for key in [key for key in list(self.descriptions) if key[0] == name]:
            self.descriptions.pop(key, None)


def _own_aggressiveness(handle: QueryHandle, description: QueryDescription) -> float | None:
    """The aggressiveness that a query's text sets, if it is a single number."""
    emit = description.emit
    if emit is None:
        return None
    if emit.accuracy is not None:
        point = handle.accuracy().point
        return None if point is None else 1 - point
    return 1 - emit.at[0] if len(emit.at) == 1 else None
