"""Pipeline files: what they mean, and where an error points."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transom.cli.build_engine import built_engine, declare_pipeline, open_engine
from transom.cli.pipeline import QueryEntry, load_pipeline, read_pipeline
from transom.errors import SettingError, SQLError, StateError

NO_ALERTS = SimpleNamespace(summaries=dict)  # of a checkpoint
WHOLE = """
engine:
  checkpoint: state
  retention: 7 days
streams:
  bids:
    path: bids/
    format: json
    schema: site int, price double, ts timestamp
    time: ts
    slack: 30 seconds
    options: {multiLine: true}
tables:
  sites: {path: /data/sites.csv}
  remote: {path: "s3://bucket/sites"}
queries:
  short: SELECT count(*) FROM bids [RANGE 1 minute SLIDE 1 minute]
  long:
    sql: SELECT sum(price) FROM bids [RANGE 1 hour SLIDE 1 minute]
    partial: true
    sinks: [{format: parquet, path: out/long}]
sinks:
  - {format: json, path: out/all, options: {compression: gzip}}
"""
STREAMS = "streams: {bids: {path: b, time: ts}}\n"
QUERIES = "queries: {q: SELECT 1}\n"

SUMMARY = "CREATE SUMMARY items ON bids(site) WITH GRANULARITY 10 seconds"

REFUSED = [
    ("an empty file", "", "expected a mapping with streams"),
    ("a list", "- a", "expected a mapping with streams"),
    ("an unknown section", "stream: {}\n", r"stream: there is no such section; did you mean streams\?"),
    ("no streams", QUERIES, "streams: a pipeline needs at least one stream"),
    ("no queries", STREAMS, "queries: a pipeline needs at least one query"),
    (
        "an unknown setting",
        QUERIES + "streams: {bids: {path: b, tme: ts}}",
        r"streams.bids.tme: .* did you mean time\?",
    ),
    (
        "an option of a sink beside its format",
        STREAMS + QUERIES + "sinks: [{format: delta, path: out, mode: upsert}]",
        "mode: there is no such setting; an option of the format is written under options",
    ),
    (
        "a slack without a unit",
        QUERIES + "streams: {bids: {path: b, time: ts, slack: 0.99}}",
        "streams.bids.slack: .* or '99%' to learn it",
    ),
    ("a missing setting", QUERIES + "streams: {bids: {path: b}}", "streams.bids: time is missing"),
    (
        "a bad duration",
        QUERIES + "streams: {bids: {path: b, time: ts, slack: 3 minuets}}",
        "streams.bids.slack: .*minute",
    ),
    (
        "a replay with an option that isn't one",
        QUERIES + "streams: {bids: {path: b, time: ts, replay: {sped: 2}}}",
        r"streams.bids.replay: a replay has no option sped; did you mean speed\?",
    ),
    (
        "a replay that is a number",
        QUERIES + "streams: {bids: {path: b, time: ts, replay: 60}}",
        "streams.bids.replay: expected a mapping such as {speed: 60}",
    ),
    ("streams as a list", QUERIES + "streams: [bids]", "streams: expected a mapping from name"),
    (
        "a stream that is text",
        QUERIES + "streams: {bids: bids.json}",
        "streams.bids: expected a mapping with path",
    ),
    ("a query without SQL", STREAMS + "queries: {q: {partial: true}}", "queries.q: sql is missing"),
    ("a query that is a number", STREAMS + "queries: {q: 3}", "queries.q: expected a mapping with sql"),
    (
        "a name that YAML takes for a boolean",
        STREAMS + "queries: {yes: SELECT 1}",
        "reads this name as True; put it in quotes",
    ),
    ("a sink without a format", STREAMS + QUERIES + "sinks: [{path: x}]", r"sinks\[0\]: format is missing"),
    (
        "a query's sink with a typo",
        STREAMS + "queries: {q: {sql: x, sinks: [{fromat: json}]}}",
        r"queries.q.sinks\[0\].fromat: .*did you mean format",
    ),
    (
        "a table named like a stream",
        STREAMS + QUERIES + "tables: {Bids: {path: x}}",
        "tables.Bids: a stream has this name",
    ),
    ("a query given twice", STREAMS + "queries:\n  q: SELECT 1\n  q: SELECT 2\n", "q is given twice"),
    ("a view that is no text", STREAMS + QUERIES + "views: {v: [x]}", r"views.v: expected SELECT as text"),
    (
        "summaries that are no list",
        STREAMS + QUERIES + "summaries: {items: x}",
        "summaries: expected a list of CREATE SUMMARY",
    ),
    (
        "a summary given twice",
        STREAMS + QUERIES + f"summaries: [{SUMMARY!r}, {SUMMARY!r}]",
        r"summaries\[1\]: there is a summary items already",
    ),
    ("no YAML", "streams: {bids: [", "this is not YAML"),
]


def test_a_whole_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(WHOLE)
    pipeline = load_pipeline(file)
    assert pipeline.engine == {"checkpoint": str(tmp_path / "state"), "retention": "7 days"}
    assert pipeline.streams == {
        "bids": {
            "path": str(tmp_path / "bids"),
            "format": "json",
            "schema": "site int, price double, ts timestamp",
            "time": "ts",
            "slack": "30 seconds",
            "options": {"multiLine": "true"},
        }
    }
    assert pipeline.tables == {"sites": {"path": "/data/sites.csv"}, "remote": {"path": "s3://bucket/sites"}}
    assert pipeline.queries == {
        "short": QueryEntry("SELECT count(*) FROM bids [RANGE 1 minute SLIDE 1 minute]"),
        "long": QueryEntry(
            "SELECT sum(price) FROM bids [RANGE 1 hour SLIDE 1 minute]",
            True,
            [{"format": "parquet", "path": str(tmp_path / "out/long")}],
        ),
    }
    assert pipeline.sinks == [
        {"format": "json", "path": str(tmp_path / "out/all"), "options": {"compression": "gzip"}}
    ]


@pytest.mark.parametrize(("text", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=says) as raised:
        load_pipeline(file)
    assert str(raised.value).startswith(str(file))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"absent.yaml: No such file"):
        load_pipeline(tmp_path / "absent.yaml")


def test_a_stream_with_a_replay_is_replayed() -> None:
    declared: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    class Engine:
        def __getattr__(self, name: str) -> Any:
            if name == "alerting":
                return NO_ALERTS
            return lambda *args, **options: declared.append((name, args, options)) or {}

    entry = {"path": "b.json", "time": "ts", "slack": "1 s", "replay": {"speed": 60}}
    pipeline = read_pipeline({"streams": {"bids": entry}, "queries": {"q": "SELECT 1"}}, Path("/data"))
    declare_pipeline(Engine(), pipeline)  # type: ignore[arg-type]
    assert declared[0] == ("replay", ("bids", "/data/b.json"), {"time": "ts", "slack": "1 s", "speed": 60})


def test_dropped_and_changed_queries_of_a_checkpoint_are_distinguished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dropped = []

    class Known:
        def __init__(self, name: str, text: str):
            self.name, self.text = name, text

        def drop(self) -> None:
            dropped.append(self.name)

    class Engine:
        def queries(self) -> dict[str, Known]:
            return {name: Known(name, "SELECT 1") for name in ("same", "changed", "gone")}

        def __getattr__(self, name: str) -> Any:
            return NO_ALERTS if name == "alerting" else lambda *args, **options: {}

    queries = {"same": "SELECT 1", "changed": "SELECT 2", "new": "SELECT 3"}
    entry = {"path": "b.json", "time": "ts"}
    declare_pipeline(Engine(), read_pipeline({"streams": {"bids": entry}, "queries": queries}, Path("/data")))  # type: ignore[arg-type]
    assert dropped == ["changed", "gone"]
    assert [record.getMessage() for record in caplog.records] == [
        "the text of query changed differs from the checkpoint's: the query starts over",
        "query gone of the checkpoint is no longer in the pipeline: dropped",
    ]


def test_an_error_in_a_summary_is_reported_with_its_place() -> None:
    given = {"streams": {"bids": {"path": "b", "time": "ts"}}, "queries": {"q": "SELECT 1"}}
    with pytest.raises(SQLError, match=r"summaries\[0\]: write bids\(column\)") as raised:
        read_pipeline(given | {"summaries": ["CREATE SUMMARY items ON bids"]}, Path("/data"))
    assert raised.value.text == "CREATE SUMMARY items ON bids"


def test_a_query_starts_over_when_its_summary_changes(caplog: pytest.LogCaptureFixture) -> None:
    executed: list[str] = []

    class Known:
        def __init__(self, name: str, text: str, queries: tuple[str, ...] = ()):
            self.name, self.text, self.queries = name, text, queries

        def drop(self) -> None:
            executed.append(f"drop {self.name}")

    class Engine:
        def queries(self) -> dict[str, Known]:
            return {name: Known(name, "SELECT 1") for name in ("led", "other", "gone")}

        def summaries(self) -> dict[str, Known]:
            texts = {"items": SUMMARY.replace("10", "20"), "same": same.lower(), "old": older}
            led = {"items": ("led",), "same": ("other",), "old": ("gone",)}
            return {name: Known(name, text, led[name]) for name, text in texts.items()}

        def execute(self, text: str) -> None:
            executed.append(text)

        def __getattr__(self, name: str) -> Any:
            return NO_ALERTS if name == "alerting" else lambda *args, **options: {}

    same, older = SUMMARY.replace("items", "same"), SUMMARY.replace("items", "old")
    given = {
        "streams": {"bids": {"path": "b", "time": "ts"}},
        "summaries": [SUMMARY, same],
        "queries": {"led": "SELECT 1", "other": "SELECT 1"},
    }
    declare_pipeline(Engine(), read_pipeline(given, Path("/data")))  # type: ignore[arg-type]
    assert executed == ["drop led", "drop gone", "DROP SUMMARY `items`", "DROP SUMMARY `old`", SUMMARY, same]
    assert "query led starts over, because its summary does" in caplog.text
    assert "summary old of the checkpoint is no longer in the pipeline: dropped" in caplog.text


def test_a_pipeline_chooses_its_backend(tmp_path: Path) -> None:
    engine = open_engine({"backend": "local", "checkpoint": str(tmp_path / "state")})
    with pytest.raises(StateError, match="the local backend has no Spark session"):
        _ = engine.spark
    engine.stop()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"backend": "local", "master": "local[1]"}, "a Spark master is for the Spark backend"),
        ({"backend": "locl"}, "unknown backend 'locl': spark or local"),
    ],
    ids=["a master without Spark", "an unknown backend"],
)
def test_a_wrong_backend_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        open_engine(settings)


def test_the_files_of_tokens_are_relative_to_the_pipeline(tmp_path: Path) -> None:
    tokens = [
        {"name": "ops", "role": "admin", "token_file": "ops"},
        {"name": "a", "role": "read", "token_env": "A"},
    ]
    given = {"streams": {"bids": {"path": "bids", "time": "ts"}}, "server": {"tokens": tokens}}
    server = read_pipeline(given, tmp_path, served=True).server
    assert [token.get("token_file") for token in server["tokens"]] == [str(tmp_path / "ops"), None]


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ({"name": "ops"}, r"server\.tokens: expected a list of tokens"),
        ([{"role": "read", "token_env": "A"}], r"server\.tokens\[0\]: name is missing"),
        (
            [{"name": "ops", "role": "read", "token": "x"}],
            r"server\.tokens\[0\]\.token: there is no such setting",
        ),
    ],
    ids=["no list", "no name", "a secret in the file"],
)
def test_wrong_tokens_are_reported_with_their_place(tokens: Any, says: str, tmp_path: Path) -> None:
    given = {"streams": {"bids": {"path": "bids", "time": "ts"}}, "server": {"tokens": tokens}}
    with pytest.raises(SettingError, match=says):
        read_pipeline(given, tmp_path, served=True)


def test_tokens_are_no_section(tmp_path: Path) -> None:
    given = {"streams": {"bids": {"path": "bids", "time": "ts"}}, "tokens": []}
    with pytest.raises(SettingError, match="tokens: there is no such section"):
        read_pipeline(given, tmp_path, served=True)


def test_a_served_pipeline_has_a_deadline_unless_it_sets_one(tmp_path: Path) -> None:
    given: dict[str, Any] = {"streams": {"s": {"path": "in", "time": "ts"}}}
    assert read_pipeline(given, tmp_path, served=True).engine == {"batch_deadline": "2 minutes"}
    given["engine"] = {"batch_deadline": "1 hour"}
    assert read_pipeline(given, tmp_path, served=True).engine == {"batch_deadline": "1 hour"}
    given["queries"] = {"q": "SELECT count(*) FROM s [RANGE 1 minute SLIDE 1 minute]"}
    assert read_pipeline(given | {"engine": {}}, tmp_path).engine == {}


def test_views_of_a_file_replace_those_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "bids.json").write_text('{"ts": "2024-01-01 00:00:10", "price": 5}\n')
    stream = {"path": "bids.json", "schema": "ts timestamp, price int", "time": "ts"}
    given: dict[str, Any] = {
        "engine": {"backend": "local", "checkpoint": "state"},
        "streams": {"bids": stream},
        "views": {
            "high": "SELECT * FROM bids WHERE price > 1;",
            "higher": "SELECT * FROM high WHERE price > 2",
        },
        "queries": {
            "n": "SELECT count(*) AS n FROM higher [RANGE 1 minute SLIDE 1 minute]",
            "all": "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]",
        },
    }
    with built_engine(read_pipeline(given, tmp_path)) as engine:
        engine.step()
    given["views"]["high"] = "SELECT * FROM bids WHERE price > 4"
    with built_engine(read_pipeline(given, tmp_path)) as engine:
        engine.step(empty=True)
        assert {name: view.text for name, view in engine.views().items()} == {
            "high": "SELECT * FROM bids WHERE price > 4",
            "higher": "SELECT * FROM high WHERE price > 2",
        }
        assert [query.account.counted for query in engine.queries().values()] == [1, 0]  # all, n
    del given["views"], given["queries"]["n"]
    with built_engine(read_pipeline(given, tmp_path)) as engine:
        assert engine.views() == {}
