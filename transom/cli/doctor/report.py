"""All checks of `transom doctor` in their order, and their findings as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from transom.cli.doctor.checkpoint import check_checkpoint
from transom.cli.doctor.connectors import check_connectors
from transom.cli.doctor.finding import Finding, Severity
from transom.cli.doctor.installation import (
    check_disk,
    check_java_of_spark,
    check_packages,
    check_python,
    check_spark,
)
from transom.cli.doctor.pipeline_file import check_pipeline_file, check_server
from transom.cli.doctor.servers import check_servers
from transom.cli.doctor.subject import DoctorSubject

Check = Callable[[DoctorSubject], Iterator[Finding]]

DOCTOR_CHECKS: tuple[Check, ...] = (
    check_python,
    check_packages,
    check_java_of_spark,
    check_spark,
    check_pipeline_file,
    check_connectors,
    check_servers,
    check_server,
    check_checkpoint,
    check_disk,
)


def examined(subject: DoctorSubject) -> list[Finding]:
    """The findings of all checks."""
    return [finding for check in DOCTOR_CHECKS for finding in check(subject)]


def findings_json(findings: Sequence[Finding]) -> str:
    """The findings for programs: whether there is no problem, and each finding."""
    is_fine = not has_problem(findings)
    return json.dumps({"fine": is_fine, "findings": [asdict(each) for each in findings]}, indent=2)


def findings_text(findings: Sequence[Finding]) -> str:
    """The findings for people: a line each, and what to do below it."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity:7}  {finding.check:{width}}  {finding.message}")
        if finding.severity is not Severity.OK:
            lines += [f"{'':{width + 9}}  {line}" for line in f"-> {finding.advice}".split("\n")]
    problems, warnings = (
        sum(finding.severity is severity for finding in findings)
        for severity in (Severity.PROBLEM, Severity.WARNING)
    )
    lines.append(f"{problems} problems, {warnings} warnings")
    return "\n".join(lines)


def has_problem(findings: Sequence[Finding]) -> bool:
    """Whether something keeps a pipeline from running."""
    return any(finding.severity is Severity.PROBLEM for finding in findings)
