"""Queries that join and leave with a batch: their effect on the registry and the state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from transom.elements import CreateView, Drop, DropView, Forget, Register, Resume, Summarize, Summary, Tune
from transom.errors import StateError
from transom.ondemand.stores import has_stores
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.passes.admission import is_kept
from transom.plan.planner import Planner
from transom.promising.state_updates import with_registered
from transom.runtime.registry import Registry
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query
from transom.state.batch_intent import BatchIntent
from transom.state.state import ProdderState, State


@dataclass(frozen=True)
class Newcomers:
    """What joins with a batch, by text."""

    queries: Mapping[str, Query]
    preference_queries: Mapping[str, PreferenceQuery]
    summaries: Mapping[str, Summary]


def joined_and_left(
    intent: BatchIntent,
    registry: Registry,
    new: Newcomers,
    state: State,
    planner: Planner,
    declared: Collection[str],
) -> State:
    """The state after queries joined and left with a batch; the registry is changed in place.

    `declared` are the declared streams: any other stream that a query reads is another query's results.
    """
    joining: dict[str, None] = {}
    leaving: dict[str, None] = {}
    tuned: dict[str, float | None] = {}
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
            case Register(_, text) if text in new.preference_queries:
                registry.add_preference_query(element, new.preference_queries[text], intent.batch_id)
            case Register(name, text) if text not in new.queries:
                registry.add_unbound(element, intent.batch_id, intent.suspended[name])
            case Register(name, text):
                registry.add(element, new.queries[text], intent.batch_id)
                joining[name] = None
            case Resume(name):
                if registry.resume(element):
                    joining[name] = None
            case Drop(name):
                registry.remove(element)
                tuned.pop(name, None)
                if name in joining:
                    del joining[name]
                else:
                    leaving[name] = None
            case Tune(name, point):
                tuned[name] = point
    registry.suspend(intent.suspended)
    active = [name for name in joining if registry[name].suspended is None]
    living = registry.compiled()
    gone = (name for name in state.queries if name not in living)  # suspended since they joined
    membership = Membership(
        living,
        [living[name] for name in active if name in living],
        tuple(dict.fromkeys([*leaving, *gone])),
        [name for name in active if registry[name].partial],
        planner.all_store_sets(registry.on_demand()),
        registry.streams() - set(declared),
    )
    with_rows = [] if intent.stream is None else registry.reading(intent.stream)
    state = planner.begin(state, membership, with_rows)
    state = _tuned(state, {name: point for name, point in tuned.items() if name in registry})
    return replace(state, promising=with_registered(state.promising, *registry.newest()))


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
