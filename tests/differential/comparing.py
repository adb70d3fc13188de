"""Run a case on the pure engine and on the oracle, and compare everything that a user can see."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.differential.cases import COLUMNS, Case, PageCase
from transom import oracle
from transom.control.horizon import horizon_limit
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Drop, Register
from transom.final.members import Strategy, admit, release
from transom.final.page import PageInput, advance, clocks_of
from transom.final.planning import Planner
from transom.partial.kernel import Outcome, PagePlan, late_rows, merge, run
from transom.plan.compiled import CompiledQuery, compile_query
from transom.sql import Catalog, Query, Relation, bind
from transom.state import snapshot
from transom.state.state import State, Totals

SCALARS = oracle.PythonScalars()
CATALOG = Catalog({"s": Relation("s", COLUMNS, "ts")})
TIME = Clock("s", "ts", ClockKind.TIME)
Row = dict[str, Any]


def bound(texts: dict[str, str]) -> dict[str, Query]:
    """The case's queries; none of them is wrong."""
    found = bind(texts, CATALOG, SCALARS)
    for query in found.values():
        assert isinstance(query, Query), f"{query}"
    return found  # type: ignore[return-value]


class PureEngine:
    """The engine without Spark: rows projected by the oracle's scalars, split as tasks would be."""

    def __init__(
        self, case: Case, queries: dict[str, Query], strategy: Strategy | None = None, naive: bool = False
    ):
        self.case = case
        self.planner = Planner(strategy or Strategy())
        self.compiled = {name: compile_query(name, query, naive) for name, query in queries.items()}
        self.rules = StreamRules(TIME, case.slack, {}, case.horizon)
        self.state = State()
        self.living: dict[str, CompiledQuery] = {}
        self.results: dict[str, list[Row]] = {name: [] for name in queries}
        self.late: list[tuple[int, Any]] = []

    def page(self, page: PageCase) -> None:
        self._join_and_leave(page)
        outcome = self._outcome(page)
        queries = list(self.living.values())
        given = PageInput(
            self.rules, queries, outcome, page.punctuations, page.ended, frozenset(self.case.partial)
        )
        output = advance(self.state, [given], SCALARS)
        for name, table in output.results.items():
            self.results[name] += presented(table)
        self.state = output.state

    def restart(self) -> None:
        """What a process does that dies and comes back between two pages."""
        self.state, extra = snapshot.loads(snapshot.dumps(self.state, {"kept": 1}))
        self.planner = Planner(self.planner.strategy)
        assert extra == {"kept": 1}

    def _join_and_leave(self, page: PageCase) -> None:
        for name in page.leaving:
            self.living.pop(name, None)
        self.state = release(self.state, page.leaving, self.living)
        newcomers = [self.compiled[name] for name in page.joining]
        self.living |= {query.name: query for query in newcomers}
        self.state = admit(self.state, newcomers, self.living, self.planner.strategy, self.case.partial)

    def _outcome(self, page: PageCase) -> Outcome:
        queries = list(self.living.values())
        stream = self.state.stream("s")
        table = pa.table(
            {
                name: pa.array([row[name] for row in page.rows], kind, from_pandas=False)
                for name, kind in COLUMNS.items()
            }
        )
        high = stream.clock(TIME).high
        cut = None if high is None or self.case.horizon is None else high + self.case.horizon
        probe = pa.table({"t0": table["ts"].cast(pa.int64())})
        profile = run(probe, PagePlan((), (), {}, {}, "t0", limit=cut, horizon=self.case.horizon)).profile
        limit = horizon_limit(profile, high, self.case.horizon)
        sqls = dict.fromkeys(scalar.sql for query in queries for scalar in query.query.scalars())
        names = {sql: f"c{i}" for i, sql in enumerate(sqls)}
        clocks = {clock: f"t{i}" for i, clock in enumerate(clocks_of(queries, self.rules))}
        projected = SCALARS.project(table, {name: sql for sql, name in names.items()}) if names else None
        columns = (
            {} if projected is None else dict(zip(projected.column_names, projected.columns, strict=True))
        )
        for clock, name in clocks.items():
            columns[name] = self._clock(clock, table, page, limit)
        shared = self.planner.plan(self.state, queries)
        plan = PagePlan(
            shared.families,
            shared.askers,
            names,
            clocks,
            clocks[TIME],
            {clock: stream.clock(clock).closed for clock in clocks},
            limit,
            horizon=self.case.horizon,
        )
        rows = pa.table(columns)
        outcome = merge(
            (run(rows.take(share), plan) for share in shares(rows.num_rows, page.splits)), shared.layouts
        )
        chosen = late_rows(rows, plan)
        assert outcome.late == chosen.sum()
        self.late += [
            (self.state.page, key(row)) for row, late in zip(page.rows, chosen, strict=True) if late
        ]
        return outcome

    def _clock(self, clock: Clock, table: pa.Table, page: PageCase, limit: int | None) -> pa.Array:
        if clock.kind is not ClockKind.ROWS:
            return table[clock.attribute].cast(pa.int64())
        accepted = [
            i
            for i, row in enumerate(page.rows)
            if row["ts"] is not None and (limit is None or row["ts"] <= limit)
        ]
        ordered = oracle.pages.in_order([{**page.rows[i], "#": i} for i in accepted], "ts", list(COLUMNS))
        numbers: list[int | None] = [None] * len(page.rows)
        for number, row in enumerate(ordered):
            numbers[row["#"]] = self.state.stream("s").totals.accepted + number
        return pa.array(numbers, pa.int64())


def shares(rows: int, splits: int) -> list[pa.Array]:
    """Row numbers dealt out to tasks."""
    return [pa.array(range(start, rows, splits), pa.int64()) for start in range(splits)]


def presented(table: pa.Table) -> list[Row]:
    """Result rows with times as microseconds."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = (
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        ).to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def oracle_answer(case: Case, queries: dict[str, Query]) -> oracle.OracleOutcome:
    pages = [
        oracle.OraclePage(
            "s",
            page.rows,
            [
                *(Drop(name) for name in page.leaving),
                *(Register(n, "", n in case.partial) for n in page.joining),
            ],
            page.punctuations,
            page.ended,
        )
        for page in case.pages
    ]
    rules = oracle.StreamRules("ts", slack=case.slack, horizon=case.horizon, columns=COLUMNS)
    return oracle.answer(queries, pages, {"s": rules}, SCALARS)


def check(
    case: Case,
    strategy: Strategy | None = None,
    naive: bool = False,
    restart: bool = False,
    seed: int | None = None,
) -> None:
    """Every result, every late row and every count is the oracle's."""
    try:
        compare(case, strategy, naive, restart)
    except Exception as error:
        error.add_note(f"the case is case(Random({seed})), with {strategy}")
        raise


def compare(case: Case, strategy: Strategy | None, naive: bool, restart: bool) -> None:
    queries = bound(case.queries)
    engine = PureEngine(case, queries, strategy, naive)
    for page in case.pages:
        engine.page(page)
        if restart:
            engine.restart()
    same_as_oracle(case, queries, engine.results, engine.late, engine.state.stream("s").totals)


def same_as_oracle(
    case: Case, queries: dict[str, Query], results: dict[str, list[Row]], late: list[Any], totals: Totals
) -> None:
    """Compare all that came out of an engine with all that comes out of the oracle."""
    expected = oracle_answer(case, queries)
    for name, query in queries.items():
        same_results(query, results[name], expected.results[name])
    assert Counter(map(repr, late)) == Counter(repr((page, key(row))) for row, page in expected.late["s"])
    counts = expected.counts["s"]
    for ours, theirs in [
        ("rows", "in"),
        ("counted",) * 2,
        ("unasked",) * 2,
        ("late",) * 2,
        ("rejected",) * 2,
    ]:
        assert getattr(totals, ours) == counts[theirs], f"{ours}: {totals} {dict(counts)}"
    assert totals.rows == totals.counted + totals.unasked + totals.late + totals.rejected


def same_results(query: Query, found: list[Row], expected: list[Row]) -> None:
    """The same rows in the same pages, floats to within rounding."""
    names = [item.name for item in query.items]
    exact = ["window_start", "window_end", "rows", "complete"]
    ours = {identity(query, row, row["page"] - 1): row for row in found}
    theirs = {identity(query, row, row["page"]): row for row in expected}
    assert len(ours) == len(found), "a window and group was reported twice"
    assert ours.keys() == theirs.keys(), (
        f"{query.text}\nmissing {theirs.keys() - ours.keys()}\nextra {ours.keys() - theirs.keys()}"
    )
    for where, row in ours.items():
        other = theirs[where]
        for name in (*exact, *names):
            assert alike(row[name], other[name]), (
                f"{query.text}\n{where} {name}: {row[name]!r}, expected {other[name]!r}"
            )


def identity(query: Query, row: Row, page: int) -> tuple[Any, ...]:
    keys = [item.name for item in query.items if item.sql.startswith("`k")]
    return page, row["window_end"], *(repr(plain(row[name])) for name in keys)


def plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def key(row: Row) -> tuple[Any, ...]:
    return tuple(repr(row[name]) for name in COLUMNS)


def alike(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, float) or isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(ours, Decimal):
        return ours == theirs
    return bool(ours == theirs)
