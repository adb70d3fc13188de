"""The life of on-demand stores over batches: opened as queries join, filled, trimmed, dropped as they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from transom.elements import Clock, ClockKind
from transom.kernel.shards import Shelf
from transom.kernel.store_runs import StoreInput, put_run
from transom.ondemand.store_specs import StoreSet, StoreSpec, store_id, stores_read_by
from transom.ondemand.structures.runs import Run
from transom.ondemand.structures.tiers import RunTiers
from transom.plan.compiled_query import CompiledQuery
from transom.plan.planner import Planner
from transom.results.batch_input import BatchInput
from transom.state.state import State, StoreState, StreamState
from transom.storage.shard_refs import ShardRef
from transom.windows.ids import trailing_start
from transom.windows.intervals import LOWEST, IntervalSet


def lookup_end(clock: Clock, stream: StreamState) -> int | None:
    """The end of a window that is looked up now: just after the newest row, or None before the first row."""
    if clock.kind is ClockKind.ROWS:
        return stream.totals.accepted or None
    newest = stream.clock(clock).newest
    return None if newest is None else newest + 1


def has_stores(state: State, query: CompiledQuery) -> bool:
    """Whether the state has an on-demand query's stores, with the types that the query has now."""
    key_types = [key.scalar.type for key in query.query.keys]
    for spec in stores_read_by(query).specs:
        store = state.stores.get(store_id(query.selection, spec))
        if store is None:
            return False
        for run in store.tiers.runs:
            value = run.columns.get("value")
            same_type = spec.attribute is None or value is None or value.type == spec.attribute.type
            if not same_type or [key.type for key in run.keys] != key_types:
                return False
    return True


def store_inputs(state: State, stream: StreamState, store_sets: Sequence[StoreSet]) -> tuple[StoreInput, ...]:
    """The input that the kernel needs to collect a batch's tuples for stores."""
    return tuple(
        StoreInput(
            store_set,
            _floor(store_set.clock, store_set.range, stream),
            any(state.stores[key].on_executors for key in store_set.stores),
            tuple(
                (_floor(store_set.clock, length, stream), names)
                for length, names in store_set.by_length.items()
            ),
        )
        for store_set in store_sets
    )


def _floor(clock: Clock, length: int, stream: StreamState) -> int:
    """The start of a window that can be looked up, or of sidelined rows if these are older."""
    end = lookup_end(clock, stream)
    if end is None:
        return LOWEST
    sidelined = (start for start, _ in stream.held(clock))
    return min([trailing_start(length, end), *sidelined])


def fill_stores(
    stores: Mapping[str, StoreState],
    batch: BatchInput,
    store_sets: Sequence[StoreSet],
    after: StreamState,
    shelf: Shelf | None,
    planner: Planner,
) -> dict[str, StoreState]:
    """The stores after a batch; `after` is the state of the batch's stream after the batch.

    Stores that the planner moves to the executors go to the shelf.
    """
    runs, refs = dict[str, list[Run]](), dict[str, list[ShardRef]]()
    tuples = Counter[str]()
    for store_run in batch.outcome.runs:
        runs.setdefault(store_run.store, []).append(store_run.run)
        tuples[store_run.store] += store_run.tuples
    for key, ref, count in batch.outcome.run_refs:
        refs.setdefault(key, []).append(ref)
        tuples[key] += count
    updated = dict(stores)
    for store_set in store_sets:
        for key, spec in store_set.stores.items():
            floor = _floor(store_set.clock, store_set.reach[key], after)
            store = _with_runs(stores[key], spec, runs.get(key, []), floor)
            updated[key] = replace(
                store,
                unseen=_unseen(stores[key], store_set.clock, batch),
                tuples=store.tuples + tuples[key],
                on_executors=store.on_executors or bool(refs.get(key)),
                refs=tuple(ref for ref in (*store.refs, *refs.get(key, ())) if ref.held[0][0][1] > floor),
            )
        if shelf is not None and planner.moves_stores(store_set, [updated[key] for key in store_set.stores]):
            for key in store_set.stores:
                updated[key] = _spilled(updated[key], shelf)
    return updated


def _with_runs(store: StoreState, spec: StoreSpec, runs: Sequence[Run], floor: int) -> StoreState:
    """A store with a batch's runs as one more run, without the tuples before `floor`."""
    structure = spec.structure
    run = structure.merged(runs, floor) if len(runs) > 1 else runs[0] if runs else None
    return replace(store, tiers=store.tiers.with_run(structure, run, floor), floor=max(store.floor, floor))


def _unseen(store: StoreState, clock: Clock, batch: BatchInput) -> IntervalSet | None:
    """The event times of tuples that the store missed because it was opened after they arrived."""
    if store.unseen is not None:
        return store.unseen
    return batch.missed_times(clock) if batch.origin is None else batch.origin.missed


def _spilled(store: StoreState, shelf: Shelf) -> StoreState:
    """A store with its runs moved to the shelf, where it stays from now on."""
    refs = tuple(put_run(shelf, run) for run in store.tiers.runs)
    return replace(store, tiers=RunTiers(), on_executors=True, refs=(*store.refs, *refs))
