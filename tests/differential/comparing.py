"""Run a case on the pure engine and on the oracle, and compare everything that a user can see."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.differential.cases import COLUMNS, Case, PageCase
from transom import oracle
from transom.control.bursts import Parted
from transom.control.horizon import horizon_limit
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Drop, Prod, Register
from transom.final.concluding import clocks_of
from transom.final.demanding import opened, takings
from transom.final.inprocess import advance
from transom.final.members import Strategy, admit, release
from transom.final.planning import Planner
from transom.final.rehoming import rehomed
from transom.final.streams import PageInput
from transom.partial.kernel import Outcome, PagePlan, late_rows, merge, put_away, run
from transom.partial.shards import Shelf
from transom.plan.compiled import CompiledQuery, compile_query
from transom.plan.demands import Gathering
from transom.sql import Catalog, Query, Relation, bind
from transom.state import snapshot
from transom.state.state import ShardRef, State, Totals

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


class MemoryShards:
    """Shards kept in memory, as bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, table: pa.Table) -> int:
        assert name not in self.files
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.files[name] = bytes(sink.getvalue())
        return len(self.files[name])

    def get(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(self.files[name]).read_all()

    def keep(self, refs: Iterable[ShardRef]) -> None:
        """Forget all others."""
        kept = {name for ref in refs for name in ref.files}
        assert kept <= self.files.keys()
        self.files = {name: data for name, data in self.files.items() if name in kept}


class PureEngine:
    """The engine without Spark: rows projected by the oracle's scalars, split as tasks would be.

    Results are kept by the case's keys; inside, queries go by their names.
    """

    def __init__(
        self,
        case: Case,
        queries: dict[str, Query],
        strategy: Strategy | None = None,
        naive: bool = False,
        far_rows: int | None = None,
    ):
        self.case, self.naive = case, naive
        self.shards, self.far_rows = MemoryShards(), far_rows
        self.planner = Planner(strategy or Strategy())
        self.compiled: dict[str, CompiledQuery] = {}
        self.rules = StreamRules(TIME, case.slack, {}, case.horizon)
        self.state = State()
        self.living: dict[str, CompiledQuery] = {}
        self.keys: dict[str, str] = {}  # of those that live, by name
        self.results: dict[str, list[Row]] = {}
        self.early: dict[str, list[Row]] = {}
        self.late: list[tuple[int, Any]] = []
        for key, query in queries.items():
            self.learn(key, query)

    def learn(self, key: str, query: Query) -> None:
        """Make a query known that some page will register."""
        self.compiled[key] = compile_query(self.case.name(key), query, self.naive)
        self.results[key], self.early[key] = [], []

    def page(self, page: PageCase) -> None:
        self._join_and_leave(page)
        limit = self._limit(table_of(page.rows))
        page, parted = self.part(page, limit)
        outcome = self._outcome(page, limit)
        given = PageInput(
            self.rules,
            list(self.standing.values()),
            outcome,
            page.punctuations,
            page.ended,
            self.partial,
            parted=parted,
            gatherings=self.gatherings,
        )
        output = advance(self.state, [given], SCALARS, self.shelf, prods=page.prods)
        self.shards.keep(output.state.refs)
        for name, table in output.results.items():
            for row in presented(table):
                kind = row.get("transom_kind", row["kind"])  # some queries have a column of that name
                (self.early if kind == "early" else self.results)[self.keys[name]].append(row)
        self.state = output.state

    def part(self, page: PageCase, limit: int | None) -> tuple[PageCase, Parted]:
        """What is processed of a page, and what is not."""
        return page, Parted()

    def restart(self) -> None:
        """What a process does that dies and comes back between two pages."""
        self.state, extra = snapshot.loads(snapshot.dumps(self.state, {"kept": 1}))
        self.planner = Planner(self.planner.strategy)
        assert extra == {"kept": 1}

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.shards, f"page {self.state.page}", 3, self.far_rows)

    @property
    def standing(self) -> dict[str, CompiledQuery]:
        """The queries that live and are not looked up, by name."""
        return {name: query for name, query in self.living.items() if query.query.demand is None}

    @property
    def gatherings(self) -> tuple[Gathering, ...]:
        """What the others need kept."""
        looking = [query for query in self.living.values() if query.query.demand is not None]
        return self.planner.gatherings("s", looking)

    @property
    def partial(self) -> frozenset[str]:
        """The names of those that also want windows seen in part."""
        return frozenset(name for name, key in self.keys.items() if key in self.case.partial)

    def _join_and_leave(self, page: PageCase) -> None:
        names = [self.case.name(key) for key in page.leaving]
        for name in names:
            del self.living[name], self.keys[name]
        self.state = release(self.state, names, self.standing)
        newcomers = [self.compiled[key] for key in page.joining]
        self.living |= {query.name: query for query in newcomers}
        self.keys |= {self.case.name(key): key for key in page.joining}
        joining, strategy = (
            [query for query in newcomers if query.query.demand is None],
            self.planner.strategy,
        )
        self.state = admit(self.state, joining, self.standing, strategy, self.partial)
        self.state = rehomed(self.state, list(self.standing.values()), strategy)
        self.state = opened(self.state, self.gatherings, strategy.place)

    def _limit(self, table: pa.Table) -> int | None:
        high = self.state.stream("s").clock(TIME).high
        cut = None if high is None or self.case.horizon is None else high + self.case.horizon
        probe = pa.table({"t0": table["ts"].cast(pa.int64())})
        profile = run(probe, PagePlan((), (), {}, {}, "t0", limit=cut, horizon=self.case.horizon)).profile
        return horizon_limit(profile, high, self.case.horizon)

    def _outcome(self, page: PageCase, limit: int | None) -> Outcome:
        queries = list(self.standing.values())
        stream, table = self.state.stream("s"), table_of(page.rows)
        sqls = dict.fromkeys(scalar.sql for query in self.living.values() for scalar in query.query.scalars())
        names = {sql: f"c{i}" for i, sql in enumerate(sqls)}
        followed = clocks_of(queries, self.rules, self.gatherings)
        clocks = {clock: f"t{i}" for i, clock in enumerate(followed)}
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
            far=self.state.far,
            most_groups=self.far_rows,
            takings=takings(self.state, stream, self.gatherings),
        )
        rows = pa.table(columns)
        tasks = (run(rows.take(share), plan) for share in shares(rows.num_rows, page.splits))
        outcome = merge((put_away(done, self.shelf) for done in tasks), shared.layouts)
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


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {name: pa.array([r[name] for r in rows], kind, from_pandas=False) for name, kind in COLUMNS.items()}
    )


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


class Remembering(oracle.naive.Oracle):
    """An oracle that has kept every row: a query that joins has seen all of its windows that are open."""

    def joins(self, query: Query, partial: bool = False) -> oracle.naive.Standing:
        standing = super().joins(query, partial)
        if query.demand is not None:
            return standing
        stream = self.streams[query.stream]
        before = oracle.naive.Stream(stream.rules, stream.columns, [], stream.punctuations)
        self.count(standing, before, stream.accepted)
        closings = stream.closings(query.clock)
        standing.cells = {
            key: cell
            for key, cell in standing.cells.items()
            if not oracle.naive.is_closed(query, cell.window, cell.group, closings)
        }
        standing.seen_before = []
        return standing


def renamed(case: Case, prod: Prod) -> Prod:
    """A prod for the oracle, which calls queries by their keys."""
    if prod.queries is None:
        return prod
    return replace(prod, queries=tuple(key for key in case.queries if case.name(key) in prod.queries))


def oracle_answer(
    case: Case, queries: dict[str, Query], kind: type[oracle.naive.Oracle] = oracle.naive.Oracle
) -> oracle.OracleOutcome:
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
            prods=[renamed(case, prod) for prod in page.prods],
            lookups=[oracle.pages.Lookup(*asked) for asked in page.lookups],
        )
        for page in case.pages
    ]
    rules = oracle.StreamRules("ts", slack=case.slack, horizon=case.horizon, columns=COLUMNS)
    run = kind(queries, pages, {"s": rules}, SCALARS, oracle.joins.unjoined)
    for number, page in enumerate(pages):
        run.run(number, page)
    return run.outcome


def check(
    case: Case,
    strategy: Strategy | None = None,
    naive: bool = False,
    restart: bool = False,
    seed: int | None = None,
    far_rows: int | None = None,
) -> int:
    """Every result, every late row and every count is the oracle's; how many came from retained slices."""
    try:
        return compare(case, strategy, naive, restart, far_rows)
    except Exception as error:
        error.add_note(f"drawn by Random({seed}), {strategy}, naive={naive}, restart={restart}")
        raise


def compare(
    case: Case, strategy: Strategy | None, naive: bool, restart: bool, far_rows: int | None = None
) -> int:
    queries = bound(case.queries)
    engine = PureEngine(case, queries, strategy, naive, far_rows)
    for page in case.pages:
        engine.page(page)
        if restart:
            engine.restart()
    same_early(case, queries, engine.early)
    return same_as_oracle(case, queries, engine.results, engine.late, engine.state.stream("s").totals)


def same_early(case: Case, queries: dict[str, Query], early: dict[str, list[Row]]) -> None:
    """What prods were told is what the oracle knows of the rows so far."""
    if not any(page.prods for page in case.pages):
        return
    expected = oracle_answer(case, queries).early
    extras = {name: same_results(query, early[name], expected[name]) for name, query in queries.items()}
    retained_is_right(case, queries, {name: rows for name, rows in extras.items() if rows}, early=True)


def same_as_oracle(
    case: Case, queries: dict[str, Query], results: dict[str, list[Row]], late: list[Any], totals: Totals
) -> int:
    """Compare all that came out of an engine with all that comes out of the oracle.

    Returns how many results a query gave that the oracle, which keeps nothing from before a query joined,
    could not give.
    """
    expected = oracle_answer(case, queries)
    extras = {
        name: same_results(query, results[name], expected.results[name]) for name, query in queries.items()
    }
    retained_is_right(case, queries, {name: rows for name, rows in extras.items() if rows})
    same_fates(case, queries, expected, Counter(map(repr, late)), totals)
    return sum(map(len, extras.values()))


def same_fates(
    case: Case, queries: dict[str, Query], expected: oracle.OracleOutcome, late: Counter[str], totals: Totals
) -> None:
    """Every row is counted, late, not asked for or rejected as the oracle says.

    With one exception: the end of a stream closes windows of a query that hold rows from before it
    joined, if such rows were kept. What comes for them afterwards is late, though the oracle counts it.
    """
    counts, strictly = expected.counts["s"], late_rows_of(expected)
    assert totals.rows == totals.counted + totals.unasked + totals.late + totals.rejected
    found = totals.rows, totals.unasked, totals.rejected, totals.counted + totals.late
    asked = counts["counted"] + counts["late"]
    assert found == (counts["in"], counts["unasked"], counts["rejected"], asked), f"{totals} {dict(counts)}"
    assert totals.late == late.total()
    if late != strictly:
        assert strictly <= late <= late_rows_of(oracle_answer(case, queries, Remembering))


def late_rows_of(outcome: oracle.OracleOutcome) -> Counter[str]:
    return Counter(repr((page, key(row))) for row, page in outcome.late["s"])


def same_results(query: Query, found: list[Row], expected: list[Row]) -> list[Row]:
    """The same rows in the same pages, floats to within rounding; returns those that nobody expected."""
    ours = {identity(query, row, row["page"] - 1): row for row in found}
    theirs = {identity(query, row, row["page"]): row for row in expected}
    assert len(ours) == len(found), "a window and group was reported twice"
    assert theirs.keys() <= ours.keys(), f"{query.text}\nmissing {theirs.keys() - ours.keys()}"
    for where, row in theirs.items():
        same_row(query, where, ours[where], row)
    return [row for where, row in ours.items() if where not in theirs]


def same_row(query: Query, where: Any, ours: Row, theirs: Row) -> None:
    for name in ("window_start", "window_end", "rows", "complete", *(item.name for item in query.items)):
        assert alike(ours[name], theirs[name]), (
            f"{query.text}\n{where} {name}: {ours[name]!r}, expected {theirs[name]!r}"
        )


def retained_is_right(
    case: Case, queries: dict[str, Query], extras: dict[str, list[Row]], early: bool = False
) -> None:
    """What a query reports of the time before it joined is what an oracle reports that kept every row."""
    if not extras:
        return
    outcome = oracle_answer(case, queries, Remembering)
    everywhen = outcome.early if early else outcome.results
    for name, rows in extras.items():
        query = queries[name]
        known = {identity(query, row, row["page"]): row for row in everywhen[name]}
        for row in rows:
            where = identity(query, row, row["page"] - 1)
            assert row["complete"], f"{query.text}\nseen in part and not asked for: {where}"
            assert where in known, f"{query.text}\nextra {where}, known {list(known)}"
            same_row(query, where, row, known[where])


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
