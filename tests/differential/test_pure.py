"""The engine against the oracle, on streams and query sets drawn at random."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import alike, case, nested, prodded
from tests.differential.oracle_comparison import check, drawn_case
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Place, Strategy

pytestmark = pytest.mark.any_worker

STRATEGIES: dict[str, dict[str, Any]] = {
    f"{'shared' if shared else 'unshared'} {'paned' if paned else 'paired'}, fragments {fragments.value}": {
        "strategy": Strategy(shared, paned, fragments)
    }
    for shared in (True, False)
    for paned in (False, True)
    for fragments in FragmentSharing
} | {
    "naive": {"naive": True},
    "adapting": {"strategy": Strategy(adapts=True)},
    "moving in nearly every batch": {"strategy": Strategy(adapts=True, limits=Limits(clearly_better=3.0))},
    "with young selections": {"strategy": Strategy(limits=Limits(young_selections=2, old_per_young=1))},
    "without roll-ups": {"strategy": Strategy(rolls=False)},
    "with the executors": {"strategy": Strategy(place=Place.EXECUTORS)},
    "with the executors when there are many groups": {"strategy": Strategy(), "executor_rows": 3},
}


@settings(max_examples=case_count(60))
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(case(dice))


@settings(max_examples=case_count(30))
@given(st.randoms(use_true_random=False))
def test_every_answer_of_queries_alike_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(alike(dice))


@pytest.mark.parametrize("part", range(4))
def test_every_answer_is_the_oracles(part: int, seed: int) -> None:
    for number in case_seeds(seed + part * 150, 150):
        check(case(Random(number)), seed=number)


@pytest.mark.parametrize(
    "number", [pytest.param(863020036, id="a late row between closed times when the stream ends")]
)
def test_cases_that_were_answered_wrongly_once(number: int) -> None:
    check(case(Random(number)), seed=number)


def test_queries_alike_are_answered_from_slices_of_others_and_rightly(seed: int) -> None:
    assert sum(check(alike(Random(number)), seed=number) for number in range(seed, seed + 60)) > 0


@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("rolls", ["never", "where it pays", "always"])
def test_groups_rolled_up_from_finer_ones_give_the_oracles_answers(
    rolls: str, place: Place, seed: int
) -> None:
    limits = Limits(tuples_per_cell=0, tuples_per_sketch=0) if rolls == "always" else Limits()
    strategy = Strategy(rolls=rolls != "never", place=place, limits=limits)
    for number in case_seeds(seed, 25):
        check(drawn_case(nested, number), seed=number, restart=number % 3 == 0, strategy=strategy)


@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_prods_are_told_what_the_oracle_knows_and_change_no_final(options: dict[str, Any], seed: int) -> None:
    start = seed + 1_000 * list(STRATEGIES.values()).index(options)
    for number in case_seeds(start, 12):
        rng = Random(number)
        drawn = prodded(rng, rng.choice([case, alike])(rng))
        check_on_engine(drawn, number, restart=number % 5 == 0, **options)


def test_a_prod_of_windows_that_the_end_of_the_stream_had_closed() -> None:
    rng = Random(3261054586)
    check_on_engine(prodded(rng, rng.choice([case, alike])(rng)), 3261054586)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_the_oracles_answers(name: str, seed: int) -> None:
    """Each case is for two strategies: one runs it in one go, the next one is restarted at every batch."""
    names = list(STRATEGIES)
    place = names.index(name)
    runs = ((STRATEGIES[name], False), (STRATEGIES[names[(place + 1) % len(names)]], True))
    start = seed + 10_000 * place
    for draw, count in ((case, 20), (alike, 12)):
        for number in case_seeds(start, count):
            for options, restart in runs:
                retained = check(drawn_case(draw, number), restart=restart, seed=number, **options)
                shared = options.get("strategy", Strategy(shared=False)).shared
                assert shared or not retained, "nobody else's slices were kept for it"
