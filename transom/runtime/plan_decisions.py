"""The planner's decisions that hold in a running engine: all of them, and those about one query."""

from __future__ import annotations

from collections.abc import Iterator, Set

from transom.plan.compiled_query import CompiledQuery
from transom.plan.decisions import DecisionRecord
from transom.plan.families import Family, family_numbers
from transom.plan.planner import Planner
from transom.plan.subject import Subject
from transom.runtime.loop import BatchLoop
from transom.runtime.registry import Registry
from transom.state.state import State


def all_decisions(loop: BatchLoop) -> list[DecisionRecord]:
    """The decisions about the queries that take part in batches, stream by stream, in the order of the passes."""
    state, registry = _committed(loop)
    planner = loop.planner.what_if()
    summaries = registry.living_summaries().values()
    reading = (query.query.stream for query in registry.everyone())
    streams = dict.fromkeys([*reading, *(summary.stream for summary in summaries)])
    records = []
    for stream in streams:
        planner.plan(state, registry.reading(stream))
        records += planner.records(stream)
    return records


def query_decisions(loop: BatchLoop, name: str) -> list[DecisionRecord]:
    """The decisions that concern one query; none before it joins and while it is suspended."""
    state, registry = _committed(loop)
    query = next((query for query in registry.everyone() if query.name == name), None)
    if query is None:
        return _preference_decisions(loop.planner, registry, name)
    planner, stream = loop.planner.what_if(), query.query.stream
    families = planner.plan(state, registry.reading(stream)).families
    concerned = {Subject.query(name), *_shared(planner, state, registry, query, families)}
    return _about(planner, stream, concerned)


def _preference_decisions(planner: Planner, registry: Registry, name: str) -> list[DecisionRecord]:
    """The decisions about the summaries that a query with a preference reads; none for other queries."""
    query = registry.preference_queries().get(name)
    summaries = registry.living_summaries()
    read = () if query is None else dict.fromkeys(side.summary for side in query.sides)
    return [
        record
        for summary in read
        for record in _about(planner, summaries[summary].stream, {Subject.summary(summary)})
    ]


def _about(planner: Planner, stream: str, concerned: Set[Subject]) -> list[DecisionRecord]:
    """The decisions about a stream that concern some subjects."""
    return [
        DecisionRecord.of(pass_name, choice)
        for pass_name, choices in planner.decisions(stream)
        for choice in choices
        if not concerned.isdisjoint(choice.about)
    ]


def _committed(loop: BatchLoop) -> tuple[State, Registry]:
    """The state and the queries of the last committed batch."""
    loop.directory.bind()
    with loop.directory.lock:
        return loop.state, loop.directory.registry


def _shared(
    planner: Planner,
    state: State,
    registry: Registry,
    query: CompiledQuery,
    families: tuple[Family, ...],
) -> Iterator[Subject]:
    """The selections, the family and the stores that a query shares, as decisions name them."""
    name, homes = query.name, state.queries[query.name].homes if query.name in state.queries else ()
    if query.is_on_demand:
        stream = query.query.stream
        for store_set in planner.store_sets(stream, registry.looking(stream)):
            if name in store_set.queries:
                yield Subject.stores(store_set.selection)
        return
    yield from Subject.selections(homes)
    for number, family in zip(family_numbers(families), families, strict=True):
        if any(member.id in homes[:1] for member in family.members):
            yield from Subject.families([number])
