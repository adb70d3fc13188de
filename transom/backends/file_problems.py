"""What can be wrong with an input file: it can't be read, its columns differ, or it changed after it was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from transom.errors import TransomError


class Problem(StrEnum):
    """Kinds of problems. Only an unreadable file is left out; of others the rows are read as far as possible."""

    UNREADABLE = "unreadable"
    MISSING_COLUMN = "missing column"
    NEW_COLUMN = "new column"
    REWRITTEN = "rewritten"


@dataclass(frozen=True)
class FileProblem:
    """A problem of one file, perhaps of one of its columns."""

    problem: Problem
    file: str
    column: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        column = (
            f" {self.column}" if self.column is not None and self.problem is not Problem.UNREADABLE else ""
        )
        return f"{self.file}: {self.problem}{column}{f': {self.reason}' if self.reason else ''}"


class UnreadableFiles(TransomError):
    """Files of a batch can't be read."""

    def __init__(self, problems: Sequence[FileProblem]):
        self.problems = list(problems)
        super().__init__("; ".join(map(str, problems)))


def unreadable(file: str, reason: str, column: str | None = None) -> FileProblem:
    """The problem of a file that can't be read."""
    return FileProblem(Problem.UNREADABLE, file, column, reason)
