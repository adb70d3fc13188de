"""Which files a stream has read, and what was wrong with its files."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from transom.backends.base import FileVersion, InputFiles
from transom.backends.file_problems import FileProblem, Problem

MOST_LISTED = 1000  # problems; older ones are only counted
MOST_VERSIONS = 10_000  # files that are watched for changes, the newest
PROBLEM_COLUMNS = pa.schema(
    [
        ("problem", pa.string()),
        ("file", pa.string()),
        ("column", pa.string()),
        ("reason", pa.string()),
        ("batch", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ListedProblem:
    """A problem of a file, and the batch that it was noticed with."""

    found: FileProblem
    batch_id: int


class FileLog:
    """The files that a stream has read, and their problems: all are counted, the newest listed.

    The names of the `most_versions` files that were read last are kept, and those of older files that are still there.
    """

    def __init__(self, most_versions: int = MOST_VERSIONS) -> None:
        self.most_versions = most_versions
        self.read: set[str] = set()
        self.versions: dict[str, FileVersion] = {}  # of the files read last, as they were then
        self.counts: Counter[Problem] = Counter()
        self.listed: tuple[ListedProblem, ...] = ()
        self.new_columns: frozenset[str] = frozenset()  # a new column is noted once
        self._watched = 0  # where the next look for rewritten files starts
        self._older: deque[str] = deque()  # files that were read and are not in `versions`

    def add_files(self, versions: Mapping[str, FileVersion | None]) -> None:
        """Note files that a batch has read, or has left out."""
        self.read.update(versions)
        self.versions |= {file: version for file, version in versions.items() if version is not None}
        self._older.extend(file for file, version in versions.items() if version is None)
        surplus = len(self.versions) - self.most_versions
        for file in list(islice(self.versions, max(surplus, 0))):
            del self.versions[file]
            self._older.append(file)

    def forget_deleted(self, files: InputFiles) -> None:
        """Forget the names of older files that are not there any more; each poll looks at some of them.

        A disk that is not mounted has no files at all. So nothing is forgotten unless the file read last is there.
        """
        if not self._older or not self.versions or files.version(next(reversed(self.versions))) is None:
            return
        for _ in range(min(files.versions_per_poll, len(self._older))):
            file = self._older.popleft()
            if files.version(file) is None:
                self.read.discard(file)
            else:
                self._older.append(file)

    def add_problems(self, problems: Sequence[FileProblem], batch_id: int) -> None:
        """Count and list problems."""
        self.counts.update(problem.problem for problem in problems)
        self.new_columns |= {p.column for p in problems if p.problem is Problem.NEW_COLUMN and p.column}
        listed = (*self.listed, *(ListedProblem(problem, batch_id) for problem in problems))
        self.listed = listed[-MOST_LISTED:]

    def noteworthy(self, problems: Sequence[FileProblem]) -> list[FileProblem]:
        """The problems without new columns that were noted before."""
        chosen, seen = [], set(self.new_columns)
        for problem in problems:
            if problem.problem is not Problem.NEW_COLUMN:
                chosen.append(problem)
            elif problem.column is not None and problem.column not in seen:
                seen.add(problem.column)
                chosen.append(problem)
        return chosen

    def rewritten(self, files: InputFiles) -> list[FileProblem]:
        """Files that changed after they were read; each poll looks at some of the files."""
        names = list(self.versions)
        if not names:
            return []
        start = self._watched % len(names)
        self._watched = start + files.versions_per_poll
        problems = []
        for file in [*names[start:], *names[:start]][: files.versions_per_poll]:
            version = files.version(file)
            if version is not None and version != self.versions[file]:
                del self.versions[file]  # noted once
                self._older.append(file)
                problems.append(
                    FileProblem(Problem.REWRITTEN, file, None, "it is not read again: give it a new name")
                )
        return problems

    def table(self) -> pa.Table:
        """The problems as rows, the oldest first."""
        rows = [
            (
                listed.found.problem,
                listed.found.file,
                listed.found.column,
                listed.found.reason,
                listed.batch_id,
            )
            for listed in self.listed
        ]
        columns = zip(*rows, strict=True) if rows else ((),) * len(PROBLEM_COLUMNS)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, PROBLEM_COLUMNS.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=PROBLEM_COLUMNS)

    def to_json(self) -> dict[str, Any]:
        return {
            "files": sorted(self.read),
            "versions": {file: list(version) for file, version in self.versions.items()},
            "problems": {problem.value: count for problem, count in self.counts.items()},
            "listed": [[*problem_to_json(listed.found), listed.batch_id] for listed in self.listed],
            "new_columns": sorted(self.new_columns),
        }

    @classmethod
    def from_json(cls, stored: Any) -> FileLog:
        """The log as it was stored; an older checkpoint has the names of files only."""
        log = cls()
        if isinstance(stored, list):
            log.read = set(stored)
            log._older.extend(stored)
            return log
        log.read = set(stored["files"])
        log.versions = {file: (modified, size) for file, (modified, size) in stored["versions"].items()}
        log._older.extend(file for file in stored["files"] if file not in log.versions)
        log.counts = Counter({Problem(name): count for name, count in stored["problems"].items()})
        log.listed = tuple(
            ListedProblem(problem_from_json(parts), batch_id) for *parts, batch_id in stored["listed"]
        )
        log.new_columns = frozenset(stored["new_columns"])
        return log


def problem_to_json(problem: FileProblem) -> list[str | None]:
    """A problem as a list of its parts."""
    return [problem.problem.value, problem.file, problem.column, problem.reason]


def problem_from_json(parts: Sequence[Any]) -> FileProblem:
    """The problem of such a list."""
    kind, file, column, reason = parts
    return FileProblem(Problem(kind), file, column, reason)
