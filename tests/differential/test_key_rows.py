"""Windows of the last rows of each key against the oracle: batches, prods, queries that come and go, restarts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import cases
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import Case, alike, case, of_keys, prodded
from tests.differential.oracle_comparison import check
from tests.differential.test_pure import STRATEGIES

pytestmark = pytest.mark.any_worker
OTHER_WINDOW = cases.window


@pytest.fixture(autouse=True)
def mostly_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def window(rng: Random) -> tuple[str, str]:
        return of_keys(rng) if rng.random() < 0.8 else OTHER_WINDOW(rng)

    monkeypatch.setattr(cases, "window", window)
    monkeypatch.setattr(cases, "pool_of_windows", lambda rng: [of_keys(rng), of_keys(rng), window(rng)])


def drawn(rng: Random) -> Case:
    one = rng.choice([case, alike])(rng)
    return prodded(rng, one) if rng.random() < 0.5 else one


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(drawn(dice))


def test_every_answer_is_the_oracles(seed: int) -> None:
    for number in range(seed, seed + 20):
        check(drawn(Random(number)), seed=number, restart=number % 3 == 0, naive=number % 7 == 0)


@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_windows_of_keys_are_the_same_under_every_strategy(options: dict[str, Any], seed: int) -> None:
    number = seed + 1_000 * list(STRATEGIES.values()).index(options)
    check_on_engine(drawn(Random(number)), number, restart=number % 2 == 0, **options)
