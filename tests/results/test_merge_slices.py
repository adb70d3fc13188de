"""Cumulative windows keep one slice for each group, not one for each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import MINUTE

ZONES = ["", " IN TIME ZONE 'Asia/Kolkata'"]


@pytest.mark.parametrize("zone", ZONES, ids=["fixed", "calendar"])
def test_closed_slices_become_one(make_engine: EngineFactory, tmp_path: Path, zone: str) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", "ts timestamp, site int, v bigint", time="ts")
    day = engine.register(
        f"SELECT site, sum(v) AS v FROM s [RANGE UP TO 1 day SLIDE 1 minute{zone}] GROUP BY site"
    )
    for minute in range(200):
        feed.push([(minute * MINUTE, site, 1) for site in (1, 2)])
        if minute % 20 == 19:
            engine.step()
    (sheet,) = engine._loop.state.sheets.values()
    assert sheet.num_rows < 50
    newest = [row for row in day.results().to_pylist() if row["site"] == 1][-1]
    assert newest["v"] == newest["rows"] == 199


def test_a_late_row_counts_in_the_windows_that_are_open(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", "ts timestamp, v bigint", time="ts")
    day = engine.register("SELECT sum(v) AS v FROM s [RANGE UP TO 1 day SLIDE 1 minute]")
    for minute in range(40):
        feed.push([(minute * MINUTE, 1)])
    engine.step()
    feed.push([(3 * MINUTE + 5, 100), (41 * MINUTE, 1)])
    engine.step()
    assert day.results()["v"].to_pylist()[-3:] == [39, 140, 140]
    assert engine.progress().streams["s"].late == 1, "it missed the windows that had closed"
    assert day.late()["late"].to_pylist() == [1] * 36
