"""State that executors keep: shards under the checkpoint, and windows that tasks close where the shards are.

shards/0000000012/         cells that batch 12 brought or rolled up, a file for each partition of the groups

A batch's directory is emptied when the batch is tried again. What a batch no longer needs is deleted after it is
committed: until then the state before it may be the one to continue from.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.backends.base import Backend, Frame
from transom.columns.table_columns import aggregate_column, group_column
from transom.kernel.shards import Shelf
from transom.plan.compiled_query import CompiledQuery
from transom.plan.passes.placement import placement_group
from transom.plan.slot_sources import readable_slots
from transom.plan.strategy import Place, Strategy
from transom.results.condition_columns import condition_columns
from transom.results.result_rows import Moment, Stored, computed_texts, result_schema
from transom.results.shard_work import ShardWork
from transom.results.top_rows import order_columns
from transom.runtime.executor_tasks import (
    ResultTarget,
    Written,
    close_task,
    fixed_task,
    lower_task,
    read_task,
    roll_task,
    write_task,
)
from transom.runtime.fixed_schema import FixedLayout
from transom.runtime.outputs import rows_of_query
from transom.sql.bound_query import BoundQuery
from transom.state.state import State
from transom.storage.executor_files import PACKED, ExecutorFiles, directory_of, places_of, smaller, unpacked
from transom.storage.file_store import Store
from transom.storage.shard_refs import ShardRef


@dataclass(frozen=True)
class StoredResults:
    """Results of one query that tasks stored in files."""

    store: Store
    files: tuple[str, ...]
    rows: int
    identity: str
    schema: pa.Schema

    def read(self) -> pa.Table:
        batches = [b for f in self.files for b in rows_of_query(self.store, f, self.identity, self.schema)]
        return pa.Table.from_batches(batches, self.schema).combine_chunks()

    def and_also(self, more: StoredResults) -> StoredResults:
        return replace(self, files=(*self.files, *more.files), rows=self.rows + more.rows)

    def frame(self, backend: Backend) -> Frame:
        """The results as a frame whose tasks read the files: they don't pass through the driver."""
        task = read_task(self.store, self.files, self.identity, self.schema)
        return backend.run(task, len(self.files), self.schema)


@dataclass
class ClosedByTasks:
    """Results of windows that tasks closed over shards."""

    stored: dict[str, Stored] = field(default_factory=dict)
    steps: int = 0


class ExecutorState:
    """The part of an engine's state that executors keep in files under the checkpoint."""

    def __init__(self, backend: Backend, store: Store, strategy: Strategy):
        self.backend, self.store, self.place, self.limits = backend, store, strategy.place, strategy.limits
        self.files = ExecutorFiles(backend, store)

    @property
    def most_groups(self) -> int | None:
        """How many groups of a family a task sends to the driver; a family with more leaves the driver."""
        return self.limits.driver_groups if self.place is Place.AUTO else None

    def shelf(self, state: State) -> Shelf:
        """Where the batch after a state writes its shards."""
        return Shelf(
            self.files.shards, directory_of(state.batch_id + 1), state.partitions or self.files.partitions
        )

    # --- closing windows ---

    def close(
        self,
        works: Sequence[ShardWork],
        moment: Moment,
        identity: Callable[[str], str],
        directory: str,
        earlier_files: set[str],
    ) -> ClosedByTasks:
        """Let tasks close windows, or read open ones, and write the results to a directory.

        Only names and counts come back. `earlier_files` are the files that were written there before; files that
        failed tasks left are deleted.
        """
        closed = ClosedByTasks()
        if not works:
            return closed
        queries = {reader.query.name: reader.query for work in works for reader in work.readers}
        names = {name: identity(name) for name in queries}
        written = self._written(works, ResultTarget(self.store, directory, moment, names))
        earlier_files.update(file for one in written for file in one.files)
        for file in self.store.list(directory):
            if file not in earlier_files:
                self.store.delete(f"{directory}/{file}")
        self._collect(closed, written, names, queries, directory)
        return closed

    def _written(self, works: Sequence[ShardWork], target: ResultTarget) -> list[Written]:
        written = list[Written]()
        plain = [one for work in works if (one := _plain(work)) is not None]
        if plain:
            places = places_of(ref for work in plain for ref in work.refs)
            written += self.files.run(close_task(plain, self.files.shards, places, target), len(places))
        for work in works:
            for shape in _computed(work):
                written += self._computed(shape, target)
        return written

    def _collect(
        self,
        closed: ClosedByTasks,
        written: Sequence[Written],
        names: Mapping[str, str],
        queries: Mapping[str, CompiledQuery],
        directory: str,
    ) -> None:
        counts: dict[str, dict[str, int]] = {}
        for one in written:
            closed.steps += one.steps
            for file, rows in one.files.items():
                for name, count in rows.items():
                    counts.setdefault(name, {})[f"{directory}/{file}"] = count
        for name, files in counts.items():
            bound = queries[name].query
            schema = pa.schema([*result_schema(bound), *order_columns(bound), *condition_columns(bound)])
            total = sum(files.values())
            closed.stored[name] = StoredResults(self.store, tuple(files), total, names[name], schema)

    def _computed(self, work: ShardWork, target: ResultTarget) -> list[Written]:
        """Results with computed expressions: the backend evaluates them between the closing and the writing task."""
        bound = work.readers[0].query.query
        places, texts = places_of(work.refs), computed_texts(bound)
        columns = {group_column(i): key.scalar.type for i, key in enumerate(bound.keys)}
        columns |= {aggregate_column(i): call.type for i, call in enumerate(bound.calls)}
        columns |= {name: bound.clock_type for name in ("window_start", "window_end")}
        columns |= {name: pa.int64() for name in ("rows", "which", "steps")}
        lowered = self.backend.run(
            lower_task(work, self.files.shards, places), len(places), pa.schema(list(columns.items()))
        )
        frame = lowered.extend({f"x{i}": text for i, text in enumerate(texts)})
        return unpacked(frame.map(write_task(work, texts, target), PACKED))

    # --- rolling up ---

    def rolled_up(self, state: State, queries: Iterable[CompiledQuery]) -> State:
        """The state with many small shards over the same groups merged into few."""
        if len(state.shards) <= self.limits.shard_files:
            return state
        alike: dict[object, list[CompiledQuery]] = {}
        for query in queries:
            if any(state.selections[home].on_executors for home in state.queries[query.name].homes):
                alike.setdefault(placement_group(query), []).append(query)
        shards = list(state.shards)
        for members in alike.values():
            homes = {home for query in members for home in state.queries[query.name].homes}
            mine = [ref for ref in shards if not homes.isdisjoint(ref.held)]
            if len(mine) > self.limits.shard_files:
                small = smaller(mine, self.limits.shard_files)
                whole = self._rolled(small, members, state)
                gone = {ref.name for ref in small}
                shards = [ref for ref in shards if ref.name not in gone]
                shards += [whole] if whole.parts else []
        return replace(state, shards=tuple(shards))

    def _rolled(self, refs: Sequence[ShardRef], queries: Sequence[CompiledQuery], state: State) -> ShardRef:
        held: dict[int, set[tuple[int, int]]] = {}
        for ref in refs:
            for home, slices in ref.held.items():
                held.setdefault(home, set()).update(slices)
        homes = (home for query in queries for home in state.queries[query.name].homes)
        kept = {key for home in homes for key in state.selections[home].slots}
        slots = [slot for key, slot in readable_slots(queries).items() if key in kept]
        target = ShardRef(
            f"{directory_of(state.batch_id)}/{uuid.uuid4().hex}",
            (),
            {home: tuple(sorted(slices)) for home, slices in held.items()},
        )
        places = places_of(refs)
        task = roll_task(refs, slots, target, self.files.shards, places)
        return ShardRef(target.name, tuple(sorted(self.files.run(task, len(places)))), target.held)


def fixed_frame(
    backend: Backend, results: Mapping[str, Stored], queries: Mapping[str, BoundQuery], layout: FixedLayout
) -> Frame:
    """Results that tasks wrote, of any queries, in the schema that fits all; they don't pass the driver."""
    written = {name: stored for name, stored in results.items() if isinstance(stored, StoredResults)}
    files = list(dict.fromkeys(file for stored in written.values() for file in stored.files))
    names = {stored.identity: name for name, stored in written.items()}
    store = next(iter(written.values())).store
    task = fixed_task(store, files, names, {name: queries[name] for name in written}, layout)
    return backend.run(task, len(files), layout.schema)


def _plain(work: ShardWork) -> ShardWork | None:
    """The part of the work whose results need no computed expressions."""
    chosen = [i for i, reader in enumerate(work.readers) if not computed_texts(reader.query.query)]
    return work.of(chosen) if chosen else None


def _computed(work: ShardWork) -> list[ShardWork]:
    """The other part of the work, by the shape of the queries."""
    shapes: dict[object, list[int]] = {}
    for i, reader in enumerate(work.readers):
        if computed_texts(reader.query.query):
            shapes.setdefault(reader.query.shape, []).append(i)
    return [work.of(chosen) for chosen in shapes.values()]
