"""A stream of bids and queries over it, bound and compiled without Spark."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from transom.elements import Clock, ClockKind
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership
from transom.plan.planner import Planner, SharedPlan
from transom.plan.strategy import Strategy
from transom.sql import Catalog, Query, Relation, bind_one
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.state.state import State
from transom.windows.stream_rules import StreamRules

SCALARS = InterpretedScalars()
COLUMNS = {
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "site": pa.int32(),
    "kind": pa.string(),
    "price": pa.float64(),
    "amount": pa.decimal128(10, 2),
    "day": pa.date32(),
}
CATALOG = Catalog(
    {"bids": Relation("bids", COLUMNS, "ts")},
    {"closing": Relation("closing", {"site": pa.int32(), "cp": pa.float64()})},
)
TIME, SEQ = Clock("bids", "ts"), Clock("bids", "seq", ClockKind.INTEGER)
RULES = StreamRules(TIME, 30_000_000, {}, 366 * 86_400_000_000)


@cache
def bound(text: str) -> Query:
    return bind_one(text, CATALOG, SCALARS)


def compiled(text: str, name: str = "q", naive: bool = False) -> CompiledQuery:
    return compile_query(name, bound(text), naive)


def admitted(*queries: CompiledQuery, strategy: Strategy | None = None) -> State:
    """The state after some queries joined, before any row."""
    membership = Membership({query.name: query for query in queries}, queries)
    return Planner(strategy).begin(State(), membership)


def planned(*queries: CompiledQuery, strategy: Strategy | None = None) -> SharedPlan:
    """The plan of queries that joined before any row."""
    return Planner(strategy).plan(admitted(*queries, strategy=strategy), queries)
