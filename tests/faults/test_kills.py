"""Programs that are killed again and again have the outcome of one that never was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.lives import Lives, kill_at_any_moment, kill_at_failpoints
from tests.faults.workload import Workload
from transom.storage.failpoints import FAILPOINTS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

WORKLOADS = [Workload(source, state) for source in ("feed", "files") for state in ("driver", "executors")]
AT_FAILPOINTS = 1  # kills at each failpoint, for each workload
AT_ANY_MOMENT = 25  # kills of each workload
# Files that only some programs write.
ONLY_FEEDS = ("feeds.",)
ONLY_EXECUTORS = ("shards.",)
ONLY_FEEDS_ON_EXECUTORS = ("glances.",)  # prods that are pushed read windows of executors


def reached(workload: Workload) -> set[str]:
    """The failpoints that a workload reaches."""
    on_executors, has_feed = workload.state == "executors", workload.source == "feed"
    missed = (
        *(() if has_feed else ONLY_FEEDS),
        *(() if on_executors else ONLY_EXECUTORS),
        *(() if on_executors and has_feed else ONLY_FEEDS_ON_EXECUTORS),
    )
    return {name for name in FAILPOINTS if not name.startswith(missed)}


@pytest.fixture(scope="module", params=WORKLOADS, ids=lambda workload: f"{workload.source}-{workload.state}")
def workload(request: pytest.FixtureRequest) -> Workload:
    return request.param


@pytest.fixture(scope="module")
def undisturbed(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    program = Lives(workload, tmp_path_factory.mktemp("undisturbed") / "program")
    assert program.until_failpoint(()) is None
    outcome = program.outcome()
    assert all(outcome.values()) and all(outcome["results"].values()) and all(outcome["lookups"])
    finals = [line for lines in outcome["sinks"].values() for line in lines]
    assert len(finals) == len(set(finals)) == len(outcome["subscribed"]) > 150
    return outcome


def check(programs: list[Lives], undisturbed: dict[str, Any], least: int) -> None:
    for program in programs:
        outcome = program.outcome()
        different = {name for name in undisturbed if outcome[name] != undisturbed[name]}
        assert not different, f"after {dict(program.deaths)}"
    kills = sum(program.deaths.total() for program in programs)
    print(f"{kills} kills, {len(programs)} programs")
    assert kills >= least


def test_a_program_that_is_killed_at_every_failpoint(
    workload: Workload, undisturbed: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    wanted = Counter(dict.fromkeys(reached(workload), AT_FAILPOINTS))
    programs = kill_at_failpoints(workload, tmp_path, wanted.copy(), Random(seed))
    deaths = sum((program.deaths for program in programs), Counter[str]())
    assert deaths == wanted
    check(programs, undisturbed, wanted.total())


def test_a_program_that_is_killed_at_any_moment(
    workload: Workload, undisturbed: dict[str, Any], tmp_path: Path, seed: int
) -> None:
    check(kill_at_any_moment(workload, tmp_path, AT_ANY_MOMENT, Random(seed)), undisturbed, AT_ANY_MOMENT)


def test_every_failpoint_is_reached_by_a_workload() -> None:
    assert set().union(*map(reached, WORKLOADS)) == set(FAILPOINTS)
    kills = sum(len(reached(workload)) * AT_FAILPOINTS + AT_ANY_MOMENT for workload in WORKLOADS)
    assert kills >= 200
