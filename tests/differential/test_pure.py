"""The engine against the oracle, on streams and query sets drawn at random."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential.cases import case
from tests.differential.comparing import check


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(case(dice))


@pytest.mark.parametrize("part", range(8))
def test_every_answer_is_the_oracles(part: int, seed: int) -> None:
    for number in range(seed + part * 250, seed + (part + 1) * 250):
        check(case(Random(number)), seed=number)


def test_rescanning_every_tuple_gives_the_same_answers(seed: int) -> None:
    for number in range(seed, seed + 300):
        check(case(Random(number)), naive=True, seed=number)


def test_a_restart_at_every_page_boundary_changes_nothing(seed: int) -> None:
    for number in range(seed, seed + 500):
        check(case(Random(number)), restart=True, seed=number)
