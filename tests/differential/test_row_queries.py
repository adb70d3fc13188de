"""Queries without a window against the oracle: every matching row is a result once, over restarts and disorder."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom import oracle
from transom.elements import Drop, Register
from transom.plan.limits import Limits
from transom.sql import Catalog, Query, bind_one
from transom.sql.catalog import Relation
from transom.sql.interpreter.scalars import InterpretedScalars

SECOND = 1_000_000
COLUMNS = {
    "ts": pa.timestamp("us", tz="UTC"),
    "site": pa.int32(),
    "price": pa.float64(),
    "side": pa.string(),
    "total": pa.decimal128(10, 2),
}
SCHEMA = "ts timestamp, site int, price double, side string, total decimal(10, 2)"
SCALARS = InterpretedScalars()
ITEMS = [
    "site",
    "price",
    "side",
    "price * 2 AS twice",
    "upper(side) AS up",
    "ts",
    "1 AS one",
    "total",
    "price AS again",
]
CONDITIONS = [
    "price > {p}",
    "price <= {p}",
    "price = {p}",
    "price BETWEEN {p} AND 6",
    "site = {s}",
    "site IN (1, {s})",
    "site != {s}",
    "side = 'a'",
    "side IS NULL",
    "side > 'a'",
    "side LIKE 'b%'",
    "price > site",
    "total >= 2.5",
    "(price > {p} OR site = {s})",
    "NOT (price < {p} OR price > 6)",
    "price * 2 > {p}",
    "(side = 'a' OR price > {p})",
]


def drawn_query(draw: Random) -> str:
    items = draw.sample(ITEMS, draw.randint(1, 4))
    parts = draw.sample(CONDITIONS, draw.randint(0, 3))
    filled = (part.format(p=draw.choice([0.5, 1, 2.0, 3.5, 8]), s=draw.randint(1, 3)) for part in parts)
    where = " AND ".join(filled)
    return f"SELECT {', '.join(items)} FROM s{f' WHERE {where}' if where else ''}"


def drawn_rows(draw: Random, top: int) -> list[dict[str, Any]]:
    return [
        {
            "ts": draw.choice([None, *[(top + draw.randint(-20, 20)) * SECOND] * 9]),
            "site": draw.choice([1, 2, 3, None]),
            "price": draw.choice([0.5, 2.0, 3.5, 8.0, -0.0, float("nan"), float("inf"), None]),
            "side": draw.choice(["a", "b", "bb", "", None]),
            "total": draw.choice([None, Decimal("1"), Decimal("2.5"), Decimal("7")]),
        }
        for _ in range(draw.randint(0, 25))
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {
        name: pa.array([row[name] for row in rows], kind, from_pandas=False) for name, kind in COLUMNS.items()
    }
    return pa.table(columns)


def shown(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    return sorted(repr([str(row[name]) for name in ("event_time", "batch", *names)]) for row in rows)


def ours(table: pa.Table) -> list[dict[str, Any]]:
    assert set(table["kind"].to_pylist()) <= {"final"}
    for name in table.column_names:
        if pa.types.is_timestamp(table.schema.field(name).type):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(pa.int64()))
    return [{**row, "batch": row["batch"] - 1} for row in table.to_pylist()]


def bound(texts: dict[str, str]) -> dict[str, Query]:
    catalog = Catalog({"s": Relation("s", COLUMNS, "ts")})
    return {name: bind_one(text, catalog, SCALARS) for name, text in texts.items()}


def check(draw: Random, make_engine: EngineFactory, directory: Path, as_files: bool, restarts: bool) -> None:
    texts = {f"q{i}": drawn_query(draw) for i in range(draw.randint(1, 30))}
    texts["windows"] = "SELECT site, count(*) AS n FROM s [RANGE 20 seconds SLIDE 10 seconds] GROUP BY site"
    batches = [drawn_rows(draw, 20 * number) for number in range(5)]
    joins = {name: draw.choice([0, 0, 0, 1, 2]) for name in texts}
    leaves = {name: draw.choice([3, 9, 9, 9]) for name in texts}
    queries = bound(texts)
    made = [
        oracle.OracleBatch(
            "s",
            rows,
            before=[
                *(Drop(name) for name in texts if leaves[name] == number),
                *(Register(name, texts[name]) for name in texts if joins[name] == number),
            ],
        )
        for number, rows in enumerate(batches)
    ]
    rules = oracle.OracleStreamRules("ts", slack=5 * SECOND, columns=COLUMNS)
    expected = oracle.answer(queries, made, {"s": rules}, SCALARS)

    files = directory / "files"
    files.mkdir()
    engine = feed = None
    handles: dict[str, Any] = {}
    for number, rows in enumerate(batches):
        if engine is None or restarts:
            limits = Limits(pushed_rows=0) if as_files else Limits()
            engine = make_engine(directory / "checkpoint", limits=limits)
            if as_files:
                engine.stream(
                    "s",
                    str(files),
                    time="ts",
                    slack="5 seconds",
                    format="parquet",
                    schema=SCHEMA,
                    horizon=None,
                )
            else:
                feed = engine.feed("s", SCHEMA, time="ts", slack="5 seconds", horizon=None)
            handles |= engine.queries()
        for name in texts:
            if leaves[name] == number:
                handles[name].drop()
            if joins[name] == number:
                handles[name] = engine.register(texts[name], name)
        if rows and as_files:
            pq.write_table(table_of(rows), files / f"{number}.parquet", row_group_size=7)
        elif rows and feed is not None:
            feed.push(table_of(rows))
        engine.step(empty=True)
    for name in texts:
        if name == "windows":
            continue
        names = [item.name for item in queries[name].items]
        assert shown(ours(handles[name].results()), names) == shown(expected.results[name], names), texts[
            name
        ]
        if leaves[name] == 9:
            account, theirs = handles[name].account, expected.accounts[name]
            for what in ("counted", "unwanted", "late", "rejected"):
                assert getattr(account, what) == theirs[what], (what, texts[name])
    assert engine is not None
    assert engine.progress().unaccounted == 0
    engine.stop()


@pytest.mark.parametrize("restarts", [False, True], ids=["one engine", "an engine for each batch"])
@pytest.mark.parametrize("seed", range(12))
def test_row_queries_have_the_answers_of_the_oracle(
    seed: int, restarts: bool, make_engine: EngineFactory, tmp_path: Path
) -> None:
    check(Random(seed), make_engine, tmp_path, as_files=seed % 3 == 0, restarts=restarts)


@ON_BOTH
@pytest.mark.parametrize("seed", [101, 102])
def test_row_queries_over_files_have_the_answers_of_the_oracle(
    seed: int, make_engine: EngineFactory, tmp_path: Path
) -> None:
    check(Random(seed), make_engine, tmp_path, as_files=True, restarts=seed % 2 == 0)
