"""The workload files have the properties that give the workloads their names, and every query binds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.trades import trading_hour
from benchmarks.workloads import (
    LARGE,
    MEMBERS,
    QUANTITIES,
    SEEDS,
    SIZES,
    SQUARES,
    BenchQuery,
    Predicate,
    Quantiles,
    Window,
    load,
    recipes,
    sql,
    texts,
)
from transom.sql import Catalog, Query, Relation, bind
from transom.sql.interpreter.scalars import InterpretedScalars

FLAGS = dict.fromkeys(MEMBERS, pa.bool_())
TRADES = {
    "time": pa.timestamp("us", "UTC"),
    "symbol": pa.string(),
    "price": pa.float64(),
    "vol": pa.int32(),
}
CATALOG = Catalog(
    {"trades": Relation("trades", TRADES, "time")},
    {
        "closing": Relation("closing", {"symbol": pa.string(), "cp": pa.float64()}),
        "members": Relation("members", {"symbol": pa.string(), **FLAGS}),
    },
)
FILES = [(recipe.workload, recipe.size, recipe.seeds) for recipe in recipes()]
IDS = [f"{workload} {size}" for workload, size, _ in FILES]


def windows(queries: tuple[BenchQuery, ...]) -> set[Window]:
    return {query.window for query in queries}


def predicates(queries: tuple[BenchQuery, ...]) -> set[Predicate | None]:
    return {query.predicate for query in queries}


@pytest.mark.parametrize(("workload", "size", "seeds"), FILES, ids=IDS)
def test_every_seed_has_its_own_set_of_different_queries(workload: str, size: int, seeds: int) -> None:
    sets = load(workload, size)
    assert len(sets) == seeds == (1 if size in LARGE else SEEDS)
    assert len(set(sets)) == seeds
    for queries in sets:
        assert len(queries) == len(set(queries)) == size


@pytest.mark.parametrize("size", SIZES)
def test_a_differs_in_windows_alone(size: int) -> None:
    for workload, unit in (("A", 1), ("A_seconds", 1_000)):
        for queries in load(workload, size):
            assert len(windows(queries)) == size
            assert predicates(queries) == {None}
            assert all(w.range_ms % unit == w.slide_ms % unit == 0 for w in windows(queries))


@pytest.mark.parametrize("size", SIZES)
def test_b_differs_in_predicates_alone(size: int) -> None:
    for queries in load("B", size):
        assert windows(queries) == {Window(600_000, 600_000)}
        assert len(predicates(queries)) == size


@pytest.mark.parametrize("size", [*SQUARES, *LARGE])
def test_c_regular_has_the_square_root_of_windows_and_predicates(size: int) -> None:
    for queries in load("C_regular", size):
        assert len(windows(queries)) ** 2 == len(predicates(queries)) ** 2 == size


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_c_low_sharing_has_nothing_in_common(size: int) -> None:
    for queries in load("C_low", size):
        assert len(windows(queries)) == len(predicates(queries)) == size


def test_windows_are_uniform_to_the_millisecond() -> None:
    drawn = [query.window for query in load("C_low", 10_000)[0]]
    ranges, slides = (np.array([getattr(w, name) for w in drawn]) for name in ("range_ms", "slide_ms"))
    assert ranges.min() >= 600_000 and ranges.max() <= 900_000
    assert slides.min() >= 300_000 and slides.max() <= 600_000
    assert ranges.mean() == pytest.approx(750_000, rel=0.01)
    assert slides.mean() == pytest.approx(450_000, rel=0.01)
    assert (ranges % 1_000 != 0).mean() > 0.99


def test_every_choice_of_a_predicate_is_made(tmp_path: Path) -> None:
    drawn = [query.predicate for query in load("C_low", 1_024)[0] if query.predicate]
    assert len({(p.member, p.is_member, p.quantity, p.op) for p in drawn}) == 3 * 2 * 3 * 2
    values = Quantiles(trading_hour(tmp_path, 20_000)).sorted
    for quantity in QUANTITIES:
        below = [
            np.searchsorted(values[quantity], p.constant) / len(values[quantity])
            for p in drawn
            if p.quantity == quantity
        ]
        # The smaller hour's tails are a little thinner than those that the constants were drawn from.
        assert min(below) > 0.01 and max(below) < 0.99
        assert max(below) - min(below) > (0.4 if quantity == "volume" else 0.8)


def test_the_template_is_query_4() -> None:
    query = BenchQuery(Window(754_213, 300_000), Predicate("r3000", True, "volume", ">", 300))
    assert sql(query) == (
        "SELECT sum(T.price * T.vol) AS value "
        "FROM trades [RANGE 754213 milliseconds SLIDE 300000 milliseconds] T, closing C, members X "
        "WHERE T.symbol = C.symbol AND T.symbol = X.symbol AND X.r3000 = true AND T.vol > 300"
    )


@pytest.mark.parametrize(("workload", "size"), [(w, s) for w, s, _ in FILES if s in (16, 1_024)])
def test_every_query_binds(workload: str, size: int) -> None:
    for queries in load(workload, size)[:2]:
        for name, bound in bind(texts(queries), CATALOG, InterpretedScalars()).items():
            assert isinstance(bound, Query), f"{name}: {bound}"


def test_every_predicate_of_ten_thousand_binds() -> None:
    queries = load("C_low", 10_000)[0][::10]
    assert all(isinstance(q, Query) for q in bind(texts(queries), CATALOG, InterpretedScalars()).values())
