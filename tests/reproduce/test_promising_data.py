"""The streams of the experiments on promising tuples, and the metrics of answers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from reproduce.promising.data import RETAIL, START, generated, retail
from reproduce.promising.metrics import (
    freshness,
    hist_mse,
    mean_square_error,
    outlier_share,
    outliers,
)
from transom.errors import SettingError

ROWS = """InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536364,85123A,A HEART,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
536364,85123B,A HEART,6,2010-12-01 08:26:00,3.39,17850.0,United Kingdom
536365,85123A,A HEART,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
C536367,85123A,A HEART,-6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
A536369,B,Adjust bad debt,1,2010-12-01 08:26:00,11062.06,,United Kingdom
"""


def test_generated_stores_have_the_join_selectivity_of_the_paper() -> None:
    stores = generated(2000, seed=1)
    assert stores.selectivity == pytest.approx(0.067, rel=0.1)
    gaps = np.diff(stores.first.times)
    assert gaps.mean() == pytest.approx(100_000, rel=0.05)
    assert gaps.std() == pytest.approx(100_000, rel=0.05)  # exponential: the standard deviation is the mean


def test_the_same_seed_gives_the_same_stores() -> None:
    one, again, other = (generated(10, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.second.items, again.second.items)
    assert not np.array_equal(one.second.items, other.second.items)


def test_shifting_stores_sell_other_items_later() -> None:
    stores = generated(100, seed=1, shift=50)
    early = stores.first.times < START + 50_000_000
    popular = [np.bincount(stores.first.items[part]).argmax() for part in (early, ~early)]
    assert popular[0] != popular[1]


def recorded(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / RETAIL, "wt", encoding="utf-8") as file:
        file.write(ROWS)
    return tmp_path


def test_retail_is_divided_by_invoice_and_cancellations_are_counted(tmp_path: Path) -> None:
    shop = retail(recorded(tmp_path))
    assert (len(shop.codes), shop.cancelled) == (4, 1)
    stores = shop.stores(60)
    assert (len(stores.first), len(stores.second), stores.items) == (2, 2, 3)
    assert stores.selectivity == 0.25  # 85123A of the first invoice and of the second
    assert shop.stores(60, departments=True).selectivity == 0.5


def test_retail_is_found_by_file_name_or_reported_missing(tmp_path: Path) -> None:
    assert retail(recorded(tmp_path) / RETAIL).cancelled == 1
    with pytest.raises(SettingError, match="is not there"):
        retail(tmp_path / "elsewhere")


def test_a_proportional_sample_has_a_small_histogram_error() -> None:
    exact = np.repeat([0, 50, 99], [10, 20, 70])
    assert hist_mse(exact, exact, 100) == 0
    assert hist_mse(exact, np.repeat([0, 50, 99], [1, 2, 7]), 100) == pytest.approx(0)
    assert hist_mse(exact, exact[:10], 100) == pytest.approx(0.9**2 + 0.2**2 + 0.7**2)
    assert hist_mse(exact, exact[:0], 100) == pytest.approx(0.1**2 + 0.2**2 + 0.7**2)


def test_outliers_are_the_rarest_and_at_most_a_twentieth_of_the_exact_answer() -> None:
    exact = np.repeat(np.arange(5), [2, 3, 3, 30, 62])
    assert outliers(exact, 6).tolist() == [True, False, False, False, False, False]  # 3 and 3 would be 8 %
    assert outlier_share(exact, np.array([0, 0, 3, 4]), 6) == 0.5
    assert np.isnan(outlier_share(exact, exact[:0], 6))


def test_there_are_no_outliers_where_the_rarest_items_are_more_than_a_twentieth() -> None:
    exact = np.repeat(np.arange(5), [5, 5, 5, 5, 80])
    assert not outliers(exact, 5).any()
    assert np.isnan(outlier_share(exact, exact, 5))


def test_freshness_is_in_seconds_whichever_tuple_came_first() -> None:
    assert freshness(np.array([0, 5_000_000]), np.array([1_000_000, 2_000_000])) == 2.0
    assert np.isnan(freshness(np.array([], np.int64), np.array([], np.int64)))


def test_an_aggregate_that_was_not_found_counts_as_zero() -> None:
    exact = np.array([3.0, np.nan])
    assert mean_square_error(exact, np.array([np.nan, 7.0])) == 9.0
    assert mean_square_error(exact[1:], exact[1:]) == 0.0
