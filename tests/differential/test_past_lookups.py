"""Lookups of past windows against the oracle: of queries with SLIDE and without, registered and not.

A window of a query with SLIDE has the final result of a query that was there from the start, late rows left out. A
window of a query without SLIDE has all rows that were accepted, as if none was late. A window is refused only if it
is open, or if rows of its time may be older than what is retained.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.case_counts import case_seeds
from tests.differential.test_backfill import (
    BATCHES,
    CATALOG,
    CLOCK,
    COLUMNS,
    CONDITIONS,
    ITEMS,
    SLACK,
    START,
    STRATEGIES,
    WIDE,
    WINDOWS,
    Program,
    comparable,
    rows_of,
)
from tests.engine_factory import EngineFactory
from tests.results.pure_batches import SCALARS
from transom import oracle
from transom.durations import parse_duration, parse_instant
from transom.elements import Punctuation
from transom.errors import SettingError
from transom.plan.limits import Limits
from transom.runtime import row_history, slice_tiers, slice_work
from transom.sql.binding.bind import bind_one
from transom.windows import ids as windows

RULES = oracle.OracleStreamRules("ts", columns=COLUMNS, slack=SLACK * 1_000_000)
LENGTHS = ["45 seconds", "100 seconds", "4 minutes"]


def text_of(dice: Random, window: str) -> str:
    keys, group = dice.choice([("", ""), ("site, ", " GROUP BY site")])
    having = dice.choice(["", "HAVING count(*) > 1"])
    return (
        f"SELECT {keys}{dice.choice(ITEMS)} AS x FROM bids {window} {dice.choice(CONDITIONS)}{group} {having}"
    )


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Answers without what only emitted results have."""
    return comparable([{**row, "rows": None} for row in rows])


def expected_final(program: Program, text: str, end: int) -> list[dict[str, Any]]:
    """The oracle's results of the window that ends there, of a query that was there from the start."""
    query = bind_one(text, CATALOG, SCALARS)
    outcome = oracle.answer({"q": query}, program.given, {"bids": RULES}, SCALARS)
    return [row for row in outcome.results["q"] if row["window_end"] == end]


def expected_rows(program: Program, text: str, length: str, end: int) -> list[dict[str, Any]]:
    """The oracle's answer from all rows, as if they had come at once."""
    start = parse_instant(START)
    window = f"[RANGE {length} SLIDE {length} ORIGIN {end - start + 10**15} microseconds]"
    phase = (
        end - bind_one(text.replace(f"[RANGE {length}]", window), CATALOG, SCALARS).window.phase
    ) % parse_duration(length)
    window = f"[RANGE {length} SLIDE {length} ORIGIN {end - start + 10**15 + phase} microseconds]"
    query = bind_one(text.replace(f"[RANGE {length}]", window), CATALOG, SCALARS)
    assert windows.window_end(query.window, windows.last_ended(query.window, end)) == end
    rows = [row for batch in program.given for row in batch.rows]
    given = [oracle.OracleBatch("bids", rows), oracle.OracleBatch("bids", end_of_stream=True)]
    outcome = oracle.answer({"q": query}, given, {"bids": RULES}, SCALARS)
    return [row for row in outcome.results["q"] if row["window_end"] == end]


def compare(
    ask: Callable[[], pa.Table],
    expected: Callable[[], list[dict[str, Any]]],
    is_closed: bool,
    is_retained: bool,
) -> bool:
    """Compare an answer; whether there was one, and not a good reason why there can be none."""
    try:
        answer = ask()
    except SettingError as error:
        is_open = "is still open" in str(error) and not is_closed
        assert is_open or ("does not retain" in str(error) and not is_retained), error
        return False
    assert plain(answer.to_pylist()) == plain(expected())
    assert all(row["complete"] for row in answer.to_pylist())
    return True


def shown(moment: int) -> datetime:
    return datetime.fromtimestamp(moment // 10**6, UTC) + timedelta(microseconds=moment % 10**6)


def compare_sliding(
    program: Program, text: str, name: str | None, moment: int, newest: int, oldest: int
) -> bool:
    """Look up a query with SLIDE: a registered one by its name, another by its text."""
    window = bind_one(text, CATALOG, SCALARS).window
    wid = windows.last_ended(window, moment)
    start, end = windows.window_start(window, wid), windows.window_end(window, wid)

    def ask() -> pa.Table:
        if name is not None:
            return program.engine.query(name).lookup(at=shown(moment))
        return program.engine.lookup(f"{text} AS OF '{shown(moment).isoformat()}'")

    is_closed = newest - SLACK * 1_000_000 >= end
    return compare(ask, lambda: expected_final(program, text, end), is_closed, start > oldest)


def compare_kept(
    program: Program, text: str, length: str, name: str | None, moment: int, oldest: int
) -> bool:
    """Look up a query without SLIDE."""

    def ask() -> pa.Table:
        if name is not None:
            return program.engine.query(name).lookup(at=shown(moment))
        return program.engine.lookup(text, at=shown(moment))

    is_retained = moment - parse_duration(length) > oldest
    return compare(ask, lambda: expected_rows(program, text, length, moment), True, is_retained)


@pytest.mark.parametrize("number", case_seeds(0, 40))
def test_a_past_window_is_answered_like_the_oracle(
    make_engine: EngineFactory, tmp_path: Path, seed: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(1_000 * seed + number)
    monkeypatch.setattr(row_history, "MERGED_FILES", dice.choice([2, 4, 16]))
    monkeypatch.setattr(slice_work, "FEWEST_ROWS", 1)
    monkeypatch.setattr(slice_work, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(slice_tiers, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(row_history, "LARGEST_MERGE", dice.choice([1 << 24, 1 << 24, 4_000, 1]))
    retain = dice.choice(["1 hour", "1 hour", "5 minutes", "2 minutes"])
    options = {**dice.choice(STRATEGIES), "limits": Limits()}
    program = Program(make_engine, tmp_path / "checkpoint", options, retain)
    sliding = [window for window in WINDOWS if "SESSION" not in window]
    texts = {f"live{i}": text_of(dice, dice.choice(sliding)) for i in range(3)}
    lengths = {f"kept{i}": dice.choice(LENGTHS) for i in range(2)}
    kept = {name: text_of(dice, f"[RANGE {length}]") for name, length in lengths.items()}
    joins = {name: dice.choice([0, 0, dice.randrange(BATCHES)]) for name in (*texts, *kept)}
    if dice.random() < 0.5:
        program.engine.register_all(WIDE)
    newest, answers = parse_instant(START) - 1, 0
    for at in range(BATCHES):
        rows = rows_of(dice, at)
        newest = max([newest, *(parse_instant(row["ts"]) for row in rows)])
        for name in [name for name, batch in joins.items() if batch == at]:
            program.engine.register({**texts, **kept}[name], name)
        closed = None
        if dice.random() < 0.15:
            closed = Punctuation(CLOCK, newest + 5_000_000, None, (("site", dice.randint(1, 4)),))
        program.batch(rows, closed)
        if dice.random() < 0.3:
            program.seal()
        if dice.random() < 0.05:
            program.fall_idle()
        if dice.random() < 0.15:
            program.restart()
        if dice.random() < 0.6 or newest < parse_instant(START):
            continue
        moment = dice.randrange(parse_instant(START) - 60_000_000, newest + 2)
        if dice.random() < 0.5:
            moment -= moment % 5_000_000  # windows of whole slices
        oldest = newest - parse_duration(retain)
        known = [name for name, batch in joins.items() if batch <= at and dice.random() < 0.5]
        name = dice.choice([*texts])
        by_name = name if name in known else None
        answers += compare_sliding(program, texts[name], by_name, moment, newest, oldest)
        name = dice.choice([*kept])
        by_name = name if name in known else None
        answers += compare_kept(program, kept[name], lengths[name], by_name, moment, oldest)
    assert answers or newest < parse_instant(START) or retain != "1 hour"
