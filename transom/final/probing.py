"""The probes of a page, made by whoever holds the tuples: the driver, or a task with a partition's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.final.arrivals import kept_as, scalars_read
from transom.partial.predicates import evaluate
from transom.promising.joins import probed
from transom.promising.regions import Regions
from transom.promising.selections import looked_at
from transom.promising.tuples import Tuples
from transom.sql.preferred import Preferred
from transom.sql.query import Scalar

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Probe:
    """Probes to be made for a query: `taken` of each of some regions with arriving tuples of one side.

    The first `fresh` regions are of the page's own tuples, the others wait since earlier pages.
    """

    name: str
    query: Preferred
    side: int
    regions: Regions
    taken: Ints
    fresh: int
    resumes: bool  # whether the page has brought nothing, and goes on with what was put off
    since: int  # the query sees tuples that came with this page or later
    keys: tuple[str, ...]  # the summarized columns of the sides

    def of(self, mask: Mask) -> Probe:
        """The probes of some of the regions."""
        return replace(self, regions=self.regions.where(mask), taken=self.taken[mask])

    def rest(self) -> tuple[Regions, Regions]:
        """What is left of the page's own regions, and of those that wait."""
        own = np.arange(len(self.taken)) < self.fresh
        fresh, waiting = self.of(own), self.of(~own)
        return fresh.regions.after(fresh.taken), waiting.regions.after(waiting.taken)

    def passed_over(self) -> tuple[float, int]:
        """The output that is expected of the page's probes that are not made, and how many these are."""
        some = slice(None if self.resumes else self.fresh)
        left = self.regions.left[some] - self.taken[some]
        expected = self.regions.expected[some] * left / np.maximum(self.regions.probes[some], 1)
        return float(expected.sum()), int(left.sum())


class Reader(Protocol):
    """Whoever holds the tuples of summaries."""

    def pages(self, summary: str, pages: Ints) -> Tuples:
        """The tuples that came in some pages."""
        ...

    def buckets(self, summary: str, buckets: Ints) -> Tuples:
        """The tuples of some value buckets."""
        ...


def found(probe: Probe, read: Reader) -> tuple[pa.Table, int]:
    """The rows or pairs that a query's probes find, and what these cost: outside of the window, nothing.

    Columns are those of the sides, as `0.item` and `1.ts`, and `0time` and `1time`.
    """
    some = probe.of(probe.taken > 0)
    sides = probe.query.sides
    own = read.pages(sides[probe.side].summary, np.unique(some.regions.page))
    if len(sides) == 1:
        rows, _ = looked_at(some.regions, some.taken, own)
        return _kept(probe, [own.table.take(pa.array(rows))]), len(rows)
    other = read.buckets(sides[1 - probe.side].summary, np.unique(some.regions.bucket))
    mine, theirs, charge = probed(some.regions, some.taken, own, other, probe.query.preference.window)
    tables = [own.table.take(pa.array(mine)), other.table.take(pa.array(theirs))]
    return _kept(probe, tables if probe.side == 0 else tables[::-1]), charge


def _kept(probe: Probe, tables: Sequence[pa.Table]) -> pa.Table:
    """Those for which the query's conditions hold, with the columns that it reads of each side."""
    keep = np.ones(tables[0].num_rows, bool)
    for side, table in zip(probe.query.sides, tables, strict=True):
        keep &= table["page"].to_numpy() >= probe.since
        if side.where is not None:
            keep &= truth_of(evaluate(side.where, _columns(table)))
    if len(tables) == 2:  # different values hardly ever have one key
        one, other = (table[f".{key}"] for table, key in zip(tables, probe.keys, strict=True))
        equal = truth_of(pc.equal(one, other))
        if pa.types.is_floating(one.type):  # to Spark, NaN is equal to itself
            equal |= truth_of(pc.is_nan(one)) & truth_of(pc.is_nan(other))
        keep &= equal
    mask = pa.array(keep)
    columns: dict[str, pa.ChunkedArray] = {}
    for number, (side, table) in enumerate(zip(probe.query.sides, tables, strict=True)):
        names = ["time", *(f".{column}" for column in side.columns)]
        names += [kept_as(scalar) for scalar in scalars_read(probe.query, side)]
        columns |= {f"{number}{name}": table[name].filter(mask) for name in names}
    return pa.table(columns)


def _columns(table: pa.Table) -> Callable[[Scalar], pa.Array]:
    def column(scalar: Scalar) -> pa.Array:
        name = kept_as(scalar)
        if name not in table.column_names:  # of tuples that came before the query did
            return pa.nulls(table.num_rows, scalar.type)
        return table[name].combine_chunks()

    return column


def truth_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
