"""Queries over queries against the oracle, which is given the inner query's results as rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.case_counts import case_seeds
from tests.results.pure_batches import SCALARS, Pure, Row
from transom import oracle
from transom.elements import ClockKind, Prod
from transom.plan.strategy import FragmentSharing, Strategy
from transom.sql import Catalog, Query, Relation
from transom.sql.binding.cascades import bind_all, relation_of

pytestmark = pytest.mark.any_worker

COLUMNS = {"site": pa.int64(), "v": pa.int64()}
STRATEGIES = {
    "shared": Strategy(),
    "unshared": Strategy(shared=False),
    "joint panes": Strategy(paned=True, fragments=FragmentSharing.JOINT),
}


@dataclass
class Drawn:
    """A stream in batches, an inner query and an outer one, and in which batches there is a prod."""

    inner: str
    outer: str
    slack: int
    batches: list[list[tuple[Any, ...]]]
    prods: set[int]

    @property
    def texts(self) -> dict[str, str]:
        return {"outer_one": self.outer, "inner_one": self.inner}


def draw(rng: Random) -> Drawn:
    slide = rng.randint(2, 8)
    range_ = str(rng.randint(1, 3) * slide - rng.randint(0, 1))
    if rng.random() < 0.2:
        range_ = f"UP TO {rng.randint(1, 4) * slide}"
    grouped = rng.random() < 0.5
    where = rng.choice(["", "WHERE v > 3", "WHERE site = 1"])
    having = rng.choice(["", "HAVING count(*) > 1"])
    window = rng.choice([f"[RANGE {range_} SLIDE {slide}]"] * 3 + [f"[SESSION {slide}]"])
    inner = f"SELECT site, sum(v) AS total, count(*) AS n FROM s {window} {where} GROUP BY site {having}"
    wide, step = str(rng.choice([slide * rng.randint(1, 4), rng.randint(5, 30)])), rng.randint(3, 20)
    if rng.random() < 0.2:
        wide = f"UP TO {rng.randint(1, 4) * step}"
    outer = (
        f"SELECT {'site, ' if grouped else ''}max(total) AS m, count(*) AS k, sum(n) AS sn FROM inner_one "
        f"[RANGE {wide} SLIDE {step}] {rng.choice(['', 'WHERE total > 5'])} "
        f"{'GROUP BY site' if grouped else ''}"
    )
    top, batches = 0, []
    for _ in range(rng.randint(3, 9)):
        rows = []
        for _ in range(rng.randint(0, 8)):
            top += rng.randint(0, 3)
            rows.append((max(0, top - rng.randint(0, 4)), rng.randint(1, 3), rng.randint(0, 9)))
        batches.append(rows)
    prods = {batch_id for batch_id in range(len(batches)) if rng.random() < 0.5}
    return Drawn(inner, outer, rng.randint(0, 4), batches, prods)


@cache
def drawn_with_answers(number: int) -> tuple[Drawn, list[Row], list[Row]]:
    """A case with the oracle's early and final results, which are the same for all strategies."""
    drawn = draw(Random(number))
    relation = Relation("s", {"t": pa.int64(), **COLUMNS}, "t")
    queries = bind_all(drawn.texts, Catalog({"s": relation}), SCALARS, {})
    inner, outer = queries["inner_one"], queries["outer_one"]
    assert isinstance(inner, Query) and isinstance(outer, Query)
    return drawn, *expected(drawn, inner, outer)


def answered(query: Query, columns: dict[str, pa.DataType], time: str, rows: list[Row]) -> list[Row]:
    """What the oracle makes of rows that are all that there is."""
    rules = oracle.OracleStreamRules(time, slack=None, columns=columns, kind=ClockKind.INTEGER)
    batch_id = oracle.OracleBatch(query.stream, rows, end_of_stream=True)
    return oracle.answer({"q": query}, [batch_id], {query.stream: rules}, SCALARS).results["q"]


def as_rows(results: list[Row]) -> list[Row]:
    return [row | {"window_time": row["window_end"] - 1} for row in results]


def expected(drawn: Drawn, inner: Query, outer: Query) -> tuple[list[Row], list[Row]]:
    """Early and final results of the outer query, from the inner one's by the definitions."""
    columns = {"t": pa.int64(), **COLUMNS}
    rules = oracle.OracleStreamRules("t", slack=drawn.slack, columns=columns, kind=ClockKind.INTEGER)
    everything = (Prod(inner.clock),)
    batches = [
        oracle.OracleBatch("s", [dict(zip(columns, row, strict=True)) for row in rows], prods=everything)
        for rows in drawn.batches
    ]
    batches.append(oracle.OracleBatch("s", end_of_stream=True))
    found = oracle.answer({"q": inner}, batches, {"s": rules}, SCALARS)
    relation = dict(relation_of("inner_one", inner).columns)
    finals = [
        row | {"batch": closing(drawn, inner, outer, row["window_end"])}
        for row in answered(outer, relation, "window_time", as_rows(found.results["q"]))
    ]
    early = []
    for batch_id in drawn.prods:
        known = [row for row in found.results["q"] if row["batch"] <= batch_id]
        known += [row for row in found.early["q"] if row["batch"] == batch_id]
        for row in answered(outer, relation, "window_time", as_rows(known)):
            if closing(drawn, inner, outer, row["window_end"]) > batch_id:
                early.append(row | {"batch": batch_id})
    return early, finals


def closing(drawn: Drawn, inner: Query, outer: Query, end: int) -> int:
    """The batch that closes an outer window: the last inner window inside of it has closed.

    A session is final when the tick at its end is closed as well.
    """
    last = end + 1 if inner.window.is_session else end - end % inner.window.slide
    top = None
    for number, rows in enumerate(drawn.batches):
        top = max([*(t for t, *_ in rows), *([] if top is None else [top])], default=None)
        if top is not None and top - drawn.slack >= last:
            return number
    return len(drawn.batches)


def told(rows: list[Row], kind: str) -> list[Any]:
    keys = ("batch", "window_end", "site", "m", "k", "sn", "rows")
    return sorted(tuple(repr(row.get(key)) for key in keys) for row in rows if row.get("kind", kind) == kind)


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_query_over_a_query_gives_the_oracles_answers(strategy: Strategy, restart: bool, seed: int) -> None:
    several = 0
    for number in case_seeds(seed, 40):
        drawn, early, finals = drawn_with_answers(number)
        texts = drawn.texts
        engine = Pure(texts, COLUMNS, drawn.slack, strategy, restart)
        for batch_id, rows in enumerate(drawn.batches):
            engine.batch(rows, [engine.prod()] if batch_id in drawn.prods else [])
        engine.batch(ended=True)
        ours = [row | {"batch": row["batch"] - 1} for name, row in engine.results if name == "outer_one"]
        assert told(ours, "final") == told(finals, "final"), f"drawn by Random({number}): {texts}"
        assert told(ours, "early") == told(early, "early"), f"drawn by Random({number}): {texts}"
        several += len(early)
    assert several
