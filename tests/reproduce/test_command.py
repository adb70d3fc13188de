"""The command `python -m reproduce`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from reproduce import __main__ as command
from reproduce.papers import Paper
from reproduce.report import Options

ROOT = Path(__file__).parents[2]


def test_the_options_reach_the_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[Paper, Path, Options]] = []
    monkeypatch.setattr(command, "run_paper", lambda *run: runs.append(run))
    arguments = ["timegram", "--out", str(tmp_path), "--short", "--seeds", "7", "--data", "recordings"]
    done = CliRunner().invoke(command.app, arguments)
    assert done.exit_code == 0, done.stderr
    assert runs == [(Paper.TIMEGRAM, tmp_path, Options(7, True, Path("recordings")))]


def test_an_unknown_paper_is_a_usage_error() -> None:
    done = CliRunner().invoke(command.app, ["timegrams"])
    assert done.exit_code == 2
    assert "ordered-sharing" in done.stderr


@pytest.mark.parametrize(("short", "seeds"), [(True, 1), (False, 5)])
def test_a_short_run_of_slow_experiments_has_one_seed(short: bool, seeds: int) -> None:
    assert Options(5, short).with_one_seed_if_short() == Options(seeds, short)


def test_every_paper_and_option_is_documented_and_in_the_makefile() -> None:
    text = (ROOT / "docs/reproduce/README.md").read_text()
    options = {
        name
        for parameter in typer.main.get_command(command.app).params
        for name in parameter.opts
        if name.startswith("--")
    }
    assert set(re.findall(r"^\| `(--[a-z]+)", text, re.MULTILINE)) == options
    assert set(re.findall(r"^\| `([a-z][a-z-]*)` ", text, re.MULTILINE)) == set(Paper)
    papers = re.search(r"^PAPERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert papers is not None
    assert set(papers[1].split()) == set(Paper)
