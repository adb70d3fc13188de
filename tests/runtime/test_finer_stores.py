"""Lookups of queries that are not registered, from stores of finer groups."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.differential.cases import AGGREGATES, stream
from tests.differential.engine import presented, table_of
from tests.differential.oracle_comparison import alike
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.prod_helpers import traffic
from transom.errors import SettingError

SCHEMA = "ts timestamp, seq bigint, site int, kind string, price double, qty bigint, amount decimal(10,2)"
FINE = "SELECT site, kind, price, {} AS x FROM s [RANGE 10 minutes] GROUP BY site, kind, price"
COARSE = [
    "SELECT {} AS x FROM s [RANGE 10 minutes]",
    "SELECT site, {} AS x FROM s [RANGE 10 minutes] GROUP BY site",
    "SELECT price, site, {} AS x FROM s [RANGE 2 minutes] GROUP BY price, site",
    "SELECT site, {} AS x FROM s [RANGE 10 minutes] WHERE kind = 'a' GROUP BY site HAVING count(*) > 1",
    "SELECT {} AS x FROM s [RANGE 10 minutes] WHERE site = 1 AND kind = 'b' AND price = 10",
    "SELECT price, {} AS x FROM s [RANGE 10 minutes] WHERE price > 5 AND (site IN (1, 3) OR kind IS NULL) "
    "GROUP BY price",
    "SELECT price, kind, site, {} AS x FROM s [RANGE 10 minutes] WHERE site != 2 GROUP BY price, kind, site",
    "SELECT kind, {} AS x FROM s [RANGE 10 minutes] WHERE site = 2.5 GROUP BY kind",
]
SYSTEM = {"batch", "made"}


def engine_of(make_engine: EngineFactory, place: Path, state: str, texts: list[str]) -> transom.Engine:
    engine = make_engine(str(place), state=state)
    feed = engine.feed("s", SCHEMA, time="ts", slack="30 seconds")
    engine.register_all({f"q{i}": text for i, text in enumerate(texts)})
    drawn = stream(Random(9), 200)
    assert len(drawn) > 80
    for rows in (drawn[0::2], drawn[1::2]):
        feed.push(table_of([row for row in rows if row["ts"] is not None]))
        engine.step()
    return engine


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{k: v for k, v in row.items() if k not in SYSTEM} for row in presented(table)]
    return sorted(rows, key=lambda row: repr([row.get(name) for name in ("site", "kind", "price")]))


@pytest.mark.parametrize("state", ["driver", "executors"])
@pytest.mark.parametrize("part", range(4))
def test_stores_of_finer_groups_answer_as_stores_of_the_querys_own_groups(
    make_engine: EngineFactory, tmp_path: Path, part: int, state: str
) -> None:
    aggregates = AGGREGATES[part::4]
    counted = [FINE.format("count(*)")]
    fine = engine_of(
        make_engine, tmp_path / "fine", state, [*counted, *(FINE.format(one) for one in aggregates)]
    )
    asked = [text.format(one) for one in aggregates for text in COARSE]
    own = engine_of(make_engine, tmp_path / "own", "driver", asked)
    compared = 0
    for i, text in enumerate(asked):
        found, expected = fine.lookup(text), own.query(f"q{i}").lookup()
        assert found.schema.equals(expected.schema)
        assert alike(rows_of(found), rows_of(expected)), text
        compared += found.num_rows
        names = found.schema.metadata[b"stores"].decode().split("\n")
        assert set(names) <= fine.progress().on_demand.stores.keys() and len(names) > 0
    assert compared > 2 * len(asked)


@ON_BOTH
def test_a_lookup_says_which_stores_answered_and_what_is_missing(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(
        "SELECT sensor, speed, sum(volume) AS v FROM s [RANGE 100] WHERE volume > 0 GROUP BY sensor, speed"
    )
    engine.register("SELECT sensor, sum(volume) AS v FROM s [RANGE 50] WHERE volume > 0 GROUP BY sensor")
    feed.push([(10, 1, 30, 3), (20, 2, 50, -10), (30, 1, 40, 9), (35, 2, 30, 4)])
    engine.step()
    text = "SELECT sum(volume) AS v FROM s [RANGE {}] WHERE volume > 0 AND sensor = {}"
    for length, groups in ((50, "`sensor`"), (100, "`sensor`, `speed`")):
        found = engine.lookup(text.format(length, 1))
        assert found["v"].to_pylist() == [12]
        names = found.schema.metadata[b"stores"].decode().replace("`", "")
        assert f"group by {groups}".replace("`", "") in names and " | values of volume" in names
    assert engine.lookup(text.format(100, 2), where=None)["v"].to_pylist() == [4]
    by_speed = "SELECT speed, sum(volume) AS v FROM s [RANGE 100] WHERE volume > 0 GROUP BY speed"
    assert engine.lookup(by_speed, where={"speed": 30})["v"].to_pylist() == [7]
    for wrong, reason in (
        ("SELECT sum(volume) AS v FROM s [RANGE 100]", "no on-demand query over the same rows"),
        ("SELECT sum(volume) AS v FROM s [RANGE 100] WHERE volume > 0 AND ts > 5", "over the same rows"),
        ("SELECT max(speed) AS v FROM s [RANGE 100] WHERE volume > 0", "it needs max staircase of `speed`"),
        (text.format(200, 1), "asks for 200, and no more than 100 is kept"),
    ):
        with pytest.raises(SettingError, match=reason):
            engine.lookup(wrong)


def test_intervals_of_a_timegram_are_filtered_and_not_combined(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register("SELECT sensor, sum(volume) AS v FROM s [RANGE 100] GROUP BY sensor USING timegram(64)")
    feed.push([(10, 1, 30, 3), (20, 2, 50, -10), (30, 1, 40, 9)])
    engine.step()
    found = engine.lookup(
        "SELECT sensor, sum(volume) AS v FROM s [RANGE 100] WHERE sensor < 2 GROUP BY sensor"
    )
    assert [(row["sensor"], row["v_low"] <= 12 <= row["v_high"]) for row in found.to_pylist()] == [(1, True)]
    with pytest.raises(SettingError, match="nothing is kept"):
        engine.lookup("SELECT sum(volume) AS v FROM s [RANGE 100]")
