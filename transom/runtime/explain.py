"""EXPLAIN of a running engine: the committed queries, and those that join or leave with the next batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from transom.backends.base import Backend
from transom.backends.expressions import at_clock
from transom.elements import Drop, Register
from transom.errors import SettingError, SQLError, near_miss
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.explain import Explained, Explanation, gather, mermaid, plan_text, query_text
from transom.runtime.loop import BatchLoop
from transom.runtime.notebook import PlanText
from transom.runtime.registry import Executable
from transom.sql.binding.bind_preference_query import bind_preference_queries
from transom.sql.binding.cascades import bind_all, relation_of, views_read
from transom.sql.catalog import Catalog
from transom.sql.clauses.query_parser import split_by_preference
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query

EXPLAIN_FORMATS = ("text", "json", "mermaid")
NEW = "(this query)"  # the name of a query that is not registered


def explain_queries(loop: BatchLoop, format: str, verbose: bool) -> str:
    """How the registered queries are computed."""
    _check(format)
    return _shown(explanation(loop), format, verbose)


def explain_query(loop: BatchLoop, name: str, format: str, verbose: bool) -> str:
    """How one query is computed, and what it shares with which queries."""
    _check(format)
    plan = explanation(loop)
    only = plan.only(name)
    if format == "text":
        return PlanText.of(query_text(plan, name, verbose), only)
    return _shown(only, format, verbose)


def _shown(plan: Explanation, format: str, verbose: bool) -> str:
    if format == "json":
        return plan.json()
    return mermaid(plan, verbose) if format == "mermaid" else PlanText.of(plan_text(plan, verbose), plan)


def _check(format: str) -> None:
    if format not in EXPLAIN_FORMATS:
        hint = near_miss(format, EXPLAIN_FORMATS)
        raise SettingError(f"unknown format {format!r}: {' or '.join(EXPLAIN_FORMATS)}{hint}")


def explain_text(loop: BatchLoop, sql: str) -> str:
    """How a query that is not registered would be computed, and what it would share with which queries."""
    return query_text(explanation(loop, {NEW: sql}), NEW, verbose=False)


def explanation(loop: BatchLoop, more: Mapping[str, str] | None = None) -> Explanation:
    """The plan of the next batch, as far as it is known; with more queries, if they were registered now."""
    with loop.directory.lock:  # of one and the same batch
        state, registry, texts = (
            loop.state,
            loop.directory.registry.copy(),
            {**loop.directory.texts, **(more or {})},
        )
    catalog = loop.directory.catalog()
    registry.bind(
        catalog, loop.backend.scalars, [Drop(entry.name) for entry in registry if entry.name not in texts]
    )
    joined = {e.name: e for e in registry if texts.get(e.name) == e.text and e.is_bound}
    living = {name for name, entry in joined.items() if entry.takes_part}
    new = {name: text for name, text in texts.items() if name not in joined}
    plain, with_preference = split_by_preference(new)
    waiting = _waiting(loop, plain)
    preference_queries = _waiting_preference_queries(loop, with_preference, catalog)
    intent = loop.directory.intent
    control = [*(intent.control if intent else ()), *loop.directory.waiting.control]
    partial = {element.name for element in control if isinstance(element, Register) and element.partial}
    queries = _chosen(registry.of_kind(CompiledQuery), living) | waiting
    preferred = _chosen(registry.of_kind(PreferenceQuery), living) | preference_queries
    by_spark, by_worker = _placed(loop.backend, catalog, queries, preferred)
    return gather(
        Explained(
            {name: stream.rules for name, stream in loop.declared.queried().items()},
            state,
            queries,
            loop.planner,
            again={*waiting, *preference_queries},
            partial=partial,
            suspended={
                name: (entry.bound.streams[0], entry.why_not)
                for name, entry in joined.items()
                if entry.why_not is not None
            },
            summaries=catalog.summaries,
            views=_view_readers(texts, catalog),
            definitions={
                name: stream.derived.text
                for name, stream in loop.declared.streams.items()
                if stream.derived is not None
            },
            preference_queries=preferred,
            by_spark=by_spark,
            by_worker=by_worker,
        )
    )


def _view_readers(texts: Mapping[str, str], catalog: Catalog) -> dict[str, tuple[str, list[str]]]:
    """The views by name, each with its text and the queries and views that it is inlined into."""
    readers: dict[str, list[str]] = {name: [] for name in catalog.views}
    for reader, text in {**catalog.views, **texts}.items() if catalog.views else ():
        for view in views_read(text, catalog.views):
            readers[view].append(reader)
    return {name: (text, readers[name]) for name, text in catalog.views.items()}


def _placed(
    backend: Backend,
    catalog: Catalog,
    queries: Mapping[str, CompiledQuery],
    preference_queries: Mapping[str, PreferenceQuery],
) -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
    """By stream, the scalar expressions that Spark evaluates for rows on the driver, with the reasons, and those that a
    worker process evaluates."""
    by_spark, by_worker = {}, {}
    for stream in dict.fromkeys(query.query.stream for query in queries.values()):
        reading = [query.query for query in queries.values() if query.query.stream == stream]
        relation = catalog.streams.get(stream)
        if relation is None and stream in queries:
            relation = relation_of(stream, queries[stream].query)
        elif relation is None and stream in preference_queries:
            relation = relation_of(stream, preference_queries[stream])
        joins = [pairs for query in reading if (pairs := query.stream_join) is not None]
        if relation is None and not joins:  # the query below has left
            continue
        columns = dict(relation.columns) if relation is not None else {}
        for stream_join in joins:
            columns |= stream_join.pair_columns
        for join in (join for query in reading for join in query.joins):
            columns[join.id] = pa.bool_()
            columns |= {
                f"{join.id}.{name}": kind for name, kind in catalog.tables[join.table].columns.items()
            }
        texts = {scalar.sql: at_clock(scalar.sql, 0) for query in reading for scalar in query.scalars()}
        reasons = backend.delegated(columns, texts.values())
        by_spark[stream] = {sql: reasons[text] for sql, text in texts.items() if text in reasons}
        calling = backend.calling_python(columns, texts.values())
        by_worker[stream] = {sql for sql, text in texts.items() if text in calling}
    return by_spark, by_worker


def _chosen(queries: Mapping[str, Executable], names: Collection[str]) -> dict[str, Executable]:
    return {name: query for name, query in queries.items() if name in names}


def _waiting_preference_queries(
    loop: BatchLoop, texts: dict[str, str], catalog: Catalog
) -> dict[str, PreferenceQuery]:
    """The queries with a preference that join with the next batch."""
    bound_before = {name: loop.directory.bound_preference_queries.get(text) for name, text in texts.items()}
    unbound = {name: text for name, text in texts.items() if bound_before[name] is None}
    bound = (
        bind_preference_queries(unbound, catalog, loop.backend.scalars, catalog.summaries) if unbound else {}
    )
    outcomes = {name: bound_before[name] or bound[name] for name in texts}
    return {name: query for name, query in outcomes.items() if not isinstance(query, SQLError)}


def _waiting(loop: BatchLoop, texts: dict[str, str]) -> dict[str, CompiledQuery]:
    """The queries that join with the next batch; most are bound since they were registered."""
    bound: dict[str, Query | SQLError] = {}
    unbound = {}
    for name, query in texts.items():
        bound_before = loop.directory.bound.get(query)  # a batch that begins takes it away
        if bound_before is None:
            unbound[name] = query
        else:
            bound[name] = bound_before
    if unbound:
        joined = {
            **loop.directory.registry.readable(),
            **loop.directory.known_preference_queries(),
            **{n: q for n, q in bound.items() if not isinstance(q, SQLError)},
        }
        bound |= bind_all(unbound, loop.directory.catalog(), loop.backend.scalars, joined)
    naive = loop.directory.registry.naive
    return {
        name: compile_query(name, query, naive)
        for name, query in bound.items()
        if not isinstance(query, SQLError)
    }
