"""The names of files that were read: bounded by the files that are there, and by how many were read last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from transom.ingest.file_log import FileLog


@dataclass
class Files:
    """A path with some files."""

    there: set[str]
    versions_per_poll: int = 100
    stats: list[str] = field(default_factory=list)

    def version(self, file: str) -> tuple[int, int] | None:
        self.stats.append(file)
        return (1, 1) if file in self.there else None


def log_of(names: list[str], most_versions: int = 2) -> FileLog:
    log = FileLog(most_versions)
    for name in names:
        log.add_files({name: (1, 1)})
    return log


def test_the_names_of_deleted_files_are_forgotten_except_the_newest() -> None:
    log = log_of(list("abcdef"))
    files: Any = Files({"b", "f"})  # e is one of the last two
    log.forget_deleted(files)
    assert log.read == {"b", "e", "f"}
    files.there = {"f"}
    again = FileLog.from_json(log.to_json())
    again.most_versions = 2
    again.forget_deleted(files)
    assert again.read == {"e", "f"}


@pytest.mark.parametrize("there", [set(), set("abcde")])
def test_nothing_is_forgotten_if_the_newest_file_is_not_there(there: set[str]) -> None:
    log, files = log_of(list("abcdef")), Files(there)
    log.forget_deleted(files)  # type: ignore[arg-type]
    assert log.read == set("abcdef") and files.stats == ["f"]


def test_a_poll_looks_at_some_of_the_files_in_turn() -> None:
    names = [f"{i:03d}" for i in range(100)]
    log, files = log_of(names), Files({names[-1], names[0], names[5]}, versions_per_poll=10)
    for poll in range(1, 10):
        log.forget_deleted(files)  # type: ignore[arg-type]
        assert len(files.stats) == 11 * poll
    log.forget_deleted(files)  # type: ignore[arg-type]
    assert log.read == {names[0], names[5], *names[-2:]}


def test_a_long_run_keeps_a_bounded_number_of_names() -> None:
    log, files = FileLog(50), Files(set(), versions_per_poll=10)
    for i in range(1000):
        log.add_files({str(i): (i, 1)})
        files.there = {str(i) for i in range(max(0, i - 20), i + 1)}
        log.forget_deleted(files)  # type: ignore[arg-type]
        assert len(log.read) <= 52
