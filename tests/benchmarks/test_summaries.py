"""The table of what summaries cost has a line for each structure and size of batches."""

from __future__ import annotations

import pytest

from benchmarks.summaries import STRUCTURES, main


def test_every_structure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rows", "2000", "--batch", "500", "1000", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * len(STRUCTURES)
    assert all(sum(line.startswith(name) for line in lines) == 2 for name in STRUCTURES)
