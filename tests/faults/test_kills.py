"""Programs that are killed again and again have the outcome of one that never was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.lives import fail_at_failpoints, kill_at_any_moment
from tests.faults.outcomes import check, reached, undisturbed_outcome
from tests.faults.workload import Workload
from transom.storage.failpoints import FAILPOINTS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900), pytest.mark.any_worker]

WORKLOADS = [Workload(source, state) for source in ("feed", "files") for state in ("driver", "executors")]
AT_FAILPOINTS = 1  # kills at each failpoint, for each workload
AT_ANY_MOMENT = 25  # kills of each workload


@pytest.fixture(scope="module", params=WORKLOADS, ids=lambda workload: f"{workload.source}-{workload.state}")
def workload(request: pytest.FixtureRequest) -> Workload:
    return request.param


@pytest.fixture(scope="module")
def undisturbed(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return undisturbed_outcome(workload, tmp_path_factory.mktemp("undisturbed"))


def test_a_program_that_is_killed_at_every_failpoint(
    workload: Workload, undisturbed: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    wanted = Counter(dict.fromkeys(reached(workload), AT_FAILPOINTS))
    programs = fail_at_failpoints(workload, tmp_path, wanted.copy(), Random(seed))
    assert sum((program.deaths for program in programs), Counter[str]()) >= wanted
    check(programs, undisturbed, wanted.total())


def test_a_program_that_is_killed_at_any_moment(
    workload: Workload, undisturbed: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    check(kill_at_any_moment(workload, tmp_path, AT_ANY_MOMENT, Random(seed)), undisturbed, AT_ANY_MOMENT)


def test_a_program_whose_clock_jumps_by_hours(tmp_path: Path, seed: int) -> None:
    undisturbed = undisturbed_outcome(Workload("feed"), tmp_path)
    programs = kill_at_any_moment(Workload("feed", clock_jumps=True), tmp_path / "jumps", 5, Random(seed))
    check(programs, undisturbed, 5)


def test_every_failpoint_is_reached_by_a_workload() -> None:
    assert set().union(*map(reached, WORKLOADS)) == set(FAILPOINTS)
    kills = sum(len(reached(workload)) * AT_FAILPOINTS + AT_ANY_MOMENT for workload in WORKLOADS)
    assert kills >= 200
