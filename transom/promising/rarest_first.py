"""Selections with asc that are planned together: the rarest tuples of all batches first, for hundreds of queries.

A value that a query defers competes with the values of later batches, so each deferred value is a region, as if the
query were planned alone. The regions of all queries are sorted and spent in one pass, and the tuples of a batch are
selected once for all queries that resume it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints, Mask
from transom.promising.batch_tuples import BatchArrival
from transom.promising.found_tuples import column_reader
from transom.promising.probe_planner import MAX_DEFERRED_REGIONS
from transom.promising.probes import TupleReader
from transom.promising.regions import Regions
from transom.promising.selection_index import IndexedRows, SelectedRows, SelectionIndex
from transom.promising.tuples import KeptTuples, run_positions


@dataclass(frozen=True)
class RareSelections:
    """Selections over a summary that take the rarest tuples first, with what each has deferred and may take.

    `numbers` are their places in the index, `names` the columns that any of them reads. `promises` has a row for each
    promise, with those of all values of the batch, and `promise` the row of each selection. `owners` are the
    selections of the `deferred` regions.
    """

    index: SelectionIndex
    numbers: Ints
    limits: Ints
    names: Sequence[str]
    promises: Floats
    promise: Ints
    deferred: Regions
    owners: Ints
    is_reachable: Mask


@dataclass(frozen=True)
class RareTuples:
    """The tuples that selections take, one selection after the other; what each leaves; and what it can't reach."""

    tuples: KeptTuples
    rows: SelectedRows
    skipped: Ints  # of the batch
    pending: Regions
    bounds: Ints  # of each selection's pending regions
    lost: Floats
    missed: Ints


def take_rarest(
    selections: RareSelections,
    rows: IndexedRows,
    arrival: BatchArrival,
    batch_id: int,
    summary: str,
    read: TupleReader,
) -> RareTuples:
    """Spend the budgets of all selections: on the batch's tuples, and on those that earlier batches have deferred."""
    size = len(selections.numbers)
    assert arrival.run is not None
    new = _Lines.of(arrival.run.tuples, rows.selected(selections.numbers))
    fresh = _fresh_regions(selections, new, arrival, batch_id)
    kept = np.flatnonzero(selections.is_reachable)
    regions = Regions.concatenated([fresh, selections.deferred.where(kept)])
    owners = np.concatenate([new.owner, selections.owners[kept]])
    taken = _taken(regions, owners, len(fresh), selections.limits)
    found = _found(selections, regions, owners, taken, new, len(fresh), summary, read)
    left = np.flatnonzero(regions.left > taken)
    pending = _left(selections, replace(regions, done=regions.done + taken).where(left), owners[left], size)
    skipped = np.bincount(new.owner, (regions.left - taken)[: len(fresh)], size).astype(np.int64)
    tuples, chosen = _gathered(found, selections.names, size)
    return RareTuples(tuples, chosen, skipped, *pending)


@dataclass(frozen=True)
class _Lines:
    """The selected tuples of a batch, as a line for each query and value: the rows of a line are by time.

    Line n has the value of number `value[n]` among those of the batch.
    """

    tuples: KeptTuples
    rows: Ints
    start: Ints
    count: Ints
    owner: Ints
    value: Ints

    @classmethod
    def of(cls, tuples: KeptTuples, selected: SelectedRows) -> _Lines:
        keys = tuples.by_key.keys
        value = np.searchsorted(keys, tuples.key)
        code = selected.members * max(len(keys), 1) + value[selected.rows]
        # The tuples of a value are in one bucket, so their rows are in order of time.
        code, rows = np.divmod(np.sort(code * max(len(tuples), 1) + selected.rows), max(len(tuples), 1))
        start = np.flatnonzero(np.diff(code, prepend=-1))
        count = np.diff(start, append=len(code))
        owner, number = np.divmod(code[start], max(len(keys), 1))
        return cls(tuples, rows, start, count, owner, number)

    def next_rows(self, line: Ints, done: Ints, taken: Ints) -> Ints:
        """The next rows of some lines, one line after the other."""
        at, place = run_positions(taken)
        return self.rows[self.start[line][at] + done[at] + place]


def _fresh_regions(
    selections: RareSelections, lines: _Lines, arrival: BatchArrival, batch_id: int
) -> Regions:
    """The batch's tuples as regions, one for each query and value."""
    values, value = arrival.values, lines.value
    return Regions.of_matches(
        values.key[value],
        values.bucket[value],
        batch_id,
        (values.low[value], values.high[value] + 1),
        values.low[value],
        lines.count,
        selections.promises[selections.promise[lines.owner], value],
    )


def _taken(regions: Regions, owners: Ints, fresh: int, limits: Ints) -> Ints:
    """How many tuples of each region its query takes, as `choose_probes` would for each query.

    Most regions promise more than what the batch alone could spend the budget on; these are not sorted.
    """
    left, size = regions.left, len(limits)
    order = np.lexsort((regions.promise[:fresh], owners[:fresh]))
    spent = _before(left[:fresh][order], owners[:fresh][order], size) + left[:fresh][order]
    reached = order[spent >= limits[owners[order]]]
    most = np.full(size, np.inf)
    np.minimum.at(most, owners[reached], regions.promise[reached])
    some = np.flatnonzero(~(regions.promise > most[owners]) & (regions.likely | np.isinf(most[owners])))
    rank = np.lexsort(
        (
            regions.since[some],
            regions.key[some],
            regions.batch_id[some],
            regions.promise[some],
            ~regions.likely[some],
            owners[some],
        )
    )
    some = some[rank]
    taken = np.zeros(len(left), np.int64)
    before = _before(left[some], owners[some], size)
    taken[some] = np.clip(limits[owners[some]] - before, 0, left[some])
    return taken


def _before(counts: Ints, owners: Ints, size: int) -> Ints:
    """For items that are sorted by owner, the sum of the counts of the same owner before each."""
    running = np.cumsum(counts) - counts
    first = np.searchsorted(owners, np.arange(size))
    return running - np.append(running, 0)[np.minimum(first, len(running))][owners]


@dataclass(frozen=True)
class _FoundRows:
    """Rows of a batch's tuples, and the query that takes each."""

    tuples: KeptTuples
    rows: Ints
    owner: Ints


def _found(
    selections: RareSelections,
    regions: Regions,
    owners: Ints,
    taken: Ints,
    new: _Lines,
    fresh: int,
    summary: str,
    read: TupleReader,
) -> list[_FoundRows]:
    """The tuples that are taken: those of the batch are at hand, others are selected again, batch by batch."""
    lines = np.flatnonzero(taken[:fresh])
    rows = new.next_rows(lines, regions.done[lines], taken[lines])
    found = [_FoundRows(new.tuples, rows, np.repeat(owners[lines], taken[lines]))]
    resumed = fresh + np.flatnonzero(taken[fresh:])
    for batch_id in np.unique(regions.batch_id[resumed]).tolist():
        some = resumed[regions.batch_id[resumed] == batch_id]
        tuples = read.batches(summary, np.array([batch_id]))
        members, member = np.unique(owners[some], return_inverse=True)
        indexed = selections.index.placed(len(tuples), column_reader(tuples.table))
        again = _Lines.of(tuples, indexed.selected(selections.numbers[members]))
        keys = tuples.by_key.keys
        codes = again.owner * len(keys) + again.value
        wanted = member * len(keys) + np.searchsorted(keys, regions.key[some])
        line = np.minimum(np.searchsorted(codes, wanted), max(len(codes) - 1, 0))
        if not len(codes) or (codes[line] != wanted).any() or (again.count[line] != regions.cell[some]).any():
            raise ValueError(f"tuples of a region of batch {batch_id} are no longer, or not yet, all there")
        rows = again.next_rows(line, regions.done[some], taken[some])
        found.append(_FoundRows(tuples, rows, np.repeat(owners[some], taken[some])))
    return found


def _gathered(
    found: Sequence[_FoundRows], names: Sequence[str], size: int
) -> tuple[KeptTuples, SelectedRows]:
    """The tuples of several batches as one table, and the rows of each query in it."""
    tables = [
        one.tuples.table.select([name for name in names if name in one.tuples.table.column_names]).take(
            pa.array(one.rows)
        )
        for one in found
    ]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    owner = np.concatenate([one.owner for one in found])
    rows = np.argsort(owner, kind="stable")
    return KeptTuples(table), SelectedRows(rows, np.searchsorted(owner[rows], np.arange(size + 1)))


def _left(
    selections: RareSelections, regions: Regions, owners: Ints, size: int
) -> tuple[Regions, Ints, Floats, Ints]:
    """What each query has left, and the output and the tuples that it loses: out of reach, or too many regions."""
    gone = np.flatnonzero(~selections.is_reachable)
    deferred, mine = selections.deferred, selections.owners[gone]
    lost = np.bincount(mine, deferred.expected_left[gone], size).astype(np.float64)
    missed = np.bincount(mine, deferred.left[gone], size).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    regions, bounds = regions.where(order), np.searchsorted(owners[order], np.arange(size + 1))
    for place in np.flatnonzero(np.diff(bounds) > MAX_DEFERRED_REGIONS).tolist():
        own = regions.where(slice(bounds[place], bounds[place + 1]))
        best = own.most_likely(MAX_DEFERRED_REGIONS)
        lost[place] += float(own.expected_left.sum() - best.expected_left.sum())
        missed[place] += int(own.left.sum() - best.left.sum())
    return regions, bounds, lost, missed
