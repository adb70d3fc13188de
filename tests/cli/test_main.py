"""The command line: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import transom
from transom.api.formats import PlanFormat
from transom.cli import commands
from transom.cli.main import FAILED, INTERRUPTED, OK, USAGE, app
from transom.errors import BatchError

EXAMPLES = Path(__file__).parents[2] / "examples"
BIDS = ["--from", f"bids={EXAMPLES / 'bids.json'}", "--time", "ts"]
COUNT = "SELECT site, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 2 minutes] GROUP BY site"


def test_the_command_line_has_the_engine_s_plan_formats() -> None:
    from transom.runtime.explain import EXPLAIN_FORMATS

    assert tuple(form.value for form in PlanFormat) == EXPLAIN_FORMATS


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (OK, f"transom {transom.__version__}\n")


@pytest.mark.parametrize("command", ["query", "run", "replay", "explain", "demo"])
def test_every_command_has_help(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == OK
    assert "Usage:" in done.stdout


MISUSED = [
    ("no command that is known", ["nope"], "No such command"),
    ("no stream", ["query", "SELECT 1"], "name a stream to read"),
    ("no time", ["query", "SELECT 1", "--from", "bids=b.json"], "--time is missing"),
    ("a bad duration", ["query", "SELECT 1", *BIDS, "--slack", "3 minuets"], "did you mean minute"),
    ("a format that isn't one", ["query", "SELECT 1", *BIDS, "--format", "xml"], "xml"),
    ("a plan in a format that isn't one", ["explain", "p.yaml", "--format", "svg"], "svg"),
    ("a pipeline that isn't there", ["run", "absent.yaml"], "absent.yaml: No such file"),
    ("a plan of a pipeline that isn't there", ["explain", "absent.yaml"], "absent.yaml: No such file"),
    ("more queries than the demo has", ["demo", "--queries", "100000"], "different queries"),
]


@pytest.mark.parametrize(("arguments", "says"), [c[1:] for c in MISUSED], ids=[c[0] for c in MISUSED])
def test_usage_errors_go_to_stderr_without_a_traceback(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == USAGE
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


FAILURES = [
    ("a batch that failed", BatchError("batch 3 failed"), FAILED, "error: batch 3 failed"),
    ("a disk that is full", OSError("no space left"), FAILED, "error: OSError: no space left"),
    (
        "an error of Spark's",
        RuntimeError("it broke\n\tat a.b.c"),
        FAILED,
        "error: RuntimeError: it broke (transom",
    ),
    ("an interrupt", KeyboardInterrupt(), INTERRUPTED, ""),
    ("a reader that went away", BrokenPipeError(), OK, ""),
]


@pytest.mark.parametrize(("error", "code", "says"), [c[1:] for c in FAILURES], ids=[c[0] for c in FAILURES])
def test_failures_have_exit_codes(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(commands, "run_to_end", fail)
    monkeypatch.setattr("transom.cli.main._silence_stdout", lambda: None)
    done = CliRunner().invoke(app, ["query", "SELECT 1", *BIDS])
    assert done.exit_code == code
    assert says in done.stderr


def test_debug_shows_the_error_itself() -> None:
    done = CliRunner().invoke(app, ["--debug", "query", "SELECT 1"])
    assert isinstance(done.exception, transom.SettingError)


@pytest.mark.usefixtures("spark")
class TestOnSpark:
    """Whole commands, in the suite's session."""

    def test_json_lines_on_stdout_and_the_summary_on_stderr(self) -> None:
        done = CliRunner().invoke(app, ["query", COUNT, *BIDS])
        assert done.exit_code == OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(row["window_end"], row["site"], row["n"]) for row in rows] == [
            ("2013-01-01T12:02:00Z", 1, 3),
            ("2013-01-01T12:02:00Z", 2, 3),
            ("2013-01-01T12:04:00Z", 1, 2),
            ("2013-01-01T12:04:00Z", 2, 1),
            ("2013-01-01T12:04:00Z", 3, 1),
        ]
        assert re.search(r"bids: 10 rows in .* 0 late, 0 rejected", done.stderr)

    def test_several_queries_to_a_file(self, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        total = "SELECT count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour]"
        done = CliRunner().invoke(app, ["query", COUNT, total, *BIDS, "--format", "csv", "--out", str(out)])
        assert (done.exit_code, done.stdout) == (OK, "")
        first, second = out.read_text().split("\n\n")
        assert first.splitlines()[0] == "query,window_start,window_end,site,n"
        assert second.splitlines()[1] == "q2,2013-01-01T12:00:00Z,2013-01-01T13:00:00Z,10"

    def test_an_sql_error_points_at_the_place(self) -> None:
        done = CliRunner().invoke(
            app, ["query", "SELECT sum(prise) FROM bids [RANGE 1 minute SLIDE 1 minute]", *BIDS]
        )
        assert done.exit_code == USAGE
        assert done.stdout == ""
        assert "did you mean price" in done.stderr
        assert "           ^^^^^" in done.stderr

    def test_late_and_rejected_rows_go_to_a_file(self, tmp_path: Path) -> None:
        source = tmp_path / "bids"
        source.mkdir()
        (source / "1.json").write_text('{"site": 1, "ts": "2013-01-01T12:10:00Z"}\n')
        (source / "2.json").write_text('{"site": 2, "ts": "2013-01-01T12:00:00Z"}\n{"site": 3}\n')
        late = tmp_path / "late.json"
        done = CliRunner().invoke(
            app, ["query", COUNT, "--from", f"bids={source}", "--time", "ts", "--late", str(late)]
        )
        assert done.exit_code == OK, done.stderr
        rows = [json.loads(line) for line in late.read_text().splitlines()]
        assert [row["site"] for row in rows] == [2, 3]
        assert all(row["reason"] for row in rows)

    def test_explain_shows_the_plan_and_runs_nothing(self) -> None:
        done = CliRunner().invoke(app, ["query", COUNT, *BIDS, "--explain"])
        assert done.exit_code == OK, done.stderr
        assert "q1" in done.stdout

    def test_a_plan_is_printed_in_every_format(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"engine: {{strategy: shared_paned, fragments: joint, state: driver}}\n"
            f"streams: {{bids: {{path: {EXAMPLES / 'bids.json'}, time: ts}}}}\n"
            f"queries: {{counts: '{COUNT}'}}\n"
        )
        shown = {}
        for form in PlanFormat:
            done = CliRunner().invoke(app, ["explain", str(file), "--format", form.value, "--verbose"])
            assert done.exit_code == OK, done.stderr
            shown[form] = done.stdout
        assert "query counts: range 2 minutes, slide 2 minutes" in shown[PlanFormat.TEXT]
        assert "strategy shared_paned, fragments joint, state driver" in shown[PlanFormat.TEXT]
        assert json.loads(shown[PlanFormat.JSON])["streams"][0]["queries"] == 1
        assert shown[PlanFormat.MERMAID].startswith("flowchart LR\n")

    def test_a_drained_pipeline_writes_its_sinks(self, tmp_path: Path) -> None:
        (tmp_path / "bids.json").write_text((EXAMPLES / "bids.json").read_text())
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"""
streams: {{bids: {{path: bids.json, time: ts}}}}
tables: {{sites: {{path: {EXAMPLES / "sites.csv"}}}}}
queries:
  by_city:
    sql: SELECT city, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour], sites
         WHERE bids.site = sites.site GROUP BY city
    sinks: [{{format: json, path: out}}]
"""
        )
        done = CliRunner().invoke(app, ["run", str(file), "--drain", "--no-progress"])
        assert done.exit_code == OK, done.stderr
        written = [json.loads(line) for part in (tmp_path / "out").rglob("*.json") for line in part.open()]
        assert sorted((row["city"], row["n"]) for row in written) == [("Boston", 4), ("Portland", 5)]

    @pytest.mark.parametrize(
        "items", ["site", "site, price", "site, price, price + 1 AS p, site + 1 AS s, ts"]
    )
    def test_a_query_without_a_window_prints_all_items_of_its_rows(self, items: str) -> None:
        done = CliRunner().invoke(app, ["query", f"SELECT {items} FROM bids WHERE price > 25", *BIDS])
        assert done.exit_code == OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rows[0]) == 1 + len(items.split(",")) and rows[0]["event_time"].startswith("2013")
        assert [row["site"] for row in rows] == [2, 2, 2]

    def test_a_query_without_slide_is_looked_up_at_the_end_of_the_data(self) -> None:
        top = "SELECT site, max(price) AS top FROM bids [RANGE 2 minutes] GROUP BY site"
        done = CliRunner().invoke(app, ["query", top, f"{top} USING timegram(64)", *BIDS])
        assert done.exit_code == OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(row["query"], row["site"], row["top"]) for row in rows] == [
            (name, site, top) for name in ("q1", "q2") for site, top in ((1, 14.0), (2, 27.0), (3, None))
        ]
        assert rows[0].keys() == {"query", "window_start", "window_end", "site", "top", "complete"}
        assert all(row["complete"] for row in rows)
        assert rows[4]["top_low"] == rows[4]["top_high"] == 27.0

    def test_a_pipeline_looks_up_and_explains_its_on_demand_queries(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"streams: {{bids: {{path: {EXAMPLES / 'bids.json'}, time: ts}}}}\n"
            "queries: {top: 'SELECT max(price) AS top FROM bids [RANGE 2 minutes]'}\n"
        )
        done = CliRunner().invoke(app, ["run", str(file), "--drain", "--no-progress", "--format", "csv"])
        assert done.exit_code == OK, done.stderr
        head, row = done.stdout.splitlines()
        assert head == "query,window_start,window_end,top,complete,made"
        assert row.startswith("top,") and ",27.0,true,20" in row
        done = CliRunner().invoke(app, ["explain", str(file)])
        assert done.exit_code == OK, done.stderr
        assert "query top: the last 2 minutes of ts, exact: max(price) by staircase of store 2" in done.stdout

    def test_an_on_demand_query_has_no_sink(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"streams: {{bids: {{path: {EXAMPLES / 'bids.json'}, time: ts}}}}\n"
            "queries: {top: {sql: 'SELECT max(price) AS top FROM bids [RANGE 2 minutes]', "
            "sinks: [{format: json, path: out}]}}\n"
        )
        done = CliRunner().invoke(app, ["explain", str(file)])
        assert done.exit_code == USAGE
        assert "query top: sink 0: a query without SLIDE emits no results" in done.stderr
        assert "lookup()" not in done.stderr

    def test_a_table_may_have_options_of_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "sites.txt").write_text("1;Portland\n2;Boston\n")
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"""
streams: {{bids: {{path: {EXAMPLES / "bids.json"}, time: ts}}}}
tables:
  sites:
    {{path: sites.txt, format: csv, schema: "site int, city string", options: {{sep: ";", header: false}}}}
queries:
  by_city:
    sql: SELECT city, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour], sites
         WHERE bids.site = sites.site GROUP BY city
    sinks: [{{format: json, path: out}}]
"""
        )
        done = CliRunner().invoke(app, ["run", str(file), "--drain", "--no-progress"])
        assert done.exit_code == OK, done.stderr
        written = [json.loads(line) for part in (tmp_path / "out").rglob("*.json") for line in part.open()]
        assert sorted((row["city"], row["n"]) for row in written) == [("Boston", 4), ("Portland", 5)]

    def test_a_pipeline_with_a_wrong_query_names_it(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"streams: {{bids: {{path: {EXAMPLES / 'bids.json'}, time: ts}}}}\n"
            "queries: {typo: 'SELECT sum(prise) FROM bids [RANGE 1 minute SLIDE 1 minute]'}\n"
        )
        done = CliRunner().invoke(app, ["explain", str(file)])
        assert done.exit_code == USAGE
        assert "query typo: " in done.stderr
