"""Queries that look at earlier windows (LAG, EMIT EMPTY) against the oracle, on cases drawn at random."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import following, prodded
from tests.differential.engine import PureEngine, bound
from tests.differential.oracle_comparison import Remembering, alike, check, identity, oracle_answer
from transom.plan.strategy import FragmentSharing, Place, Strategy

pytestmark = pytest.mark.any_worker

# Without retained slices of other queries: these tell a newcomer more of earlier windows than the oracle knows.
STRATEGIES: dict[str, dict[str, Any]] = {
    "unshared": {"strategy": Strategy(shared=False)},
    "unshared and paned": {"strategy": Strategy(shared=False, paned=True)},
    "naive": {"naive": True, "strategy": Strategy(shared=False)},
    "with the executors": {"strategy": Strategy(shared=False, place=Place.EXECUTORS)},
    "with the executors when there are many groups": {
        "strategy": Strategy(shared=False),
        "executor_rows": 3,
    },
}
UNSHARED = Strategy(shared=False)


def from_the_start(dice: Random) -> Any:
    """A case whose queries are all there from the first batch."""
    drawn = following(dice)
    for batch in drawn.batches[1:]:
        drawn.batches[0].joining += batch.joining
        batch.joining = []
    for batch in drawn.batches[:1]:
        batch.leaving = []
    return drawn


@settings(max_examples=case_count(12))
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(following(dice), UNSHARED)


@settings(max_examples=case_count(8))
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_where_queries_share(dice: Random) -> None:
    check(
        from_the_start(dice),
        Strategy(fragments=dice.choice(list(FragmentSharing))),
        restart=dice.random() < 0.3,
    )


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy_gives_the_oracles_answers(options: dict[str, Any], restart: bool, seed: int) -> None:
    start = seed + 10_000 * list(STRATEGIES.values()).index(options) + 5_000 * restart
    for number in case_seeds(start, 4):
        check(following(Random(number)), restart=restart, seed=number, **options)


@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_prods_are_told_what_the_oracle_knows_of_earlier_windows(options: dict[str, Any], seed: int) -> None:
    for number in case_seeds(seed, 2):
        rng = Random(number)
        check_on_engine(prodded(rng, following(rng)), number, restart=number % 3 == 0, **options)


def test_a_newcomer_that_shares_slices_knows_as_much_of_earlier_windows_as_these_hold(seed: int) -> None:
    """Its results are those of the oracle, or of one that kept every row."""
    for number in case_seeds(seed, 8):
        drawn = following(Random(number))
        queries = bound(drawn.queries)
        engine = PureEngine(drawn, queries, Strategy())
        for batch in drawn.batches:
            engine.batch(batch)
        outcomes = oracle_answer(drawn, queries), oracle_answer(drawn, queries, Remembering)
        for name, query in queries.items():
            known = [
                {identity(query, row, row["batch"]): row for row in one.results[name]} for one in outcomes
            ]
            for row in engine.results[name]:
                where = identity(query, row, row["batch"] - 1)
                items = ["rows", *(item.name for item in query.items)]
                expected = [one[where] for one in known if where in one]
                assert any(all(alike(row[item], each[item]) for item in items) for each in expected), (
                    f"{query.text}\n{where}, drawn by Random({number})"
                )
