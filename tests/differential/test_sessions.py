"""Queries with sessions against the oracle: batches, disorder, late rows, prods, queries that come and go, restarts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import cases
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import Case, alike, case, prodded, session
from tests.differential.oracle_comparison import check
from tests.differential.test_pure import STRATEGIES

pytestmark = pytest.mark.any_worker
OTHER_WINDOW = cases.window


@pytest.fixture(autouse=True)
def mostly_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def window(rng: Random) -> tuple[str, str]:
        return session(rng) if rng.random() < 0.8 else OTHER_WINDOW(rng)

    monkeypatch.setattr(cases, "window", window)
    monkeypatch.setattr(cases, "pool_of_windows", lambda rng: [session(rng), session(rng), window(rng)])


def drawn(rng: Random) -> Case:
    one = rng.choice([case, alike])(rng)
    return prodded(rng, one) if rng.random() < 0.5 else one


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(drawn(dice))


def test_every_answer_is_the_oracles(seed: int) -> None:
    for number in range(seed, seed + 20):
        check(drawn(Random(number)), seed=number, restart=number % 3 == 0, naive=number % 7 == 0)


@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_sessions_are_the_same_under_every_strategy(options: dict[str, Any], seed: int) -> None:
    start = seed + 1_000 * list(STRATEGIES.values()).index(options)
    for number in range(start, start + 2):
        check_on_engine(drawn(Random(number)), number, restart=number % 2 == 0, **options)
