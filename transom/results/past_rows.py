"""Rows of past windows as arrays, and the search among them by group and window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group, sorted_distinct
from transom.columns.table_columns import group_columns
from transom.windows.intervals import HIGHEST

START, RESULT, EMPTY = 0, 1, 2  # kinds of rows: where a query began, a window with rows, and one without


@dataclass(frozen=True, eq=False)
class PastRows:
    """Windows of queries and groups: `queries` are numbers, and `values` those of lagged aggregates."""

    queries: Ints
    wids: Ints
    kinds: Ints
    keys: Sequence[pa.Array]
    values: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.queries)

    @classmethod
    def of_table(cls, table: pa.Table, names: pa.Array) -> PastRows:
        """The rows of a table, without those of queries that are not among the names."""
        numbers = pc.index_in(table["query"], value_set=names)
        if numbers.null_count:
            known = numbers.is_valid()
            table, numbers = table.filter(known), numbers.filter(known)
        columns = {name: one_array(table[name]) for name in table.column_names}
        return cls(
            numbers.to_numpy().astype(np.int64),
            columns["window"].to_numpy(),
            columns["kind"].to_numpy().astype(np.int64),
            [column for name, column in columns.items() if name.startswith("k") and name != "kind"],
            [column for name, column in columns.items() if name.startswith("v")],
        )

    def table(self, names: pa.Array) -> pa.Table:
        """The rows as a table of a state."""
        columns = {
            "query": names.take(pa.array(self.queries)),
            "window": pa.array(self.wids),
            "kind": pa.array(self.kinds.astype(np.int8)),
        }
        columns |= dict(zip(group_columns(len(self.keys)), self.keys, strict=True))
        return pa.table(columns | {f"v{place}": column for place, column in enumerate(self.values)})

    @classmethod
    def concatenated(cls, parts: Sequence[PastRows]) -> PastRows:
        """The rows of several parts, at least one."""
        return cls(
            np.concatenate([part.queries for part in parts]),
            np.concatenate([part.wids for part in parts]),
            np.concatenate([part.kinds for part in parts]),
            [pa.concat_arrays(columns) for columns in zip(*(part.keys for part in parts), strict=True)],
            [pa.concat_arrays(columns) for columns in zip(*(part.values for part in parts), strict=True)],
        )

    def take(self, rows: Ints) -> PastRows:
        """Some of the rows."""
        at = pa.array(rows)
        keys, values = ([column.take(at) for column in columns] for columns in (self.keys, self.values))
        return PastRows(self.queries[rows], self.wids[rows], self.kinds[rows], keys, values)

    @cached_property
    def lanes(self) -> Ints:
        """The query and group of each row, as one number."""
        return group([self.queries, *self.keys], len(self)).codes

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints, Ints]:
        """The windows that occur, the rows with results in the order of lane and window, and these as one number."""
        times, rows = sorted_distinct(self.wids), np.flatnonzero(self.kinds != START)
        places = self.lanes[rows] * (len(times) + 1) + np.searchsorted(times, self.wids[rows])
        order = np.argsort(places, kind="stable")
        return times, rows[order], places[order]

    def find(self, lanes: Ints, wids: Ints) -> Ints:
        """The row with the result of each lane and window; -1 if there is none."""
        times, rows, places = self._sorted
        if not len(rows):
            return np.full(len(lanes), -1)
        at = np.searchsorted(times, wids)
        occurs = times[np.minimum(at, len(times) - 1)] == wids
        sought = lanes * (len(times) + 1) + at
        found = np.minimum(np.searchsorted(places, sought), len(places) - 1)
        return np.where(occurs & (places[found] == sought), rows[found], -1)

    def known(self) -> tuple[Ints, Ints]:
        """The rows by which groups are known, in the order of lane and window, each with the window of the next."""
        rows = np.flatnonzero(self.kinds != EMPTY)
        rows = rows[np.lexsort((self.wids[rows], self.lanes[rows]))]
        following = np.full(len(rows), HIGHEST)
        same = self.lanes[rows[1:]] == self.lanes[rows[:-1]]
        following[:-1][same] = self.wids[rows[1:]][same]
        return rows, following

    def empty(self, most: Ints, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """The windows without rows of known groups: for each a row of its group, and its id.

        A group is known for `most` windows after one with rows. Windows from `since` to `until` closed. The three
        are by query.
        """
        rows, following = self.known()
        queries, wids = self.queries[rows], self.wids[rows]
        low = np.maximum(wids + 1, since[queries])
        high = np.minimum(np.minimum(following, wids + most[queries]) + 1, until[queries])
        empty, of = expand_runs(low, np.maximum(low, high))
        at = rows[of]
        is_empty = self.find(self.lanes[at], empty) < 0
        return at[is_empty], empty[is_empty]

    def still_needed(self, most: Ints, deepest: Ints, until: Ints) -> Mask:
        """Which rows later windows need: windows up to `until` are closed, and look back `deepest` windows."""
        needed = (self.kinds != START) & (self.wids >= (until - deepest)[self.queries])
        rows, following = self.known()
        queries = self.queries[rows]
        is_last = (following >= until[queries]) & (self.wids[rows] >= (until - most)[queries])
        needed[rows[is_last & (most[queries] > 0)]] = True
        return needed
