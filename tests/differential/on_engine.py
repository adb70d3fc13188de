"""Run a case on a real engine: batches pushed into a feed, or found as files of a path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.differential.cases import COLUMNS, BatchCase, Case
from tests.differential.engine import bound, key, presented
from tests.differential.lookup_cases import same_answer
from tests.differential.oracle_comparison import oracle_answer, same_accounts, same_as_oracle
from tests.engine_factory import EngineFactory
from transom.elements import ClockKind
from transom.oracle.batches import LookupAnswer
from transom.plan.limits import Limits
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store

SCHEMA = "ts timestamp, seq bigint, site int, kind string, price double, qty bigint, amount decimal(10, 2)"


def check_on_feed(
    case: Case, make_engine: EngineFactory, checkpoint: Path, restart: bool = False, **options: Any
) -> None:
    """Push the batches one by one; with `restart`, into a new engine on the same checkpoint each time."""
    handles: dict[str, Any] = {}
    engine = feed = None
    answers = Answers(case)
    for batch in case.batches:
        if engine is None or restart:
            engine = make_engine(str(checkpoint), **options)
            feed = engine.feed("s", SCHEMA, time="ts", slack=micros(case.slack), horizon=micros(case.horizon))
        say(engine, case, batch, handles)
        if batch.rows:
            feed.push(table_of(batch))
        for one in batch.punctuations:
            feed.punctuate(one.until, one.since, dict(one.where))
        if batch.ended:
            engine.flush("s")
        engine.step(empty=True)  # the case counts batches that bring nothing, too
        answers.ask(batch, living(case, engine))
    compare_engine(case, engine, checkpoint, handles | living(case, engine), answers)


def check_on_files(case: Case, make_engine: EngineFactory, directory: Path, **options: Any) -> None:
    """Let the batches come as files of a path: their rows are read and aggregated by the backend's tasks."""
    files = directory / "files"
    files.mkdir(parents=True)
    options = {"limits": Limits(pushed_rows=0)} | options  # small files would be read on the driver
    engine = make_engine(str(directory / "checkpoint"), **options)
    engine.stream(
        "s",
        str(files),
        time="ts",
        slack=micros(case.slack),
        horizon=micros(case.horizon),
        format="parquet",
        schema=SCHEMA,
    )
    handles: dict[str, Any] = {}
    answers = Answers(case)
    for number, batch in enumerate(case.batches):
        if batch.rows:
            pq.write_table(table_of(batch), files / f"{number:04d}.parquet", row_group_size=3)
        say(engine, case, batch, handles)
        for one in batch.punctuations:
            engine.punctuate("s", one.until, one.since, dict(one.where))
        if batch.ended:
            engine.flush("s")
        engine.step(empty=True)  # the case counts batches that bring nothing, too
        answers.ask(batch, living(case, engine))
    compare_engine(case, engine, directory / "checkpoint", handles | living(case, engine), answers)


class Answers:
    """What on-demand queries are answered after batches, and what the oracle says."""

    def __init__(self, case: Case):
        self.case, self.queries = case, bound(case.queries)
        self.found: list[tuple[str, list[Any]]] = []

    def ask(self, batch: BatchCase, living: dict[str, Any]) -> None:
        """Look up whoever lives, for the whole window and for half of it."""
        for name, handle in living.items():
            query = self.queries[name]
            whole = query.window.range
            for length in {whole, max(1, whole // 2)} if query.is_on_demand else ():
                word = "rows" if query.clock.kind is ClockKind.ROWS else "range"
                said = f"{length} microseconds" if query.clock.kind is ClockKind.TIME else length
                self.found.append((name, presented(handle.lookup(**{word: said}))))
                batch.lookups.append((name, length))

    def compare(self, expected: Sequence[LookupAnswer]) -> None:
        for (name, rows), answer in zip(self.found, expected, strict=True):
            assert name == answer.query
            # Shared stores may have seen all rows of a window, also those from before the query joined.
            is_complete = rows[0]["complete"] if rows else answer.complete or not answer.whole
            same_answer(self.queries[name], rows, is_complete, answer)


def say(engine: Any, case: Case, batch: BatchCase, handles: dict[str, Any]) -> None:
    for query in batch.leaving:
        # The results of one that left are read from its last engine.
        handles[query] = engine.query(case.name(query))
        handles[query].drop()
    for query in batch.joining:
        handles[query] = engine.register(case.queries[query], case.name(query), partial=query in case.partial)


def keys_at(case: Case, batch_id: int) -> dict[str, str]:
    """The case's keys of the queries that are there in a batch, by name."""
    keys: dict[str, str] = {}
    for batch in case.batches[: batch_id + 1]:
        keys |= {case.name(query): query for query in batch.joining}
    return keys


def living(case: Case, engine: Any) -> dict[str, Any]:
    """The queries that are there, by the case's keys."""
    keys: dict[str, str] = {}
    for batch in case.batches:
        keys |= {case.name(query): query for query in batch.joining}
    return {keys[name]: handle for name, handle in engine.queries().items()}


def table_of(batch: BatchCase) -> pa.Table:
    return pa.table(
        {
            name: pa.array([row[name] for row in batch.rows], kind, from_pandas=False)
            for name, kind in COLUMNS.items()
        }
    )


def micros(value: int | None) -> str | None:
    return None if value is None else f"{value} microseconds"


def compare_engine(
    case: Case, engine: Any, checkpoint: Path, handles: dict[str, Any], answers: Answers
) -> None:
    queries = answers.queries
    pushed = {name for name, query in queries.items() if query.is_standing}
    results = {
        name: presented(handles[name].results()) if name in handles and name in pushed else []
        for name in queries
    }
    late = []
    for row in presented(engine.late("s")):
        names = keys_at(case, row["batch"] - 1)
        late.append((row["batch"] - 1, key(row), tuple(names[name] for name in row["missed_by"])))
    expected = oracle_answer(case, queries)
    totals = engine.progress().streams["s"]
    same_as_oracle(case, queries, results, late, totals, expected)
    committed = BatchLog(Store(checkpoint)).last()
    assert committed is not None
    same_accounts(case, queries, committed[0].accounts, expected)
    answers.compare(expected.lookups)
