"""The kernel and the final aggregation alone, on one core: batches are in memory and already projected."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.elements import Clock, ClockKind
from transom.kernel.aggregate import BatchPlan, accounts_of, aggregate_rows, count_partials
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.plan.strategy import FragmentSharing, Strategy
from transom.results.advance import apply_batch
from transom.results.batch_input import BatchInput
from transom.sql import Catalog, Query, Relation, bind
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.state.state import State
from transom.windows.stream_rules import StreamRules

TIME = Clock("trades", "time", ClockKind.TIME)
CATALOG = Catalog(
    {
        "trades": Relation(
            "trades",
            {
                "time": pa.timestamp("us", tz="UTC"),
                "symbol": pa.string(),
                "price": pa.float64(),
                "vol": pa.int32(),
            },
            "time",
        )
    },
    {
        "closing": Relation("closing", {"symbol": pa.string(), "cp": pa.float64()}),
        "members": Relation(
            "members",
            {"symbol": pa.string(), **{name: pa.bool_() for name in ("r3000", "r2000", "r1000")}},
        ),
    },
)
_NAME = re.compile(r"`(?:[^`#.]+#[0-9a-f]+\.)?([^`#]+)`")
_FLAG = re.compile(r"`[^`#]+#[0-9a-f]+`")


@dataclass(frozen=True)
class Measured:
    """The cost of aggregating all batches."""

    partial_seconds: float
    final_seconds: float
    partials: int  # tuples that were lifted into cells
    finals: int  # slices that were combined into windows
    state_bytes: int  # after the last batch


def compiled(queries: dict[str, str]) -> list[CompiledQuery]:
    """Bind and compile queries."""
    compiled_queries = []
    for name, query in bind(queries, CATALOG, InterpretedScalars()).items():
        if not isinstance(query, Query):
            raise query
        compiled_queries.append(compile_query(name, query))
    return compiled_queries


def measure(
    batches: list[pa.Table],
    queries: dict[str, str],
    windows: str,
    fragments: str,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Aggregate the batches; an unshared strategy runs one query's plan at a time."""
    ready = compiled(queries)
    if windows.startswith("unshared"):
        runs = [_run(batches, [query], windows, fragments, clock) for query in ready]
        return Measured(
            sum(run.partial_seconds for run in runs),
            sum(run.final_seconds for run in runs),
            sum(run.partials for run in runs),
            sum(run.finals for run in runs),
            sum(run.state_bytes for run in runs),
        )
    return _run(batches, ready, windows, fragments, clock)


def _run(
    batches: Sequence[pa.Table],
    queries: Sequence[CompiledQuery],
    windows: str,
    fragments: str,
    clock: Callable[[], float],
) -> Measured:
    strategy = Strategy(windows.startswith("shared"), windows.endswith("paned"), FragmentSharing(fragments))
    rules = StreamRules(TIME, 0)
    planner = Planner(strategy)
    state = planner.begin(State(), Membership({query.name: query for query in queries}, queries))
    names = {
        sql: f"c{i}" for i, sql in enumerate(dict.fromkeys(s.sql for q in queries for s in q.query.scalars()))
    }
    partial = final = 0.0
    partials = finals = 0
    for batch in batches:
        table = projected(batch, names)
        started = clock()
        shared = planner.plan(state, queries)
        closed = {TIME: state.stream("trades").clock(TIME).closed}
        plan = BatchPlan(
            shared.families, shared.interests, names, {TIME: "t0"}, "t0", closed, index=shared.index
        )
        outcome = count_partials(aggregate_rows(table, plan), plan)
        outcome.accounts = accounts_of(outcome, plan)
        between = clock()
        done = apply_batch(state, [BatchInput(rules, queries, outcome)])
        partial, final = partial + between - started, final + clock() - between
        state, finals, partials = done.state, finals + done.finals, partials + outcome.lifted
    return Measured(partial, final, partials, finals, sum(table.nbytes for table in state.sheets.values()))


_projected: dict[
    tuple[int, str], tuple[pa.Table, pa.Array]
] = {}  # holds the batches, so that no id is reused


def projected(batch: pa.Table, names: dict[str, str]) -> pa.Table:
    """A batch with every scalar computed, as Spark's projection delivers it."""
    columns = {"t0": batch["time"].cast(pa.int64())}
    for sql, name in names.items():
        if (id(batch), sql) not in _projected:
            _projected[id(batch), sql] = batch, _evaluated(batch, sql)
        columns[name] = _projected[id(batch), sql][1]
    return pa.table(columns)


def _evaluated(batch: pa.Table, sql: str) -> pa.Array:
    if _FLAG.fullmatch(sql):  # whether a join has a match: every symbol is in the tables
        return pa.array(np.ones(batch.num_rows, bool))
    column = _NAME.fullmatch(sql)
    if column:
        return batch[column[1]].combine_chunks()
    text = _NAME.sub(lambda match: f"batch[{match[1]!r}].to_numpy()", sql)
    return pa.array(eval(text, {"batch": batch, "abs": np.abs}))
