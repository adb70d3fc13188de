"""The rows that joins of two streams keep, sorted by key and time, in runs of growing size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.columns.hashes import Hashes

HASH, TIME = "hash", "time"


def key_name(place: int) -> str:
    """The name of a key in a run."""
    return f"key {place}"


def kept_name(column: str) -> str:
    """The name of a stream's column in a run."""
    return f".{column}"


def value_name(sql: str) -> str:
    """The name of a computed value in a run."""
    return f"= {sql}"


@dataclass(frozen=True)
class JoinRun:
    """Rows of one stream of a join, sorted by the hash of their keys, then by time.

    `matched` says which rows have a partner; None if the join returns pairs only. It is no column of the table, so
    that the stored table stays the same when rows find partners.
    """

    table: pa.Table
    matched: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, table: pa.Table, matched: NDArray[np.bool_] | None = None) -> JoinRun:
        """A run of rows in any order."""
        order = np.lexsort((table[TIME].to_numpy(), table[HASH].to_numpy()))
        sorted_table = table.take(pa.array(order)).combine_chunks()
        return cls(sorted_table, None if matched is None else matched[order])

    def where(self, is_kept: NDArray[np.bool_]) -> JoinRun:
        """Some of the rows."""
        table = self.table.filter(pa.array(is_kept)).combine_chunks()
        return JoinRun(table, None if self.matched is None else self.matched[is_kept])

    @cached_property
    def hashes(self) -> Hashes:
        return self.table[HASH].to_numpy()

    @cached_property
    def times(self) -> Ints:
        return self.table[TIME].to_numpy()

    @cached_property
    def blocks(self) -> dict[object, object]:
        """What is computed of the run's columns once, by the reader that needs it; it is no part of the state."""
        return {}

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

    `late` are rows that came when the join's clock had passed pairs that they could have been part of. Rows of the
    streams up to the times `unseen` may have come before the join began, so that it does not have them; None: no rows.
    """

    runs: tuple[JoinRuns, JoinRuns] = ((), ())
    ended: tuple[bool, bool] = (False, False)
    late: tuple[int, int] = (0, 0)
    unseen: tuple[int | None, int | None] = (None, None)

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows are kept of each stream."""
        first, second = (sum(map(len, runs)) for runs in self.runs)
        return first, second

    @property
    def bytes(self) -> int:
        """The memory that the rows take."""
        return sum(run.table.nbytes for runs in self.runs for run in runs)

    def with_rows(
        self,
        place: int,
        table: pa.Table,
        late: int,
        columns: Iterable[str],
        matched: NDArray[np.bool_] | None = None,
    ) -> JoinState:
        """The state with more rows of one stream; of the rows that are moved, only these columns are kept."""
        runs, counts = list(self.runs), list(self.late)
        counts[place] += late
        if table.num_rows:
            runs[place] = _merged((*runs[place], JoinRun.of(table, matched)), list(columns))
        return replace(self, runs=(runs[0], runs[1]), late=(counts[0], counts[1]))

    def with_matches(self, place: int, matches: Sequence[NDArray[np.bool_] | None]) -> JoinState:
        """The state in which more rows of one stream have a partner; None for runs without a change."""
        own = tuple(
            run if found is None or run.matched is None else JoinRun(run.table, run.matched | found)
            for run, found in zip(self.runs[place], matches, strict=True)
        )
        return replace(self, runs=(own, self.runs[1]) if place == 0 else (self.runs[0], own))

    def without(self, removed: Sequence[Sequence[NDArray[np.bool_]]]) -> JoinState:
        """The state without some rows of each run of both streams."""
        first, second = (
            tuple(run.where(~gone) if gone.any() else run for run, gone in zip(runs, masks, strict=True))
            for runs, masks in zip(self.runs, removed, strict=True)
        )
        return replace(self, runs=(tuple(filter(len, first)), tuple(filter(len, second))))

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
    return run.where(is_kept) if count else None


def _merged(runs: JoinRuns, columns: Sequence[str]) -> JoinRuns:
    """Runs, each at least twice as long as the next: there are few, and rows are rarely moved."""
    last, rest = [runs[-1]], list(runs[:-1])
    while rest and len(rest[-1]) < 2 * sum(map(len, last)):
        last.append(rest.pop())
    if len(last) > 1:
        tables = [
            run.table.select([name for name in columns if name in run.table.column_names]) for run in last
        ]
        flags = [run.matched for run in last if run.matched is not None]
        matched = np.concatenate(flags) if flags else None
        return (*rest, JoinRun.of(pa.concat_tables(tables, promote_options="default"), matched))
    return runs
