"""Tuples into runs, and runs into one: all groups at once, sorted only where order is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expanded
from transom.columns.grouping import Groups, group
from transom.ondemand.structures.runs import Numbers, Run, TupleBatch


def without_nulls(batch: TupleBatch) -> TupleBatch:
    """The tuples that have a value."""
    values = batch.values
    if values is None or not values.null_count:
        return batch
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return TupleBatch(batch.times[valid], batch.codes[valid], batch.keys, values.drop_null())


def sorted_run(batch: TupleBatch) -> Run:
    """A run of the tuples as they are; their values, if any, are the column `value`.

    Tuples that are in order, without GROUP BY, are not sorted.
    """
    order = _order(batch)
    times, columns = batch.times, {} if batch.values is None else {"value": batch.values}
    if order is not None:
        times, at = times[order], pa.array(order)
        columns = {name: column.take(at) for name, column in columns.items()}
    counts = np.bincount(batch.codes, minlength=1) if batch.keys else np.array([len(times)])
    groups = np.flatnonzero(counts)
    bounds = np.r_[0, np.cumsum(counts[groups])]
    keys = tuple(key.take(pa.array(groups)) for key in batch.keys)
    return Run.of(keys, bounds, times, columns)


def _order(batch: TupleBatch) -> Numbers | None:
    """The tuples by group and time, ties as they came; None if they are so already."""
    times = batch.times
    by_time = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
    if not batch.keys:
        return by_time
    codes = batch.codes if by_time is None else batch.codes[by_time]
    # Small numbers have a stable sort in linear time.
    narrow = codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes
    by_group = np.argsort(narrow, kind="stable")
    return by_group if by_time is None else by_time[by_group]


@dataclass(frozen=True)
class AlignedGroups:
    """Groups of several runs, one run after the other, and what they are in all.

    Piece p, a group of some run, is group `codes[p]` of `count`; `keys` are the columns of those.
    """

    codes: Numbers
    count: int
    keys: tuple[pa.Array, ...]


def align_groups(columns: Sequence[Sequence[pa.Array]], pieces: int) -> AlignedGroups:
    """The groups of all pieces, by the columns that each run has for its own; those of a run all differ."""
    together = [pa.concat_arrays(parts) for parts in zip(*columns, strict=True)]
    if not together:
        return AlignedGroups(np.zeros(pieces, np.int64), min(pieces, 1), ())
    if len(columns) == 1:
        return AlignedGroups(np.arange(pieces), pieces, tuple(together))
    groups = group(together, pieces)
    firsts = pa.array(groups.firsts)
    return AlignedGroups(groups.codes, groups.count, tuple(column.take(firsts) for column in together))


def align_divided_groups(runs: Sequence[Run]) -> AlignedGroups:
    """The same for runs with several pieces of a group, whose keys are compared once a group."""
    parts = [groups_of_pieces(run) for run in runs]
    columns = [
        [key.take(pa.array(part.firsts)) for key in run.keys] for run, part in zip(runs, parts, strict=True)
    ]
    ends = np.cumsum([part.count for part in parts])
    alike = align_groups(columns, int(ends[-1]))
    own = np.split(alike.codes, ends[:-1])
    codes = [codes[part.codes] for codes, part in zip(own, parts, strict=True)]
    return AlignedGroups(np.concatenate(codes), alike.count, alike.keys)


def groups_of_pieces(run: Run) -> Groups:
    """The pieces of a run by their keys; remembered, as every lookup asks."""
    known: Groups | None = run.derived.get(groups_of_pieces)
    if known is None:
        known = run.derived[groups_of_pieces] = group(run.keys, run.groups)
    return known


@dataclass(frozen=True)
class MergedEntries:
    """The entries of several runs as one run without heads, and what its groups are made of.

    Group g is made of the pieces from `firsts[g]` to where the next one's begin.
    """

    run: Run
    pieces: Numbers
    firsts: Numbers

    def heads(self, runs: Sequence[Run], name: str, ufunc: np.ufunc) -> pa.Array:
        """A head of the groups, from those of the pieces."""
        known = pa.concat_arrays([run.heads[name] for run in runs]).take(pa.array(self.pieces))
        return pa.array(ufunc.reduceat(known.to_numpy(), self.firsts)) if len(self.firsts) else known


def merge_entries(runs: Sequence[Run], groups: AlignedGroups, floor: int) -> MergedEntries:
    """The entries from `floor` on, by group and time; groups that have none are left out."""
    offsets = np.cumsum([0, *(run.entries for run in runs)])
    pairs = list(zip(runs, offsets[:-1].tolist(), strict=True))
    starts = np.concatenate([run.starts(floor) + offset for run, offset in pairs])
    stops = np.concatenate([run.bounds[1:] + offset for run, offset in pairs])
    times = np.concatenate([run.times for run in runs])
    pieces = np.flatnonzero(starts < stops)
    pieces = pieces[np.lexsort((times[starts[pieces]], groups.codes[pieces]))]
    codes = groups.codes[pieces]
    firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    rows, bounds = _rows(times, starts[pieces], stops[pieces], firsts)
    columns = {name: _gathered(name, runs, rows) for name in runs[0].columns}
    keys = tuple(key.take(pa.array(codes[firsts])) for key in groups.keys)
    times = times if rows is None else times[rows]
    return MergedEntries(Run.of(keys, bounds, times, columns), pieces, firsts)


def _rows(times: Numbers, starts: Numbers, stops: Numbers, firsts: Numbers) -> tuple[Numbers | None, Numbers]:
    """The rows that pieces are made of, by group and time, and the groups' bounds among them.

    None: all of them, as they are.
    """
    lengths = stops - starts
    ends = np.cumsum(lengths)
    bounds = np.r_[0, np.r_[ends[firsts[1:] - 1], ends[-1:]]] if len(firsts) else np.zeros(1, np.int64)
    whole = len(starts) > 0 and starts[0] == 0 and ends[-1] == len(times) and (starts[1:] == stops[:-1]).all()
    rows = None if whole else expanded(starts, stops)[0]
    # Pieces of one group follow each other in time, unless batches overlap.
    follows = times[starts[1:]] >= times[stops[:-1] - 1]
    follows[firsts[1:] - 1] = True
    if follows.all():
        return rows, bounds
    rows = expanded(starts, stops)[0]
    wrong = np.zeros(len(bounds) - 1, bool)
    wrong[np.searchsorted(firsts, np.flatnonzero(~follows), side="right") - 1] = True
    at, which = expanded(bounds[:-1][wrong], bounds[1:][wrong])
    mixed = rows[at]
    rows[at] = mixed[_sorted(which, times[mixed])]
    return rows, bounds


def _sorted(groups: Numbers, times: Numbers) -> Numbers:
    """The order by group and time.

    One number for both, if it fits: sorting by two is sixteen times slower, as it makes nothing of
    the stretches that are in order.
    """
    low, high = int(times.min()), int(times.max())
    if (int(groups[-1]) + 1) * (high - low + 1) >= 1 << 62:
        return np.lexsort((times, groups))
    return np.argsort(groups * (high - low + 1) + (times - low), kind="stable")


def _gathered(name: str, runs: Sequence[Run], rows: Numbers | None) -> pa.Array:
    column = pa.concat_arrays([run.columns[name] for run in runs])
    return column if rows is None else column.take(pa.array(rows))


def keep_entries(run: Run, kept: np.ndarray) -> Run:
    """Some of the entries; each group keeps one at least."""
    if kept.all():
        return run
    rows = np.flatnonzero(kept)
    columns = {name: column.take(pa.array(rows)) for name, column in run.columns.items()}
    bounds = np.searchsorted(rows, run.bounds)
    return Run.of(run.keys, bounds, run.times[rows], columns, run.heads)
