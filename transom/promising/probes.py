"""The probes of a batch, made on the driver or by an executor task that has a partition's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Keys, Mask
from transom.kernel.predicates import evaluate
from transom.promising.found_tuples import (
    FoundTuples,
    TupleReading,
    all_selected,
    column_reader,
    equal_values,
    found_pairs,
    names_read,
    selected_lines,
    selected_rows,
    truth_of,
)
from transom.promising.joins import OwnBatch, probe_join
from transom.promising.key_matches import Lines
from transom.promising.regions import WHOLE_BATCH, Regions, spending_order
from transom.promising.selections import probe_selection
from transom.promising.tuples import KeptTuples
from transom.sql.preference_query import PreferenceQuery


@dataclass(frozen=True)
class Probe:
    """Probes to make for a query: the next `taken` of each region, with arriving tuples of one side.

    The first `fresh` regions are of the batch's own tuples; the others were deferred by earlier batches.
    """

    name: str
    query: PreferenceQuery
    side: int
    regions: Regions
    taken: Ints
    fresh: int
    resumes: bool  # whether the batch has no new tuples and only resumes deferred regions
    since: int  # the query's first batch: it sees the tuples of this and later batches
    keys: tuple[str, ...]  # the summarized columns of the sides
    found: FoundTuples | None = None  # the matches of the first `fresh` regions, if these are by key
    whole: FoundTuples | None = None  # matches that are all produced, and need no regions
    returned: tuple[pa.Table | None, pa.Table | None] = (
        None,
        None,
    )  # tuples that an outer join does not read

    @property
    def reading(self) -> TupleReading:
        """How the query reads tuples."""
        return TupleReading(self.query, self.side, self.keys, self.since, self.returned)

    def of(self, mask: Mask) -> Probe:
        """The probes of some of the regions."""
        return replace(self, regions=self.regions.where(mask), taken=self.taken[mask], found=None, whole=None)

    def rest(self) -> tuple[Regions, Regions]:
        """The remaining probes of the batch's own regions, and of the deferred ones."""
        own = np.arange(len(self.taken)) < self.fresh
        fresh, waiting = self.of(own), self.of(~own)
        return fresh.regions.after(fresh.taken), waiting.regions.after(waiting.taken)

    def not_probed(self) -> tuple[float, int]:
        """The expected output of the batch's probes that are not made, and their number."""
        some = slice(None if self.resumes else self.fresh)
        left = self.regions.left[some] - self.taken[some]
        expected = self.regions.expected[some] * left / np.maximum(self.regions.probes[some], 1)
        return float(expected.sum()), int(left.sum())


@dataclass
class Draws:
    """How many tuples of each batch a sample has drawn so far in this batch, and from how many it could."""

    drawn: dict[int, int] = field(default_factory=dict)
    earlier: dict[int, int] = field(default_factory=dict)
    total: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, probes: Sequence[Probe], batch_id: int) -> Draws:
        """The tuples to draw from, before the first probe of a batch is made."""
        draws = cls()
        for probe in probes:
            regions = probe.regions.where(_sampled(probe.regions))
            for number in np.unique(regions.batch_id).tolist():
                here = regions.batch_id == number
                _add(draws.total, number, int(regions.probes[here].sum()))
                _add(draws.earlier, number, int(regions.done[here].sum()))
            if probe.whole is not None:
                _add(draws.total, batch_id, probe.whole.matches.total)
                _add(draws.drawn, batch_id, probe.whole.matches.total)
        return draws

    def add(self, regions: Regions, made: Ints) -> None:
        """Record the probes that were made in some regions."""
        for number, count in zip(regions.batch_id.tolist(), (made * _sampled(regions)).tolist(), strict=True):
            _add(self.drawn, number, count)


def _add(numbers: dict[int, int], key: int, count: int) -> None:
    numbers[key] = numbers.get(key, 0) + count


def _sampled(regions: Regions) -> Mask:
    """The regions that a sample is drawn from; the others have no matches, as far as the summary knows."""
    return regions.by_key | (regions.likely & (regions.expected > 0))


class TupleReader(Protocol):
    """Reads the kept tuples of summaries."""

    def batches(self, summary: str, batches: Ints) -> KeptTuples:
        """The tuples of some batches."""
        ...

    def buckets(self, summary: str, buckets: Ints) -> KeptTuples:
        """The tuples of some value buckets."""
        ...

    def between(self, summary: str, since: int | None, until: int | None) -> KeptTuples:
        """The tuples from a time to before another, in no particular order."""
        ...

    def keys_since(self, summary: str, since: int | None) -> Keys:
        """The keys of the tuples from a time on, in no particular order."""
        ...

    def places(self, summary: str, batch_id: int, ranking: str | None) -> Ints:
        """The places of a batch's tuples in an order that was ranked, or without a ranking in that of a sample."""
        ...


@dataclass(frozen=True)
class ProbeResult:
    """The tuples or pairs found by a query's probes, their cost, and how many probes of each region were made."""

    table: pa.Table
    charge: int
    made: Ints


def make_probes(probe: Probe, read: TupleReader, limit: int | None = None) -> ProbeResult:
    """Make a query's probes, up to a cost of `limit`.

    Tuples outside of the window cost nothing. The columns are those of the sides, as `0.item` and `1.ts`,
    and `0time` and `1time`.
    """
    some = np.flatnonzero(probe.taken > 0)
    if probe.whole is not None and not len(some):
        table = probe.whole.table(probe.reading, probe.whole.rows())
        return ProbeResult(table, probe.whole.matches.total, np.zeros_like(probe.taken))
    some = some[spending_order(probe.regions.where(some), probe.query.preference.order)]
    made, charge = np.zeros_like(probe.taken), 0
    tables: list[pa.Table] = []
    if probe.whole is not None:
        tables.append(probe.whole.table(probe.reading, probe.whole.rows()))
        charge += probe.whole.matches.total
    by_key = probe.regions.by_key[some]
    for own, probes in ((some[by_key], _probes_by_key), (some[~by_key], _probes_by_cell)):
        if len(own):
            table, cost, made[own] = probes(probe, own, read, None if limit is None else limit - charge)
            tables.append(table)
            charge += cost
    return ProbeResult(pa.concat_tables(tables, promote_options="default"), charge, made)


def _probes_by_key(
    probe: Probe, some: Ints, read: TupleReader, limit: int | None
) -> tuple[pa.Table, int, Ints]:
    """The next matches of regions by key: those of the batch are at hand, others are looked up again."""
    taken = _within(probe.taken[some], limit)
    reading, tables = probe.reading, []
    spreads = reading.spreads and not reading.query.is_even  # the line of an even sample is mixed already
    is_fresh = (some < probe.fresh) & (probe.found is not None)
    if probe.found is not None and is_fresh.any():
        counts = np.zeros(probe.fresh, np.int64)
        counts[some[is_fresh]] = taken[is_fresh]
        fresh = probe.regions.where(slice(probe.fresh))
        seed = reading.seed(int(fresh.batch_id[0]))
        rows = probe.found.rows(fresh.done, counts, spreads, seed)
        tables.append(probe.found.table(reading, rows))
    others = some[~is_fresh]
    regions = probe.regions.where(others)
    for batch_id in np.unique(regions.batch_id).tolist():
        here = np.flatnonzero(regions.batch_id == batch_id)
        found = found_again(reading, regions.where(here), batch_id, read)
        rows = found.rows(regions.done[here], taken[~is_fresh][here], spreads, reading.seed(batch_id))
        tables.append(found.table(reading, rows))
    return pa.concat_tables(tables, promote_options="default"), int(taken.sum()), taken


def found_again(reading: TupleReading, regions: Regions, batch_id: int, read: TupleReader) -> FoundTuples:
    """The matches of regions by key of an earlier batch."""
    query = reading.query
    arriving = read.batches(query.sides[reading.side].summary, np.array([batch_id]))
    if len(query.sides) == 1:
        rows = selected_rows(reading, arriving)
        if (regions.bucket == WHOLE_BATCH).all():
            place = read.places(query.sides[0].summary, batch_id, query.ranking)
            found = all_selected(arriving, rows, place)
        else:
            found = selected_lines(reading, regions.key, arriving, rows)
    else:
        since, until = int(regions.since.min()), int(regions.until.max())
        others = read.between(query.sides[reading.other].summary, since, until)
        if query.samples:
            found = found_pairs(reading, None, batch_id, arriving, others).as_one_line()
        else:
            lines = Lines(regions.key, regions.since, regions.until)
            found = found_pairs(reading, lines, batch_id, arriving, others)
    if (found.matches.counts != regions.cell).any():
        raise ValueError(f"tuples of a region of batch {batch_id} are no longer, or not yet, all there")
    return found


def _within(taken: Ints, limit: int | None) -> Ints:
    """As many of the probes, in this order, as a limit allows."""
    return taken if limit is None else np.clip(limit - (np.cumsum(taken) - taken), 0, taken)


def _probes_by_cell(
    probe: Probe, some: Ints, read: TupleReader, limit: int | None
) -> tuple[pa.Table, int, Ints]:
    """The next probes of regions that are cells of a summary."""
    regions, taken = probe.regions.where(some), probe.taken[some]
    sides = probe.query.sides
    probing = read.batches(sides[probe.side].summary, np.unique(regions.batch_id))
    if len(sides) == 1:
        taken = _within(taken, limit)
        rows, _ = probe_selection(regions, taken, probing, probe.reading.spreads)
        return _kept(probe, [probing.table.take(pa.array(rows))]), len(rows), taken
    probed = read.buckets(sides[1 - probe.side].summary, np.unique(regions.bucket))
    own_batch = OwnBatch(probe.query.is_self_join, probe.query.meets_own_batch(probe.side))
    mine, theirs, charge, made = probe_join(
        regions,
        taken,
        probing,
        probed,
        probe.query.preference.window,
        limit,
        probe.reading.spreads,
        own_batch,
    )
    tables = [probing.table.take(pa.array(mine)), probed.table.take(pa.array(theirs))]
    return _kept(probe, tables if probe.side == 0 else tables[::-1]), charge, made


def _kept(probe: Probe, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows for which the query's conditions hold, with the columns that it reads of each side."""
    keep = np.ones(tables[0].num_rows, bool)
    for side, table in zip(probe.query.sides, tables, strict=True):
        keep &= table["batch"].to_numpy() >= probe.since
        if side.where is not None:
            keep &= truth_of(evaluate(side.where, column_reader(table)))
    if len(tables) == 2:  # in rare cases, different values have the same key
        keep &= equal_values(*(table[f".{key}"] for table, key in zip(tables, probe.keys, strict=True)))
    mask = pa.array(keep)
    columns: dict[str, pa.ChunkedArray] = {}
    for number, table in enumerate(tables):
        for name in names_read(probe.query, number):
            # The query sees no tuple from before its registration, so it needs no value of a missing column.
            kept = table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(keep))])
            columns[f"{number}{name}"] = kept.filter(mask)
    return pa.table(columns)
