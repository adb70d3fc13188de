"""The thesis's traffic stream, and early and final results in a shape that reads well in an assertion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import short

TRAFFIC = "ts bigint, sensor int, speed int, volume int"
BY_SENSOR = "SELECT sensor, sum(volume) AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor"
OF_ENGINE = ("clock", "retention", "strategy", "state", "limits", "poll", "max_failures")


def traffic(make_engine: EngineFactory, place: Path, **options: Any) -> tuple[transom.Engine, Any]:
    """An engine with a feed of the thesis's tuples; windows close by punctuations unless slack is given."""
    own = {name: options.pop(name) for name in OF_ENGINE if name in options}
    engine = make_engine(str(place / "checkpoint"), **own)
    return engine, engine.feed("s", TRAFFIC, time="ts", **{"slack": None, **options})


def told(results: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Results in order: what kind they are, the ends of the window, then the named columns."""
    table = results if isinstance(results, pa.Table) else results.results()
    shown = ["kind", "window_start", "window_end", *columns]
    rows = [tuple(short(row[name]) for name in shown) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, 0 if value is None else value) for value in row])


def early(results: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The same of early results only, without the word."""
    return [row[1:] for row in told(results, *columns) if row[0] == "early"]


def final(results: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The same of final results only."""
    return [row[1:] for row in told(results, *columns) if row[0] == "final"]
