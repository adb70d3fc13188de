"""Queries that come and go for a long time leave nothing behind."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.differential.cases import SECOND, BatchCase, Case
from tests.differential.engine import PureEngine, bound
from tests.differential.oracle_comparison import same_results
from tests.differential.test_joining import row

BATCHES, CALM = 200, 40  # with the last batches nobody comes any more
STAYING = {
    "sum": "SELECT site, sum(qty) AS x FROM s [RANGE '20 seconds' SLIDE '5 seconds'] GROUP BY site",
    "max": "SELECT max(qty) AS x, count(*) AS n FROM s [RANGE '30 seconds' SLIDE '10 seconds']",
    "few": "SELECT avg(price) AS x FROM s [RANGE '10 seconds' SLIDE '10 seconds'] WHERE qty > 5",
}  # fmt: skip
ITEMS = ["sum(qty)", "count(*)", "min(price)", "avg(price)", "stddev(qty)", "sum(price)"]


def passing(rng: Random) -> str:
    """A query that will not stay; its windows are no longer than those of the queries that do."""
    bracket = f"[RANGE '{rng.randint(1, 30)} seconds' SLIDE '{rng.choice([1, 3, 5, 7, 10])} seconds']"
    where = rng.choice(["", "WHERE qty > 3", "WHERE qty > 5", f"WHERE qty BETWEEN 2 AND {rng.randint(2, 9)}"])
    return f"SELECT {rng.choice(ITEMS)} AS x FROM s {bracket} {where} {rng.choice(['', 'GROUP BY site'])}"


def case_of(seed: int, churning: bool) -> Case:
    """Three rows a batch and a second; two queries come with each batch and leave with the next."""
    case, rows, texts = Case(dict(STAYING), set(), [], 2 * SECOND, None), Random(seed), Random(seed + 1)
    leaving: list[str] = []
    for number in range(BATCHES):
        here = [row(number + i / 3, rows.randint(0, 9), site=rows.randint(1, 3)) for i in range(3)]
        joining = [f"{number}.{i}" for i in range(2)] if churning and number < BATCHES - CALM else []
        case.queries |= {name: passing(texts) for name in joining}
        case.batches.append(BatchCase(here, [*joining, *(() if number else STAYING)], leaving))
        leaving = joining
    return case


def followed(case: Case) -> tuple[PureEngine, np.ndarray]:
    """The engine after the last batch; and after each, its rows on sheets and its selections."""
    engine, found = PureEngine(case, bound(case.queries)), []
    for batch_id in case.batches:
        engine.batch(batch_id)
        slices = sum(sheet.num_rows for sheet in engine.state.sheets.values())
        found.append((slices, len(engine.state.selections)))
    return engine, np.array(found)


def test_queries_that_come_and_go_for_two_hundred_batches_leave_nothing_behind() -> None:
    quiet, calm = followed(case_of(7, churning=False))
    busy, churned = followed(case_of(7, churning=True))
    assert (churned.max(axis=0) <= 2 * calm.max(axis=0)).all(), "while they come and go"
    assert churned[-1].tolist() == calm[-1].tolist(), "and in the end it is as if they had never been"
    queries = bound(STAYING)
    for name, query in queries.items():
        alone = [{**one, "batch": one["batch"] - 1} for one in quiet.results[name]]
        assert not same_results(query, busy.results[name], alone)
