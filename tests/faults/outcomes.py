"""What programs make that are disturbed, compared with one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.lives import Fault, Lives
from tests.faults.workload import Workload
from transom.storage.failpoints import FAILPOINTS

# Files that only some programs write.
ONLY_FEEDS = ("feeds.",)
ONLY_EXECUTORS = ("shards.",)
# The driver writes late, rejected and retained rows of feeds.
ONLY_FILES = tuple(
    f"{rows}.{moment}" for rows in ("late", "rejected", "history") for moment in ("write", "written")
)
ONLY_FEEDS_ON_EXECUTORS = ("glances.",)  # prods that are pushed read windows of executors


def reached(workload: Workload) -> set[str]:
    """The failpoints that a workload reaches."""
    on_executors, has_feed = workload.state == "executors", workload.source == "feed"
    missed = (
        *(ONLY_FILES if has_feed else ONLY_FEEDS),
        *(() if on_executors else ONLY_EXECUTORS),
        *(() if on_executors and has_feed else ONLY_FEEDS_ON_EXECUTORS),
    )
    return {name for name in FAILPOINTS if not name.startswith(missed)}


def undisturbed_outcome(workload: Workload, place: Path) -> dict[str, Any]:
    """What comes out when nothing happens."""
    program = Lives(workload, place / "program")
    assert program.until(Fault()) is None
    outcome = program.outcome()
    assert all(outcome.values()) and all(outcome["results"].values()) and all(outcome["lookups"])
    finals = [line for lines in outcome["sinks"].values() for line in lines]
    assert len(finals) == len(set(finals)) == len(outcome["subscribed"]) > 150
    return outcome


def check(programs: list[Lives], undisturbed: dict[str, Any], least: int) -> None:
    """Check that programs had at least so many faults, and the outcome of one that had none."""
    for program in programs:
        outcome = program.outcome()
        different = {name for name in undisturbed if outcome[name] != undisturbed[name]}
        assert not different, f"after {dict(program.deaths)}"
    assert sum(program.deaths.total() for program in programs) >= least
