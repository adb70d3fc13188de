"""The probes of a batch, made on the driver or by an executor task that has a partition's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, Mask
from transom.kernel.predicates import evaluate
from transom.promising.batch_tuples import column_name, scalars_read_by
from transom.promising.joins import probe_join
from transom.promising.regions import Regions, spending_order
from transom.promising.selections import probe_selection
from transom.promising.tuples import KeptTuples
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Scalar


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

    def of(self, mask: Mask) -> Probe:
        """The probes of some of the regions."""
        return replace(self, regions=self.regions.where(mask), taken=self.taken[mask])

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


class TupleReader(Protocol):
    """Reads the kept tuples of summaries."""

    def batches(self, summary: str, batches: Ints) -> KeptTuples:
        """The tuples of some batches."""
        ...

    def buckets(self, summary: str, buckets: Ints) -> KeptTuples:
        """The tuples of some value buckets."""
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
    some = some[spending_order(probe.regions.where(some), probe.query.preference.order)]
    regions, taken = probe.regions.where(some), probe.taken[some]
    sides, made = probe.query.sides, np.zeros_like(probe.taken)
    probing = read.batches(sides[probe.side].summary, np.unique(regions.batch_id))
    if len(sides) == 1:
        made[some] = taken if limit is None else np.clip(limit - (np.cumsum(taken) - taken), 0, taken)
        rows, _ = probe_selection(regions, made[some], probing)
        return ProbeResult(_kept(probe, [probing.table.take(pa.array(rows))]), len(rows), made)
    probed = read.buckets(sides[1 - probe.side].summary, np.unique(regions.bucket))
    mine, theirs, charge, made[some] = probe_join(
        regions, taken, probing, probed, probe.query.preference.window, limit
    )
    tables = [probing.table.take(pa.array(mine)), probed.table.take(pa.array(theirs))]
    return ProbeResult(_kept(probe, tables if probe.side == 0 else tables[::-1]), charge, made)


def _kept(probe: Probe, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows for which the query's conditions hold, with the columns that it reads of each side."""
    keep = np.ones(tables[0].num_rows, bool)
    for side, table in zip(probe.query.sides, tables, strict=True):
        keep &= table["batch"].to_numpy() >= probe.since
        if side.where is not None:
            keep &= truth_of(evaluate(side.where, _columns(table)))
    if len(tables) == 2:  # in rare cases, different values have the same key
        one, other = (table[f".{key}"] for table, key in zip(tables, probe.keys, strict=True))
        equal = truth_of(pc.equal(one, other))
        if pa.types.is_floating(one.type):  # in Spark, NaN equals NaN
            equal |= truth_of(pc.is_nan(one)) & truth_of(pc.is_nan(other))
        keep &= equal
    mask = pa.array(keep)
    columns: dict[str, pa.ChunkedArray] = {}
    for number, (side, table) in enumerate(zip(probe.query.sides, tables, strict=True)):
        names = ["time", *(f".{column}" for column in side.columns)]
        names += [column_name(scalar) for scalar in scalars_read_by(probe.query, side)]
        for name in names:
            # The query sees no tuple from before its registration, so it needs no value of a missing column.
            kept = table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(keep))])
            columns[f"{number}{name}"] = kept.filter(mask)
    return pa.table(columns)


def _columns(table: pa.Table) -> Callable[[Scalar], pa.Array]:
    def column(scalar: Scalar) -> pa.Array:
        name = column_name(scalar)
        if name not in table.column_names:  # the tuples are older than the query
            return pa.nulls(table.num_rows, scalar.type)
        return table[name].combine_chunks()

    return column


def truth_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """A mask of the true values; null is false."""
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
