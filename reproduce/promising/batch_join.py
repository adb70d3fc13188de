"""A join of two streams with a preference, run batch by batch without an engine, for experiments and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from reproduce.promising.baselines import Budget, Pairs, Stream
from transom.columns.arrays import Ints
from transom.elements import Preference, Summary
from transom.promising.joins import batch_values, join_regions, probe_join
from transom.promising.regions import Regions, spend_budget, spending_order
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.promise import Arithmetic, EstimatedCount, Promise

# Rounds per batch: probes outside of the window cost nothing, so that a later round can spend the rest of the budget.
ROUNDS = 32


def alternate_batches(times: tuple[Ints, Ints], length: int) -> tuple[Ints, Ints]:
    """The batch ids of two streams' tuples: a batch is `length` long; the first stream has the even ids."""
    return 2 * (times[0] // length), 2 * (times[1] // length) + 1


def stream_of(times: Ints, values: Ints, batch_id: Ints, buckets: int) -> Stream:
    """A stream of whole numbers, with the buckets of a hash join."""
    shape = Summary("", "", "", granularity=1, structure="cells", buckets=buckets)
    key = values.astype(np.uint64)
    return Stream(batch_id, times, key, bucket_of(shape, key, values.astype(np.float64)))


def share_of(needs: dict[int, int], share: float) -> Budget:
    """A share of each batch's cost; 0 for a batch that does not exist."""
    return lambda batch_id: int(needs.get(batch_id, 0) * share)


def product_of_counts(shapes: tuple[Summary, Summary]) -> Promise:
    """The promise of the paper's examples: the count in one stream times the count in the other."""
    one, two = (EstimatedCount(shape.stream, shape.column) for shape in shapes)
    return Arithmetic("*", one, two)


@dataclass(frozen=True)
class _Side:
    """The state of one stream: its summaries, its tuples and its deferred regions."""

    kept: Representation
    tuples: KeptTuples
    pending: Regions

    @staticmethod
    def new(shape: Summary) -> _Side:
        nothing = np.zeros(0, np.int64)
        none = KeptTuples.of_arrays(nothing.astype(np.uint64), nothing, nothing, 0, row=pa.array(nothing))
        return _Side(Representation.new(shape), none, Regions.none())

    def with_batch(self, stream: Stream, rows: Ints, batch_id: int) -> _Side:
        """This state after a batch's tuples are inserted."""
        shape = self.kept.shape
        time, key = stream.time[rows], stream.key[rows]
        bucket = bucket_of(shape, key, key.astype(np.float64))
        kept = self.kept.inserted(summarize_steps(shape, time, key, bucket), int(time.max()))
        more = KeptTuples.of_arrays(key, bucket, time, batch_id, row=pa.array(rows))
        return replace(self, kept=kept, tuples=KeptTuples.merged([self.tuples, more]).since(kept.floor))


@dataclass(frozen=True)
class Simulation:
    """A join of two streams with a preference; regions beyond a batch's budget are deferred."""

    streams: tuple[Stream, Stream]
    shapes: tuple[Summary, Summary]
    preference: Preference
    promise: Promise

    def run(self, budget: Budget = lambda batch_id: None, idle: Sequence[int] = ()) -> Pairs:
        """The pairs found when each batch has its budget; `idle` are the ids of batches without tuples."""
        sides = [_Side.new(shape) for shape in self.shapes]
        found: list[tuple[Ints, Ints, Ints]] = []
        probes: dict[int, int] = {}
        batches = [_rows_of(stream) for stream in self.streams]
        for batch_id in sorted({*batches[0], *batches[1], *idle}):
            fresh = [Regions.none(), Regions.none()]
            for own in (0, 1):
                if batch_id in batches[own]:
                    sides[own] = sides[own].with_batch(self.streams[own], batches[own][batch_id], batch_id)
                    fresh[own] = self._new_regions(sides[own], sides[1 - own], batch_id)
            deferred = self._deferred_regions(sides)
            rest, probes[batch_id] = budget(batch_id), 0
            for number in range(ROUNDS):
                charge = self._round(batch_id, sides, fresh, deferred, rest, 1 << number, found)
                probes[batch_id] += charge
                rest = None if rest is None else rest - charge
                if not rest or not any(map(len, (*fresh, *deferred))):
                    break
            for own in (0, 1):
                sides[own] = replace(sides[own], pending=Regions.concatenated([fresh[own], deferred[own]]))
        left, right, at = (
            np.concatenate([part[i] for part in found] or [np.zeros(0, int)]) for i in range(3)
        )
        return Pairs(left, right, at, probes)

    def _round(
        self,
        batch_id: int,
        sides: list[_Side],
        fresh: list[Regions],
        deferred: list[Regions],
        left: int | None,
        times: int,
        found: list[tuple[Ints, Ints, Ints]],
    ) -> int:
        """Spend the rest of a budget, record matches and remaining regions, and return the cost.

        It plans several times as many probes as the budget, because most may be outside of the window.
        """
        order = self.preference.order
        for queue in (fresh, deferred):
            queue[:] = [regions.where(spending_order(regions, order)) for regions in queue]
        planned = None if left is None else left * times
        now, later = spend_budget(Regions.concatenated(fresh), Regions.concatenated(deferred), order, planned)
        charge = 0
        for queue, taken in (
            (fresh, np.split(now, [len(fresh[0])])),
            (deferred, np.split(later, [len(deferred[0])])),
        ):
            for own in (0, 1):
                mine, theirs, cost, made = probe_join(
                    queue[own],
                    taken[own],
                    sides[own].tuples,
                    sides[1 - own].tuples,
                    self.preference.window,
                    None if left is None else left - charge,
                )
                rows = _row(sides[own].tuples)[mine], _row(sides[1 - own].tuples)[theirs]
                found.append((rows[own], rows[1 - own], np.full(len(mine), batch_id)))
                queue[own] = queue[own].after(made)
                charge += cost
        return charge

    def _new_regions(self, own: _Side, other: _Side, batch_id: int) -> Regions:
        """The regions of a batch's tuples."""
        if not len(other.tuples):
            return Regions.none()
        values = batch_values(own.tuples.in_batch(batch_id))
        return join_regions(values, batch_id, own.kept, other.kept, self.preference, self.promise)

    def _deferred_regions(self, sides: list[_Side]) -> list[Regions]:
        """The deferred regions of both sides that are still in the window."""
        window = self.preference.window
        highs = [side.kept.high for side in sides if side.kept.high is not None]
        since = None if window is None or not highs else max(highs) - window
        return [
            own.pending.reachable(other.kept.floor, own.kept.floor, since)
            for own, other in (sides, sides[::-1])
        ]


def _rows_of(stream: Stream) -> dict[int, Ints]:
    """The rows of each batch."""
    edges = np.flatnonzero(np.diff(stream.batch_id, prepend=-1))
    return {
        int(stream.batch_id[part[0]]): part
        for part in np.split(np.arange(len(stream)), edges[1:])
        if len(part)
    }


def _row(tuples: KeptTuples) -> Ints:
    """The stream's row numbers of the tuples that are kept."""
    return tuples.table.column("row").to_numpy()
