"""Windows of all readers of a stack of sheets are closed in one step, as if each sheet were closed by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.results.pure_batches import Pure
from transom.plan.planner import Planner
from transom.results import advance
from transom.results.readers import StreamReaders

COLUMNS = {"kind": pa.string(), "x": pa.float64(), "n": pa.int64()}
WINDOWS = ("[RANGE 10 SLIDE 5]", "[RANGE 12 SLIDE 4]", "[RANGE 3 SLIDE 7]")
LISTS = (
    "sum(x) AS a",
    "avg(x) AS a, sum(n) AS b",
    "sum(n) AS a, avg(x) AS b",
    "avg(n) AS a",
    "min(x) AS a, max(n) AS b, count(*) AS c",
    "stddev(x) AS a, avg(x) AS b",
    "avg(x) + sum(n) AS a",
    "count(n) AS a",
)


def queries() -> dict[str, str]:
    texts = {}
    for window in WINDOWS:
        for items in LISTS:
            texts[f"q{len(texts)}"] = f"SELECT {items} FROM s {window}"
            texts[f"q{len(texts)}"] = f"SELECT kind, {items} FROM s {window} WHERE n > 3 GROUP BY kind"
    return texts


def batches() -> Iterator[list[tuple[Any, ...]]]:
    """Rows of the columns `t`, `kind`, `x` and `n`."""
    dice = random.Random(5)
    for number in range(8):
        yield [
            (
                number * 6 + dice.randrange(9),
                dice.choice("ab"),
                dice.choice((None, dice.random())),
                dice.randrange(9),
            )
            for _ in range(dice.randrange(1, 12))
        ]


def answers() -> list[tuple[str, dict[str, Any]]]:
    engine = Pure(queries(), COLUMNS, slack=2)
    for number, rows in enumerate(batches()):
        engine.batch(rows, ended=number in (2, 5))  # windows that were closed by force stay closed
    return sorted(engine.results, key=str)


def test_a_stack_is_closed_as_its_sheets_are_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    at_once = advance.close_stack

    def counted(*arguments: Any) -> Any:
        closed.append(at_once(*arguments))
        return closed[-1]

    monkeypatch.setattr(advance, "close_stack", counted)
    together = answers()
    assert len(together) > 100 and any(found is not None for found in closed)
    monkeypatch.setattr(advance, "close_stack", lambda *arguments: None)
    assert answers() == together


def test_queries_with_equal_calls_over_equal_states_are_lowered_together() -> None:
    engine = Pure(queries(), COLUMNS)
    readers = StreamReaders(list(engine.living.values()), engine.state.queries, engine.state.selections)
    assert [len(stack.queries) for stack in readers.stacks] == [24, 24]
    lowering = readers.stacks[0].lowering
    assert len(lowering.groups) == len(LISTS)  # whatever their windows and places on sheets
    calls = [call.call.function for call in lowering.calls]
    assert sorted(calls) == sorted(
        ["sum", "avg", "sum", "avg", "min", "max", "count_rows", "stddev_samp", "count"]
    )


def test_readers_are_derived_once_while_queries_and_selections_are_the_same_objects() -> None:
    planner, made = Planner(), []

    def make(*sources: object) -> int:
        made.append(sources)
        return len(made)

    first, second = {"a": 1}, {"a": 1}
    assert [planner.derived("s", make, first, second) for _ in range(2)] == [1, 1]
    assert planner.derived("s", make, second, first) == 2
    assert planner.derived("other", make, second, first) == 3
    planner.forget()
    assert planner.derived("s", make, second, first) == 4


def test_a_batch_that_changes_no_query_leaves_queries_and_selections_the_same_objects() -> None:
    engine = Pure(queries(), COLUMNS, slack=2)
    first, *others = batches()
    engine.batch(first)
    before = engine.state
    for rows in others:
        engine.batch(rows)
    assert engine.state.queries is before.queries and engine.state.selections is before.selections
    assert engine.state.floors != before.floors
