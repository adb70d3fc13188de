"""Batches of queries with a preference without Spark: the driver's part, and that of tasks if there are partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Keys
from transom.columns.hashes import row_hashes
from transom.elements import Preference, Summary
from transom.promising.batch_tuples import (
    BatchArrival,
    batch_arrival,
    batch_tuples,
    concat_tuples,
    merge_arrivals,
    tuple_columns,
)
from transom.promising.execution import DriverTuples
from transom.promising.probe_planner import ProbePlanner
from transom.promising.probes import make_probes
from transom.promising.state_updates import evicted, with_arrival, with_registered
from transom.promising.tuples import KeptTuples
from transom.sql.preference_query import PreferenceQuery, Side
from transom.sql.promise import Arithmetic, EstimatedCount
from transom.state.promising import PromisingState, TupleRun

SECOND = 1_000_000


def shape_of(number: int, **options: Any) -> Summary:
    """The summary of a store's items."""
    return Summary(f"items{number}", f"store{number}", "item", **{"granularity": 10 * SECOND} | options)


def join_of(preference: Preference) -> PreferenceQuery:
    """A join of both stores by item."""
    sides = tuple(Side(f"store{n}", f"items{n}", columns=("item", "row")) for n in (1, 2))
    counts = [EstimatedCount(side.stream, "item") for side in sides]
    return PreferenceQuery(sides, preference, Arithmetic("*", counts[0], counts[1]))


def rows_of(items: Sequence[Any], times: Sequence[int], first: int = 0) -> pa.Table:
    """Rows as the backend provides them: key, time, the item, and a row number."""
    column = pa.array(items, pa.int64())
    return pa.table(
        {
            "key": row_hashes([column], len(column)).view(np.int64),
            "time": pa.array(times, pa.int64()),
            "x0": column,
            "x1": pa.array(range(first, first + len(items)), pa.int64()),
        }
    )


@dataclass
class Partition:
    """Reads the tuples of some buckets."""

    held: Mapping[str, Sequence[KeptTuples]]

    def batches(self, summary: str, batches: Ints) -> KeptTuples:
        whole = concat_tuples(self.held[summary])
        return whole.where(np.isin(whole.batch_id, batches))

    def buckets(self, summary: str, buckets: Ints) -> KeptTuples:
        return concat_tuples(self.held[summary])

    def between(self, summary: str, since: int | None, until: int | None) -> KeptTuples:
        return concat_tuples(self.held[summary]).between(since, until)

    def keys_since(self, summary: str, since: int | None) -> Keys:
        return self.between(summary, since, None).key

    def places(self, summary: str, batch_id: int, ranking: str | None) -> Ints:
        raise ValueError("a partition has only a part of a batch")


@dataclass
class PureStores:
    """Summaries, queries with a preference and their batches; `partitions` split the tuples by bucket."""

    shapes: Mapping[str, Summary]
    queries: Mapping[str, PreferenceQuery]
    partitions: int = 1
    by_cell: bool = False  # as in tasks, which know only their partition: it is the default with partitions
    known: PromisingState = field(default_factory=PromisingState)
    batch_id: int = 0
    found: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = {name: (shape, 0) for name, shape in self.shapes.items()}
        self.known = with_registered(
            self.known, shapes, {name: (query, 0) for name, query in self.queries.items()}
        )
        self.found = {name: [] for name in self.queries}

    def push(self, store: int, rows: pa.Table, budget: int | None = None) -> None:
        """A batch of rows."""
        name = f"items{store}"
        shape = self.known.summaries[name].representation.shape
        want = tuple_columns(self.shapes[name], self.queries)
        every = batch_tuples(rows, shape, want, self.batch_id + 1)
        tuples = every.since(self.known.summaries[name].late_before)
        dealt = [tuples.where(tuples.bucket % self.partitions == part) for part in range(self.partitions)]
        arrivals = [batch_arrival(shape, part, want) for part in dealt if len(part)]
        late = batch_arrival(shape, every.where(np.zeros(len(every), bool)), want, len(every) - len(tuples))
        arrival = merge_arrivals([late, *arrivals])
        self._run({name: replace(arrival, run=TupleRun(tuples) if len(tuples) else None)}, budget)

    def idle(self, budget: int | None = None) -> None:
        """A batch without rows."""
        self._run({}, budget)

    def _run(self, arrivals: Mapping[str, BatchArrival], budget: int | None) -> None:
        self.batch_id += 1
        summaries = {
            name: with_arrival(own, arrivals[name]) if name in arrivals else own
            for name, own in self.known.summaries.items()
        }
        known = replace(self.known, summaries=summaries)
        read = None if self.by_cell or self.partitions > 1 else DriverTuples(known)
        planner, queries = ProbePlanner(known, arrivals, self.batch_id, read), dict(known.queries)
        for name, query in self.queries.items():
            probes = planner.plan(name, query, budget)
            rows = cost = 0
            times = 1
            while True:
                for side, probe in enumerate(probes):
                    made = np.zeros_like(probe.taken)
                    if probe.whole is not None:
                        done = make_probes(probe, DriverTuples(known), None)
                        self.found[name] += done.table.to_pylist()
                        rows, cost = rows + done.table.num_rows, cost + done.charge
                        probes[side] = replace(probe, taken=done.made, whole=None)
                        continue
                    for part in range(self.partitions):
                        mine = (probe.regions.bucket % self.partitions == part) & (probe.taken > 0)
                        if mine.any():
                            limit = None if budget is None else budget - cost
                            done = make_probes(probe.of(mine), self._partition(known, part), limit)
                            self.found[name] += done.table.to_pylist()
                            rows, cost = rows + done.table.num_rows, cost + done.charge
                            made[mine] = done.made
                    probes[side] = replace(probe, taken=made)
                if budget is None or cost >= budget or not any(len(p.regions) for p in probes):
                    break
                times *= 2
                probes = planner.plan_rest(probes, (budget - cost) * times)
            queries[name] = planner.state_after(name, query, probes, cost, rows)
        self.known = PromisingState(evicted(summaries, self.queries), queries)

    def _partition(self, known: PromisingState, part: int) -> Partition:
        """The reader of a partition's task; if summaries have different buckets, it has all tuples."""
        mixed = len({own.representation.zones().counts.shape[1] for own in known.summaries.values()}) > 1
        return Partition(
            {
                name: [
                    run.tuples if mixed else run.tuples.where(run.tuples.bucket % self.partitions == part)
                    for run in own.runs
                ]
                for name, own in known.summaries.items()
            }
        )
