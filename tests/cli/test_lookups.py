"""Lookups in the shell, without Spark: what is printed where, and when."""

from __future__ import annotations

import json
import threading
from io import StringIO
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from transom.cli import commands
from transom.cli.lookups import PeriodicLookups, final_answer
from transom.cli.main import USAGE, app
from transom.cli.options import interval_seconds
from transom.cli.result_text import Format
from transom.errors import SettingError, StateError

LOOKUP = pa.table(
    {"window_start": [1], "window_end": [11], "top": [9.0], "complete": [True], "batch": [3], "made": [5]}
)
RESULTS = pa.table(
    {"window_start": [1], "window_end": [2], "n": [4], "kind": ["final"], "complete": [True], "rows": [4]}
    | {"late": [0], "batch": [1], "made": [5], "latency": [0.5]}
)


FOUND = pa.table(
    {"item": [7, 3], "batch": [1, 1], "made": [5, 5], "complete": [False, False]}
    | {"share": [0.5, 0.5], "skipped": [2.0, 2.0]}
)


class Query:
    """A registered query that is answered the same each time, or not at all."""

    def __init__(self, on_demand: bool = True, fails: Exception | None = None, has_preference: bool = False):
        self.on_demand, self.fails, self.asked = on_demand, fails, threading.Semaphore(0)
        self.has_preference = has_preference

    def lookup(self) -> pa.Table:
        assert self.on_demand
        self.asked.release()
        if self.fails is not None:
            raise self.fails
        return LOOKUP

    def results(self) -> pa.Table:
        assert not self.on_demand
        return FOUND if self.has_preference else RESULTS


class Engine:
    def __init__(self, **queries: Query):
        self.queries = lambda: queries


def looking(engine: Any, form: Format | None = None) -> tuple[PeriodicLookups, StringIO, StringIO]:
    errors = StringIO()
    found = PeriodicLookups(engine, form, Console(file=errors, width=200))
    found.out = out = StringIO()
    return found, out, errors


@pytest.mark.parametrize(
    ("full", "form", "columns"),
    [
        (False, Format.TABLE, ["top"]),
        (False, Format.JSON, ["top", "complete"]),
        (True, Format.TABLE, ["top", "complete", "batch", "made"]),
    ],
)
def test_on_demand_queries_are_looked_up_and_others_print_their_results(
    full: bool, form: Format, columns: list[str]
) -> None:
    windows = ["window_start", "window_end"]
    assert final_answer(Query(), full, form).column_names == windows + columns  # type: ignore[arg-type]
    pushed: Any = Query(on_demand=False)
    assert final_answer(pushed, False, form).column_names == [*windows, "n"]
    assert final_answer(pushed, True, form).column_names == RESULTS.column_names


def test_results_of_a_query_with_a_preference_keep_their_order_and_share() -> None:
    query: Any = Query(on_demand=False, has_preference=True)
    assert final_answer(query, True, Format.JSON).equals(FOUND)
    shown = final_answer(query, False, Format.TABLE)
    assert shown.to_pydict() == {"item": [7, 3], "batch": [1, 1], "share": [0.5, 0.5]}


def test_lookups_are_printed_at_the_end_each_with_its_query() -> None:
    found, out, _ = looking(Engine(top=Query(), pushed=Query(on_demand=False)))
    with found.running(None):
        assert out.getvalue() == ""
    system = {"complete": True, "made": 5}
    assert json.loads(out.getvalue()) == {
        "query": "top",
        "window_start": 1,
        "window_end": 11,
        "top": 9.0,
        **system,
    }


def test_lookups_are_also_printed_at_the_given_interval() -> None:
    top = Query()
    found, out, _ = looking(Engine(top=top))
    with found.running("1 ms"):
        for _ in range(3):
            assert top.asked.acquire(timeout=30)
    assert len(out.getvalue().splitlines()) >= 3


def test_an_empty_line_separates_tables() -> None:
    found, out, _ = looking(Engine(top=Query()), Format.CSV)
    found.print_answers()
    found.print_answers()
    once = "query,window_start,window_end,top,complete,made\ntop,1,11,9.0,true,5\n"
    assert out.getvalue() == f"{once}\n{once}"


def test_a_table_marks_an_incomplete_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, out, _ = looking(Engine(top=Query()), Format.TABLE)
    found.print_answers()
    assert "complete" not in out.getvalue() and "made" in out.getvalue()
    in_part = LOOKUP.set_column(3, "complete", pa.array([False]))
    monkeypatch.setattr(Query, "lookup", lambda self: in_part)
    found.print_answers()
    assert out.getvalue().splitlines()[-3:] == [
        "window_start  window_end  top  complete  made",
        "------------  ----------  ---  --------  ----",
        "           1          11  9.0  false        5",
    ]


def test_a_failed_lookup_is_reported_and_does_not_affect_others() -> None:
    found, out, errors = looking(Engine(bad=Query(fails=StateError("bad is suspended")), good=Query()))
    found.print_answers()
    assert "bad: bad is suspended" in errors.getvalue()
    assert [json.loads(line)["query"] for line in out.getvalue().splitlines()] == ["good"]


def test_nothing_is_printed_after_a_failure() -> None:
    found, out, _ = looking(Engine(top=Query()))
    with pytest.raises(RuntimeError), found.running(None):
        raise RuntimeError
    assert out.getvalue() == ""


def test_an_interval_without_on_demand_queries_is_reported() -> None:
    found, out, errors = looking(Engine(pushed=Query(on_demand=False)))
    with found.running("1 hour"):
        pass
    assert "the pipeline has no query without SLIDE" in errors.getvalue() and out.getvalue() == ""


def test_a_closed_pipe_ends_the_lookups() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    top = Query()
    found, _, _ = looking(Engine(top=top))
    found.out = Closed()
    with pytest.raises(BrokenPipeError), found.running("1 ms"):
        assert top.asked.acquire(timeout=30)


@pytest.mark.parametrize(
    ("every", "says"),
    [("3 minuets", "did you mean minute"), ("0 seconds", "positive"), ("-1 second", "positive")],
)
def test_an_interval_is_a_positive_duration(every: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=says):
        interval_seconds(every)
    monkeypatch.setattr(
        commands, "run_pipeline", lambda *args: pytest.fail("the pipeline ran despite a usage error")
    )
    done = CliRunner().invoke(app, ["run", "p.yaml", "--lookup-every", every])
    assert done.exit_code == USAGE and "--lookup-every" in done.stderr and says in done.stderr
