"""What an engine remembers for queries with a preference: summaries, their tuples, how far each came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.tuples import KeptTuples
from transom.storage.shard_refs import ShardRef


@dataclass(frozen=True, eq=False)
class TupleRun:
    """KeptTuples that are kept on the driver, and written once beside the snapshots."""

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
        """The run again."""
        return cls(KeptTuples(pa.ipc.open_file(packed).read_all().combine_chunks()))


@dataclass(frozen=True)
class SummaryState:
    """A summary: what its cells come to, and the tuples in them, on the driver or in files by partition.

    It came with batch `since`. `came` counts the tuples so far, `late` those that were older than all that is
    kept. The structure is looked at again with batch `review`, if it is the engine's to choose.
    """

    representation: Representation
    since: int = 0
    runs: tuple[TupleRun, ...] = ()
    files: tuple[ShardRef, ...] = ()
    came: int = 0
    late: int = 0
    review: int = 0

    @property
    def floor(self) -> int | None:
        """The time before which tuples are late; none while nothing is gone."""
        known = self.representation
        return None if int(known.zones().counts.sum()) == self.came else known.floor

    @property
    def kept(self) -> int:
        """How many tuples are kept, as far as their files are still needed whole."""
        return sum(run.rows for run in self.runs) + sum(ref.rows for ref in self.files)


@dataclass(frozen=True)
class Coverage:
    """What became of a query's budget: probes made, tuples found, tuples that were probably passed over, and
    the probes that were not made, which may still find something where nothing is expected.

    >>> Coverage(probes=100, produced=30, skipped=10.0, left=50).share
    0.75
    """

    probes: int = 0
    produced: int = 0
    skipped: float = 0.0
    left: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return self.left == 0

    def __str__(self) -> str:
        how_much = (
            "all of them" if self.complete else f"about {self.share:.0%} of them, {self.left:,} probes left"
        )
        return f"{self.produced:,} found with {self.probes:,} probes: {how_much}"

    @property
    def share(self) -> float:
        """The share of the estimated output that was produced; 1 if nothing was passed over."""
        whole = self.produced + self.skipped
        return self.produced / whole if whole else 1.0


@dataclass(frozen=True)
class PreferenceState:
    """A query with a preference: the regions that wait until there is time, and what came of those before.

    It came with batch `since`. Regions are `pending` by the side that their arriving tuples are of. Of those
    that were given up, because tuples have left the window, there were `missed` probes and an expected output
    of `lost`. An aggregate keeps what it `selected` while that is in its window.
    """

    pending: tuple[Regions, ...]
    since: int = 0
    done: Coverage = Coverage()
    lost: float = 0.0
    missed: int = 0
    selected: pa.Table | None = None

    @property
    def waits(self) -> bool:
        """Whether something was put off."""
        return any(map(len, self.pending))

    @property
    def coverage(self) -> Coverage:
        """All that was done and passed over so far."""
        waiting = sum(float(regions.expected_left.sum()) for regions in self.pending)
        left = sum(int(regions.left.sum()) for regions in self.pending)
        return Coverage(self.done.probes, self.done.produced, self.lost + waiting, self.missed + left)


@dataclass(frozen=True)
class PromisingState:
    """All summaries and queries with a preference by name."""

    summaries: Mapping[str, SummaryState] = field(default_factory=dict)
    queries: Mapping[str, PreferenceState] = field(default_factory=dict)

    @property
    def refs(self) -> tuple[ShardRef, ...]:
        """The files that hold tuples."""
        return tuple(ref for summary in self.summaries.values() for ref in summary.files)

    @property
    def runs(self) -> list[TupleRun]:
        """The tuples on the driver."""
        return [run for summary in self.summaries.values() for run in summary.runs]
