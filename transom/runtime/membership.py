"""Queries that join and leave with a batch: their effect on the registry and the state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from transom.elements import (
    Adopt,
    CreateView,
    Describe,
    Drop,
    DropView,
    Edit,
    Forget,
    Pause,
    Register,
    Rename,
    Resume,
    Summarize,
    Summary,
    Tune,
)
from transom.errors import StateError
from transom.ondemand.stores import has_stores
from transom.plan.adoption import adopt
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.passes.admission import is_kept
from transom.plan.planner import Planner
from transom.plan.replacement import Replacement, has_same_windows
from transom.promising.state_updates import with_registered
from transom.results.result_rows import result_schema
from transom.runtime.registry import RegisteredQuery, Registry
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query
from transom.state.batch_intent import BatchIntent
from transom.state.state import ProdderState, State

Named = TypeVar("Named")


@dataclass(frozen=True)
class Newcomers:
    """What joins with a batch, by text; by name the queries that were compiled when they were registered."""

    queries: Mapping[str, Query]
    preference_queries: Mapping[str, PreferenceQuery]
    summaries: Mapping[str, Summary]
    compiled: Mapping[str, CompiledQuery] = field(default_factory=dict)


def joined_and_left(
    intent: BatchIntent,
    registry: Registry,
    new: Newcomers,
    state: State,
    planner: Planner,
    declared: Collection[str],
    replayed: Callable[[str], State | str],
) -> State:
    """The state after queries joined and left with a batch; the registry is changed in place.

    `declared` are the declared streams: any other stream that a query reads is another query's results. `replayed`
    is the state that retained rows made of a query that the batch adopts.
    """
    joining: dict[str, None] = {}
    leaving: dict[str, None] = {}
    tuned: dict[str, float | None] = {}
    replaced: dict[str, RegisteredQuery] = {}  # the queries that are edited, as they were before the batch
    for element in intent.control:
        match element:
            case Summarize(_, text):
                registry.summarize(element, new.summaries[text], intent.batch_id)
            case Forget(name):
                registry.forget(element)
                planner.end_summary(name)
            case CreateView(name, text):
                registry.views[name] = text
            case DropView(name):
                registry.views.pop(name, None)
            case Edit(name) if name in registry:
                before = registry[name]
                _put_edited(element, before, registry, new, intent)
                if name in state.queries and name not in joining and name not in leaving:
                    replaced.setdefault(name, before)
                if is_row_query(before) and registry[name].since != before.since:
                    leaving[name] = None  # its account begins anew
                joining[name] = None
            case Adopt(name, joined, problem) if is_backfilling(registry, name, joined):
                if problem is not None:
                    registry.suspend({name: problem})
                elif registry[name].is_active and name not in intent.suspended:
                    made = replayed(name)
                    if isinstance(made, str):
                        registry.suspend({name: made})
                    else:
                        registry.update(name, backfill=None)
                        state = adopt(state, made, _compiled(registry[name]))
            case Rename(name, to):
                if registry.rename(element, intent.batch_id):
                    if name not in leaving:
                        state = renamed(state, name, to)
                    joining, tuned = _renamed(joining, name, to), _renamed(tuned, name, to)
                    replaced = _renamed(replaced, name, to)
                    planner.rename_query(name, to)
            case Pause(name):
                registry.pause(name)
            case Describe():
                registry.describe(element)
            case Register(_, text) if text in new.preference_queries:
                registry.add_preference_query(element, new.preference_queries[text], intent.batch_id)
            case Register(name, text) if text not in new.queries:
                registry.add_unbound(element, intent.batch_id, intent.suspended[name])
            case Register(name, text):
                registry.add(element, new.queries[text], intent.batch_id, new.compiled.get(name))
                joining[name] = None
            case Resume(name):
                if registry.resume(element) and (name not in state.queries or name in leaving):
                    joining[name] = None
            case Drop(name):
                registry.remove(element)
                tuned.pop(name, None)
                if name not in joining or replaced.pop(name, None) is not None:
                    leaving[name] = None
                joining.pop(name, None)
            case Tune(name, point):
                tuned[name] = point
    registry.suspend(intent.suspended)
    active = [name for name in joining if registry[name].takes_part]
    living = registry.compiled()
    gone = (name for name in state.queries if name not in living)  # suspended or paused since they joined
    membership = Membership(
        living,
        [living[name] for name in active if name in living],
        tuple(dict.fromkeys([*leaving, *gone])),
        [name for name in active if registry[name].partial],
        planner.all_store_sets(registry.on_demand()),
        registry.streams() - set(declared),
        {
            name: _replacement(before, registry[name], living[name])
            for name, before in replaced.items()
            if name in active and name in living
        },
    )
    with_rows = [] if intent.stream is None else registry.reading(intent.stream)
    state = planner.begin(state, membership, with_rows)
    state = _tuned(state, {name: point for name, point in tuned.items() if name in registry})
    return replace(state, promising=with_registered(state.promising, *registry.newest(), intent.batch_id))


def _put_edited(
    element: Edit, before: RegisteredQuery, registry: Registry, new: Newcomers, intent: BatchIntent
) -> None:
    """Put a query with another text in the place of one in the registry."""
    text, batch_id = element.text, intent.batch_id
    if text in new.preference_queries:
        registry.add_preference_query(element, new.preference_queries[text], batch_id)
    elif text in new.queries:
        registry.add(element, new.queries[text], batch_id)
    else:
        registry.add_unbound(element, batch_id, intent.suspended[element.name])
    after = registry[element.name]
    registry.put_in_place_of(before, batch_id, _continues(before, after))


def _continues(before: RegisteredQuery, after: RegisteredQuery) -> bool:
    """Whether the results and the account of a query go on when its text changes.

    They do if it reads the same rows in the same windows and its results have the same columns.
    """
    old, new = before.executable, after.executable
    if not isinstance(old, CompiledQuery) or not isinstance(new, CompiledQuery) or not before.takes_part:
        return False
    if old.is_row_query and new.is_row_query:
        return has_same_rows(old, new)
    is_standing = old.is_standing and new.is_standing
    return is_standing and has_same_windows(old, new) and result_schema(old.query) == result_schema(new.query)


def has_same_rows(old: CompiledQuery, new: CompiledQuery) -> bool:
    """Whether two row queries find the same rows, and their results have the same columns."""
    parts = [(each.query.stream, each.query.joins, sorted(each.conjunct_texts)) for each in (old, new)]
    return parts[0] == parts[1] and result_schema(old.query) == result_schema(new.query)


def _compiled(entry: RegisteredQuery) -> CompiledQuery:
    assert isinstance(entry.executable, CompiledQuery)
    return entry.executable


def is_backfilling(registry: Registry, name: str, joined: int) -> bool:
    """Whether retained rows are replayed for the query of this name that was registered with this batch."""
    return name in registry and registry[name].since == joined and registry[name].backfill is not None


def is_row_query(entry: RegisteredQuery) -> bool:
    """Whether a registered query has no window."""
    return isinstance(entry.executable, CompiledQuery) and entry.executable.is_row_query


def _replacement(before: RegisteredQuery, entry: RegisteredQuery, after: CompiledQuery) -> Replacement:
    assert isinstance(before.executable, CompiledQuery)
    leaving = replace(before.executable, name=after.name)  # it may have been renamed with the same batch
    return Replacement(leaving, after, entry.since == before.since)


def renamed(state: State, name: str, to: str) -> State:
    """The state in which a query has another name."""
    return replace(
        state,
        queries=_renamed(state.queries, name, to),
        accounts=state.accounts.renamed(name, to),
        past=state.past.renamed(name, to),
        reported=_renamed(state.reported, name, to),
        prodders=_renamed(state.prodders, name, to),
        estimators=_renamed(state.estimators, name, to),
        promising=replace(state.promising, queries=_renamed(state.promising.queries, name, to)),
    )


def _renamed(named: Mapping[str, Named], name: str, to: str) -> dict[str, Named]:
    return {to if each == name else each: value for each, value in named.items()}


def _tuned(state: State, points: Mapping[str, float | None]) -> State:
    """The state with the points of the slide at which tuned queries report their windows."""
    prodders = state.prodders
    changed = {n: replace(prodders.get(n, ProdderState()), point=point) for n, point in points.items()}
    return replace(state, prodders={**prodders, **changed}) if changed else state


def check_types(registry: Registry, state: State) -> None:
    """Refuse a state if a query's columns had other types when it was made."""
    compiled = registry.of_kind(CompiledQuery)
    changed = [
        name
        for name, query_state in state.queries.items()
        if name in compiled and not is_kept(state, query_state, compiled[name])
    ]
    changed += [query.name for query in registry.on_demand() if not has_stores(state, query)]
    if changed:
        raise StateError(f"the columns of {changed[0]} have other types than when the checkpoint was made")
