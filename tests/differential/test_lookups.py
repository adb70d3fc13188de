"""Lookups against the oracle, on streams and on-demand queries drawn at random."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.case_counts import case_count, case_seeds
from tests.differential.cases import COLUMNS, SECOND, BatchCase, Case
from tests.differential.lookup_cases import check_lookups, looked_up
from transom.plan.strategy import Place, Strategy

pytestmark = pytest.mark.any_worker

PLACES: dict[str, dict[str, Any]] = {
    "near the driver": {},
    "naive": {"naive": True},
    "with the executors": {"strategy": Strategy(place=Place.EXECUTORS)},
    "with the executors when there are many groups": {"executor_rows": 40},
}


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("options", PLACES.values(), ids=PLACES)
def test_every_lookup_is_answered_as_by_the_oracle(options: dict[str, Any], restart: bool, seed: int) -> None:
    start = seed + 1_000 * list(PLACES.values()).index(options) + 500 * restart
    compared = 0
    for number in case_seeds(start, 25):
        rng = Random(number)
        compared += check_lookups(rng, looked_up(rng), restart, number, **options)
    assert compared > case_count(25)


@pytest.mark.parametrize("options", PLACES.values(), ids=PLACES)
def test_having_may_drop_an_incomplete_group_whose_stores_have_seen_different_rows(
    options: dict[str, Any],
) -> None:
    queries = {
        "earlier": "SELECT count(*) AS n FROM s [ROWS 5]",
        "later": "SELECT max(price) AS x FROM s [ROWS 5] HAVING max(price) > 5 OR count(*) = 1 USING naive",
    }
    rows = [
        {**dict.fromkeys(COLUMNS), "ts": i * SECOND, "price": price}
        for i, price in enumerate([99.0, 7.0, 0.0])
    ]
    # For `later`, count(*) is 3, from the store of `earlier`, and max(price) is 0 or 99, of one row or of three.
    batches = [BatchCase(rows[:2], joining=["earlier"]), BatchCase(rows[2:], joining=["later"])]
    assert check_lookups(Random(1), Case(queries, set(), batches, 0, None), **options) > 0
