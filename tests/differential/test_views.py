"""Queries over views against the oracle, which is given the rows of the view: disorder, restarts, prods."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import transom
from tests.case_counts import case_count
from transom import oracle
from transom.elements import Clock, Prod
from transom.oracle.views import OracleView
from transom.sql import Catalog, bind_one
from transom.sql.interpreter.scalars import InterpretedScalars

SECOND = 1_000_000
COLUMNS = {"ts": pa.timestamp("us", tz="UTC"), "site": pa.int32(), "price": pa.float64(), "side": pa.string()}
SCHEMA = "ts timestamp, site int, price double, side string"
SCALARS = InterpretedScalars()
EXPRESSIONS = {
    "s": ["site", "site + 1", "site % 2"],
    "p": ["price", "price * 2", "CASE WHEN price > 2 THEN price END"],
    "t": ["side", "upper(side)", "coalesce(side, 'none')"],
}
CONDITIONS = [
    "true",
    "price > 1",
    "site IN (1, 2) OR side = 'a'",
    "side IS NOT NULL AND price < 4",
    "site = 9",
]
KEYS = ["s", "t", "s, t", "upper(t)", ""]
AGGREGATES = ["count(*)", "sum(p)", "max(p) - min(p)", "count(DISTINCT s)", "avg(p) FILTER (WHERE s > 1)"]


def drawn_view(draw: Random) -> tuple[str, OracleView]:
    """The text of a view over the stream, perhaps in two steps, and the view by its definition."""
    columns = {name: draw.choice(written) for name, written in EXPRESSIONS.items()}
    where = draw.choice(CONDITIONS)
    items = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    types = dict(zip(columns, SCALARS.types(COLUMNS, list(columns.values())), strict=True))
    view = OracleView("v", {"ts": "ts", **columns}, {"ts": COLUMNS["ts"], **types}, "ts", where)
    return f"SELECT ts, {items} FROM bids WHERE {where}", view


def drawn_query(draw: Random) -> str:
    keys, slide = draw.choice(KEYS), draw.choice([5, 10, 15])
    window = f"[RANGE {draw.choice([5, 10, 20])} seconds SLIDE {slide} seconds]"
    where = draw.choice(["", "WHERE s > 1", "WHERE t = 'a' OR p > 2", "WHERE p IS NOT NULL"])
    aggregates = ", ".join(f"{each} AS a{i}" for i, each in enumerate(draw.sample(AGGREGATES, 2)))
    if not keys:
        return f"SELECT {aggregates} FROM v {window} {where}"
    having = draw.choice(["", "HAVING count(*) > 1"])
    return f"SELECT {keys}, {aggregates} FROM v {window} {where} GROUP BY {keys} {having}"


def drawn_batches(draw: Random) -> list[list[dict[str, Any]]]:
    batches, top = [], 0
    for _ in range(draw.randint(2, 6)):
        rows = []
        for _ in range(draw.randint(0, 12)):
            top += draw.randint(0, 4)
            rows.append(
                {
                    "ts": max(0, top - draw.choice([0, 0, 1, 3, 9])) * SECOND,
                    "site": draw.choice([1, 2, 3, None]),
                    "price": draw.choice([0.5, 2.0, 3.5, 8.0, None]),
                    "side": draw.choice(["a", "b", None]),
                }
            )
        batches.append(rows)
    return batches


def shown(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    return sorted(
        repr([row[name] for name in ("window_start", "window_end", "rows", *names)]) for row in rows
    )


def of_kind(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    numbers = table.set_column(0, "window_start", table["window_start"].cast(pa.int64()))
    numbers = numbers.set_column(1, "window_end", numbers["window_end"].cast(pa.int64()))
    return [row for row in numbers.to_pylist() if row["kind"] == kind]


@given(st.randoms(use_true_random=False))
@settings(max_examples=case_count(15), deadline=None)
def test_queries_over_views_have_the_answers_of_the_oracle(draw: Random) -> None:
    text, view = drawn_view(draw)
    texts = {f"q{i}": drawn_query(draw) for i in range(4)}
    batches, slack = drawn_batches(draw), draw.choice([0, 2, 5])
    strategy, restarts, prodded = draw.choice(["auto", "naive"]), draw.random() < 0.3, draw.random() < 0.5
    clock = Clock("v", "ts")
    bound = {
        name: view.query(bind_one(query, Catalog({"v": view.relation()}), SCALARS))
        for name, query in texts.items()
    }
    made = [oracle.OracleBatch("bids", rows, prods=[Prod(clock)] if prodded else []) for rows in batches]
    made.append(oracle.OracleBatch("bids", [], end_of_stream=True))
    rules = oracle.OracleStreamRules("ts", slack=slack * SECOND, columns=view.relation().columns)
    expected = oracle.answer(bound, view.batches(made, COLUMNS, SCALARS), {"v": rules}, SCALARS)

    with TemporaryDirectory() as directory:
        engine = feed = None
        early: dict[str, list[dict[str, Any]]] = {name: [] for name in texts}
        for rows in [*batches, None]:
            if engine is None or restarts:
                engine = transom.Engine(backend="local", checkpoint=str(Path(directory)), strategy=strategy)
                feed = engine.feed("bids", SCHEMA, time="ts", slack=f"{slack} seconds")
                engine.view("v", text)
                queries = engine.register_all(texts)
            assert feed is not None
            if rows is None:
                engine.flush("bids")
            elif rows:
                kinds = pa.schema(list(COLUMNS.items()))
                feed.push(pa.Table.from_pylist([{**row, "ts": row["ts"]} for row in rows], schema=kinds))
            engine.step(empty=True)
            if prodded and rows is not None:
                for name, query in queries.items():
                    early[name] += of_kind(query.prod(), "early")
        for name, query in queries.items():
            names = [item.name for item in bound[name].items]
            ours = of_kind(query.results(), "final")
            assert shown(ours, names) == shown(expected.results[name], names), (text, texts[name])
            assert shown(early[name], names) == shown(expected.early[name], names), (text, texts[name])
            account, theirs = query.account, expected.accounts[name]
            for what in ("counted", "unwanted", "late", "rejected"):
                assert getattr(account, what) == theirs[what], (what, text, texts[name])
        engine.stop()
