"""Joins of two streams against the oracle, which tries every pair of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.case_counts import case_seeds
from tests.engine_factory import EngineFactory
from tests.results.pure_batches import SCALARS
from transom import oracle
from transom.elements import Clock, ClockKind, Drop, Prod, Punctuation, Register
from transom.sql import Catalog, Relation
from transom.sql.binding.bind import bind_one

pytestmark = pytest.mark.any_worker

COLUMNS = {
    "a": {"k": pa.int64(), "t": pa.int64(), "v": pa.int64()},
    "b": {"k": pa.int32(), "t": pa.int64(), "w": pa.int64()},
}
SCHEMAS = {"a": "k bigint, t bigint, v bigint", "b": "k int, t bigint, w bigint"}
CATALOG = Catalog({name: Relation(name, columns, "t") for name, columns in COLUMNS.items()})
SHOWN = ("event_time", "window_start", "window_end", "k", "n", "s", "rows", "complete", "late")


@dataclass
class Step:
    """A batch of one stream; queries join and leave before it, and are prodded after it."""

    stream: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    joining: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    until: int | None = None  # a punctuation
    ends: bool = False
    prodded: bool = False
    restarts: bool = False


@dataclass
class Drawn:
    """Two streams in batches, and queries that join them."""

    slacks: dict[str, int | None]
    queries: dict[str, str]
    steps: list[Step]


FORMS = ["JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]


def draw_query(dice: Random, forms: Sequence[str] = FORMS) -> str:
    first, second = dice.choice([("a x", "b y"), ("b y", "a x"), ("a x", "a y"), ("a x", "b y")])
    is_self = "b" not in (first[0], second[0])
    low, width = dice.choice([(0, 6), (-3, 6), (2, 5), (-8, 5), (0, 6)])
    condition = dice.choice(
        [
            f"y.t BETWEEN x.t + {low} AND x.t + {low + width}",
            f"y.t - x.t >= {low} AND x.t + {low + width} >= y.t",
        ]
    ).replace("+ -", "- ")
    if dice.random() < 0.3:
        condition = "abs(x.t - y.t) < 4"
    weight = "y.v" if is_self else "y.w"
    where = dice.choice(
        ["", "", "WHERE x.v > 3", f"WHERE x.v < {weight}", "WHERE y.k = 1", f"WHERE {weight} IS NULL"]
    )
    form = dice.choice(forms)
    if form != "JOIN" and dice.random() < 0.5:
        condition += dice.choice([" AND x.v > 2", f" AND {weight} < 5", f" AND x.v <= {weight}"])
    key = dice.choice(["x.k", "y.k", ""])
    slide = dice.randint(2, 6)
    window = f"RANGE {dice.randint(1, 3) * slide + dice.randint(0, 1)} SLIDE {slide}"
    total = f"{dice.choice(['sum', 'sum', 'avg', 'min', 'max', 'count'])}({dice.choice([weight, 'x.v', 'x.v * 2'])})"
    if "SEMI" in form or "ANTI" in form:  # the second stream is in the condition only
        own = first[-1]
        key, where = key and f"{own}.k", dice.choice(["", f"WHERE {own}.k = 1"])
        total = f"sum({'y.w' if own == 'y' else 'x.v'})"
    if dice.random() < 0.2:
        total = "LAG(count(*)) OVER WINDOWS"
    empty = "EMIT EMPTY FOR 3 WINDOWS" if dice.random() < 0.2 else ""
    return (
        f"SELECT {key + ' AS k, ' if key else ''}count(*) AS n, {total} AS s "
        f"FROM {first} {form} {second} ON x.k = y.k AND {condition} [{window}] {where} "
        f"{'GROUP BY ' + key if key else ''} {empty}"
    )


def without_window(dice: Random, text: str) -> str:
    """A query without a window over the same join."""
    join = text[text.index("FROM") : text.index("[")]
    own = join.split()[2]  # the alias of the first stream
    sides = [own] if "SEMI" in join or "ANTI" in join else ["x", "y"]
    columns = [f"{side}.{column}" for side in sides for column in ("k", "t")]
    where = dice.choice(["", f"WHERE {own}.k = 1"])
    return f"SELECT {dice.choice(columns)} AS k, {dice.choice(columns)} AS s {join} {where}"


def draw(dice: Random) -> Drawn:
    queries = {f"q{number}": draw_query(dice) for number in range(dice.randint(2, 5))}
    waiting = [name for name in queries if dice.random() < 0.4]
    present = [name for name in queries if name not in waiting]
    tops, steps = {"a": 0, "b": 0}, []
    for number in range(dice.randint(5, 12)):
        stream = dice.choice(["a", "b"])
        step = Step(stream, prodded=dice.random() < 0.3, restarts=dice.random() < 0.15)
        if number == 0:
            step.joining = list(present)
        for _ in range(dice.randint(0, 8)):
            tops[stream] += dice.choice([0, 0, 1, 2, 3])
            time = max(0, tops[stream] - dice.choice([0, 0, 1, 2, 5, 12]))
            key = dice.choice([1, 1, 2, 3, None])
            step.rows.append(
                {"k": key, "t": time, "v" if stream == "a" else "w": dice.choice([*range(8), None])}
            )
        if waiting and number and dice.random() < 0.4:
            step.joining = [waiting.pop()]
            present += step.joining
        elif len(present) > 1 and number and dice.random() < 0.2:
            step.leaving = [present.pop(0)]
        if dice.random() < 0.15:
            step.until = tops[stream] + dice.randint(-2, 2)
        if dice.random() < 0.1:
            step.ends = True
        steps.append(step)
    slacks = {name: dice.choice([0, 1, 3, 8, None]) for name in COLUMNS}
    for name in list(queries):
        if dice.random() < 0.4:
            queries[f"{name}_rows"] = without_window(dice, queries[name])
            steps[0].joining.append(f"{name}_rows")
    return Drawn(slacks, queries, [*steps, Step("a", ends=True), Step("b", ends=True)])


def answered_by_oracle(drawn: Drawn) -> oracle.OracleOutcome:
    queries = {name: bind_one(text, CATALOG, SCALARS) for name, text in drawn.queries.items()}
    rules = {
        name: oracle.OracleStreamRules("t", ClockKind.INTEGER, slack, columns=COLUMNS[name])
        for name, slack in drawn.slacks.items()
    }
    batches = [
        oracle.OracleBatch(
            step.stream,
            step.rows,
            [*(Drop(name) for name in step.leaving), *(Register(name, "") for name in step.joining)],
            []
            if step.until is None
            else [Punctuation(Clock(step.stream, "t", ClockKind.INTEGER), step.until)],
            step.ends,
            prods=[Prod(query.over_pairs.clock, queries=(name,)) for name, query in queries.items()]
            if step.prodded
            else [],
        )
        for step in drawn.steps
    ]
    joined_later = {name for step in drawn.steps for name in step.joining}
    chosen = {name: query for name, query in queries.items() if name in joined_later}
    return oracle.answer(chosen, batches, rules, SCALARS)


class Run:
    """A drawn case on an engine, batch by batch."""

    def __init__(self, make: Callable[[], transom.Engine], drawn: Drawn):
        self.make, self.drawn = make, drawn
        self.early: dict[str, list[Any]] = {name: [] for name in drawn.queries}
        self.finals: dict[str, list[Any]] = {name: [] for name in drawn.queries}
        self._start()

    def _start(self) -> None:
        self.engine = self.make()
        self.feeds = {
            name: self.engine.feed(name, SCHEMAS[name], time="t", slack=slack)
            for name, slack in self.drawn.slacks.items()
        }

    def step(self, number: int, step: Step) -> None:
        if step.restarts:
            self.engine.stop()
            self._start()
        for name in step.leaving:
            self._keep(name)
            self.engine.query(name).drop()
        for name in step.joining:
            self.engine.register(self.drawn.queries[name], name=name)
        if step.rows:
            self.feeds[step.stream].push(step.rows)
        if step.until is not None:
            self.feeds[step.stream].punctuate(step.until)
        if step.ends:
            self.engine.flush(step.stream)
        while self.engine.step():
            pass
        if step.prodded:
            for name, entry in self.engine.queries().items():
                if entry.is_row_query:
                    continue
                self.early[name] += [told(row) for row in entry.prod().to_pylist()]

    def _keep(self, name: str) -> None:
        rows = self.engine.query(name).results().to_pylist()
        self.finals[name] += [told(row) for row in rows if row["kind"] == "final"]

    def run(self) -> None:
        for number, step in enumerate(self.drawn.steps):
            self.step(number, step)
        for name in list(self.engine.queries()):
            self._keep(name)


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in SHOWN)


def same(ours: list[Any], theirs: list[Any], about: str) -> None:
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), about


LATE_PAIRS = 1977252964  # a case with late pairs of a query that needs none of its pairs


@pytest.mark.parametrize("strategy", ["auto", "unshared_paned", "naive"])
def test_joins_give_the_answers_of_the_oracle(
    make_engine: EngineFactory, tmp_path: Path, seed: int, strategy: str
) -> None:
    pairs = 0
    for number in (LATE_PAIRS, *case_seeds(seed, 12)):
        drawn = draw(Random(number))
        expected = answered_by_oracle(drawn)
        run = Run(partial(make_engine, tmp_path / str(number), strategy=strategy), drawn)
        run.run()
        for name in expected.results:
            about = f"{name} of Random({number}): {drawn.queries[name]}"
            same(run.finals[name], list(map(told, expected.results[name])), about)
            same(run.early[name], list(map(told, expected.early[name])), about)
            pairs += len(expected.results[name])
        run.engine.stop()
    assert pairs
