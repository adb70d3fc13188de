"""`transom explain` and `transom check` start no JVM where they need none, and print what Spark's plan would be."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transom.backends.local.plan_without_spark import PlanningBackend
from transom.cli import small_input
from transom.cli.build_engine import built_engine, declare_pipeline, open_engine
from transom.cli.main import OK, USAGE, app
from transom.cli.pipeline import load_pipeline
from transom.errors import BackendLimitError, SettingError
from transom.storage.file_store import Store

RULES = """
  by_card: SELECT card, count(*) AS n FROM tx [RANGE 5 minutes SLIDE 1 minute] WHERE amount > 10 GROUP BY card
  large: SELECT max(amount * 1.19) AS top FROM tx [RANGE 1 hour SLIDE 1 minute] WHERE country IN ('DE', 'US')
  names: SELECT upper(country) AS c, sum(amount) AS s FROM tx [RANGE 1 hour SLIDE 5 minutes] GROUP BY upper(country)
  matched: SELECT count(*) AS n FROM tx [RANGE 1 minute SLIDE 1 minute] WHERE card RLIKE '^c[0-9]+$'
  roots: SELECT avg(pow(amount, 0.5)) AS r FROM tx [RANGE 1 minute SLIDE 1 minute]
"""


def _pipeline(directory: Path, rules: str = RULES, more: str = "") -> Path:
    (directory / "tx.csv").write_text(
        "ts,card,amount,country\n2024-01-01 00:00:00,c1,12.5,DE\n2024-01-01 00:00:01,c2,7.25,US\n"
    )
    file = directory / "p.yaml"
    stream = f"streams:\n  tx:\n    path: {directory / 'tx.csv'}\n    time: ts\n"
    file.write_text(f"{stream}{more}queries:{rules}")
    return file


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Spark is started."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("transom.backends.spark.session.start_session", refuse)


@pytest.mark.usefixtures("no_spark")
def test_a_plan_needs_no_spark(tmp_path: Path) -> None:
    file = _pipeline(tmp_path)
    done = CliRunner().invoke(app, ["explain", str(file)])
    assert done.exit_code == OK, done.output
    assert "5 queries" in done.output
    done = CliRunner().invoke(app, ["check", str(file)])
    assert (done.exit_code, done.output) == (OK, "fine: 1 stream, 0 tables, 0 views, 5 queries\n")


class RunningBackend(PlanningBackend):
    """Writes checkpoints that an engine on Spark could have written."""

    name = "spark"


@pytest.mark.usefixtures("no_spark")
def test_a_pipeline_is_checked_after_it_has_run_on_spark(tmp_path: Path) -> None:
    file = _pipeline(tmp_path, more=f"engine:\n  checkpoint: {tmp_path / 'state'}\n")
    pipeline = load_pipeline(file)
    engine = open_engine({**pipeline.engine, "backend": RunningBackend()})
    declare_pipeline(engine, pipeline)
    engine.drain()
    engine.stop()
    for command in ("check", "explain"):
        done = CliRunner().invoke(app, [command, str(file)])
        assert done.exit_code == OK, done.output


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("rules", "more", "says"),
    [
        ("\n  q: SELECT cuont(*) FROM tx [RANGE 1 minute SLIDE 1 minute]\n", "", "query q: "),
        ("\n  q: SELECT count(crad) FROM tx [RANGE 1 minute SLIDE 1 minute]\n", "", "card"),
        (RULES, "tables:\n  cards:\n    path: nowhere/cards.csv\n", "no such file or directory"),
        (RULES, "engine:\n  strategy: quick\n", "strategy"),
        (RULES, "sinks:\n  - format: parquet\n", "path"),
    ],
)
def test_what_is_wrong_is_said_without_spark(tmp_path: Path, rules: str, more: str, says: str) -> None:
    done = CliRunner().invoke(app, ["check", str(_pipeline(tmp_path, rules, more))])
    assert done.exit_code == USAGE and says in done.stderr, done.output


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        (
            "\n  q: SELECT count(*) AS n FROM tx [RANGE 1 minute SLIDE 1 minute] WHERE soundex(card) = 'C100'\n",
            "",
        ),
        (RULES, "sinks:\n  - format: kafka\n    options: {topic: t}\n"),
        (RULES, "engine:\n  backend: local\n"),
    ],
    ids=["a function", "a sink", "a backend"],
)
def test_other_pipelines_get_the_backend_that_they_need(tmp_path: Path, rules: str, more: str) -> None:
    assert small_input._engine_without_spark(load_pipeline(_pipeline(tmp_path, rules, more))) is None


@pytest.mark.usefixtures("spark")
def test_the_plan_is_that_of_spark(tmp_path: Path) -> None:
    pipeline = load_pipeline(_pipeline(tmp_path))
    engine = open_engine({"backend": PlanningBackend()})
    declare_pipeline(engine, pipeline)
    planned = engine.explain("text", True)
    engine.stop()
    with built_engine(pipeline) as on_spark:
        assert planned == on_spark.explain("text", True)
    assert "Spark" in planned


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("command", [["run"], ["serve", "--port", "0"]], ids=["run", "serve"])
def test_a_wrong_pipeline_is_refused_before_spark_starts(tmp_path: Path, command: list[str]) -> None:
    wrong = "\n  q: SELECT count(crad) FROM tx [RANGE 1 minute SLIDE 1 minute]\n"
    more = f"engine:\n  checkpoint: {tmp_path / 'checkpoint'}\n"
    done = CliRunner().invoke(app, [*command, str(_pipeline(tmp_path, wrong, more))])
    assert done.exit_code == USAGE and "card" in done.stderr, done.output
    assert not (tmp_path / "checkpoint").exists()


def test_queries_that_need_a_checkpoint_are_checked_by_its_engine(tmp_path: Path) -> None:
    wrong = "\n  q: SELECT count(*) FROM paid [RANGE 1 minute SLIDE 1 minute]\n"
    (tmp_path / "checkpoint").mkdir()
    more = f"engine:\n  checkpoint: {tmp_path / 'checkpoint'}\n"
    small_input.check_before_start(load_pipeline(_pipeline(tmp_path, wrong, more)))


def test_a_misspelt_format_of_a_sink_is_refused_without_spark() -> None:
    with pytest.raises(SettingError, match="Spark has no writer for parket; did you mean parquet"):
        PlanningBackend().sink("parket", {"path": "out"})
    with pytest.raises(BackendLimitError):  # whether Spark has a connector is Spark's to say
        PlanningBackend().sink("kafka", {})


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_checkpoint_that_an_engine_uses_is_left_alone(tmp_path: Path, command: str) -> None:
    """An engine that opens a checkpoint takes it over, so that the running one would stop."""
    checkpoint = tmp_path / "checkpoint"
    file = _pipeline(tmp_path)
    sinks = (
        f"sinks: [{{format: json, path: {tmp_path / 'out'}}}]\n"
        f"alert_sinks: {{events: {{file: {tmp_path / 'events'}}}}}\n"
        "alerts: {many: {query: large, sinks: [events]}}\n"
    )
    text = file.read_text().replace("country IN ('DE', 'US')", "country IN ('DE', 'US') HAVING top > 1")
    file.write_text(f"engine: {{backend: local, checkpoint: {checkpoint}}}\n{sinks}{text}")
    with built_engine(load_pipeline(file)) as engine:
        engine.drain()
    assert any((tmp_path / "out").iterdir()) and any((tmp_path / "events").iterdir())
    held = Store(str(checkpoint))
    running = {"host": socket.gethostname(), "process": 1, "since": 0}
    held.write("lease/0000000001.json", json.dumps(running).encode())
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    done = CliRunner().invoke(app, [command, str(file)])
    assert done.exit_code == OK, done.output
    assert {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()} == before
