"""Binds the texts of queries that a program registers, checks or edits, and checks what they would cost."""

from __future__ import annotations

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
from transom.sql.binding.bind_preference_query import bind_preference_queries
from transom.sql.binding.cascades import bind_all
from transom.sql.bound_query import BoundQuery
from transom.sql.clauses.query_parser import split_by_preference
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query

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


def _without_errors(outcome: Mapping[str, Bound | SQLError]) -> dict[str, Bound]:
    """Queries that were bound; the first one that could not be is an error that names it."""
    bound = {}
    for name, query in outcome.items():
        if isinstance(query, SQLError):
            of = f"{name}: " if name else ""
            raise SQLError(f"{of}{query.message}", query.text, query.start, query.end)
        bound[name] = query
    return bound
