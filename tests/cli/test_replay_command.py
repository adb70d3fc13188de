"""`transom replay`: what its options mean, and what it prints."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from transom.cli.adhoc_options import read_replay
from transom.cli.live_output import ResultPrinter
from transom.cli.main import OK, USAGE, app
from transom.cli.replay_command import named_queries
from transom.cli.result_text import Format
from transom.errors import SettingError

BIDS = Path(__file__).parents[2] / "examples" / "bids.json"
COUNT = "SELECT count(*) AS n FROM bids [RANGE 2 minutes SLIDE 2 minutes]"
RESULTS = pa.table(
    {
        "window_start": ["a", "b"],
        "window_end": ["b", "c"],
        "n": [3, 4],
        "kind": ["early", "final"],
        "complete": [True, True],
        "rows": [3, 4],
        "late": [0, 0],
        "batch": [1, 1],
        "made": [None, None],
        "latency": [1.5, 2.5],
    }
)
PRINTED = [
    ("for people", Format.TABLE, False, "early  a  b  n 3\nfinal  b  c  n 4\n"),
    ("for people, several", Format.TABLE, True, "q  early  a  b  n 3\nq  final  b  c  n 4\n"),
    ("CSV, with one header", Format.CSV, False, "early,a,b,3\nfinal,b,c,4\n"),
    (
        "JSON",
        Format.JSON,
        True,
        '{"query": "q", "kind": "early", "window_start": "a", "window_end": "b", "n": 3}\n'
        '{"query": "q", "kind": "final", "window_start": "b", "window_end": "c", "n": 4}\n',
    ),
]


@pytest.mark.parametrize(("form", "several", "text"), [c[1:] for c in PRINTED], ids=[c[0] for c in PRINTED])
def test_results_are_printed_as_they_arrive(form: Format, several: bool, text: str) -> None:
    out = StringIO()
    printer = ResultPrinter(form, full=False, several=several, out=out)
    header = "kind,window_start,window_end,n\n" if form is Format.CSV else ""
    printer.add("q", RESULTS)
    printer.add("q", RESULTS)
    assert out.getvalue() == header + text + text


def test_results_of_a_query_with_a_preference_are_marked_as_found() -> None:
    out = StringIO()
    system = {"batch": [1], "made": [None], "complete": [False], "share": [0.5], "skipped": [2.0]}
    found = pa.table({"item": [7]} | system)
    ResultPrinter(Format.TABLE, full=False, several=False, out=out).add("q", found, kind="found")
    ResultPrinter(Format.TABLE, full=True, several=True, out=out).add("q", found, kind="found")
    assert out.getvalue().splitlines() == [
        "found  item 7  batch 1  share 0.5",
        "q  found  item 7  batch 1  made null  complete false  share 0.5  skipped 2.0",
    ]


@pytest.mark.parametrize(
    ("full", "complete", "more"),
    [
        (False, True, ""),
        (False, False, "  complete false"),
        (True, True, "  complete true  batch 1  made null"),
    ],
)
def test_lookups_are_marked_and_show_whether_they_are_complete(full: bool, complete: bool, more: str) -> None:
    out = StringIO()
    printer = ResultPrinter(Format.TABLE, full=full, several=False, out=out)
    found = RESULTS.drop_columns(["kind", "rows", "late", "latency"]).slice(0, 1)
    printer.add("q", found.set_column(3, "complete", pa.array([complete])), kind="lookup")
    assert out.getvalue() == f"lookup  a  b  n 3{more}\n"


def test_a_closed_pipe_is_reported_to_the_command_and_not_to_the_engine() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    printer = ResultPrinter(Format.JSON, full=True, several=False, out=Closed())
    printer.add("q", RESULTS)
    with pytest.raises(BrokenPipeError):
        printer.check()


def test_queries_have_numbers_or_names() -> None:
    assert named_queries(["SELECT 1; SELECT 2"], ["late=SELECT 3"]) == {
        "q1": "SELECT 1",
        "q2": "SELECT 2",
        "late": "SELECT 3",
    }


REFUSED = [
    ("no query", [], [], "give a query"),
    ("a query without a name", [], ["SELECT 1"], "write NAME=SQL"),
    ("a name given twice", ["SELECT 1"], ["q1=SELECT 2"], "q1 is given twice"),
]


@pytest.mark.parametrize(("sql", "named", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(sql: list[str], named: list[str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        named_queries(sql, named)


def test_options_become_arguments_of_the_engine() -> None:
    found = read_replay(
        "b.csv",
        {"time": "ts", "slack": "none", "schema": None},
        {"speed": 60.0, "delay": None},
        ["header=true"],
    )
    assert found == {
        "time": "ts",
        "slack": None,
        "options": {"header": "true"},
        "speed": 60.0,
        "delay": None,
    }


@pytest.mark.usefixtures("spark")
class TestOnSpark:
    """The whole command, in the suite's session."""

    def test_early_and_final_results_are_printed_as_json(self) -> None:
        early = f"{COUNT} EMIT EARLY AT 25% OF SLIDE"
        done = CliRunner().invoke(
            app, ["replay", str(BIDS), "--time", "ts", "--speed", "1200", "--sql", early, "--format", "json"]
        )
        assert done.exit_code == OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        finals = [(row["window_end"], row["n"]) for row in rows if row["kind"] == "final"]
        assert finals == [("2013-01-01T12:02:00Z", 6), ("2013-01-01T12:04:00Z", 4)]
        assert "bids: 10 rows in" in done.stderr

    def test_a_wrong_option_is_reported(self) -> None:
        done = CliRunner().invoke(app, ["replay", str(BIDS), "--time", "ts", "--sql", COUNT, "--delay", "3"])
        assert done.exit_code == USAGE
        assert "did you mean '3 seconds'" in done.stderr
