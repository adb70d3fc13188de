"""The engine against the oracle, with predicates over several scalars, however they are evaluated."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import over_several_scalars
from tests.differential.engine import bound
from tests.differential.oracle_comparison import check
from tests.plan.bids import planned
from transom.plan.compiled_query import compile_query
from transom.plan.families import family_kind
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Place, Strategy

pytestmark = pytest.mark.any_worker

WAYS: dict[str, Strategy] = {
    "as it chooses": Strategy(),
    "grids wherever they can be": Strategy(limits=Limits(range_members=99, grids_per_range=1)),
    "grids by cells of few members": Strategy(
        limits=Limits(range_members=99, grids_per_range=1, dense_cells=200)
    ),
    "grids by member": Strategy(limits=Limits(range_members=99, grids_per_range=1, grid_fold="members")),
    "paned grids": Strategy(paned=True, limits=Limits(range_members=99, grids_per_range=1)),
    "few boxes": Strategy(limits=Limits(range_members=99, grids_per_range=1, grid_boxes=3)),
    "no grids": Strategy(limits=Limits(grid_axes=0)),
    "one signature": Strategy(fragments=FragmentSharing.JOINT),
    "with the executors": Strategy(place=Place.EXECUTORS),
}


@settings(max_examples=case_count(20))
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(over_several_scalars(dice))


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_oracles_answers(way: str, restart: bool, seed: int) -> None:
    start = seed + 1_000 * list(WAYS).index(way) + 500 * restart
    for number in case_seeds(start, 8):
        check(over_several_scalars(Random(number)), WAYS[way], restart=restart, seed=number)


@pytest.mark.parametrize("executor_rows", [0, 3])
def test_selections_of_a_grid_that_move_to_the_executors_keep_their_answers(
    executor_rows: int, seed: int
) -> None:
    for number in case_seeds(seed, 10):
        check(over_several_scalars(Random(number)), executor_rows=executor_rows, seed=number)


def test_the_cases_have_grids(seed: int) -> None:
    kinds = set()
    for number in case_seeds(seed, 10):
        queries = bound(over_several_scalars(Random(number)).queries)
        plan = planned(*(compile_query(name, query) for name, query in queries.items()))
        kinds |= {family_kind(family) for family in plan.families}
    assert "grid" in kinds


def test_prods_see_what_the_oracle_sees(seed: int) -> None:
    for number in case_seeds(seed, 5):
        check_on_engine(over_several_scalars(Random(number)), number, restart=number % 2 == 0)
