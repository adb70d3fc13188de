"""Temporary directories of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transom.storage.temporary import remove_stale, temporary_directory


def test_directories_of_processes_that_ended_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = temporary_directory()
    (mine / "file").touch()
    program = (
        "import os, transom.storage.temporary as t; print(t.temporary_directory()); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; {program}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    theirs = Path(ended.stdout.strip())
    assert theirs.is_dir() and mine.is_dir() and ended.returncode == -9
    _, machine, process, _ = theirs.name.split("-")
    other_machine = tmp_path / f"transom-{'0' * 8}-{process}-abc"
    other_program = tmp_path / f"transom-warm-{process}"
    link = tmp_path / f"transom-{machine}-{process}-link"
    for directory in (other_machine, other_program):
        directory.mkdir()
    link.symlink_to(mine)
    remove_stale(tmp_path)
    assert not theirs.exists()
    assert mine.is_dir() and other_machine.is_dir() and other_program.is_dir() and link.is_symlink()
