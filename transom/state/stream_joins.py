"""The rows that joins of two streams keep, sorted by key and time, in runs of growing size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.hashes import Hashes

HASH, TIME = "hash", "time"


def key_name(place: int) -> str:
    """The name of a key in a run."""
    return f"key {place}"


def kept_name(column: str) -> str:
    """The name of a stream's column in a run."""
    return f".{column}"


@dataclass(frozen=True)
class JoinRun:
    """Rows of one stream of a join, sorted by the hash of their keys, then by time."""

    table: pa.Table

    @classmethod
    def of(cls, table: pa.Table) -> JoinRun:
        """A run of rows in any order."""
        order = np.lexsort((table[TIME].to_numpy(), table[HASH].to_numpy()))
        return cls(table.take(pa.array(order)).combine_chunks())

    @cached_property
    def hashes(self) -> Hashes:
        return self.table[HASH].to_numpy()

    @cached_property
    def times(self) -> Ints:
        return self.table[TIME].to_numpy()

    @cached_property
    def first(self) -> int:
        """The earliest time."""
        return int(self.times.min())

    def __len__(self) -> int:
        return self.table.num_rows


JoinRuns = tuple[JoinRun, ...]


@dataclass(frozen=True)
class JoinState:
    """The rows that a join keeps of both streams, and which of the streams have ended or fallen idle.

    `late` are rows that came when the join's clock had passed pairs that they could have been part of.
    """

    runs: tuple[JoinRuns, JoinRuns] = ((), ())
    ended: tuple[bool, bool] = (False, False)
    late: tuple[int, int] = (0, 0)

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows are kept of each stream."""
        first, second = (sum(map(len, runs)) for runs in self.runs)
        return first, second

    @property
    def bytes(self) -> int:
        """The memory that the rows take."""
        return sum(run.table.nbytes for runs in self.runs for run in runs)

    def with_rows(self, place: int, table: pa.Table, late: int, columns: Iterable[str]) -> JoinState:
        """The state with more rows of one stream; of the rows that are moved, only these columns are kept."""
        runs, counts = list(self.runs), list(self.late)
        counts[place] += late
        if table.num_rows:
            runs[place] = _merged((*runs[place], JoinRun.of(table)), list(columns))
        return replace(self, runs=(runs[0], runs[1]), late=(counts[0], counts[1]))

    def since(self, floors: Sequence[int]) -> JoinState:
        """The state without rows before a floor for each stream.

        A run is copied when most of its rows are dropped; until then they stay in it, and no search finds them.
        """
        first, second = (
            tuple(kept for run in runs if (kept := _since(run, floor)) is not None)
            for runs, floor in zip(self.runs, floors, strict=True)
        )
        return replace(self, runs=(first, second))


def _since(run: JoinRun, floor: int) -> JoinRun | None:
    if run.first >= floor:
        return run
    is_kept = run.times >= floor
    count = int(is_kept.sum())
    if 2 * count > len(run):
        return run
    return JoinRun(run.table.filter(pa.array(is_kept)).combine_chunks()) if count else None


def _merged(runs: JoinRuns, columns: Sequence[str]) -> JoinRuns:
    """Runs, each at least twice as long as the next: there are few, and rows are rarely moved."""
    last, rest = [runs[-1]], list(runs[:-1])
    while rest and len(rest[-1]) < 2 * sum(map(len, last)):
        last.append(rest.pop())
    if len(last) > 1:
        tables = [
            run.table.select([name for name in columns if name in run.table.column_names]) for run in last
        ]
        return (*rest, JoinRun.of(pa.concat_tables(tables, promote_options="default")))
    return runs
