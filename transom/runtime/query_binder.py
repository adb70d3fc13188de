"""Binds the texts of queries that a program registers, checks or edits, and checks what they would cost."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from transom.errors import CostError, SettingError, SQLError, StateError
from transom.plan.compiled_query import compile_query
from transom.plan.passes.placement import groups_on_executors, placement_group
from transom.plan.query_cost import StreamExpressions, check_query
from transom.plan.strategy import Place
from transom.results.corrections import executors_refusal
from transom.runtime.loop import BatchLoop
from transom.runtime.preference_handle import refuse_statement
from transom.runtime.views import refuse_view_names
from transom.sql.binding.bind_preference_query import bind_preference_queries
from transom.sql.binding.cascades import bind_all
from transom.sql.bound_query import BoundQuery
from transom.sql.clauses.query_parser import split_by_preference
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query

log = logging.getLogger("transom")

Bound = TypeVar("Bound")


class QueryBinder:
    """Binds queries against all that is declared and registered in an engine."""

    def __init__(self, loop: BatchLoop):
        self.loop = loop
        self._expressions = StreamExpressions()

    def bind_text(self, name: str, sql: str) -> BoundQuery:
        """The query that a text would be under a name."""
        refuse_statement(sql)
        try:
            bound, preference_queries = self.bind({name: sql})
        except SQLError as error:
            message = error.message.removeprefix(f"{name}: ") if name else error.message
            raise SQLError(message, error.text, error.start, error.end) from None
        return bound[name] if bound else preference_queries[name]

    def bind_new(
        self, queries: Mapping[str, str], partial: bool
    ) -> tuple[dict[str, Query], dict[str, PreferenceQuery]]:
        """Queries that are registered, bound as below; with `partial`, they report windows that they saw in part."""
        for name, text in queries.items():
            refuse_statement(text, f"{name}: ")
        refuse_view_names(self.loop, queries)
        bound, preference_queries = self.bind(queries)
        if partial:
            _refuse_partial(bound, preference_queries)
        return bound, preference_queries

    def warn_of_missing_budgets(self, queries: Mapping[str, Query]) -> None:
        """Warn of queries that prefer rows under overload, of streams that have no budget."""
        for name, query in queries.items():
            stream = self.loop.declared.streams.get(query.stream)
            if query.overload is not None and stream is not None and stream.rules.overload is None:
                log.warning("%s says ON OVERLOAD PREFER, and %s has no budget to exceed", name, stream.name)

    def bind(self, queries: Mapping[str, str]) -> tuple[dict[str, Query], dict[str, PreferenceQuery]]:
        """Queries by name, bound; those with a preference apart. The first that is wrong is an error."""
        loop = self.loop
        loop.declared.functions |= {function.casefold() for function in loop.backend.functions()}
        plain, with_preference = split_by_preference(queries)
        names = frozenset({*dict(loop.directory.texts), *queries})
        catalog = replace(loop.directory.catalog(), queries=names)
        preference_queries = _without_errors(
            bind_preference_queries(with_preference, catalog, loop.backend.scalars, catalog.summaries)
        )
        readable, limits = loop.directory.readable_queries(plain.values()), loop.planner.strategy.limits
        readable = {**readable, **preference_queries}
        bound = _without_errors(bind_all(plain, catalog, loop.backend.scalars, readable))
        every: dict[str, BoundQuery] = {**bound, **preference_queries}
        new = {
            name: query for name, query in every.items() if loop.directory.texts.get(name) != queries[name]
        }
        for name, query in new.items():
            check_query(name, query, limits)
        new_windows = {name: query for name, query in bound.items() if name in new}
        self._expressions.check(new_windows, loop.directory.known_queries(), limits)
        self._check_place({name: query for name, query in new_windows.items() if query.retention})
        loop.declared.adopt(bound.values())
        return bound, preference_queries

    def _check_place(self, corrected: Mapping[str, Query]) -> None:
        """Refuse queries with EMIT CORRECTIONS if the slices of their groups would be on the executors."""
        loop, directory = self.loop, self.loop.directory
        if not corrected or directory.registry.naive:
            return
        if loop.planner.strategy.place is Place.EXECUTORS:
            raise SettingError(
                f"{_subject(corrected)} has EMIT CORRECTIONS, and the engine keeps all slices on the executors, where "
                "closed windows can't be corrected: leave out the clause, or use state='auto' or state='driver'"
            )
        with suppress(
            StateError
        ):  # a stream of the checkpoint is not declared: its queries can't be read yet
            directory.bind()
        with directory.lock:
            living = directory.registry.compiled() if directory.registry.is_bound else {}
            staying = {name: query for name, query in living.items() if name in directory.texts}
            there = groups_on_executors(loop.state, staying)
        for name, query in corrected.items():
            if placement_group(compile_query(name, query)) in there:
                raise CostError(executors_refusal(_subject([name])))


def _subject(names: Iterable[str]) -> str:
    """The first of some queries, as the subject of an error."""
    return next(iter(names)) or "the query"


def _refuse_partial(queries: Mapping[str, Query], preference_queries: Mapping[str, PreferenceQuery]) -> None:
    """Refuse queries that can't report windows that they saw in part."""
    if preference_queries:
        raise SettingError("partial is for windows, and a query WITH PREFERENCE has none")
    if any(query.is_row_query for query in queries.values()):
        raise SettingError("partial is for windows, and a query without a window reports rows from now on")
    if any(query.stream_join is not None for query in queries.values()):
        raise SettingError("partial is not supported for joins of streams: earlier rows may be missing")


def _without_errors(outcome: Mapping[str, Bound | SQLError]) -> dict[str, Bound]:
    """Queries that were bound; the first one that could not be is an error that names it."""
    bound = {}
    for name, query in outcome.items():
        if isinstance(query, SQLError):
            of = f"{name}: " if name else ""
            raise SQLError(f"{of}{query.message}", query.text, query.start, query.end)
        bound[name] = query
    return bound
