"""Builds a run from tuples or from several runs, for all groups at once.

Rows that are in order already are not sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints
from transom.columns.groups import Groups, group
from transom.ondemand.structures.runs import Run, TupleBatch


def without_nulls(batch: TupleBatch) -> TupleBatch:
    """The tuples with a value."""
    values = batch.values
    if values is None or not values.null_count:
        return batch
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return TupleBatch(batch.times[valid], batch.codes[valid], batch.keys, values.drop_null())


def sorted_run(batch: TupleBatch) -> Run:
    """A run of tuples, by group and time; their values, if any, become the column `value`."""
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


def _order(batch: TupleBatch) -> Ints | None:
    """The positions of tuples by group and time, ties in order of arrival; None if they are in this order."""
    times = batch.times
    by_time = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
    if not batch.keys:
        return by_time
    codes = batch.codes if by_time is None else batch.codes[by_time]
    # NumPy sorts 16-bit integers in linear time.
    narrow = codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes
    by_group = np.argsort(narrow, kind="stable")
    return by_group if by_time is None else by_time[by_group]


@dataclass(frozen=True)
class AlignedGroups:
    """The groups of several runs matched by key.

    A *piece* is a group of one run; pieces are numbered run after run. Piece p belongs to group `codes[p]`
    of `count`; `keys` are the key columns of these groups.
    """

    codes: Ints
    count: int
    keys: tuple[pa.Array, ...]


def align_groups(columns: Sequence[Sequence[pa.Array]], pieces: int, divided: bool = False) -> AlignedGroups:
    """Match pieces by their key columns, given for each run; within a run all keys differ, unless it is `divided`."""
    together = [pa.concat_arrays(parts) for parts in zip(*columns, strict=True)]
    if not together:
        return AlignedGroups(np.zeros(pieces, np.int64), min(pieces, 1), ())
    if len(columns) == 1 and not divided:
        return AlignedGroups(np.arange(pieces), pieces, tuple(together))
    groups = group(together, pieces)
    firsts = pa.array(groups.firsts)
    return AlignedGroups(groups.codes, groups.count, tuple(column.take(firsts) for column in together))


def align_divided_groups(runs: Sequence[Run]) -> AlignedGroups:
    """Match pieces where a run has several pieces with the same keys; each distinct key is compared once."""
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
    """The pieces of a run grouped by key; cached in the run, as every lookup needs it."""
    known: Groups | None = run.derived.get(groups_of_pieces)
    if known is None:
        known = run.derived[groups_of_pieces] = group(run.keys, run.groups)
    return known


@dataclass(frozen=True)
class MergedEntries:
    """The entries of several runs as one run without heads.

    Group g consists of the pieces from `firsts[g]` up to the first piece of the next group.
    """

    run: Run
    pieces: Ints
    firsts: Ints

    def heads(self, runs: Sequence[Run], name: str, ufunc: np.ufunc) -> pa.Array:
        """A head of the merged groups, reduced from the heads of their pieces."""
        known = pa.concat_arrays([run.heads[name] for run in runs]).take(pa.array(self.pieces))
        return pa.array(ufunc.reduceat(known.to_numpy(), self.firsts)) if len(self.firsts) else known


def merge_entries(runs: Sequence[Run], groups: AlignedGroups, floor: int) -> MergedEntries:
    """The entries from `floor` on, by group and time, without groups that have none."""
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


def _rows(times: Ints, starts: Ints, stops: Ints, firsts: Ints) -> tuple[Ints | None, Ints]:
    """The rows of the pieces by group and time, and the groups' bounds among them.

    None stands for all rows in their present order.
    """
    lengths = stops - starts
    ends = np.cumsum(lengths)
    bounds = np.r_[0, np.r_[ends[firsts[1:] - 1], ends[-1:]]] if len(firsts) else np.zeros(1, np.int64)
    whole = len(starts) > 0 and starts[0] == 0 and ends[-1] == len(times) and (starts[1:] == stops[:-1]).all()
    rows = None if whole else expand_runs(starts, stops)[0]
    # The pieces of a group follow each other in time, unless batches overlap.
    follows = times[starts[1:]] >= times[stops[:-1] - 1]
    follows[firsts[1:] - 1] = True
    if follows.all():
        return rows, bounds
    rows = expand_runs(starts, stops)[0]
    wrong = np.zeros(len(bounds) - 1, bool)
    wrong[np.searchsorted(firsts, np.flatnonzero(~follows), side="right") - 1] = True
    at, which = expand_runs(bounds[:-1][wrong], bounds[1:][wrong])
    mixed = rows[at]
    rows[at] = mixed[_sorted(which, times[mixed])]
    return rows, bounds


def _sorted(groups: Ints, times: Ints) -> Ints:
    """The order by group and time.

    One sort key holds both if it fits into 64 bits. A lexsort is sixteen times slower, because it does not
    use runs that are in order already.
    """
    low, high = int(times.min()), int(times.max())
    if (int(groups[-1]) + 1) * (high - low + 1) >= 1 << 62:
        return np.lexsort((times, groups))
    return np.argsort(groups * (high - low + 1) + (times - low), kind="stable")


def _gathered(name: str, runs: Sequence[Run], rows: Ints | None) -> pa.Array:
    column = pa.concat_arrays([run.columns[name] for run in runs])
    return column if rows is None else column.take(pa.array(rows))


def keep_entries(run: Run, mask: np.ndarray) -> Run:
    """The run with only the entries in the mask; each group keeps at least one."""
    if mask.all():
        return run
    rows = np.flatnonzero(mask)
    columns = {name: column.take(pa.array(rows)) for name, column in run.columns.items()}
    bounds = np.searchsorted(rows, run.bounds)
    return Run.of(run.keys, bounds, run.times[rows], columns, run.heads)
