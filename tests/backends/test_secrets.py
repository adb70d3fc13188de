"""References to secrets in options: what they stand for, and that messages do not show the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.backends.secrets import with_absolute_files, with_secrets, without_secrets
from transom.errors import SettingError


def test_references_stand_for_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2-of-env")
    (tmp_path / "token").write_text("token-of-file\n")
    options = {
        "password": "${env:DB_PASSWORD}",
        "url": f"jdbc:x?u=me&p=${{env:DB_PASSWORD}}&t=${{file:{tmp_path}/token}}",
        "plain": "costs $5 and $${env:NOTHING}",
        "number": 5,
        "flag": True,
    }
    assert with_secrets(options) == {
        "password": "hunter2-of-env",
        "url": "jdbc:x?u=me&p=hunter2-of-env&t=token-of-file",
        "plain": "costs $5 and ${env:NOTHING}",
        "number": "5",
        "flag": "true",
    }
    assert without_secrets("failed: p=hunter2-of-env, token-of-file") == "failed: p=***, ***"


def test_files_are_relative_to_the_pipeline_file(tmp_path: Path) -> None:
    options = {"a": "${file:token}", "b": "${file:/etc/token}", "c": "${env:token}", "d": "$${file:token}"}
    assert with_absolute_files(options, tmp_path) == {
        **options,
        "a": f"${{file:{tmp_path}/token}}",
        "b": "${file:/etc/token}",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${env:NOT_SET_AT_ALL}", "option password: the environment variable NOT_SET_AT_ALL is not set"),
        ("${file:/not/there}", "option password: /not/there: No such file"),
        ("${vault:x}", r"\$\{vault:x\} is not a reference; write \$\{env:NAME\} or \$\{file:PATH\}"),
        ("${HOME}", "is not a reference"),
    ],
)
def test_what_can_not_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        with_secrets({"password": text})
