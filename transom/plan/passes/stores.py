"""Stores: what is kept for on-demand queries, which of them share it, and where it is kept at first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from transom.ondemand.store_specs import StoreSet
from transom.plan.context import PlanContext
from transom.plan.decisions import Choice, Decision
from transom.plan.strategy import Place
from transom.state.state import State, StoreState


def stores(context: PlanContext) -> Decision | None:
    """Open the stores that on-demand queries need, and close those that no query needs any more."""
    change = context.membership
    if change is None:
        return None
    state = open_stores(context.state, change.store_sets, context.strategy.place, change.result_streams)
    if state is context.state:
        return None
    new = [one for one in change.store_sets if any(key not in context.state.stores for key in one.stores)]
    choices = [_choice(one, state) for one in new]
    ended = [f"stores of {one}" for one in _selections(context.state) - _selections(state)]
    return Decision(choices, ended=ended, state=state)


def _choice(store_set: StoreSet, state: State) -> Choice:
    count, queries = len(store_set.stores), len(store_set.queries)
    place = "executors" if any(state.stores[key].on_executors for key in store_set.stores) else "driver"
    chosen = f"{count:,} store{'' if count == 1 else 's'} on the {place}"
    reason = f"{queries:,} on-demand {'query' if queries == 1 else 'queries'} over the same tuples and groups"
    return Choice(store_set.clock.stream, f"stores of {store_set.selection}", chosen, reason, f"on_{place}")


def _selections(state: State) -> set[str]:
    return {key.rpartition(" | ")[0] for key in state.stores}


def open_stores(
    state: State, store_sets: Iterable[StoreSet], place: Place = Place.AUTO, results: Collection[str] = ()
) -> State:
    """The state with a store for everything that on-demand queries need, and no other stores.

    `results` are the streams that are made of other queries' results: what a new query has missed of them
    is determined with the next batch.
    """
    stores: dict[str, StoreState] = {}
    for store_set in store_sets:
        of_results = store_set.clock.stream in results
        on_executors = place is Place.EXECUTORS and bool(store_set.keys) and not of_results
        on_executors |= any(
            key in state.stores and state.stores[key].on_executors for key in store_set.stores
        )
        for key in store_set.stores:
            store = state.stores.get(key)
            if store is None:
                unseen = None if of_results else state.missed(store_set.clock)
                store = StoreState(unseen=unseen, on_executors=on_executors)
            stores[key] = store
    return state if stores == state.stores else replace(state, stores=stores)
