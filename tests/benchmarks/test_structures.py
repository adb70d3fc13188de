"""The table of what structures cost has a line for each of them."""

from __future__ import annotations

import pytest

from benchmarks.structures import main, structures


def test_every_structure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rows", "2000"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 * len(structures())
    assert all(any(line.startswith(name) for line in lines) for name in structures())
