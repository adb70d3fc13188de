"""What a check of `transom doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it runs, but perhaps not as wanted
    PROBLEM = "problem"  # it does not run


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do about it."""

    check: str
    severity: Severity
    message: str
    advice: str = ""


def fine(check: str, message: str) -> Finding:
    """A finding that needs nothing."""
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, advice: str) -> Finding:
    """A finding that may be wanted."""
    return Finding(check, Severity.WARNING, message, advice)


def problem(check: str, message: str, advice: str) -> Finding:
    """A finding that keeps a pipeline from running."""
    return Finding(check, Severity.PROBLEM, message, advice)
