"""Sidelining rows of bursts does not change the final results."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential.cases import SECOND, BatchCase, Case, case, following, stream
from tests.differential.engine import TIME, PureEngine, Row, bound, presented, table_of
from tests.differential.on_engine import SCHEMA, micros
from tests.differential.oracle_comparison import identity, oracle_answer, same_row
from tests.engine_factory import ON_BOTH, EngineFactory
from transom.elements import ClockKind, Overload
from transom.overload.bursts import split_burst
from transom.overload.chunks import BurstOutcome, SidelinedChunk, chunk_rows
from transom.overload.resumption import chunks_to_resume, chunks_without_new_rows
from transom.plan.strategy import Place, Strategy
from transom.results.batch_input import clocks_of
from transom.sql import Query

pytestmark = pytest.mark.any_worker

STRATEGIES: list[dict[str, Any]] = [
    {},
    {"strategy": Strategy(shared=False)},
    {"strategy": Strategy(place=Place.EXECUTORS)},
    {"naive": True},
]


class Sidelining(PureEngine):
    """An engine whose batches have a budget; rows that are aside are kept in memory.

    With dice, it is a matter of chance which rows of a bucket those are.
    """

    def __init__(
        self,
        case: Case,
        queries: dict[str, Query],
        overload: Overload,
        dice: Random | None = None,
        **options: Any,
    ):
        super().__init__(case, queries, **options)
        self.dice = dice
        self.overload, self.rules = overload, replace(self.rules, overload=overload)
        self.stored: dict[str, list[Row]] = {}
        self.most_aside = 0

    def part(self, batch: BatchCase, limit: int | None) -> tuple[BatchCase, BurstOutcome]:
        known = self.state.stream("s")
        taken = chunks_to_resume(known.sidelined, known.credit, self.overload.share)
        if batch.ended:
            taken = known.sidelined
        elif not batch.rows:
            taken = chunks_without_new_rows(known.sidelined, self.overload.budget)
        aside = [] if batch.ended else self._aside(batch, limit, chunk_rows(taken))
        gone = {int(i) for rows, _ in aside for i in rows}
        rows = [row for i, row in enumerate(batch.rows) if i not in gone]
        rows += [row for chunk in taken for row in self.stored.pop(chunk.name)]
        chunks = []
        for number, (at, ranges) in enumerate(aside):
            name = f"{self.state.batch_id}/{number}"
            chunks.append(SidelinedChunk(name, len(at), self.state.batch_id, ranges))
            if not self.overload.shed:
                self.stored[name] = [batch.rows[i] for i in at]
        self.most_aside = max(self.most_aside, len(gone))
        if self.overload.shed:
            return replace(batch, rows=rows), BurstOutcome(shed=tuple(chunks))
        return replace(batch, rows=rows), BurstOutcome(tuple(chunks), tuple(taken))

    def _aside(self, batch: BatchCase, limit: int | None, taken: int) -> list[Any]:
        known, table = self.state.stream("s"), table_of(batch.rows)
        columns = {}
        for clock in clocks_of(self.living.values(), self.rules):
            if clock.kind is not ClockKind.ROWS:
                values = table[clock.attribute].cast(pa.int64()).combine_chunks()
                columns[clock] = values.fill_null(0).to_numpy(), values.is_valid().to_numpy(False)
        closed = {clock: known.clock(clock).closed for clock in columns}
        ranks = None if self.dice is None else np.array([self.dice.random() for _ in batch.rows])
        return split_burst(columns, TIME, closed, limit, self.overload.budget, taken, ranks)

    def finish(self) -> None:
        """Let lulls come until nothing is aside."""
        while self.state.stream("s").sidelined:
            before = self.state.stream("s").totals
            self.batch(BatchCase([]))
            after = self.state.stream("s").totals
            assert after.sidelined < before.sidelined and after.rows == before.rows


def from_the_start(drawn: Case) -> Case:
    """The case with all queries there from the first batch to the last."""
    batches = [replace(batch_id, joining=[], leaving=[], prods=[]) for batch_id in drawn.batches]
    batches[0].joining = list(drawn.queries)
    return replace(drawn, batches=batches, called={}, partial=set())


def in_order(dice: Random, draw: Callable[[Random], Case] = case) -> Case:
    """A case without late rows: in order, with bursts, and told the truth by its punctuations."""
    drawn = from_the_start(draw(dice))
    rows = sorted((r for r in stream(dice, 60) if r["ts"] is not None), key=lambda row: row["ts"])
    for number, row in enumerate(rows):
        row["seq"] = number
    several = sorted(dice.randint(0, len(rows)) for _ in range(dice.randint(0, 4)))
    cuts = [0, *several, len(rows)]
    batches = [BatchCase(rows[a:b], splits=dice.randint(1, 2)) for a, b in itertools.pairwise(cuts)]
    batches[0].joining = list(drawn.queries)
    batches[-1].ended = dice.random() < 0.5
    return replace(drawn, batches=batches, horizon=None, slack=dice.choice([0, 5 * SECOND]))


def run(drawn: Case, dice: Random, strictly: bool, seed: int | None = None) -> bool:
    """Compare everything that comes out of a case with a budget; whether anything was aside."""
    options, overload = dice.choice(STRATEGIES), Overload(dice.randint(1, 8), share=dice.randint(1, 4))
    queries = bound(drawn.queries)
    ranking = Random(dice.randint(0, 99)) if dice.random() < 0.5 else None
    engine = Sidelining(drawn, queries, overload, ranking, **options)
    plain = PureEngine(drawn, queries, **options)
    try:
        for batch_id in drawn.batches:
            engine.batch(batch_id)
            plain.batch(batch_id)
            while dice.random() < 0.3 and engine.state.stream("s").sidelined:
                engine.batch(BatchCase([]))
            if dice.random() < 0.3:
                engine.restart()
        engine.finish()
        same_in_the_end(drawn, queries, engine, plain, strictly)
    except Exception as error:
        error.add_note(f"drawn by Random({seed}), {overload}, {options}, ranks: {ranking is not None}")
        raise
    return engine.most_aside > 0


def same_in_the_end(
    drawn: Case, queries: dict[str, Query], engine: Sidelining, plain: PureEngine, strictly: bool
) -> None:
    ours, theirs = engine.state.stream("s"), plain.state.stream("s")
    totals = ours.totals
    assert totals.sidelined == 0 and not engine.stored
    assert totals.rows == totals.counted + totals.unwanted + totals.late + totals.rejected
    assert (totals.rows, totals.rejected) == (theirs.totals.rows, theirs.totals.rejected)
    assert totals.late <= theirs.totals.late
    for clock, known in theirs.clocks.items():
        found = ours.clock(clock)
        assert (found.high, found.promised) == (known.high, None)
        assert found.closed.general == known.closed.general
    expected = oracle_answer(drawn, queries)
    for name, query in queries.items():
        if query.clock.kind is not ClockKind.ROWS:  # rows are numbered as they are processed
            same_windows(query, engine.results[name], expected.results[name], strictly)


def same_windows(query: Query, found: list[Row], expected: list[Row], strictly: bool) -> None:
    """The same windows and groups, with the same values; held windows may have accepted more rows."""
    ours = {identity(query, row, 0): row for row in found}
    theirs = {identity(query, row, 0): row for row in expected}
    assert len(ours) == len(found), "a window and group was reported twice"
    if strictly:
        assert ours.keys() == theirs.keys(), query.text
    elif query.kept is None and query.top is None:  # both choose among groups by their values
        assert theirs.keys() <= ours.keys(), query.text
    for where in ours.keys() & theirs.keys():
        assert ours[where]["rows"] >= theirs[where]["rows"], f"{query.text} {where}"
        if strictly or ours[where]["rows"] == theirs[where]["rows"]:
            same_row(query, where, ours[where], theirs[where])


@settings(max_examples=case_count(25))
@given(st.randoms(use_true_random=False))
def test_finals_of_a_stream_in_order_are_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    run(in_order(dice), dice, True)


def test_finals_of_a_stream_in_order_are_the_oracles(seed: int) -> None:
    aside = 0
    for number in case_seeds(seed, 100):
        dice = Random(number)
        aside += run(in_order(dice), dice, True, number)
    assert aside > case_count(30)


def test_finals_that_look_at_earlier_windows_wait_for_sidelined_rows(seed: int) -> None:
    for number in case_seeds(seed, 15):
        dice = Random(number)
        run(in_order(dice, following), dice, True, number)


def test_finals_of_any_stream_hold_at_least_what_the_oracle_counts(seed: int) -> None:
    aside = 0
    for number in case_seeds(seed + 1000, 100):
        dice = Random(number)
        aside += run(from_the_start(case(dice)), dice, False, number)
    assert aside > case_count(10)


def test_queries_that_come_and_go_lose_no_row(seed: int) -> None:
    for number in case_seeds(seed + 2000, 60):
        dice = Random(number)
        drawn = case(dice)
        engine = Sidelining(drawn, bound(drawn.queries), Overload(dice.randint(1, 4)))
        for batch in drawn.batches:
            engine.batch(batch)
        engine.finish()
        totals = engine.state.stream("s").totals
        assert totals.rows == sum(len(batch.rows) for batch in drawn.batches)
        assert totals.rows == totals.counted + totals.unwanted + totals.late + totals.rejected


@pytest.mark.parametrize("budget", [1, 3, 1000])
def test_what_was_shed_is_counted_and_its_windows_say_so(budget: int, seed: int) -> None:
    for number in case_seeds(seed + 3000, 40):
        dice = Random(number)
        drawn = in_order(dice)
        queries = bound(drawn.queries)
        engine = Sidelining(drawn, queries, Overload(budget, shed=True), dice)
        for batch_id in drawn.batches:
            engine.batch(batch_id)
        totals = engine.state.stream("s").totals
        assert totals.rows == totals.counted + totals.unwanted + totals.late + totals.rejected + totals.shed
        assert (totals.shed > 0) == (engine.most_aside > 0) and totals.sidelined == 0
        expected = oracle_answer(drawn, queries).results
        for name, query in queries.items():
            if query.clock.kind is not ClockKind.ROWS:
                marked_as_lacking(query, engine.results[name], expected[name])


def marked_as_lacking(query: Query, found: list[Row], expected: list[Row]) -> None:
    """Windows that are said to be complete are; the others are there all the same."""
    theirs = {identity(query, row, 0): row for row in expected}
    for row in found:
        where = identity(query, row, 0)
        if row["complete"]:
            same_row(query, where, row, theirs[where])
        elif where in theirs:
            assert row["rows"] <= theirs[where]["rows"]
    lacking = Counter(row["complete"] for row in found)
    assert query.kept is not None or lacking[True] <= len(theirs)


def with_bursts(start: int, budget: int) -> Iterator[tuple[int, Case]]:
    """Seeds and their cases in which a batch is beyond the budget."""
    for number in itertools.count(start):
        drawn = in_order(Random(number))
        if any(len(batch.rows) > budget for batch in drawn.batches):
            yield number, drawn


@ON_BOTH
def test_finals_of_a_stream_in_order_are_the_oracles_on_engines(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    # A budget of few rows takes many batches to resume a burst, each a few jobs on Spark.
    count, budget = (10, 4) if make_engine.name == "local" else (1, 12)
    for number, drawn in itertools.islice(with_bursts(seed + 4000, budget), count):
        engine = make_engine(tmp_path / str(number))
        rules = {"slack": micros(drawn.slack), "horizon": None}
        feed = engine.feed("s", SCHEMA, time="ts", overload="sideline", budget=budget, **rules)
        handles = engine.register_all(drawn.queries)
        for batch in drawn.batches:
            feed.push(table_of(batch.rows))
            engine.step(1)
            assert len(batch.rows) <= budget or engine.progress().streams["s"].sidelined > 0
        engine.drain() if drawn.batches[-1].ended else engine.step()
        queries = bound(drawn.queries)
        expected = oracle_answer(drawn, queries)
        for name, query in queries.items():
            if query.clock.kind is not ClockKind.ROWS:
                same_windows(query, presented(handles[name].results()), expected.results[name], True)
        own = engine.progress().streams["s"]
        assert own.sidelined == own.late == 0 and own.rows == own.counted + own.unwanted
