"""The accounts of queries: what became of every row for each query, and which windows missed how many rows.

They are kept as arrays over all queries, so that a batch of a thousand queries costs a few operations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints

COUNTS = ("rows", "counted", "unwanted", "late", "rejected", "sidelined", "shed")
_ROWS, _LATE, _SIDELINED, _SHED = (COUNTS.index(name) for name in ("rows", "late", "sidelined", "shed"))
ACCOUNT_RUNS = 1024  # of windows that a query keeps counts of: those of the newest windows


@dataclass(frozen=True)
class QueryAccount:
    """Every row since a query joined, accounted for: `rows` is the sum of the other counts.

    A row is `late` if a window of the query that it belongs to was closed when it arrived, and `counted` if all
    its windows took it.
    """

    rows: int = 0
    counted: int = 0
    unwanted: int = 0
    late: int = 0
    rejected: int = 0
    sidelined: int = 0
    shed: int = 0


@dataclass(frozen=True, eq=False)
class Accounts:
    """The accounts of queries: `counts` has a row for each of `COUNTS` and a column for each query.

    `windows` has a column for each run of windows that missed the same number of rows: the place of the query,
    the first and the last window, and the rows that each of them missed; in the order of queries and windows.
    `unaccounted` is how many rows the counts of all batches failed to explain: it must stay 0.
    """

    names: tuple[str, ...] = ()
    counts: Ints = field(default_factory=lambda: np.zeros((len(COUNTS), 0), np.int64))
    windows: Ints = field(default_factory=lambda: np.zeros((4, 0), np.int64))
    unaccounted: int = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Accounts)
            and (self.names, self.unaccounted) == (other.names, other.unaccounted)
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.windows, other.windows)
        )

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each query."""
        return {name: place for place, name in enumerate(self.names)}

    def of(self, name: str) -> QueryAccount:
        """The account of a query."""
        place = self.places.get(name)
        return QueryAccount() if place is None else QueryAccount(*self.counts[:, place].tolist())

    @property
    def has_late(self) -> bool:
        """Whether any query missed rows."""
        return bool(self.counts[_LATE].any())

    def late(self, names: Sequence[str]) -> list[int]:
        """The rows that each of some queries missed so far."""
        if not self.has_late:
            return [0] * len(names)
        late, places = self.counts[_LATE].tolist(), self.places
        return [late[places[name]] if name in places else 0 for name in names]

    def missed_windows(self, name: str) -> Ints:
        """The windows of a query that missed rows: rows of (first window, last window, rows of each)."""
        place = self.places.get(name, -1)
        return self.windows[1:, self.windows[0] == place].T

    def without(self, names: Collection[str]) -> Accounts:
        """The accounts without those of queries that left."""
        gone = {self.places[name] for name in names if name in self.places}
        if not gone:
            return self
        kept = np.array([place for place in range(len(self.names)) if place not in gone], np.int64)
        of_kept = np.isin(self.windows[0], kept)
        runs = self.windows[:, of_kept].copy()
        runs[0] = np.searchsorted(kept, runs[0])
        names = tuple(self.names[place] for place in kept.tolist())
        return Accounts(names, self.counts[:, kept], runs, self.unaccounted)

    def renamed(self, name: str, to: str) -> Accounts:
        """The accounts after a query got another name."""
        return Accounts(
            tuple(to if each == name else each for each in self.names),
            self.counts,
            self.windows,
            self.unaccounted,
        )

    def plus(
        self,
        names: Sequence[str],
        counts: Ints,
        windows: Ints,
        sidelined: int = 0,
        shed: int = 0,
        resumed: int = 0,
    ) -> Accounts:
        """The accounts after a batch, given the counts of its processed rows and the windows that missed rows.

        Rows that were sidelined or shed concern every query; resumed rows were sidelined before.
        """
        change = np.zeros((len(COUNTS), len(names)), np.int64)
        change[: len(counts)] = counts
        change[_ROWS] += sidelined + shed - resumed
        change[_SIDELINED], change[_SHED] = sidelined - resumed, shed
        unexplained = int(np.abs(change[_ROWS] - change[_ROWS + 1 :].sum(axis=0)).sum())
        known, grown = self._with(names), None
        if tuple(names) == known.names:
            grown = known.counts + change
            places = np.arange(len(names))
        else:
            places = np.array([known.places[name] for name in names], np.int64)
            grown = known.counts.copy()
            grown[:, places] += change
        runs = known.windows
        if windows.shape[1]:
            moved = windows.copy()
            moved[0] = places[moved[0]]
            runs = merged_runs(np.concatenate([runs, moved], axis=1))
        return Accounts(known.names, grown, runs, self.unaccounted + unexplained)

    def _with(self, names: Sequence[str]) -> Accounts:
        """The accounts with those of queries that joined."""
        new = [name for name in names if name not in self.places]
        if not new:
            return self
        counts = np.concatenate([self.counts, np.zeros((len(COUNTS), len(new)), np.int64)], axis=1)
        return Accounts((*self.names, *new), counts, self.windows, self.unaccounted)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """The counts and the windows as tables, for a snapshot; the names are stored beside them."""
        columns = {name: pa.array(row) for name, row in zip(COUNTS, self.counts, strict=True)}
        return pa.table(columns), pa.table(list(map(pa.array, self.windows)), names=list(RUN_COLUMNS))

    @classmethod
    def of_tables(cls, names: Sequence[str], counts: pa.Table, runs: pa.Table, unaccounted: int) -> Accounts:
        """The accounts that `tables` made into tables."""
        rows = [counts[name].to_numpy() for name in COUNTS]
        columns = [runs[name].to_numpy() for name in RUN_COLUMNS]
        return cls(tuple(names), np.stack(rows), np.stack(columns), unaccounted)


RUN_COLUMNS = ("query", "first", "last", "rows")


def merged_runs(runs: Ints) -> Ints:
    """Runs of windows in order and disjoint: where runs of a query overlap, their rows add up.

    A query keeps the runs of its newest windows.

    >>> merged_runs(np.array([[0, 0], [1, 3], [4, 3], [2, 5]])).T.tolist()
    [[0, 1, 2, 2], [0, 3, 3, 7], [0, 4, 4, 2]]
    """
    queries = np.r_[runs[0], runs[0]]
    edges, changes = np.r_[runs[1], runs[2] + 1], np.r_[runs[3], -runs[3]]
    order = np.lexsort((edges, queries))
    queries, edges, changes = queries[order], edges[order], changes[order]
    heads = np.flatnonzero(np.r_[True, (queries[1:] != queries[:-1]) | (edges[1:] != edges[:-1])])
    # The changes of a query add up to 0, so that the sum starts anew with each query.
    rows = np.cumsum(np.add.reduceat(changes, heads))
    queries, edges = queries[heads], edges[heads]
    filled = np.flatnonzero(rows)
    found = np.stack([queries[filled], edges[filled], edges[filled + 1] - 1, rows[filled]])
    return _newest(_joined(found))


def _joined(runs: Ints) -> Ints:
    """Neighbouring runs of the same number of rows as one run."""
    if runs.shape[1] < 2:
        return runs
    queries, firsts, lasts, rows = runs
    is_new = (queries[1:] != queries[:-1]) | (firsts[1:] != lasts[:-1] + 1) | (rows[1:] != rows[:-1])
    heads = np.flatnonzero(np.r_[True, is_new])
    ends = np.r_[heads[1:] - 1, len(queries) - 1]
    return np.stack([queries[heads], firsts[heads], lasts[ends], rows[heads]])


def _newest(runs: Ints) -> Ints:
    """The last runs of each query, at most `ACCOUNT_RUNS`."""
    if runs.shape[1] <= ACCOUNT_RUNS:
        return runs
    after = np.searchsorted(runs[0], runs[0], side="right")
    return runs[:, after - np.arange(runs.shape[1]) <= ACCOUNT_RUNS]
