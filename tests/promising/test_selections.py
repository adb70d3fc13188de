"""Selections and aggregates that summaries guide, against simple selection under the same budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduce.promising.baselines import first_matches, simple_selection
from transom.columns.arrays import Floats, Ints, Mask
from transom.elements import Preference, Summary
from transom.promising.joins import batch_values
from transom.promising.regions import Regions, choose_probes
from transom.promising.representation import Representation
from transom.promising.selections import BatchCells, batch_cells, cell_counts, probe_selection, scale
from transom.promising.step_summaries import summarize_steps
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.promise import Arithmetic, Column, EstimatedCount

COUNT = EstimatedCount("store", "item")
ORDERS = ("desc", "asc", "weighted")


def shape(structure: str = "cells", kind: str = "countsketch", buckets: int = 64) -> Summary:
    return Summary(
        "items", "store", "item", 1_000, 4, 3, structure, kind, buckets=buckets, between=(0.0, 1000.0)
    )


@dataclass(frozen=True)
class Batch:
    """The last batch of a stream, and what summaries say of it."""

    cells: BatchCells
    tuples: KeptTuples
    items: Floats  # of the tuples
    arrived: Floats  # in order of arrival

    def regions(
        self, order: str, low: float, high: float, promise: EstimatedCount | Arithmetic = COUNT
    ) -> Regions:
        number = self.cells.values.number
        assert number is not None
        return self.cells.regions((number >= low) & (number < high), Preference(order), promise)


def batch(of: Summary, times: Ints, items: Ints, batches: Ints) -> Batch:
    kept, parts = Representation.new(of), []
    for number in np.unique(batches).tolist():
        here = batches == number
        key, item = items[here].astype(np.uint64), items[here].astype(np.float64)
        bucket = bucket_of(of, key, item)
        more = summarize_steps(of, times[here], key, bucket)
        kept = kept.inserted(more, int(times[here].max()))
        parts.append(KeptTuples.of_arrays(key, bucket, times[here], number))
    tuples = KeptTuples.merged(parts).since(kept.floor)
    last = tuples.in_batch(number)
    values = batch_values(last, last.key.astype(np.float64))
    cells = batch_cells(values, number, kept, cell_counts(more, kept))
    return Batch(cells, tuples, tuples.key.astype(np.float64), item)


def zipf_batch(of: Summary, seed: int, size: int = 3000) -> Batch:
    """Three batches of a Zipf stream, with items that are frequent anywhere in the range."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 1001) ** 0.8
    items = random.permutation(1000)[random.choice(1000, size, p=weights / weights.sum())]
    times = np.sort(random.integers(0, 2_000, size))
    return batch(of, times, items, np.arange(size) * 3 // size)


def matching(items: Floats, low: float, high: float) -> Mask:
    return (items >= low) & (items < high)


streams = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 999), st.integers(0, 3)), min_size=1, max_size=60
)
structures = st.sampled_from(("none", "time", "cells", "adjusting"))
kinds = st.sampled_from(("countsketch", "histogram"))


@settings(max_examples=60)
@given(streams, structures, kinds, st.sampled_from(ORDERS), st.integers(0, 40), st.booleans())
def test_every_tuple_of_a_batch_is_probed_once_with_any_budgets(
    rows: list[tuple[int, int, int]], structure: str, kind: str, order: str, budget: int, spread: bool
) -> None:
    times, items, batches = (
        np.array(column) for column in zip(*sorted(rows, key=lambda r: r[2]), strict=True)
    )
    made = batch(shape(structure, kind, buckets=5), times, items, batches)
    pending, looked = made.regions(order, 100, 700), []
    for allowed in (budget, budget, None):
        taken = choose_probes(pending, order, allowed)
        row, region = probe_selection(pending, taken, made.tuples, spread)
        assert (np.bincount(region, minlength=len(pending)) == taken).all()
        looked += row.tolist()
        pending = pending.after(taken)
    assert sorted(looked) == np.flatnonzero(made.tuples.batch_id == batches.max()).tolist()
    assert len(pending) == 0


def test_a_histogram_gives_the_exact_expected_output_of_each_cell() -> None:
    made = zipf_batch(shape(kind="histogram"), seed=1, size=900)
    regions = made.regions("desc", 100, 300)
    row, region = probe_selection(regions, regions.left, made.tuples)
    hits = np.bincount(region, matching(made.items[row], 100, 300), len(regions))
    alone = regions.since >= regions.since.max()  # a zone that has tuples of this batch only
    assert regions.expected[alone].tolist() == pytest.approx(hits[alone].tolist())
    assert regions.expected.sum() == pytest.approx(hits.sum(), rel=0.1)


def test_rich_cells_come_first_with_desc() -> None:
    """Items 0 to 15 share a bucket of 64, as do 500 to 515: the query selects most of one."""
    items = np.array([3] * 10 + [500] * 5 + [510] * 45)
    made = batch(shape(kind="histogram"), np.full(60, 100), items, np.zeros(60, np.int64))
    number = made.cells.values.number
    assert number is not None
    regions = made.cells.regions((number == 3) | (number == 500), Preference("desc"), COUNT)
    row, _ = probe_selection(regions, choose_probes(regions, "desc", 10), made.tuples)
    assert made.items[row].tolist() == [3] * 10


def test_rare_tuples_come_first_with_asc() -> None:
    items = np.array([3] * 10 + [500] * 2 + [900] * 5)
    made = batch(shape(kind="histogram"), np.full(17, 100), items, np.zeros(17, np.int64))
    regions = made.regions("asc", 0, 1000)
    row, _ = probe_selection(regions, choose_probes(regions, "asc", 7), made.tuples)
    assert sorted(made.items[row].tolist()) == [500] * 2 + [900] * 5


def test_value_times_frequency_guides_a_sum_to_the_dominating_tuples() -> None:
    items = np.array([10] * 20 + [900] * 5)
    made = batch(shape(kind="histogram"), np.full(25, 100), items, np.zeros(25, np.int64))
    by_value = made.regions("desc", 0, 1000, Arithmetic("*", COUNT, Column("store", "item")))
    row, _ = probe_selection(by_value, choose_probes(by_value, "desc", 5), made.tuples)
    assert made.items[row].sum() == 5 * 900


def test_a_promise_over_values_that_are_not_given_is_refused() -> None:
    made = batch(shape(), np.array([1]), np.array([5]), np.array([0])).cells
    unknown = BatchCells(
        **{**vars(made), "values": batch_values(KeptTuples.of_arrays(*(np.array([5], np.uint64),) * 3, 0))}
    )  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the promise reads item"):
        unknown.regions(np.array([True]), Preference("desc"), Column("store", "item"))


def test_regions_that_lost_tuples_are_refused() -> None:
    made = zipf_batch(shape(), seed=1, size=300)
    regions = made.regions("desc", 0, 1000)
    with pytest.raises(ValueError, match="no longer"):
        probe_selection(regions, regions.left, made.tuples.since(1_900))


def queries(seed: int, count: int) -> list[tuple[float, float]]:
    """Ranges of items that hold five to ten per cent of them."""
    random = np.random.default_rng(seed)
    width = random.uniform(50, 100, count)
    low = random.uniform(0, 1000 - width)
    return list(zip(low.tolist(), (low + width).tolist(), strict=True))


def test_a_hundred_queries_find_a_third_more_than_simple_selection_when_overloaded() -> None:
    made = zipf_batch(shape(), seed=2)
    size = len(made.arrived)
    asked = queries(3, 100)
    simple = guided = 0
    for (low, high), looked in zip(asked, simple_selection(size, 100, size * 10), strict=True):
        simple += len(first_matches(matching(made.arrived, low, high), int(looked)))
        regions = made.regions("desc", low, high)
        row, _ = probe_selection(regions, choose_probes(regions, "desc", int(looked)), made.tuples)
        guided += int(matching(made.items[row], low, high).sum())
    assert guided >= 1.33 * simple


@pytest.mark.parametrize("figure", ["avg", "sum"])
def test_aggregates_over_a_weighted_selection_are_nearer_to_the_truth_than_simple_ones(figure: str) -> None:
    """Half the mean square error at the same budget, over twenty queries and five streams."""
    errors: list[tuple[float, float]] = []
    for seed in range(5):
        made = zipf_batch(shape(), seed)
        size = len(made.arrived)
        for low, high in queries(seed, 20):
            truth = made.arrived[matching(made.arrived, low, high)]
            looked = size // 10
            plain = made.arrived[first_matches(matching(made.arrived, low, high), looked)]
            regions = made.regions("weighted", low, high)
            taken = choose_probes(regions, "weighted", looked)
            row, region = probe_selection(regions, taken, made.tuples)
            hit = matching(made.items[row], low, high)
            value, stands_for = made.items[row][hit], scale(regions, taken, region)[hit]
            if figure == "avg":
                found = plain.mean() if len(plain) else 0.0, np.average(value, weights=stands_for)
                errors.append(tuple((x - truth.mean()) ** 2 for x in found))  # type: ignore[arg-type]
            else:
                found = plain.sum() * size / looked, (value * stands_for).sum()
                errors.append(tuple((x - truth.sum()) ** 2 for x in found))  # type: ignore[arg-type]
    simple, guided = np.mean(errors, axis=0)
    assert guided <= 0.5 * simple
