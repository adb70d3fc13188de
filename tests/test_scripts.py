"""The scripts behind the Makefile: what they say when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

JAVAS = [
    ("Java 17", 'openjdk version "17.0.15" 2025-04-15', 0, ""),
    ("a first release without a dot", 'openjdk version "21" 2023-09-19', 0, ""),
    ("Java 11", 'openjdk version "11.0.2" 2019-01-15', 1, "is version 11.0.2"),
    ("Java 8, numbered the old way", 'java version "1.8.0_402"', 1, "is version 1.8.0_402"),
]


@pytest.mark.parametrize(("banner", "code", "says"), [c[1:] for c in JAVAS], ids=[c[0] for c in JAVAS])
def test_java_is_judged_by_its_version(banner: str, code: int, says: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    done = run("check-java", JAVA_HOME=str(tmp_path))
    assert done.returncode == code
    assert says in done.stderr
    assert ("apt install" in done.stderr) == bool(code)


def test_a_java_that_only_says_that_there_is_none(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    java.chmod(0o755)
    done = run("check-java", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "does not run: Unable to locate" in done.stderr


def test_no_java_at_all(tmp_path: Path) -> None:
    done = run("check-java", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "No Java was found in JAVA_HOME" in done.stderr
    assert "openjdk-17" in done.stderr


def test_no_python_that_is_new_enough(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run("make-venv", str(tmp_path / "venv"), "requirements-dev.lock", PYTHON=str(old))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "in-use").touch()
    (tmp_path / "venv").symlink_to("shared")
    done = run("make-venv", str(tmp_path / "venv"), "requirements-dev.lock")
    assert done.returncode == 1
    assert "is a symbolic link" in done.stderr
    assert (tmp_path / "shared" / "in-use").exists()


def test_a_browser_that_is_there_is_not_installed_again(tmp_path: Path) -> None:
    chromium = tmp_path / "my-chromium"
    chromium.write_text("#!/bin/sh\n")
    chromium.chmod(0o755)
    done = run("install-browser", CHROMIUM=str(chromium))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_browser_where_one_was_named(tmp_path: Path) -> None:
    done = run("install-browser", CHROMIUM=str(tmp_path / "chromium"))
    assert done.returncode == 1
    assert "is not a program" in done.stderr
    assert "apt install chromium" in done.stderr


AUDITS = [
    (
        "no known vulnerability",
        {"dependencies": [{"name": "a", "version": "1", "vulns": []}]},
        0,
        "1 packages are audited",
    ),
    (
        "a vulnerable package",
        {
            "dependencies": [
                {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]},
                {"name": "b", "version": "1", "vulns": []},
            ]
        },
        1,
        "a 1: PYSEC-1, fixed in 2",
    ),
    (
        "a mirror without advisories",
        {"dependencies": [{"name": "a", "skip_reason": "not found"}]},
        0,
        "NOT AUDITED: some.lock: there are no advisories here for 1 of 1 packages",
    ),
    ("no connection", None, 0, "NOT AUDITED: some.lock: the advisories can't be read"),
]


@pytest.mark.parametrize(("report", "code", "says"), [c[1:] for c in AUDITS], ids=[c[0] for c in AUDITS])
def test_an_audit_fails_only_if_a_package_is_vulnerable(
    report: object, code: int, says: str, tmp_path: Path
) -> None:
    fake = tmp_path / "pip-audit"
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{'' if report is None else json.dumps(report)}\nEND\nexit 1\n")
    fake.chmod(0o755)
    done = run("audit", str(tmp_path / "venv"), "some.lock", PIP_AUDIT=str(fake))
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout


def test_the_locks_pin_everything_and_name_no_registry() -> None:
    for name in (
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-audit.lock",
        "requirements-docs.lock",
    ):
        lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        assert all("==" in line or line == "-r requirements.lock" for line in lines), name
        assert not any("://" in line for line in lines), name


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "scripts" / script), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
