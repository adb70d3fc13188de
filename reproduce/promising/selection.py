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

BUDGETS = (1, 2, 5, 10, 20, 50, 100)  # percent of the exact answer's cost
SELECTIVITY = (0.05, 0.10)
QUERIES = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)
PROBES = 10  # per tuple, for all queries together, as their number grows (figure 15b)
BATCH = 10 * SECOND
WINDOW = 60 * SECOND  # of an aggregate
COUNT: Promise = EstimatedCount("store1", "item")
TIMES_ITEM: Promise = Arithmetic("*", COUNT, Column("store1", "item"))

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Ranges:
    """The predicates of queries: items from a lower bound up to an upper bound, which is excluded."""

    low: Numbers
    high: Numbers

    def __len__(self) -> int:
        return len(self.low)

    def matching(self, items: Floats | Numbers) -> Bools:
        """Which items each query selects: [queries, items]."""
        return (items >= self.low[:, None]) & (items < self.high[:, None])


def ranges(stores: Stores, queries: int, seed: int) -> Ranges:
    """Queries that each select 5 to 10 % of the first store's tuples, uniformly distributed (section 5.3).

    A range that selects more, because of a frequent item, is discarded. So no query selects the most frequent
    items, each of which is more than 10 % of the tuples.
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
    """The first store's tuples in batches; each batch is summarized before it is probed."""
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


Finding = tuple[
    int, int, int, Numbers
]  # the index of a budget, of a query and of a batch, and the items found


def simple_matches(stores: Stores, predicates: Ranges, shares: Sequence[float]) -> Iterator[Finding]:
    """The matches if every query probes each tuple in turn until the batch's budget is used."""
    for number, part in enumerate(stream_batches(stores.first)):
        selects = predicates.matching(part.items)
        for which, share in enumerate(shares):
            probes = simple_selection(len(part), len(predicates), int(share * len(part) * len(predicates)))
            for query, probed in enumerate(probes.tolist()):
                yield which, query, number, part.items[:probed][selects[query, :probed]]


def promising_matches(
    stores: Stores,
    predicates: Ranges,
    shares: Sequence[float],
    preference: Preference,
    promise: Promise,
    by_range: bool,
) -> Iterator[Finding]:
    """The matches if every query has the same budget and is guided by summaries."""
    for batch in batches(stores, by_range):
        guided = predicates.matching(batch.cells.values.key.astype(np.int64))
        for query in range(len(predicates)):
            for which, share in enumerate(shares):
                seen = probed_items(batch, guided[query], preference, promise, int(share * len(batch.items)))
                low, high = predicates.low[query], predicates.high[query]
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

    CellSummaries guide a query after its predicate was evaluated for every distinct value of a batch, which the
    budget does not count. "simple, more looks" is a simple selection whose budget is larger by that number.
    """
    predicates = ranges(stores, queries, stores.seed)
    exact = predicates.matching(stores.first.items).sum(axis=1)
    found = {"simple": shares_found(simple_matches(stores, predicates, shares), exact, len(shares))}
    guide = sum(len(np.unique(part.items)) for part in stream_batches(stores.first)) / len(stores.first)
    more = [min(share + guide, 1.0) for share in shares]
    found["simple, more looks"] = shares_found(simple_matches(stores, predicates, more), exact, len(shares))
    desc = Preference("desc")
    for system, by_range in SYSTEMS.items():
        guided = promising_matches(stores, predicates, shares, desc, COUNT, by_range)
        found[system] = shares_found(guided, exact, len(shares))
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
        yield from selection(stores, queries, [min(PROBES / queries, 1.0)])


@dataclass(frozen=True)
class MatchAggregates:
    """Sums and counts of the matches, by budget, query and window."""

    sums: Floats
    counts: Floats

    @property
    def averages(self) -> Floats:
        """The averages; NaN where nothing was found."""
        return np.divide(self.sums, self.counts, out=np.full_like(self.sums, np.nan), where=self.counts > 0)


def aggregate_matches(findings: Iterator[Finding], budgets: int, queries: int, last: int) -> MatchAggregates:
    """The aggregates of items found, in windows of a minute."""
    batches = WINDOW // BATCH
    sums = np.zeros((budgets, queries, last // batches + 1))
    counts = np.zeros_like(sums)
    for which, query, batch_id, items in findings:
        sums[which, query, batch_id // batches] += items.sum()
        counts[which, query, batch_id // batches] += len(items)
    return MatchAggregates(sums, counts)


def aggregates(stores: Stores, queries: int, budgets: Sequence[int] = BUDGETS) -> Iterator[dict[str, Any]]:
    """The rows of figure 16: AVG and SUM of item numbers over a hundred selections, compared with exact ones.

    As in the paper, both systems sum the matches they found. `sum_scaled_mse` divides this sum by the share of
    the batch's tuples that were probed, the best estimate that a simple selection has. The average of no
    matches counts as 0; `avg_both_mse` has only the windows in which both systems found matches.
    """
    predicates, shares = ranges(stores, queries, stores.seed), [percent / 100 for percent in budgets]
    last = sum(1 for _ in stream_batches(stores.first)) - 1
    size = len(shares), queries, last
    exact = aggregate_matches(simple_matches(stores, predicates, [1.0]), 1, queries, last)
    simple = aggregate_matches(simple_matches(stores, predicates, shares), *size)
    weighted = promising_matches(stores, predicates, shares, Preference("weighted"), COUNT, by_range=True)
    highest = promising_matches(stores, predicates, shares, Preference("desc"), TIMES_ITEM, by_range=True)
    found = {
        "simple": (simple.averages, simple.sums),
        "promising": (aggregate_matches(weighted, *size).averages, aggregate_matches(highest, *size).sums),
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
