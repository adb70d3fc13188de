"""The Python blocks of the guide to early results run, in an engine with the streams that the guide speaks of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids, bids_table

GUIDE = Path(__file__).parents[1] / "docs/early-results.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DECLARES = re.compile(r"engine\.(stream|replay)\(")
MEAN = (
    "SELECT site, avg(price) AS v FROM bids [RANGE 10 minutes SLIDE 10 minutes] "
    "GROUP BY site EMIT EARLY AT 75% OF SLIDE"
)


def write_inputs(directory: Path) -> None:
    rows = bids_table((3, 1.0, "12:00:10"))
    for name, table in {
        "bids/a.parquet": rows.append_column("kind", pa.array(["bid"])),
        "alarms/a.parquet": pa.table({"at": rows["ts"], "site": rows["site"]}),
        "recorded/bids.parquet": rows,
    }.items():
        (directory / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, directory / name)


def test_the_blocks_of_the_guide_run(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    engine = make_engine()
    feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
    engine.feed("parts", "code string, ts timestamp", time="ts")
    first = bids((3, 1.0, "12:00:10"), (3, 2.0, "12:05:00"))
    names: dict[str, Any] = {
        "engine": engine,
        "bids": feed,
        "mean": engine.register(MEAN, "mean"),
        "top": engine.register(MEAN.replace("avg", "max"), "top"),
        "rows": bids((3, 3.0, "12:08:00")),
        "more": bids((3, 4.0, "12:09:00")),
        "show": lambda table: None,
    }
    feed.push(first)
    engine.step()
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) == 13
    for code in blocks:
        if DECLARES.search(code):  # a stream of the same name, of another kind
            names_of_block = {**names, "engine": make_engine()}
        else:
            names_of_block = names
        exec(compile(code, GUIDE.name, "exec"), names_of_block)
        names_of_block["engine"].step()
