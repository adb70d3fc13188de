"""Windows that each key has of its own against the oracle: sessions, and the last rows of a key."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential import cases
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import Case, DrawWindow, alike, case, of_keys, prodded, session
from tests.differential.oracle_comparison import check
from tests.differential.test_pure import STRATEGIES

pytestmark = pytest.mark.any_worker
OTHER_WINDOW = cases.window


@pytest.fixture(autouse=True, params=[session, of_keys], ids=["sessions", "last rows of a key"])
def mostly_keyed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed: DrawWindow = request.param

    def window(rng: Random) -> tuple[str, str]:
        return keyed(rng) if rng.random() < 0.8 else OTHER_WINDOW(rng)

    monkeypatch.setattr(cases, "window", window)
    monkeypatch.setattr(cases, "pool_of_windows", lambda rng: [keyed(rng), keyed(rng), window(rng)])


def drawn(rng: Random) -> Case:
    one = rng.choice([case, alike])(rng)
    return prodded(rng, one) if rng.random() < 0.5 else one


@settings(max_examples=case_count(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_every_answer_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(drawn(dice))


def test_every_answer_is_the_oracles(seed: int) -> None:
    for number in case_seeds(seed, 20):
        check(drawn(Random(number)), seed=number, restart=number % 3 == 0, naive=number % 7 == 0)


@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_answers_are_the_same_under_every_strategy(options: dict[str, Any], seed: int) -> None:
    start = seed + 1_000 * list(STRATEGIES.values()).index(options)
    for number in case_seeds(start, 2):
        check_on_engine(drawn(Random(number)), number, restart=number % 2 == 0, **options)
