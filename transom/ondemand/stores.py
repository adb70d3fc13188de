"""Stores of on-demand queries from batch to batch: opened as queries come, filled, trimmed, closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from transom.elements import Clock, ClockKind
from transom.kernel.shards import Shelf
from transom.kernel.store_runs import StoreInput, put_run
from transom.ondemand.store_specs import StoreSet, StoreSpec, store_key, stores_read_by
from transom.ondemand.structures.runs import Run
from transom.ondemand.structures.tiers import RunTiers
from transom.plan.compiled import CompiledQuery
from transom.plan.passes.admission import Place
from transom.results.stream_progress import BatchInput, missed
from transom.state.shards import ShardRef
from transom.state.state import State, StoreState, StreamState
from transom.windows.intervals import LOWEST

ROWS_A_GROUP = 20  # a group is a lookup's row: as many are too much as rows of so few slices each


def lookup_end(clock: Clock, stream: StreamState) -> int | None:
    """Where a window ends that is looked up now: right behind the newest row; None before there is one."""
    if clock.kind is ClockKind.ROWS:
        return stream.totals.accepted or None
    newest = stream.clock(clock).newest
    return None if newest is None else newest + 1


def open_stores(
    state: State, store_sets: Iterable[StoreSet], place: Place = Place.AUTO, results: Collection[str] = ()
) -> State:
    """The state with a store for everything that is asked for now, and none beside.

    `results` are the streams that are made of other queries' results: what a newcomer has missed of them,
    the next batch tells.
    """
    stores: dict[str, StoreState] = {}
    for store_set in store_sets:
        of_results = store_set.clock.stream in results
        is_far = place is Place.EXECUTORS and bool(store_set.keys) and not of_results
        is_far |= any(key in state.stores and state.stores[key].far for key in store_set.stores)
        for key in store_set.stores:
            known = state.stores.get(key)
            if known is None:
                unseen = None if of_results else state.missed(store_set.clock)
                known = StoreState(unseen=unseen, far=is_far)
            stores[key] = known
    return state if stores == state.stores else replace(state, stores=stores)


def has_stores(state: State, query: CompiledQuery) -> bool:
    """Whether an on-demand query's stores are there, and have the types that it has now."""
    kinds = [key.scalar.type for key in query.query.keys]
    for spec in stores_read_by(query).specs:
        store = state.stores.get(store_key(query.selection, spec))
        if store is None:
            return False
        for run in store.kept.runs:
            value = run.columns.get("value")
            is_typed = spec.attribute is None or value is None or value.type == spec.attribute.type
            if not is_typed or [key.type for key in run.keys] != kinds:
                return False
    return True


def store_inputs(state: State, stream: StreamState, store_sets: Sequence[StoreSet]) -> tuple[StoreInput, ...]:
    """What a batch adds to stores, given how far their clocks have come."""
    return tuple(
        StoreInput(
            one, _floor(one.clock, one.range, stream), any(state.stores[key].far for key in one.stores)
        )
        for one in store_sets
    )


def _floor(clock: Clock, length: int, stream: StreamState) -> int:
    """The start of the longest window that can be looked up; rows that are aside will still be taken in."""
    end = lookup_end(clock, stream)
    if end is None:
        return LOWEST
    aside = (start for start, _ in stream.held(clock))
    return max(LOWEST, min([end - length, *aside]))


def fill_stores(
    stores: Mapping[str, StoreState],
    batch: BatchInput,
    store_sets: Sequence[StoreSet],
    after: StreamState,
    shelf: Shelf | None,
) -> dict[str, StoreState]:
    """The stores after a batch, given its stream after it; groups that are too many go to the shelf."""
    found, brought = dict(stores), dict[str, list[Run]]()
    refs, tuples = dict[str, list[ShardRef]](), Counter[str]()
    for one in batch.outcome.runs:
        brought.setdefault(one.store, []).append(one.run)
        tuples[one.store] += one.tuples
    for key, ref, count in batch.outcome.run_refs:
        refs.setdefault(key, []).append(ref)
        tuples[key] += count
    for store_set in store_sets:
        for key, spec in store_set.stores.items():
            floor = _floor(store_set.clock, store_set.reach[key], after)
            own = _Filling(store_set, spec, stores[key], floor)
            found[key] = own.with_runs(brought.get(key, []), refs.get(key, []), tuples[key], batch)
        if shelf is not None and _is_far([found[key] for key in store_set.stores], shelf):
            for key in store_set.stores:
                found[key] = _spilled(found[key], shelf)
    return found


@dataclass(frozen=True)
class _Filling:
    """A store that a batch adds to."""

    store_set: StoreSet
    spec: StoreSpec
    store: StoreState
    floor: int

    def with_runs(
        self, runs: Sequence[Run], refs: Sequence[ShardRef], tuples: int, batch: BatchInput
    ) -> StoreState:
        store, structure = self.store, self.spec.structure
        run = structure.merged(runs, self.floor) if len(runs) > 1 else runs[0] if runs else None
        unseen = store.unseen
        if unseen is None:
            clock = self.store_set.clock
            unseen = missed(clock, batch) if batch.origin is None else batch.origin.missed
        return StoreState(
            store.kept.taken(structure, run, self.floor),
            max(store.floor, self.floor),
            unseen,
            store.tuples + tuples,
            store.far or bool(refs),
            tuple(ref for ref in (*store.refs, *refs) if ref.held[0][0][1] > self.floor),
        )


def _is_far(stores: Sequence[StoreState], shelf: Shelf) -> bool:
    """Whether stores over the same groups, the first of the groups themselves, go where many are kept."""
    if any(store.far for store in stores):
        return any(store.kept.runs or not store.far for store in stores)
    if shelf.limit is None:
        return False
    return any(run.groups > shelf.limit // ROWS_A_GROUP for run in stores[0].kept.runs)


def _spilled(store: StoreState, shelf: Shelf) -> StoreState:
    """A store that is kept on the shelf from now on."""
    put = tuple(put_run(shelf, run) for run in store.kept.runs)
    return replace(store, kept=RunTiers(), far=True, refs=(*store.refs, *put))
