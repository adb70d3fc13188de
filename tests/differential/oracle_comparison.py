"""Run a case on the pure engine and on the oracle, and compare everything that a user can see."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any

from tests.differential.cases import COLUMNS, Case
from tests.differential.engine import (
    SCALARS,
    PureEngine,
    Row,
    bound,
    key,
)
from transom import oracle
from transom.aggregates.sketches import sketched_count
from transom.elements import Drop, Prod, Register
from transom.plan.strategy import Strategy
from transom.runtime.progress import StreamProgress
from transom.sql import Query
from transom.state.accounts import Accounts
from transom.state.state import Totals
from transom.windows.ids import window_end, window_start


class Remembering(oracle.naive.Oracle):
    """An oracle that has kept every row: a query that joins has seen all of its windows that are open."""

    def join(self, query: Query, partial: bool = False) -> oracle.naive.LiveQuery:
        standing = super().join(query, partial)
        if query.is_on_demand:
            return standing
        stream = self.streams[query.stream]
        before = oracle.naive.OracleStream(stream.rules, stream.columns, [], stream.punctuations)
        self.count(standing, before, stream.accepted)
        closings = stream.closings(query.clock)
        standing.cells = {
            key: cell
            for key, cell in standing.cells.items()
            if not oracle.naive.is_final(query, cell.window, cell.group, closings)
        }
        standing.seen_before = []
        standing.missed.clear()  # nothing is late before it joins
        return standing


def renamed(case: Case, prod: Prod) -> Prod:
    """A prod for the oracle, which calls queries by their keys."""
    if prod.queries is None:
        return prod
    return replace(prod, queries=tuple(key for key in case.queries if case.name(key) in prod.queries))


def oracle_answer(
    case: Case, queries: dict[str, Query], kind: type[oracle.naive.Oracle] = oracle.naive.Oracle
) -> oracle.OracleOutcome:
    batches = [
        oracle.OracleBatch(
            "s",
            batch.rows,
            [
                *(Drop(name) for name in batch.leaving),
                *(Register(n, "", n in case.partial) for n in batch.joining),
            ],
            batch.punctuations,
            batch.ended,
            prods=[renamed(case, prod) for prod in batch.prods],
            lookups=[oracle.OracleLookup(*asked) for asked in batch.lookups],
        )
        for batch in case.batches
    ]
    rules = oracle.OracleStreamRules("ts", slack=case.slack, horizon=case.horizon, columns=COLUMNS)
    run = kind(queries, batches, {"s": rules}, SCALARS, oracle.joins.without_joins)
    for number, batch in enumerate(batches):
        run.run(number, batch)
    return run.outcome


@dataclass(frozen=True)
class DrawnCase:
    """A case with what is the same for all strategies: its bound queries, and the oracle's answers."""

    case: Case
    queries: dict[str, Query]
    expected: oracle.OracleOutcome

    @classmethod
    def of(cls, case: Case) -> DrawnCase:
        queries = bound(case.queries)
        return cls(case, queries, oracle_answer(case, queries))


@lru_cache(maxsize=256)
def drawn_case(draw: Callable[[Random], Case], seed: int) -> DrawnCase:
    """The case that is drawn with a seed; a case that several strategies answer is drawn once."""
    return DrawnCase.of(draw(Random(seed)))


def check(
    case: Case | DrawnCase,
    strategy: Strategy | None = None,
    naive: bool = False,
    restart: bool = False,
    seed: int | None = None,
    executor_rows: int | None = None,
) -> int:
    """Every result, every late row and every count is the oracle's; how many came from retained slices."""
    try:
        drawn = DrawnCase.of(case) if isinstance(case, Case) else case
        return compare(drawn, strategy, naive, restart, executor_rows)
    except Exception as error:
        error.add_note(f"drawn by Random({seed}), {strategy}, naive={naive}, restart={restart}")
        raise


def compare(
    drawn: DrawnCase, strategy: Strategy | None, naive: bool, restart: bool, executor_rows: int | None = None
) -> int:
    case, queries, expected = drawn.case, drawn.queries, drawn.expected
    engine = PureEngine(case, queries, strategy, naive, executor_rows)
    for batch_id in case.batches:
        engine.batch(batch_id)
        if restart:
            engine.restart()
    assert engine.state.accounts.unaccounted == 0
    same_accounts(case, queries, engine.state.accounts, expected)
    totals = engine.state.stream("s").totals
    return same_as_oracle(case, queries, engine.results, engine.late, totals, expected, engine.early)


def same_as_oracle(
    case: Case,
    queries: dict[str, Query],
    results: dict[str, list[Row]],
    late: list[Any],
    totals: Totals | StreamProgress,
    expected: oracle.OracleOutcome | None = None,
    early: dict[str, list[Row]] | None = None,
) -> int:
    """Compare all that came out of an engine with all that comes out of the oracle.

    Returns how many results a query gave that the oracle, which keeps nothing from before a query joined,
    could not give.
    """
    expected = expected or oracle_answer(case, queries)
    is_exact = same_fates(case, queries, expected, late, totals)
    if early is not None and any(batch.prods for batch in case.batches):
        unexpected = {
            name: same_results(query, early[name], expected.early[name], is_exact)
            for name, query in queries.items()
        }
        retained_is_right(
            case, queries, {name: rows for name, rows in unexpected.items() if rows}, early=True
        )
    extras = {
        name: same_results(query, results[name], expected.results[name], is_exact)
        for name, query in queries.items()
    }
    retained_is_right(case, queries, {name: rows for name, rows in extras.items() if rows})
    return sum(map(len, extras.values()))


def same_fates(
    case: Case,
    queries: dict[str, Query],
    expected: oracle.OracleOutcome,
    late: list[Any],
    totals: Totals | StreamProgress,
) -> bool:
    """Every row is counted, late, not asked for or rejected as the oracle says; whether that is exactly so.

    With two exceptions. The end of a stream closes windows of a query that hold rows from before it
    joined, if such rows were kept. What comes for them afterwards is late, though the oracle counts it. And a row
    is not late for a query with sessions if it belongs to an open session from before the query joined that was kept.
    """
    counts, strictly, missed = expected.counts["s"], missed_rows_of(expected), Counter[MissedRow]()
    for batch_id, row, names in late:
        missed.update((name, repr((batch_id, row))) for name in names)
    assert totals.rows == totals.counted + totals.unwanted + totals.late + totals.rejected
    found = totals.rows, totals.unwanted, totals.rejected, totals.counted + totals.late
    asked = counts["counted"] + counts["late"]
    assert found == (counts["in"], counts["unwanted"], counts["rejected"], asked), f"{totals} {dict(counts)}"
    assert totals.late == len(late)
    if missed != strictly:
        remembered = missed_rows_of(oracle_answer(case, queries, Remembering))
        in_slices = [
            Counter({one: rows for one, rows in each.items() if not queries[one[0]].window.is_session})
            for each in (strictly, missed, remembered)
        ]
        assert in_slices[0] <= in_slices[1] <= in_slices[2]
        assert missed <= strictly | remembered
    return missed == strictly


MissedRow = tuple[str, str]  # the query, and the batch and the row


def missed_rows_of(outcome: oracle.OracleOutcome) -> Counter[MissedRow]:
    """The late rows, each once for every query that missed it."""
    return Counter(
        (name, repr((batch_id, key(row)))) for row, batch_id, names in outcome.late["s"] for name in names
    )


def same_accounts(
    case: Case, queries: dict[str, Query], accounts: Accounts, expected: oracle.OracleOutcome
) -> None:
    """Every query has accounted for every row, and has counted the rows it missed by window, as the oracle."""
    for key_of_query in case.living:
        query, own = queries[key_of_query], accounts.of(case.name(key_of_query))
        counts = expected.accounts[key_of_query]
        found = own.rows, own.unwanted, own.rejected, own.counted + own.late
        asked = counts["counted"] + counts["late"]
        assert found == (counts["in"], counts["unwanted"], counts["rejected"], asked), f"{query.text}\n{own}"
        missed = missed_windows(query, accounts.missed_windows(case.name(key_of_query)))
        strictly = expected.missed[key_of_query]
        if missed == strictly:
            assert own.late == counts["late"], query.text
        else:  # as for `same_fates`
            remembered = oracle_answer(case, queries, Remembering).missed[key_of_query]
            assert missed <= strictly | remembered, query.text
            assert query.window.is_session or strictly <= missed, query.text


def missed_windows(query: Query, runs: Any) -> Counter[tuple[int, int]]:
    """The rows that a query missed, by window."""
    found: Counter[tuple[int, int]] = Counter()
    for first, last, rows in runs.tolist():
        for wid in range(first, last + 1):
            bounds = window_start(query.window, wid), window_end(query.window, wid)
            if bounds[0] < bounds[1]:  # short periods of a calendar have windows without any time
                found[bounds] += rows
    return found


def same_results(query: Query, found: list[Row], expected: list[Row], is_exact: bool = True) -> list[Row]:
    """The same rows in the same batches, floats to within rounding; returns those that nobody expected.

    Unless `is_exact`, windows may have missed more rows than expected, as `same_fates` explains, but not fewer.
    """
    ours = {identity(query, row, row["batch"] - 1): row for row in found}
    theirs = {identity(query, row, row["batch"]): row for row in expected}
    assert len(ours) == len(found), "a window and group was reported twice"
    assert theirs.keys() <= ours.keys(), f"{query.text}\nmissing {theirs.keys() - ours.keys()}"
    for where, row in theirs.items():
        same_row(query, where, ours[where], row)
        more = ours[where]["late"] - row["late"]
        can_be_fewer = not is_exact and query.window.is_session
        assert can_be_fewer or (more == 0 if is_exact else more >= 0), f"{query.text}\n{where}"
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
        known = {identity(query, row, row["batch"]): row for row in everywhen[name]}
        for row in rows:
            where = identity(query, row, row["batch"] - 1)
            assert row["complete"], f"{query.text}\nseen in part and not asked for: {where}"
            assert where in known, f"{query.text}\nextra {where}, known {list(known)}"
            same_row(query, where, row, known[where])


def identity(query: Query, row: Row, batch_id: int) -> tuple[Any, ...]:
    keys = [item.name for item in query.items if item.sql.startswith("`k")]
    corrected = (
        () if query.corrections is None else (row.get("transom_kind", row.get("kind")), row["revision"])
    )
    return batch_id, row["window_end"], *(repr(plain(row[name])) for name in keys), *corrected


def plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def alike(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return alike(list(ours.items()), list(theirs.items()))
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return all(map(alike, ours, theirs))
    if isinstance(ours, float) or isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(ours, bytes):  # a sketch, whose bytes depend on the order in which it was made
        return ours == theirs or sketched_count(ours) == sketched_count(theirs) is not None
    if isinstance(ours, Decimal):
        return ours == theirs
    return bool(ours == theirs)
