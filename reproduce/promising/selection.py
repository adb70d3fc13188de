"""Selections and aggregates guided by summaries compared with simple ones (figures 15 and 16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.prodding.data import SECOND, Numbers
from reproduce.promising.baselines import simple_selection
from reproduce.promising.data import Floats, Stores, Stream
from reproduce.promising.metrics import mean_square_error
from transom.elements import Preference, Summary
from transom.promising.joins import batch_values
from transom.promising.regions import choose_probes
from transom.promising.representation import Representation
from transom.promising.selections import BatchCells, batch_cells, cell_counts, probe_selection
from transom.promising.step_summaries import summarize_steps
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Promise

BUDGETS = (1, 2, 5, 10, 20, 50, 100)  # percent of what the exact answer costs
SELECTIVITY = (0.05, 0.10)
QUERIES = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)
LOOKS = 10  # at each tuple, of all queries together, as their number grows (figure 15b)
BATCH = 10 * SECOND
WINDOW = 60 * SECOND  # of an aggregate
COUNT: Promise = EstimatedCount("store1", "item")
TIMES_ITEM: Promise = Arithmetic("*", COUNT, Column("store1", "item"))

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Ranges:
    """The predicates of queries: items between two numbers, the upper one not included."""

    low: Numbers
    high: Numbers

    def __len__(self) -> int:
        return len(self.low)

    def matching(self, items: Floats | Numbers) -> Bools:
        """Which items each query selects: [queries, items]."""
        return (items >= self.low[:, None]) & (items < self.high[:, None])


def ranges(stores: Stores, queries: int, seed: int) -> Ranges:
    """Queries that each select 5 to 10 % of the first store's tuples, evenly: section 5.3.

    A range that a frequent item makes larger than wanted is not taken, so that no query selects the most
    frequent items, which are more than 10 % by themselves.
    """
    draw = np.random.default_rng(seed)
    sold = np.concatenate([[0], np.cumsum(stores.frequencies[0])]) / len(stores.first)
    found: list[tuple[int, int]] = []
    while len(found) < queries:
        low, wanted = int(draw.integers(stores.items)), draw.uniform(*SELECTIVITY)
        high = int(np.searchsorted(sold, sold[low] + wanted))
        if high <= stores.items and sold[high] - sold[low] <= SELECTIVITY[1]:
            found.append((low, high))
    low_high = np.array(found, np.int64)
    return Ranges(low_high[:, 0], low_high[:, 1])


@dataclass(frozen=True)
class Batch:
    """A batch's tuples and their summaries."""

    number: int
    items: Numbers  # in order of arrival
    tuples: KeptTuples
    cells: BatchCells
    kept: Numbers  # the items in the order of `tuples`


def batches(stores: Stores, by_range: bool) -> Iterator[Batch]:
    """The first store's tuples in batches, each summarized before it is looked at."""
    between = (0.0, float(stores.items)) if by_range else None
    shape = Summary("items", "store1", "item", BATCH, structure="adjusting", buckets=64, between=between)
    representation = Representation.new(shape)
    for number, part in enumerate(stream_batches(stores.first)):
        keys, values = part.items.astype(np.uint64), part.items.astype(np.float64)
        buckets = bucket_of(shape, keys, values)
        more = summarize_steps(shape, part.times, keys, buckets)
        representation = representation.inserted(more, int(part.times[-1]))
        tuples = KeptTuples.of_arrays(keys, buckets, part.times, number)
        kept = tuples.key.astype(np.int64)
        cells = batch_cells(
            batch_values(tuples, kept.astype(np.float64)),
            number,
            representation,
            cell_counts(more, representation),
        )
        yield Batch(number, part.items, tuples, cells, kept)


def stream_batches(stream: Stream, length: int = BATCH) -> Iterator[Stream]:
    """A stream's tuples, batch after batch; no batch is empty."""
    edges = np.flatnonzero(np.diff(stream.times // length)) + 1
    for part in np.split(np.arange(len(stream)), edges):
        yield Stream(stream.times[part], stream.items[part])


def probed_items(
    batch: Batch, matching: Bools, preference: Preference, promise: Promise, budget: int
) -> Numbers:
    """The items that one query probes in a batch, guided by summaries."""
    regions = batch.cells.regions(matching, preference, promise)
    rows, _ = probe_selection(regions, choose_probes(regions, preference.order, budget), batch.tuples)
    return batch.kept[rows]


Finding = tuple[int, int, int, Numbers]  # the number of a budget, of a query, of a batch, and the items found


def simply(stores: Stores, asked: Ranges, shares: Sequence[float]) -> Iterator[Finding]:
    """The matches of queries that take turns with every tuple until the batch's budget is used."""
    for number, part in enumerate(stream_batches(stores.first)):
        selects = asked.matching(part.items)
        for which, share in enumerate(shares):
            looks = simple_selection(len(part), len(asked), int(share * len(part) * len(asked)))
            for query, looked in enumerate(looks.tolist()):
                yield which, query, number, part.items[:looked][selects[query, :looked]]


def promisingly(
    stores: Stores,
    asked: Ranges,
    shares: Sequence[float],
    preference: Preference,
    promise: Promise,
    by_range: bool,
) -> Iterator[Finding]:
    """The matches of queries that have equal budgets and are guided by summaries."""
    for batch in batches(stores, by_range):
        guided = asked.matching(batch.cells.values.key.astype(np.int64))
        for query in range(len(asked)):
            for which, share in enumerate(shares):
                seen = probed_items(batch, guided[query], preference, promise, int(share * len(batch.items)))
                low, high = asked.low[query], asked.high[query]
                yield which, query, batch.number, seen[(seen >= low) & (seen < high)]


def shares_found(findings: Iterator[Finding], exact: Numbers, budgets: int) -> Floats:
    """The percentage of each query's exact answer that it finds, on average over the queries."""
    counts = np.zeros((budgets, len(exact)), np.int64)
    for which, query, _, items in findings:
        counts[which, query] += len(items)
    return 100 * np.mean(counts / np.maximum(exact, 1), axis=1)


SYSTEMS = {"promising": True, "promising, hashed": False}  # whether buckets are ranges of items


def selection(stores: Stores, queries: int, shares: Sequence[float]) -> Iterator[dict[str, Any]]:
    """The rows of figure 15: the share of the exact answer that is found, at shares of its cost.

    CellSummaries lead a query after its predicate was asked of every distinct value of a batch, which no budget
    counts. "simple, more looks" is a simple selection that may look at as many more tuples.
    """
    asked = ranges(stores, queries, stores.seed)
    exact = asked.matching(stores.first.items).sum(axis=1)
    found = {"simple": shares_found(simply(stores, asked, shares), exact, len(shares))}
    guide = sum(len(np.unique(part.items)) for part in stream_batches(stores.first)) / len(stores.first)
    more = [min(share + guide, 1.0) for share in shares]
    found["simple, more looks"] = shares_found(simply(stores, asked, more), exact, len(shares))
    desc = Preference("desc")
    for system, by_range in SYSTEMS.items():
        led_by = promisingly(stores, asked, shares, desc, COUNT, by_range)
        found[system] = shares_found(led_by, exact, len(shares))
    for system, percentages in found.items():
        for share, percentage in zip(shares, percentages.tolist(), strict=True):
            labels = {"data": stores.name, "seed": stores.seed, "system": system, "queries": queries}
            yield labels | {
                "budget_percent": round(100 * share, 2),
                "output_percent": percentage,
                "guide_percent": 100 * guide,
            }


def by_queries(stores: Stores, numbers: Sequence[int] = QUERIES) -> Iterator[dict[str, Any]]:
    """Growing numbers of queries that share a fixed number of probes per tuple (figure 15b)."""
    for queries in numbers:
        yield from selection(stores, queries, [min(LOOKS / queries, 1.0)])


@dataclass(frozen=True)
class Aggregated:
    """Sums and counts of the matches, by budget, query and window."""

    sums: Floats
    counts: Floats

    @property
    def averages(self) -> Floats:
        """Not numbers where nothing was found."""
        return np.divide(self.sums, self.counts, out=np.full_like(self.sums, np.nan), where=self.counts > 0)


def aggregated(findings: Iterator[Finding], budgets: int, queries: int, last: int) -> Aggregated:
    """The aggregates of items found, in windows of a minute."""
    batches = WINDOW // BATCH
    sums = np.zeros((budgets, queries, last // batches + 1))
    counts = np.zeros_like(sums)
    for which, query, batch_id, items in findings:
        sums[which, query, batch_id // batches] += items.sum()
        counts[which, query, batch_id // batches] += len(items)
    return Aggregated(sums, counts)


def aggregates(stores: Stores, queries: int, budgets: Sequence[int] = BUDGETS) -> Iterator[dict[str, Any]]:
    """The rows of figure 16: AVG and SUM of item numbers over a hundred selections, compared with exact ones.

    A sum is of what was found, for both systems, as in the paper; `sum_scaled_mse` is of that divided by
    the share of the batch's tuples that were looked at, which is all that a simple selection can say. An
    average of nothing counts as 0; `avg_both_mse` is of what both systems found something for.
    """
    asked, shares = ranges(stores, queries, stores.seed), [percent / 100 for percent in budgets]
    last = sum(1 for _ in stream_batches(stores.first)) - 1
    size = len(shares), queries, last
    exact = aggregated(simply(stores, asked, [1.0]), 1, queries, last)
    simple = aggregated(simply(stores, asked, shares), *size)
    weighted = promisingly(stores, asked, shares, Preference("weighted"), COUNT, by_range=True)
    highest = promisingly(stores, asked, shares, Preference("desc"), TIMES_ITEM, by_range=True)
    found = {
        "simple": (simple.averages, simple.sums),
        "promising": (aggregated(weighted, *size).averages, aggregated(highest, *size).sums),
    }
    both = ~np.isnan(found["simple"][0] + found["promising"][0])
    for system, (averages, sums) in found.items():
        for which, percent in enumerate(budgets):
            labels = {"data": stores.name, "seed": stores.seed, "system": system, "budget_percent": percent}
            scaled = sums[which] / shares[which] if system == "simple" else sums[which]
            yield labels | {
                "avg_mse": mean_square_error(exact.averages[0], averages[which]),
                "avg_both_mse": mean_square_error(
                    np.where(both[which], exact.averages[0], np.nan), averages[which]
                ),
                "sum_mse": mean_square_error(exact.sums[0], sums[which]),
                "sum_scaled_mse": mean_square_error(exact.sums[0], scaled),
            }
