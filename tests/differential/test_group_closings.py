"""Groups with clocks of their own: closed time as arrays gives the oracle's answers, as patterns do.

In these cases, punctuations of one site (or one kind) up to a time become closed time of groups. The oracle knows them
as punctuations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.case_counts import case_seeds
from tests.differential.cases import COLUMNS, alike, case
from tests.differential.correction_cases import correcting
from tests.differential.oracle_comparison import check
from transom.plan.strategy import Place, Strategy
from transom.windows.closed_time import Closed
from transom.windows.group_closings import GroupClosings
from transom.windows.intervals import LOWEST

pytestmark = pytest.mark.any_worker

STRATEGIES: dict[str, dict[str, Any]] = {
    "shared": {},
    "unshared": {"strategy": Strategy(shared=False)},
    "naive": {"naive": True, "strategy": Strategy(shared=False)},
    "with the executors": {"strategy": Strategy(place=Place.EXECUTORS)},
    "with the executors when there are many groups": {"executor_rows": 3},
}
Addition = tuple[int, int | None, Sequence[tuple[str, Any]]]


@pytest.fixture(params=["site", "kind"])
def closings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[GroupClosings]:
    """Patterns of a column become closed time of groups, which is listed here."""
    name: str = request.param
    close_all, listed_closings = Closed.close_all, list[GroupClosings]()

    def with_groups(self: Closed, additions: Iterable[Addition]) -> Closed:
        listed = list(additions)
        of_groups = [one for one in listed if one[1] is None and [c for c, _ in one[2]] == [name]]
        closed = close_all(self, [one for one in listed if one not in of_groups])
        if not of_groups:
            return closed
        values = [] if closed.groups is None else closed.groups.values.to_pylist()
        values += [
            value for value in dict.fromkeys(where[0][1] for *_, where in of_groups) if value not in values
        ]
        until = np.full(len(values), LOWEST)
        for stop, _, where in of_groups:
            place = values.index(where[0][1])
            until[place] = max(until[place], stop)
        groups = GroupClosings(name, pa.array(values, COLUMNS[name]), until)
        listed_closings.append(groups)
        return closed.with_groups(groups)

    monkeypatch.setattr(Closed, "close_all", with_groups)
    return listed_closings


def test_cases_close_groups(closings: list[GroupClosings]) -> None:
    for number in range(50):
        check(case(Random(number)), seed=number)
        if closings:
            break
    assert closings


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.usefixtures("closings")
def test_closed_time_of_groups_gives_the_oracles_answers(
    options: dict[str, Any], restart: bool, seed: int
) -> None:
    start = seed + 10_000 * list(STRATEGIES.values()).index(options) + 5_000 * restart
    for number in case_seeds(start, 24):
        draw = case if number % 3 else alike
        check(draw(Random(number)), restart=restart, seed=number, **options)


@pytest.mark.parametrize("options", list(STRATEGIES.values())[:3], ids=list(STRATEGIES)[:3])
@pytest.mark.usefixtures("closings")
def test_closed_time_of_groups_gives_the_oracles_corrections(options: dict[str, Any], seed: int) -> None:
    start = seed + 10_000 * list(STRATEGIES.values()).index(options)
    for number in case_seeds(start, 24):
        check(correcting(Random(number)), restart=number % 2 == 0, seed=number, **options)
