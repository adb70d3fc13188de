"""A case on local engines, batch by batch, with restarts on the same checkpoint."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from tests.differential.cases import BatchCase, Case
from tests.differential.engine import Row, bound, key, presented, table_of
from tests.differential.on_engine import keys_at
from tests.differential.oracle_comparison import oracle_answer, same_as_oracle
from tests.engine_factory import EngineFactory
from transom.plan.limits import Limits
from transom.plan.passes import PASSES
from transom.plan.strategy import Strategy

SCHEMA = "ts timestamp, seq bigint, site int, kind string, price double, qty bigint, amount decimal(10, 2)"


def engine_options(strategy: Strategy, naive: bool, executor_rows: int | None) -> dict[str, Any]:
    """The options of an engine that shares work as a strategy says."""
    sharing = "shared" if strategy.shared else "unshared"
    slicing = "paned" if strategy.paned else "paired"
    generations = {"young_selections": 2, "old_per_young": 1}  # cases have few queries
    rows = {} if executor_rows is None else {"driver_rows": executor_rows, "driver_groups": executor_rows}
    return {
        "strategy": "naive" if naive else "auto" if strategy.adapts else f"{sharing}_{slicing}",
        "fragments": strategy.fragments.value,
        "state": strategy.place.value,
        "limits": Limits(**generations, **rows),
        "passes": PASSES if strategy.rolls else [step for step in PASSES if step.name != "rollups"],
    }


class CaseEngine:
    """Runs the batches of a case; results are kept by the case's keys."""

    def __init__(self, case: Case, checkpoint: str, options: dict[str, Any]):
        self.case, self.checkpoint, self.options = case, checkpoint, options
        self.handles: dict[str, Any] = {}  # of all queries so far
        self.keys: dict[str, str] = {}  # of registered queries, by name
        self.restart()

    def restart(self) -> None:
        """Continue with a new engine on the checkpoint."""
        self.engine = EngineFactory("local")(self.checkpoint, **self.options)
        slack, horizon = (
            None if length is None else f"{length} microseconds"
            for length in (self.case.slack, self.case.horizon)
        )
        self.feed = self.engine.feed("s", SCHEMA, time="ts", slack=slack, horizon=horizon)
        self.handles |= {query: self.engine.query(name) for name, query in self.keys.items()}

    def batch(self, batch: BatchCase) -> None:
        for query in batch.leaving:
            self.handles[query].drop()
            del self.keys[self.case.name(query)]
        for query in batch.joining:
            name = self.case.name(query)
            partial = query in self.case.partial
            self.handles[query] = self.engine.register(self.case.queries[query], name, partial=partial)
            self.keys[name] = query
        if batch.rows:
            self.feed.push(table_of(batch.rows))
        for punctuation in batch.punctuations:
            self.feed.punctuate(punctuation.until, punctuation.since, dict(punctuation.where))
        self.engine._loop.directory.push(batch.prods)  # a feed's prods are for all queries
        if batch.ended:
            self.engine.flush("s")
        self.engine.step(empty=True)

    def results(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """The final and the early results of each query."""
        final: dict[str, list[Row]] = {query: [] for query in self.case.queries}
        early: dict[str, list[Row]] = {query: [] for query in self.case.queries}
        for query, handle in self.handles.items():
            for row in presented(handle.results()):
                kind = row.get("transom_kind", row["kind"])  # some queries have a column of that name
                (early if kind == "early" else final)[query].append(row)
        return final, early

    def late(self) -> list[tuple[int, Any, tuple[str, ...]]]:
        """The late rows, each with its batch and the queries that missed it."""
        late = []
        for row in presented(self.engine.late("s")):
            names = keys_at(self.case, row["batch"] - 1)
            late.append((row["batch"] - 1, key(row), tuple(names[name] for name in row["missed_by"])))
        return late


def check_on_engine(
    case: Case,
    seed: int,
    strategy: Strategy | None = None,
    naive: bool = False,
    restart: bool = False,
    executor_rows: int | None = None,
) -> None:
    """Every final and early result, every late row and every count of local engines is the oracle's."""
    options = engine_options(strategy or Strategy(), naive, executor_rows)
    try:
        with TemporaryDirectory() as checkpoint:
            engine = CaseEngine(case, checkpoint, options)
            for number, batch in enumerate(case.batches):
                if restart and number:
                    engine.restart()
                engine.batch(batch)
            (final, early), late = engine.results(), engine.late()
        queries = bound(case.queries)
        expected = oracle_answer(case, queries)
        totals = engine.engine.progress().streams["s"]
        same_as_oracle(case, queries, final, late, totals, expected, early)
    except Exception as error:
        error.add_note(f"drawn by Random({seed}), {options}, restart={restart}")
        raise
