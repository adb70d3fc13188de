"""Problems of files in the log of a stream: all are counted, the newest listed, rewritten files are noticed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from transom.backends.file_problems import FileProblem, Problem
from transom.ingest.file_log import MOST_LISTED, MOST_VERSIONS, FileLog


def missing(number: int) -> FileProblem:
    return FileProblem(Problem.MISSING_COLUMN, f"{number}.csv", "price", "its values are null")


def test_all_problems_are_counted_and_the_newest_listed() -> None:
    log = FileLog()
    log.add_problems([missing(number) for number in range(MOST_LISTED + 5)], 7)
    assert log.counts == {Problem.MISSING_COLUMN: MOST_LISTED + 5}
    table = log.table()
    assert table.num_rows == MOST_LISTED and table["file"][0].as_py() == "5.csv"
    assert set(table["batch"].to_pylist()) == {7}


def test_a_log_is_the_same_after_it_was_stored() -> None:
    log = FileLog()
    log.add_files({"a.csv": (1, 2), "b.csv": None})
    log.add_problems([missing(1), FileProblem(Problem.NEW_COLUMN, "a.csv", "cost", "why")], 3)
    again = FileLog.from_json(json.loads(json.dumps(log.to_json())))
    assert again.to_json() == log.to_json() and again.table() == log.table()
    assert again.noteworthy([FileProblem(Problem.NEW_COLUMN, "c.csv", "cost", "why")]) == []


def test_a_log_of_an_older_checkpoint_has_names_only() -> None:
    log = FileLog.from_json(["a.csv", "b.csv"])
    assert log.read == {"a.csv", "b.csv"} and not log.versions and not log.listed


@pytest.mark.parametrize("files, polls", [(3, 1), (25, 3)])
def test_each_poll_looks_at_some_files(files: int, polls: int) -> None:
    log = FileLog()
    log.add_files({f"{number}.csv": (1, 1) for number in range(files)})
    now: dict[str, Any] = {f"{files - 1}.csv": (2, 1), "0.csv": None}
    source: Any = SimpleNamespace(versions_per_poll=10, version=lambda file: now.get(file, (1, 1)))
    noted = [problem.file for _ in range(polls + 3) for problem in log.rewritten(source)]
    assert noted == [f"{files - 1}.csv"], "once; a deleted file is none"


def test_only_the_newest_files_are_watched() -> None:
    log = FileLog()
    log.add_files({f"{number}": (1, 1) for number in range(MOST_VERSIONS + 2)})
    assert len(log.versions) == MOST_VERSIONS and "1" not in log.versions and "1" in log.read
