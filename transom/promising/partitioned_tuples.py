"""Tuples of summaries in files, partitioned by value bucket; tasks insert and probe them.

Both streams of a join split their tuples by the same buckets, so a task has all tuples that the probes of
its buckets need. A bucket belongs to partition `bucket modulo partitions`.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.backends.arrow_types import plain_table
from transom.backends.base import Frame, RecordBatches, Task
from transom.columns.arrays import Ints, Keys
from transom.elements import Summary
from transom.plan.planner import Planner
from transom.promising.batch_tuples import (
    NUMBER_COLUMN,
    BatchArrival,
    TupleColumns,
    batch_arrival,
    batch_tuples,
    concat_tuples,
    merge_arrivals,
    no_tuples,
)
from transom.promising.combined_figures import CombinedFigures, CombinedWork, PartialFigures, ReadTuples
from transom.promising.probes import Probe, ProbeResult, make_probes
from transom.promising.tuples import KeptTuples
from transom.promising.zones import buckets_of
from transom.state.promising import PromisingState, SummaryState
from transom.storage.executor_files import (
    PACKED,
    ExecutorFiles,
    FileShards,
    directory_of,
    numbers_in,
    packed_value,
    places_of,
)
from transom.storage.shard_refs import ShardRef

_FIRST, _SECOND = -4658895280553007687, -7723592293110705685  # the factors of SplitMix64, with a sign


class PartitionedTuples:
    """Keeps tuples in files, and runs tasks on them."""

    def __init__(self, files: ExecutorFiles, planner: Planner):
        self.files, self.planner, self.limits = files, planner, planner.strategy.limits

    # --- insertion ---

    def arrive(
        self, frame: Frame, summary_state: SummaryState, want: TupleColumns, batch_id: int
    ) -> BatchArrival | None:
        """The arrival of a batch's rows; tasks write their tuples by partition."""
        shape, partitions = summary_state.representation.shape, self.files.partitions
        target = ShardRef(f"{directory_of(batch_id)}/{uuid.uuid4().hex}", (), {})
        dealt = frame.distribute(f"({bucket_sql(shape)}) % {partitions}", partitions)
        task = arrive_task(
            shape, summary_state.late_before, want, batch_id, partitions, target, self.files.shards
        )
        packed = dealt.map(task, PACKED).to_table()
        loaded = [pickle.loads(part) for part in packed["packed"].to_pylist()]
        if not loaded:
            return None
        arrival = merge_arrivals([part for _, part in loaded])
        parts = tuple(sorted(place for place, _ in loaded if place is not None))
        if not parts:
            return arrival
        held = {0: ((arrival.low, arrival.high),)}
        return replace(arrival, file=replace(target, parts=parts, held=held))

    # --- probing ---

    def probe_results(
        self, probes: Sequence[Probe], rates: Sequence[float | None], promising_state: PromisingState
    ) -> list[ProbeResult]:
        """The results of probes; with a rate, the probes of a partition may cost `rate` times their number."""
        partitions = self.files.partitions
        done = [ProbeResult(pa.table({}), 0, np.zeros_like(probe.taken)) for probe in probes]
        buckets = [probe.regions.bucket[probe.taken > 0] for probe in probes]
        places = np.unique(np.concatenate([*buckets, np.zeros(0, np.int64)]) % partitions).tolist()
        if not places:
            return done
        names = {side.summary for probe in probes for side in probe.query.sides}
        held = {name: _Held.of(promising_state.summaries[name]) for name in names}
        work = [(probe.of(probe.taken > 0), rate) for probe, rate in zip(probes, rates, strict=True)]
        task = probe_task(work, held, partitions, self.files.shards, places)
        packed = self.files.backend.run(task, len(places), PACKED).to_table()
        for one in packed["packed"].to_pylist():
            place, results = pickle.loads(one)
            for number, part in results:
                before, probe = done[number], probes[number]
                mine = (probe.taken > 0) & (probe.regions.bucket % partitions == place)
                made = before.made.copy()
                made[mine] = part.made
                tables = [table for table in (before.table, part.table) if table.num_columns]
                whole = pa.concat_tables(tables, promote_options="default")
                done[number] = ProbeResult(whole, before.charge + part.charge, made)
        return done

    def combined_figures(
        self, works: Sequence[CombinedWork], promising_state: PromisingState
    ) -> list[list[PartialFigures]]:
        """The partial figures of each query, from tasks that have the tuples of a partition."""
        partitions = self.files.partitions
        names = {side.summary for work in works for side in work.query.sides}
        held = {name: _Held.of(promising_state.summaries[name]) for name in names}
        task = combined_task(works, held, partitions, self.files.shards)
        packed = self.files.backend.run(task, partitions, PACKED).to_table()
        loaded = [pickle.loads(part) for part in packed["packed"].to_pylist()]
        return [[part for parts in loaded for part in parts[number]] for number in range(len(works))]

    # --- rolling up ---

    def rolled_up(
        self, promising_state: PromisingState, batch_id: int, on_driver: Collection[str] = ()
    ) -> PromisingState:
        """The state with the small files of a summary merged, without evicted tuples.

        Summaries with many tuples move to files, except those that stay `on_driver`.
        """
        summaries = dict(promising_state.summaries)
        for name, summary_state in summaries.items():
            rows = 0 if name in on_driver else sum(run.rows for run in summary_state.runs)
            stream = summary_state.representation.shape.stream
            if rows and self.planner.moves_summary(name, stream, rows):
                summary_state = summaries[name] = self._put_away(summary_state, batch_id)
            if len(summary_state.files) > self.limits.tuple_files:
                summaries[name] = self._merged(summary_state, batch_id)
        return (
            replace(promising_state, summaries=summaries)
            if summaries != promising_state.summaries
            else promising_state
        )

    def _put_away(self, summary: SummaryState, batch_id: int) -> SummaryState:
        """A summary whose tuples are moved from the driver to files, because there are too many."""
        tuples = concat_tuples([run.tuples for run in summary.runs]).since(summary.representation.floor)
        target = ShardRef(f"{directory_of(batch_id)}/{uuid.uuid4().hex}", (), {})
        parts = [part for part, _ in _dealt(tuples, self.files.partitions, target, self.files.shards)]
        held = {0: ((int(tuples.time.min()), int(tuples.time.max())),)}
        ref = replace(target, parts=tuple(parts), held=held)
        settled = summary.representation.settle()  # the driver plans without the tuples from now on
        return replace(summary, representation=settled, runs=(), files=(*summary.files, ref))

    def _merged(self, summary: SummaryState, batch_id: int) -> SummaryState:
        floor = summary.representation.floor

        def task(refs: Sequence[ShardRef], target: ShardRef, places: Sequence[int]) -> Task:
            return merge_tuples_task(refs, floor, target, self.files.shards, places)

        return replace(
            summary, files=self.files.merged(summary.files, self.limits.tuple_files, floor, batch_id, task)
        )


def arrive_task(
    shape: Summary,
    late_before: int | None,
    want: TupleColumns,
    batch_id: int,
    partitions: int,
    target: ShardRef,
    shards: FileShards,
) -> Task:
    """A task that writes the tuples of its partitions and returns their arrivals, and how many came late."""

    def task(batches: RecordBatches) -> RecordBatches:
        held = list(batches)
        if not sum(part.num_rows for part in held):
            return
        every = batch_tuples(plain_table(pa.Table.from_batches(held)), shape, want, batch_id)
        tuples = every.since(late_before)
        if len(tuples) < len(every):
            late = every.where(np.zeros(len(every), bool))
            yield packed_value((None, batch_arrival(shape, late, want, len(every) - len(tuples))))
        for part, own in _dealt(tuples, partitions, target, shards):
            yield packed_value((part, batch_arrival(shape, own, want)))

    return task


def _dealt(
    tuples: KeptTuples, partitions: int, target: ShardRef, shards: FileShards
) -> Iterator[tuple[tuple[int, int, int], KeptTuples]]:
    """Write tuples by partition; returns each partition's file, rows, bytes and tuples."""
    places = tuples.bucket % partitions
    for place in np.unique(places).tolist():
        own = tuples.where(places == place)
        yield (place, len(own), shards.put(target.file(place), own.table)), own


def probe_task(
    work: Sequence[tuple[Probe, float | None]],
    held: Mapping[str, _Held],
    partitions: int,
    shards: FileShards,
    places: Sequence[int],
) -> Task:
    """A task that makes the probes in the regions of its partition, and returns their results by query."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            place = places[number]
            read = _Files(held, shards, place, partitions)
            results = []
            for i, (probe, rate) in enumerate(work):
                mine = probe.of(probe.regions.bucket % partitions == place)
                if len(mine.taken):
                    limit = None if rate is None else int(mine.taken.sum() * rate)
                    results.append((i, make_probes(mine, read, limit)))
            yield packed_value((place, results))

    return task


def combined_task(
    works: Sequence[CombinedWork], held: Mapping[str, _Held], partitions: int, shards: FileShards
) -> Task:
    """A task that computes the partial figures of queries over the tuples of its partition."""

    def task(batches: RecordBatches) -> RecordBatches:
        for place in numbers_in(batches):
            read, figures = _Files(held, shards, place, partitions), CombinedFigures()
            yield packed_value([figures.parts(work, read.sides_of(work)) for work in works])

    return task


def merge_tuples_task(
    refs: Sequence[ShardRef], floor: int | None, target: ShardRef, shards: FileShards, places: Sequence[int]
) -> Task:
    """A task that merges the files of its partition into one, and returns its partition, tuples and bytes."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            place = places[number]
            whole = concat_tuples(list(_fetched(shards, refs, place))).since(floor)
            if len(whole):
                yield packed_value((place, len(whole), shards.put(target.file(place), whole.table)))

    return task


@dataclass(frozen=True)
class _Held:
    """The tuples of a summary as sent to a task: those on the driver, and references to files."""

    on_driver: list[pa.Table]
    files: tuple[ShardRef, ...]
    buckets: int
    column: str

    @classmethod
    def of(cls, summary: SummaryState) -> _Held:
        on_driver = [run.tuples.table for run in summary.runs]
        shape = summary.representation.shape
        return cls(on_driver, summary.files, buckets_of(shape), shape.column)


class _Files:
    """Reads a partition of the tuples of summaries, from files and from the driver's part."""

    def __init__(self, held: Mapping[str, _Held], shards: FileShards, place: int, partitions: int):
        self.held, self.shards, self.place, self.partitions = held, shards, place, partitions
        # If summaries have different buckets, a value may be in different partitions.
        self.is_mixed = len({own.buckets for own in held.values()}) > 1
        self._read: dict[tuple[str, bool], KeptTuples] = {}

    def batches(self, summary: str, batches: Ints) -> KeptTuples:
        kept = self._kept(summary, everywhere=self.is_mixed)
        return kept.where(np.isin(kept.batch_id, batches))

    def buckets(self, summary: str, buckets: Ints) -> KeptTuples:
        return self._kept(summary)

    def between(self, summary: str, since: int | None, until: int | None) -> KeptTuples:
        return self._kept(summary).between(since, until)

    def sides_of(self, work: CombinedWork) -> ReadTuples:
        """Reads the tuples of a query's sides: a partition of one, and all that may be partners of these."""

        def read(side: int, are_partners: bool) -> KeptTuples:
            kept = self._kept(work.query.sides[side].summary, everywhere=are_partners and self.is_mixed)
            return kept.since(work.starts[side])

        return read

    def keys_since(self, summary: str, since: int | None) -> Keys:
        return self._kept(summary).since(since).key

    def places(self, summary: str, batch_id: int, ranking: str | None) -> Ints:
        raise ValueError(f"summary {summary}: a partition has only a part of the tuples of batch {batch_id}")

    def _kept(self, summary: str, everywhere: bool = False) -> KeptTuples:
        if (summary, everywhere) not in self._read:
            tuples_held = self.held[summary]
            runs = [KeptTuples(table) for table in tuples_held.on_driver]
            if not everywhere:
                runs = [run.where(run.bucket % self.partitions == self.place) for run in runs]
            places = places_of(tuples_held.files) if everywhere else [self.place]
            runs += [run for place in places for run in _fetched(self.shards, tuples_held.files, place)]
            self._read[summary, everywhere] = concat_tuples(runs or [no_tuples(tuples_held.column)])
        return self._read[summary, everywhere]


def _fetched(shards: FileShards, refs: Sequence[ShardRef], place: int) -> Iterator[KeptTuples]:
    """The tuples of a partition's files."""
    for ref in refs:
        if any(place == other for other, _, _ in ref.parts):
            yield KeptTuples(shards.get(ref.file(place)).combine_chunks())


def bucket_sql(shape: Summary) -> str:
    """`bucket_of` as an expression over a batch's tuples, by which the backend distributes them."""
    if buckets_of(shape) == 1:
        return "0"
    if shape.between is not None:
        low, high = shape.between
        place = f"(`{NUMBER_COLUMN}` - {low!r}D) / {high - low!r}D * {shape.buckets}D"
        inside = f"CAST(least(greatest({place}, 0D), {shape.buckets - 1}D) AS BIGINT)"
        return f"CASE WHEN isnan(`{NUMBER_COLUMN}`) OR `{NUMBER_COLUMN}` IS NULL THEN 0 ELSE {inside} END"
    word = "`key`"
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        word = f"(({word}) ^ shiftrightunsigned({word}, {shift})) * {factor}L"
    word = f"(({word}) ^ shiftrightunsigned({word}, 31))"
    return f"shiftrightunsigned(shiftrightunsigned({word}, 32) * {shape.buckets}L, 32)"
