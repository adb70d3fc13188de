"""A disk that is full, broken or read-only: one error that names the file, and the same outcome afterwards."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.lives import Fault, Lives, fail_at_failpoints
from tests.faults.outcomes import check, reached, undisturbed_outcome
from tests.faults.workload import Workload

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900), pytest.mark.any_worker]

WORKLOAD = Workload("feed")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return undisturbed_outcome(WORKLOAD, tmp_path_factory.mktemp("undisturbed"))


def test_a_disk_that_is_full_at_any_write(undisturbed: dict[str, Any], tmp_path: Path, seed: int) -> None:
    wanted = Counter(name for name in reached(WORKLOAD) if not name.startswith("delivery."))
    programs = fail_at_failpoints(WORKLOAD, tmp_path, wanted.copy(), Random(seed), errno.ENOSPC)
    check(programs, undisturbed, wanted.total())


def test_files_that_may_not_get_as_large_as_they_have_to(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    program, failed = Lives(WORKLOAD, tmp_path / "program"), set[str]()
    for size in (10, 300, 1000, 2000, 4000, 6000, 8000, 12000):
        if program.until(Fault(file_size=size)) is None:
            break
        assert "can't be written: File too large; allow larger files there" in program.error()
        failed.add(program.error().removeprefix(f"{program.place}/checkpoint/").split("/")[0])
    assert len(failed) >= 3, failed
    program.until(Fault())
    check([program], undisturbed, 3)


def test_directories_that_are_read_only(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    program = Lives(WORKLOAD, tmp_path / "program")
    (program.place / "checkpoint").mkdir()
    check_read_only(program, "checkpoint")
    assert program.until(Fault(frozenset({"sidelined.written"}))) is not None
    parts = [
        "lease",
        "log",
        "state",
        "runs",
        "results",
        "feeds/bids",
        "late/bids",
        "rejected/bids",
        "tables/sites",
    ]
    for place in [*(f"checkpoint/{part}" for part in parts), "out/all", "out/per_site"]:
        check_read_only(program, place)
    program.until(Fault())
    check([program], undisturbed, 10)


def check_read_only(program: Lives, place: str) -> None:
    """Check what a program says that can't write in a directory."""
    directory = program.place / place
    os.chmod(directory, 0o555)
    assert program.until(Fault(privileged=False)) is not None
    os.chmod(directory, 0o755)
    assert program.error().startswith(str(directory))
    assert "can't be written: Permission denied; let this user write there" in program.error()
