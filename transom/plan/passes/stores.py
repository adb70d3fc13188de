"""Stores: what is kept for on-demand queries, which of them share it, and where it is kept at first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from transom.ondemand.store_specs import StoreSet, StoreSpec, store_id, stores_read_by
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import PlanContext
from transom.plan.decisions import Choice, Decision
from transom.plan.strategy import Place
from transom.plan.subject import Subject, SubjectKind
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
    remaining = {Subject.stores(one.selection) for one in change.store_sets}
    return Decision(choices, remaining={SubjectKind.STORES: remaining}, state=state)


def _choice(store_set: StoreSet, state: State) -> Choice:
    count, queries = len(store_set.stores), len(store_set.queries)
    place = "executors" if any(state.stores[key].on_executors for key in store_set.stores) else "driver"
    chosen = f"{count:,} store{'' if count == 1 else 's'} on the {place}"
    reason = f"{queries:,} on-demand {'query' if queries == 1 else 'queries'} over the same tuples and groups"
    return Choice(store_set.clock.stream, Subject.stores(store_set.selection), chosen, reason, f"on_{place}")


def store_sets(queries: Sequence[CompiledQuery]) -> tuple[StoreSet, ...]:
    """The stores that on-demand queries need: those that select and group tuples equally share them.

    Their windows may differ: the longest window decides how far back a store reaches.
    """
    by_selection: dict[str, list[CompiledQuery]] = {}
    for query in queries:
        by_selection.setdefault(query.selection, []).append(query)
    return tuple(_store_set(selection, members) for selection, members in by_selection.items())


def _store_set(selection: str, members: Sequence[CompiledQuery]) -> StoreSet:
    # Many queries differ only in their windows: their specs are worked out once.
    similar: dict[object, tuple[CompiledQuery, set[int]]] = {}
    for query in members:
        reads_alike = query.using, query.slot_ids, query.reads
        similar.setdefault(reads_alike, (query, set()))[1].add(query.query.window.range)
    specs: dict[str, StoreSpec] = {}
    lengths: dict[str, set[int]] = {}
    for query, ranges in similar.values():
        for spec in stores_read_by(query).specs:
            specs.setdefault(key := store_id(selection, spec), spec)
            lengths.setdefault(key, set()).update(ranges)
    first, by_length = members[0], dict[int, tuple[str, ...]]()
    for query in members:
        length = query.query.window.range
        by_length[length] = (*by_length.get(length, ()), query.name)
    return StoreSet(
        selection,
        first.query.clock,
        first.conjuncts,
        tuple(key.scalar for key in first.query.keys),
        specs,
        {key: frozenset(ranges) for key, ranges in lengths.items()},
        tuple(query.name for query in members),
        by_length,
    )


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
