"""The laws of every kind of summary, and the bounds of count-sketches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from transom.promising.sketches import CountSketches
from transom.promising.summary_kinds import concat_summaries, empty_summaries, unpack_summaries
from transom.promising.summary_protocol import CellSummaries

KINDS = ("countsketch", "histogram", "none")
CELLS = 4
KEYS = np.arange(12, dtype=np.uint64)

entries = st.lists(st.tuples(st.integers(0, CELLS - 1), st.integers(0, 9)), max_size=40)
kinds = st.sampled_from(KINDS)


def summed(kind: str, entries: list[tuple[int, int]], cells: int = CELLS) -> CellSummaries:
    cell = np.array([cell for cell, _ in entries], np.int64)
    key = np.array([key for _, key in entries], np.uint64)
    return empty_summaries(kind, cells, 3, 4).summarize(cell, key)


def known(some: CellSummaries) -> list:
    """All estimates of a summary, to compare two."""
    estimates = some.estimate(np.arange(some.cells)[:, None], KEYS)
    return [some.counts.tolist(), estimates.tolist(), some.packed()]


@given(kinds, entries, entries)
def test_summarizing_in_parts_is_summarizing_at_once(kind: str, one: list, other: list) -> None:
    whole = known(summed(kind, one + other))
    assert known(summed(kind, one).add(summed(kind, other))) == whole
    assert known(summed(kind, other).add(summed(kind, one))) == whole
    cell, key = np.array([*other, (0, 0)], np.int64).T
    assert known(summed(kind, one).summarize(cell[:-1], key[:-1].astype(np.uint64))) == whole


@given(kinds, entries, entries)
def test_subtracting_what_was_added_restores_the_summaries(kind: str, one: list, other: list) -> None:
    before = summed(kind, one)
    assert known(before.add(summed(kind, other)).subtract(summed(kind, other))) == known(before)
    assert known(before.subtract(before)) == known(summed(kind, []))


@given(kinds, entries, entries)
def test_negative_counts_are_estimated_as_negative(kind: str, one: list, other: list) -> None:
    less = summed(kind, one).subtract(summed(kind, other))
    back = summed(kind, other).subtract(summed(kind, one))
    assert less.counts.tolist() == (-back.counts).tolist()
    cell = np.arange(CELLS)[:, None]
    assert (less.estimate(cell, KEYS) == -back.estimate(cell, KEYS)).all()


@given(kinds, entries, st.lists(st.integers(0, 2), min_size=CELLS, max_size=CELLS))
def test_a_group_of_cells_is_the_cell_of_all_their_tuples(kind: str, some: list, group: list) -> None:
    gathered = summed(kind, some).sum_groups(np.array(group), 3)
    assert known(gathered) == known(summed(kind, [(group[cell], key) for cell, key in some], 3))


@given(kinds, entries, st.lists(st.integers(0, CELLS - 1), max_size=6))
def test_cells_are_taken_copied_and_concatenated(kind: str, some: list, cells: list) -> None:
    whole = summed(kind, some)
    taken = whole.take(np.array(cells, np.int64))
    assert known(taken)[:2] == [[known(whole)[i][cell] for cell in cells] for i in (0, 1)]
    assert known(
        concat_summaries([whole.copy_range(0, 1), whole.copy_range(1, 1), whole.copy_range(1, CELLS)])
    ) == known(whole)


@given(kinds, entries, st.integers(1, 5))
def test_a_tuple_with_a_count_equals_that_many_tuples(kind: str, some: list, often: int) -> None:
    cell, key = np.array([*some, (0, 0)], np.int64).T
    counted = empty_summaries(kind, CELLS, 3, 4).summarize(
        cell, key.astype(np.uint64), np.full(len(cell), often)
    )
    assert known(counted) == known(summed(kind, [*some, (0, 0)] * often))


@given(kinds, entries)
def test_summaries_round_trip_through_bytes_and_pickles(kind: str, some: list) -> None:
    whole = summed(kind, some).add(summed(kind, [(0, 1)] * 300))
    assert known(unpack_summaries(whole.packed())) == known(whole)
    assert known(pickle.loads(pickle.dumps(whole))) == known(whole)
    assert whole.nbytes > 0


@given(entries)
def test_a_histogram_is_exact(some: list) -> None:
    estimates = summed("histogram", some).estimate(np.arange(CELLS)[:, None], KEYS)
    assert estimates.tolist() == [[some.count((cell, key)) for key in KEYS.tolist()] for cell in range(CELLS)]


def test_a_summary_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="wavelet"):
        empty_summaries("wavelet", 1)


def zipf(rng: np.random.Generator, values: int, rows: int, skew: float) -> NDArray[np.uint64]:
    weights = np.arange(1, values + 1) ** -skew
    return rng.choice(values, rows, p=weights / weights.sum()).astype(np.uint64)


@pytest.mark.parametrize("skew", [0.0, 0.7, 1.0, 1.5])
@pytest.mark.parametrize(("rows", "wrong"), [(1, 1 / 64), (3, 0.002), (5, 0.0005), (9, 0.0005)])
def test_estimates_keep_to_the_bound_of_the_paper(skew: float, rows: int, wrong: float) -> None:
    """|estimate - count| <= 8 sqrt(F2 of the others / width): a row misses it with at most 1/64 by
    Chebyshev's inequality, the median of more rows ever more rarely. Cells of 200 to 5,000 tuples."""
    rng, values, width = np.random.default_rng(8), 300, 16
    sizes = rng.integers(200, 5000, 60)
    cell = np.repeat(np.arange(60), sizes)
    key = zipf(rng, values, len(cell), skew)
    counted = np.zeros((60, values))
    np.add.at(counted, (cell, key.astype(np.int64)), 1)
    # Every cell has its own hashes, so that the misses of one are not those of all.
    own = key + cell.astype(np.uint64) * np.uint64(1000)
    sketches = CountSketches.empty(60, rows, width).summarize(cell, own)
    every = np.arange(60)[:, None]
    keys = np.arange(values, dtype=np.uint64) + every.astype(np.uint64) * np.uint64(1000)
    errors = np.abs(sketches.estimate(every, keys) - counted)
    others = (counted**2).sum(1, keepdims=True) - counted**2
    assert (errors > 8 * np.sqrt(others / width)).mean() <= wrong
    # Within one standard deviation of a row, the median of more rows is more often.
    within = (errors <= np.sqrt(others / width)).mean()
    assert within >= {1: 0.6, 3: 0.75, 5: 0.85, 9: 0.92}[rows]


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_estimates_are_right_on_average(skew: float) -> None:
    rng, cells = np.random.default_rng(9), 4000
    cell = np.repeat(np.arange(cells), 50)
    plain = zipf(rng, 20, len(cell), skew)
    own = plain + cell.astype(np.uint64) * np.uint64(100)  # hashes anew in every cell
    sketches = CountSketches.empty(cells, 5, 8).summarize(cell, own)
    every = np.arange(cells)
    for value in (0, 3, 19):
        true = np.bincount(cell[plain == value], minlength=cells)
        errors = sketches.estimate(every, np.uint64(value) + every.astype(np.uint64) * np.uint64(100)) - true
        assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(cells)


@pytest.mark.parametrize("kind", ["countsketch", "histogram"])
@pytest.mark.parametrize("skew", [0.0, 0.7, 1.2])
def test_tuples_of_the_same_behaviour_are_described_and_others_are_not(kind: str, skew: float) -> None:
    rng, cells = np.random.default_rng(10), 200
    for size, recent in ((20, 20), (200, 50), (2000, 500)):
        zone, same = (
            _alike(rng, kind, cells, size, skew),
            _alike(rng, kind, cells, recent, skew),
        )
        other = _alike(rng, kind, cells, recent, skew, shift=1000)
        assert (zone.confidence(same) < 0.75).mean() <= 0.02
        if (size, recent) == (2000, 500) or (skew > 1 and size > 100):
            assert (zone.confidence(other) < 0.75).mean() >= 0.95
    assert zone.confidence(zone).tolist() == [1.0] * cells


def _alike(
    rng: np.random.Generator, kind: str, cells: int, size: int, skew: float, shift: int = 0
) -> CellSummaries:
    cell = np.repeat(np.arange(cells), size)
    key = zipf(rng, 100, len(cell), skew) + np.uint64(shift)
    return empty_summaries(kind, cells).summarize(cell, key + cell.astype(np.uint64) * np.uint64(10_000))


def test_an_empty_cell_is_described_by_any_cell() -> None:
    for kind in KINDS:
        some, none = summed(kind, [(0, 1), (1, 2)]), summed(kind, [])
        assert some.confidence(none).tolist() == none.confidence(some).tolist() == [1.0] * CELLS
        assert none.confidence().tolist() == [1.0] * CELLS


@pytest.mark.parametrize("rows", [1, 5])
def test_confidence_is_one_less_the_relative_error_and_claims_no_more(rows: int) -> None:
    """Of k values, each n times: the error is sqrt((k - 1) / width) n in a row, less in a median of rows."""
    cells, width = 500, 64
    for values in (1, 2, 8, 30):
        cell = np.repeat(np.arange(cells), values * 50)
        key = np.tile(np.repeat(np.arange(values), 50), cells) + cell * 1000
        sketches = CountSketches.empty(cells, rows, width).summarize(cell, key.astype(np.uint64))
        keys = (np.arange(values) + np.arange(cells)[:, None] * 1000).astype(np.uint64)
        errors = sketches.estimate(np.arange(cells)[:, None], keys) / 50 - 1
        true = 1 - np.sqrt((errors**2).mean())
        claimed = sketches.confidence().mean()
        assert claimed <= true + 0.03
        assert rows > 1 or claimed >= true - 0.05
