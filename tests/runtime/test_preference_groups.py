"""GROUP BY and aggregates WITH PREFERENCE, over joins and selections, compared with all pairs batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.preference_helpers import NOON, SUMMARY

SALES = "item int, till string, price double, units bigint, cost decimal(8, 2), ts timestamp"
BOTH = "SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)"
FROM = "FROM store1 a, store2 b WHERE a.item = b.item"
WINDOW = 30


@dataclass(frozen=True)
class Sold:
    item: int | None
    till: str | None
    price: float | None
    units: int
    cost: Any
    ts: datetime

    @property
    def row(self) -> tuple[Any, ...]:
        return self.item, self.till, self.price, self.units, self.cost, self.ts


Pair = tuple[Sold, ...]
Function = Callable[[list[Any]], Any]


def median(values: list[Any]) -> Any:
    return float(np.median(values)) if values else None


def over(function: Function, empty: Any = None) -> Function:
    """An aggregate over values that are not null."""

    def aggregate(values: list[Any]) -> Any:
        present = [value for value in values if value is not None]
        return function(present) if present else empty

    return aggregate


SUM, AVG, MIN, MAX, MEDIAN = (over(f) for f in (sum, lambda v: sum(v) / len(v), min, max, median))
COUNT, ROWS = over(len, 0), len


@dataclass(frozen=True)
class Case:
    """A query, and the same by hand: its keys, its figures with what they are over, and its condition on pairs."""

    text: str
    keys: Callable[[Pair], tuple[Any, ...]]
    figures: Sequence[tuple[Function, Callable[[Pair], Any]]]
    where: Callable[[Pair], bool] = lambda pair: True
    first: str = "store1"
    second: str | None = "store2"
    need: str = "without pairs"


def times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


CASES = {
    "no groups": Case(
        f"SELECT count(*) AS n, sum(a.units) AS u, sum(b.price) AS p, avg(a.cost) AS c {FROM}",
        lambda p: (),
        [
            (ROWS, lambda p: 1),
            (SUM, lambda p: p[0].units),
            (SUM, lambda p: p[1].price),
            (AVG, lambda p: p[0].cost),
        ],
    ),
    "by the joined column": Case(
        "SELECT a.item, count(*) AS n, sum(a.price) AS x, sum(b.cost) AS y, avg(b.units) AS u, min(a.till) AS t, "
        f"max(b.price) AS m, median(a.price) AS d {FROM} GROUP BY a.item",
        lambda p: (p[0].item,),
        [
            (ROWS, lambda p: 1),
            (SUM, lambda p: p[0].price),
            (SUM, lambda p: p[1].cost),
            (AVG, lambda p: p[1].units),
            (MIN, lambda p: p[0].till),
            (MAX, lambda p: p[1].price),
            (MEDIAN, lambda p: p[0].price),
        ],
    ),
    "by a column of the other side": Case(
        f"SELECT b.till, count(b.price) AS n, sum(a.units) AS u, median(a.price) AS d {FROM} AND a.units > 1 "
        "GROUP BY 1",
        lambda p: (p[1].till,),
        [(COUNT, lambda p: p[1].price), (SUM, lambda p: p[0].units), (MEDIAN, lambda p: p[0].price)],
        where=lambda p: p[0].units > 1,
    ),
    "by columns of both sides": Case(
        f"SELECT a.till AS here, b.till AS there, count(*) AS n, sum(a.price) AS x, avg(b.price) AS y {FROM} "
        "GROUP BY here, there",
        lambda p: (p[0].till, p[1].till),
        [(ROWS, lambda p: 1), (SUM, lambda p: p[0].price), (AVG, lambda p: p[1].price)],
    ),
    "by an expression": Case(
        f"SELECT a.item % 3 AS third, count(*) AS n, max(b.units * 2) AS m {FROM} AND b.price < 70 GROUP BY a.item % 3",
        lambda p: (p[0].item % 3 if p[0].item is not None else None,),
        [(ROWS, lambda p: 1), (MAX, lambda p: p[1].units * 2)],
        where=lambda p: p[1].price is not None and p[1].price < 70,
    ),
    "a stream with itself": Case(
        "SELECT a.till, count(*) AS n, sum(b.units) AS u FROM store1 a, store1 b WHERE a.item = b.item GROUP BY a.till",
        lambda p: (p[0].till,),
        [(ROWS, lambda p: 1), (SUM, lambda p: p[1].units)],
        second="store1",
    ),
    "a condition on pairs": Case(
        f"SELECT a.item, count(*) AS n, sum(b.price) AS x {FROM} AND a.price < b.price GROUP BY a.item",
        lambda p: (p[0].item,),
        [(ROWS, lambda p: 1), (SUM, lambda p: p[1].price)],
        where=lambda p: None not in (p[0].price, p[1].price) and p[0].price < p[1].price,  # type: ignore[operator]
        need="pairs",
    ),
    "an aggregate over pairs": Case(
        f"SELECT count(*) AS n, a.till, sum(a.price * b.units) AS x, median(b.cost) AS c {FROM} GROUP BY a.till",
        lambda p: (p[0].till,),
        [
            (ROWS, lambda p: 1),
            (SUM, lambda p: times(p[0].price, p[1].units)),
            (MEDIAN, lambda p: float(p[1].cost)),
        ],
        need="pairs",
    ),
    "a key over pairs": Case(
        f"SELECT a.till = b.till AS same, count(*) AS n {FROM} GROUP BY a.till = b.till",
        lambda p: (None if None in (p[0].till, p[1].till) else p[0].till == p[1].till,),
        [(ROWS, lambda p: 1)],
        need="pairs",
    ),
    "a stream with itself, by pairs": Case(
        "SELECT a.item, count(*) AS n, sum(a.units - b.units) AS u FROM store1 a, store1 b "
        "WHERE a.item = b.item AND a.ts < b.ts GROUP BY a.item",
        lambda p: (p[0].item,),
        [(ROWS, lambda p: 1), (SUM, lambda p: p[0].units - p[1].units)],
        where=lambda p: p[0].ts < p[1].ts,
        second="store1",
        need="pairs",
    ),
    "a selection": Case(
        "SELECT till, count(*) AS n, avg(price) AS p FROM store1 WHERE units > 1 GROUP BY till",
        lambda p: (p[0].till,),
        [(ROWS, lambda p: 1), (AVG, lambda p: p[0].price)],
        where=lambda p: p[0].units > 1,
        second=None,
        need="tuples",
    ),
}


def registered(case: Case, order: str = "desc", budget: str = "") -> str:
    promise = BOTH if case.second is not None else "SUMMARY.Estimate.Count(item)"
    return f"{case.text} WITH PREFERENCE {order} {promise} WINDOW '{WINDOW} seconds' {budget}"


def by_hand(
    case: Case, sold: Mapping[str, list[Sold]], since: Mapping[str, int]
) -> dict[Any, tuple[Any, ...]]:
    """The figures over all pairs in the window, by group; of each stream, the query sees the sales from a number on."""
    first, second = sold[case.first], None if case.second is None else sold[case.second]
    if not first or (second is not None and not second):
        return (
            {}
            if case.keys((Sold(0, "", 0, 0, 0, NOON),) * 2)
            else {(): tuple(f([]) for f, _ in case.figures)}
        )
    now = min(max(row.ts for row in rows) for rows in (first, second or first))
    start = now - timedelta(seconds=WINDOW)
    ones = [row for row in first[since[case.first] :] if row.ts > start]
    pairs: list[Pair] = [(one,) for one in ones]
    if second is not None and case.second is not None:
        others = [row for row in second[since[case.second] :] if row.ts > start]
        pairs = [
            (one, other)
            for one in ones
            for other in others
            if one.item is not None
            and one.item == other.item
            and abs((one.ts - other.ts).total_seconds()) <= WINDOW
        ]
    groups: dict[Any, list[Pair]] = {} if case.keys((Sold(0, "", 0, 0, 0, NOON),) * 2) else {(): []}
    for pair in pairs:
        if case.where(pair):
            groups.setdefault(case.keys(pair), []).append(pair)
    return {
        key: tuple(function([value(pair) for pair in some]) for function, value in case.figures)
        for key, some in groups.items()
    }


def rows_of(case: Case, query: Any) -> dict[Any, tuple[Any, ...]]:
    """The groups that the last batch of a query reported."""
    rows = query.results().to_pylist()
    last = [row for row in rows if row["batch"] == rows[-1]["batch"]] if rows else []
    names = list(query.results().column_names)
    items = names[: names.index("rows")]
    keys = [item for item in items if item in ("item", "till", "here", "there", "third", "same")]
    figures = [item for item in items if item not in keys and not item.endswith(("_low", "_high"))]
    return {tuple(row[key] for key in keys): tuple(row[figure] for figure in figures) for row in last}


def same(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None or isinstance(mine, str):
        return bool(mine == theirs)
    return math.isclose(float(mine), float(theirs), rel_tol=1e-9, abs_tol=1e-5)


def assert_same(
    case: Case, query: Any, sold: Mapping[str, list[Sold]], since: Mapping[str, int] | None = None
) -> None:
    mine, theirs = rows_of(case, query), by_hand(case, sold, since or dict.fromkeys(sold, 0))
    assert mine.keys() == theirs.keys()
    for key, figures in theirs.items():
        assert all(map(same, mine[key], figures)), (key, mine[key], figures)


def engine_of(make_engine: EngineFactory, place: Path, **settings: Any) -> tuple[Any, dict[str, Any]]:
    engine = make_engine(str(place / "checkpoint"), **settings)
    feeds = {name: engine.feed(name, SALES, time="ts") for name in ("store1", "store2")}
    for name in feeds:
        engine.execute(f"CREATE SUMMARY {name}_items ON {name}(item) {SUMMARY} AND BUCKETS 4")
    return engine, feeds


def drawn_sales(rng: np.random.Generator, batch: int, rows: int) -> list[Sold]:
    """Sales out of order, with NULLs, and batches that overlap by half."""
    made = []
    for _ in range(rows):
        made.append(
            Sold(
                None if rng.random() < 0.05 else int(min(rng.zipf(1.5), 12)),
                None if rng.random() < 0.1 else "abc"[int(rng.integers(3))],
                None if rng.random() < 0.1 else float(rng.integers(0, 100)),
                int(rng.integers(-3, 9)),
                Decimal(int(rng.integers(0, 10_000))) / 100,
                NOON + timedelta(seconds=int(rng.integers(8 * batch, 8 * batch + 16))),
            )
        )
    return made


@pytest.mark.parametrize(
    "places", [("driver", "driver"), ("executors", "executors"), ("driver", "executors")]
)
def test_groups_and_aggregates_are_those_of_all_pairs_also_after_a_restart(
    places: tuple[str, str], make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    """Disorder, NULLs, tuples that leave the window, queries that join later, and a restart in the middle, also with
    the state in another place; no budget, or one that suffices."""
    engine, feeds = engine_of(make_engine, tmp_path, state=places[0])
    texts = {name: registered(case) for name, case in CASES.items()}
    texts |= {f"{name}, cut": registered(case, "asc", "BUDGET 100000 PROBES") for name, case in CASES.items()}
    engine.register_all(texts)
    rng, sold = np.random.default_rng(seed), dict[str, list[Sold]](store1=[], store2=[])
    batches = 8 if places[1] == "driver" else 4
    joined: dict[str, int] = {}
    for batch in range(batches):
        if batch == 1:
            engine.register_all({f"{name}, later": registered(case) for name, case in CASES.items()})
            joined = {name: len(rows) for name, rows in sold.items()}
        if batch == batches // 2:
            engine.stop()
            engine, feeds = engine_of(make_engine, tmp_path, state=places[1])
        for name, feed in feeds.items():
            rows = drawn_sales(rng, batch, int(rng.integers(1, 25)))
            sold[name] += rows
            feed.push([row.row for row in rows])
            engine.step()
            for text in texts:
                case = CASES[text.removesuffix(", cut")]
                if name in (case.first, case.second):
                    assert_same(case, engine.query(text), sold)
            for text, case in CASES.items():
                if joined and name in (case.first, case.second):
                    assert_same(case, engine.query(f"{text}, later"), sold, joined)
    engine.stop()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.need != "without pairs"])
@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_a_budget_aggregates_a_part_and_idle_steps_the_rest(
    name: str, order: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = engine_of(make_engine, tmp_path)
    case = CASES[name]
    budget = 5 if case.need == "tuples" else 30
    query = engine.register(registered(case, order, f"BUDGET {budget} PROBES"), "cut")
    rng, sold = np.random.default_rng(seed), dict[str, list[Sold]](store1=[], store2=[])
    for batch in range(2):
        for store, feed in feeds.items():
            rows = drawn_sales(rng, batch, 25)
            sold[store] += rows
            feed.push([row.row for row in rows])
            engine.step()
    last = query.results().to_pylist()[-1]
    assert not last["complete"] and last["share"] < 1
    while engine.step():
        pass
    assert engine.query("cut").coverage().left == 0
    assert_same(case, query, sold)
    for row in query.results().to_pylist()[-1:]:
        bounds = [row[f"{name}_low"] for name in row if f"{name}_low" in row]
        assert bounds == [row[f"{name}_high"] for name in row if f"{name}_low" in row]
        assert order == "weighted" or not bounds
    engine.stop()


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_weighted_sample_of_pairs_estimates_all_pairs_of_each_group(
    state: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    """A sixth of the pairs is drawn. Prices depend on the group, and the condition on pairs on the prices."""
    engine, feeds = engine_of(make_engine, tmp_path, state=state)
    text = (
        f"SELECT a.till, count(*) AS n, sum(a.price * b.units) AS total, avg(b.price) AS mean {FROM} AND "
        f"a.price < b.price + 20 GROUP BY a.till WITH PREFERENCE weighted {BOTH} WINDOW '30 seconds'"
    )
    exact, sample = (
        engine.register(f"{text} {budget}", name)
        for name, budget in (("all", ""), ("some", "BUDGET 700 PROBES"))
    )
    rng = np.random.default_rng(5)
    for batch in range(3):
        for feed in feeds.values():
            rows = drawn_sales(rng, batch, 120)
            feed.push([row.row for row in rows])
            engine.step()
    truth, drawn = (
        {row["till"]: row for row in query.results().to_pylist() if row["batch"] == 6}
        for query in (exact, sample)
    )
    assert truth.keys() == drawn.keys() and len(truth) == 4
    assert sum(row["rows"] for row in drawn.values()) < sum(row["rows"] for row in truth.values()) / 2
    for till, row in drawn.items():
        for name in ("n", "total", "mean"):
            low, high, value = row[f"{name}_low"], row[f"{name}_high"], float(truth[till][name])
            assert low <= row[name] <= high
            # 95 % bounds, widened to five standard errors: this must not fail by chance
            assert abs(row[name] - value) <= (high - low) * 1.25, (name, row, truth[till])
    engine.stop()


@ON_BOTH
def test_results_have_the_columns_of_select_in_its_order(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = engine_of(make_engine, tmp_path)
    query = engine.register(registered(CASES["an aggregate over pairs"]), "pairs")
    combined = engine.register(registered(CASES["by columns of both sides"]), "combined")
    sold = [Sold(1, "a", 2.0, 3, None, NOON), Sold(1, None, 4.0, 5, None, NOON)]
    for feed in feeds.values():
        feed.push([row.row for row in sold])
    engine.step()
    system = ["rows", "batch", "made", "complete", "share", "skipped"]
    assert query.results().column_names == ["n", "till", "x", "c", *system]
    assert combined.results().column_names == ["here", "there", "n", "x", "y", *system]
    assert {row["till"]: row["x"] for row in query.results().to_pylist()} == {"a": 16.0, None: 32.0}
    assert set(combined.results()["n"].to_pylist()) == {1}
    assert combined.coverage().produced == query.coverage().produced == 4
    plan = str(engine.explain())
    assert (
        "aggregates of store1 (summary store1_items) and store2" in plan
        and "groups by till of store1, till of store2" in plan
    )
    assert "tuples are counted, and no pairs are produced: no budget is needed" in plan
    engine.stop()
