"""The Java that Spark would use, and saying in time that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.backends.java import InstalledJava, check_java, java_version
from transom.errors import SettingError


@pytest.mark.parametrize(
    "text, version",
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(text: str, version: int | None) -> None:
    assert java_version(text) == version


def fake_java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "script, said",
    [
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", "too old: .* is version 11"),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "missing: .* does not run"),
    ],
)
def test_an_unfit_java_is_named_with_the_way_to_install_one(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingError, match=said) as caught:
        check_java()
    for way in ("apt install", "brew install", "winget install", "JAVA_HOME"):
        assert way in str(caught.value)


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match="no java on the PATH"):
        check_java()


def test_a_wrong_java_home_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingError, match="there is no bin/java in it"):
        check_java()


def test_a_fit_java_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "echo 'openjdk version \"17.0.1\" 2021' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == InstalledJava(str(java), 17)
