"""The analysis follows the paper's formulas, and its points survive the CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.analysis import INTERVAL_TUPLES, PAPER_FRAGMENTS, figure_4, figure_10, read_points, write


def test_at_the_papers_rate_sharing_slices_is_cheaper_for_any_number_of_windows() -> None:
    totals = {(p.x, p.technique): p.total for p in figure_4() if p.rate == 375}
    sizes = {size for size, _ in totals if size > 1}
    assert sizes
    for size in sizes:
        assert totals[size, "shared"] < totals[size, "unshared"]
        assert totals[size, "shared, empty slices counted"] < totals[size, "unshared, empty slices counted"]


def test_with_empty_slices_counted_few_tuples_turn_against_sharing() -> None:
    totals = {(p.x, p.technique): p.total for p in figure_4() if p.rate == 0.0005}
    assert totals[256, "shared, empty slices counted"] > totals[256, "unshared, empty slices counted"]
    assert totals[256, "shared"] < totals[256, "unshared"]


def test_fragments_pay_as_long_as_there_are_far_fewer_of_them_than_tuples() -> None:
    totals = {(p.x, p.technique): p.total for p in figure_10(observed=17_000)}
    assert totals[PAPER_FRAGMENTS, "shared"] < totals[PAPER_FRAGMENTS, "unshared"] / 10
    assert totals[17_000, "shared"] < totals[17_000, "unshared"]
    assert totals[INTERVAL_TUPLES, "shared"] > totals[INTERVAL_TUPLES, "unshared"]


def test_points_are_read_back(tmp_path: Path) -> None:
    points = [*figure_4(), *figure_10(5)]
    write(points, tmp_path)
    for point, again in zip(points, read_points(tmp_path), strict=True):
        assert (point.figure, point.rate, point.x, point.technique) == (
            again.figure,
            again.rate,
            again.x,
            again.technique,
        )
        assert again.total == pytest.approx(point.total, rel=1e-4)


def test_without_a_file_there_are_no_points(tmp_path: Path) -> None:
    assert read_points(tmp_path) == []
