"""The state of summaries and of queries with a preference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from transom.columns.arrays import Keys
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.tuples import KeptTuples
from transom.storage.shard_refs import ShardRef


@dataclass(frozen=True, eq=False)
class TupleRun:
    """Tuples on the driver, written once beside the snapshots."""

    tuples: KeptTuples

    @property
    def rows(self) -> int:
        return self.tuples.table.num_rows

    def packed(self) -> bytes:
        """The run as bytes: an Arrow file."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(sink, self.tuples.table.schema, options=options) as writer:
            writer.write_table(self.tuples.table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def unpacked(cls, packed: bytes) -> TupleRun:
        """The run that `packed` made into bytes."""
        return cls(KeptTuples(pa.ipc.open_file(packed).read_all().combine_chunks()))


@dataclass(frozen=True, eq=False)
class BatchRanking:
    """The values of a batch in the order in which a budget took them, for selections that resume them later.

    `name` is that of the order, `since` the time of the batch's first tuple.
    """

    batch_id: int
    name: str
    since: int
    key: Keys


@dataclass(frozen=True)
class SummaryState:
    """A summary: its representation, and its tuples in `runs` on the driver or in `files` by partition.

    `since` is the batch that created it. `arrived` counts all tuples so far, `late` those that came when they
    were older than `late_before`. Older tuples are kept too, as partners of tuples that are not late. With
    batch `review` the engine chooses the structure anew, if the user leaves it the choice. `rankings` are the
    orders in which selections resume the tuples that they deferred.
    """

    representation: Representation
    since: int = 0
    runs: tuple[TupleRun, ...] = ()
    files: tuple[ShardRef, ...] = ()
    arrived: int = 0
    late: int = 0
    review: int = 0
    late_before: int | None = None
    rankings: tuple[BatchRanking, ...] = ()

    @property
    def floor(self) -> int | None:
        """The time before which tuples were evicted; None if none was."""
        kept = self.representation.tuples
        return None if kept == self.arrived - self.late else self.representation.floor

    @property
    def kept(self) -> int:
        """How many tuples are kept; a file counts as a whole while any of its tuples is needed."""
        return sum(run.rows for run in self.runs) + sum(ref.rows for ref in self.files)


@dataclass(frozen=True)
class Coverage:
    """How a query's budget was spent: probes made, tuples produced, tuples that were probably skipped, and
    probes that are left. Even where no output is expected, a probe that is left may produce some.

    >>> Coverage(probes=100, produced=30, skipped=10.0, left=50).share
    0.75
    """

    probes: int = 0
    produced: int = 0
    skipped: float = 0.0
    left: int = 0

    @property
    def complete(self) -> bool:
        """Whether no probe is left."""
        return self.left == 0

    def __str__(self) -> str:
        how_much = (
            "all of them" if self.complete else f"about {self.share:.0%} of them, {self.left:,} probes left"
        )
        return f"{self.produced:,} found with {self.probes:,} probes: {how_much}"

    @property
    def share(self) -> float:
        """The share of the estimated output that was produced; 1 if nothing was skipped."""
        whole = self.produced + self.skipped
        return self.produced / whole if whole else 1.0


@dataclass(frozen=True)
class UnmatchedTuples:
    """The tuples of an outer join that have no partner, by side; None: no tuples.

    `waiting` are those that may still find one. `returned` were returned when both streams ended, and are no longer in
    the join, though a partner could still come. Their columns are those of kept tuples that the query reads, and of
    those that were returned the batch that did it. They are remembered while the summary keeps them. `unseen`
    are the newest times that the streams had before the query joined, when these are known.
    """

    waiting: tuple[pa.Table | None, pa.Table | None] = (None, None)
    returned: tuple[pa.Table | None, pa.Table | None] = (None, None)
    unseen: tuple[int | None, int | None] | None = None

    @property
    def count(self) -> int:
        """How many tuples wait for a partner."""
        return sum(table.num_rows for table in self.waiting if table is not None)


NO_UNMATCHED = UnmatchedTuples()


@dataclass(frozen=True)
class PreferenceState:
    """A query with a preference: the regions that it has deferred, and how its budget was spent.

    `since` is the batch that it joined with, the last time if it was paused; then `registered` is the first one.
    `pending` are the deferred regions, by the side of their arriving tuples. Regions are dropped when their tuples
    leave the window; `missed` and `lost` are their probes and their expected output. An aggregate keeps the tuples
    that it `selected` while they are in its window, an outer join those that are `unmatched`.
    """

    pending: tuple[Regions, ...]
    since: int = 0
    done: Coverage = Coverage()
    lost: float = 0.0
    missed: int = 0
    selected: pa.Table | None = None
    unmatched: UnmatchedTuples = NO_UNMATCHED
    registered: int | None = None

    @property
    def registered_with(self) -> int:
        """The batch that the query was registered with."""
        return self.since if self.registered is None else self.registered

    @property
    def waits(self) -> bool:
        """Whether regions were deferred."""
        return any(map(len, self.pending))

    @property
    def coverage(self) -> Coverage:
        """How the budget was spent so far, with the deferred and the dropped regions."""
        waiting = sum(float(regions.expected_left.sum()) for regions in self.pending)
        left = sum(int(regions.left.sum()) for regions in self.pending)
        return Coverage(self.done.probes, self.done.produced, self.lost + waiting, self.missed + left)


@dataclass(frozen=True)
class PromisingState:
    """The summaries and the queries with a preference, by name."""

    summaries: Mapping[str, SummaryState] = field(default_factory=dict)
    queries: Mapping[str, PreferenceState] = field(default_factory=dict)

    @property
    def refs(self) -> tuple[ShardRef, ...]:
        """The files that hold tuples."""
        return tuple(ref for summary in self.summaries.values() for ref in summary.files)

    @property
    def runs(self) -> list[TupleRun]:
        """The runs of tuples on the driver."""
        return [run for summary in self.summaries.values() for run in summary.runs]
