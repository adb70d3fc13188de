"""Small batches through the engine: folded for all families at once, they give what families give one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import accounted, bids, bids_engine
from transom.plan.limits import Limits
from transom.sql.interpreter.scalars import ColumnScope

SITES = [{"site": 1, "city": "Portland"}, {"site": 2, "city": "Boston"}, {"site": None, "city": "Nowhere"}]
REPEATED = [{"site": 1, "tag": "a"}, {"site": 1, "tag": "b"}, {"site": 2, "tag": "a"}]
MINUTES = "[RANGE 3 minutes SLIDE 1 minute]"
QUERIES = [
    f"SELECT sum(price) AS p, count(*) AS n FROM bids {MINUTES}",
    f"SELECT sum(price) AS p FROM bids {MINUTES} WHERE price > 2",
    f"SELECT sum(price) AS p, max(price) AS m FROM bids {MINUTES} WHERE price > 4",
    "SELECT avg(price) AS p FROM bids [RANGE 1 minute SLIDE 2 minutes] WHERE price < 7",
    f"SELECT site, count(price) AS n, min(price) AS m FROM bids {MINUTES} GROUP BY site",
    f"SELECT city, sum(price) AS p FROM bids {MINUTES} JOIN sites ON bids.site = sites.site GROUP BY city",
    f"SELECT count(*) AS n FROM bids {MINUTES} LEFT JOIN sites s ON bids.site = s.site WHERE city IS NULL",
    f"SELECT tag, sum(price) AS p FROM bids {MINUTES} JOIN tags ON bids.site = tags.site GROUP BY tag",
    "SELECT sum(price) AS p FROM bids [ROWS 6 SLIDE 3] WHERE site = 1",
    f"SELECT count(*) FILTER (WHERE price > 3) AS n, approx_count_distinct(site) AS d FROM bids {MINUTES}",
]


def answered(make_engine: EngineFactory, directory: Path, seed: int, limits: Limits) -> tuple[Any, ...]:
    """All results, the late rows, and what became of the rows, of batches drawn at random."""
    dice = Random(seed)
    engine, feed = bids_engine(make_engine, directory, limits=limits, slack="30 seconds")
    engine.table("sites", SITES)
    engine.table("tags", REPEATED)
    queries = [engine.register(text) for text in QUERIES]
    for minute in range(6):
        rows = [
            (
                dice.choice([1, 2, 3, None]),
                dice.choice([0.5, 1.25, 3.0, 6.5, -2.0, None]),
                f"12:{max(0, minute - dice.choice([0, 0, 0, 1, 4])):02}:{dice.randrange(60):02}",
            )
            for _ in range(dice.randrange(1, 40))
        ]
        feed.push(bids(*rows))
        engine.step()
    engine.drain()
    tables = [query.results().drop_columns(["made", "latency"]) for query in queries]
    results = [sorted(map(repr, table.to_pylist())) for table in tables]
    late = sorted(map(repr, engine.late("bids").to_pylist()))
    return results, late, [query.account for query in queries], accounted(engine)


def test_small_batches_with_joins_and_late_rows_give_the_results_of_families(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in range(seed, seed + 3):
        few = answered(make_engine, tmp_path / f"few{number}", number, Limits())
        many = answered(make_engine, tmp_path / f"many{number}", number, Limits(matrix_cells=0))
        assert few == many, f"Random({number})"
        assert all(few[0]) and few[1], "every query has results, and some rows are late"


def test_a_batch_compiles_no_expression_that_the_batches_before_it_compiled(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with times of the batch in it is compiled by each batch: that takes as long as a hundred rows."""
    engine, feed = bids_engine(make_engine, tmp_path)
    for text in QUERIES[:5]:
        engine.register(text)
    compiled: list[str] = []
    original = ColumnScope._compile

    def compile(scope: ColumnScope, text: str) -> Any:
        compiled.append(text)
        return original(scope, text)

    monkeypatch.setattr(ColumnScope, "_compile", compile)
    for minute in range(6):
        if minute == 3:
            compiled.clear()
        feed.push(bids((1, 2.0, f"12:{minute:02}:10"), (2, 5.0, f"12:{minute:02}:20")))
        engine.step()
    assert compiled == []
