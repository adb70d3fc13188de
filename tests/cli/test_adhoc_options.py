"""What the options of `transom query` mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transom.cli.adhoc_options import read_adhoc, split_statements
from transom.cli.pipeline import Pipeline
from transom.errors import SettingError, SQLError


def read(
    sql: tuple[str, ...] = ("SELECT 1",),
    streams: tuple[str, ...] = ("bids=b.json",),
    tables: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    **per_stream: list[str],
) -> Pipeline:
    return read_adhoc(sql, files, streams, tables, {"time": ["ts"]} | per_stream)


SETTINGS = [
    ("a setting for every stream", {"slack": ["1 minute"]}, "1 minute", "1 minute"),
    ("a setting for one stream", {"slack": ["bids=1 minute"]}, "1 minute", None),
    ("one stream's own goes first, whatever the order", {"slack": ["bids=2 s", "1 s"]}, "2 s", "1 s"),
    ("a plain number is a number", {"slack": ["100"]}, 100, 100),
]


@pytest.mark.parametrize(("given", "bids", "asks"), [c[1:] for c in SETTINGS], ids=[c[0] for c in SETTINGS])
def test_settings_by_stream(given: dict[str, list[str]], bids: Any, asks: Any) -> None:
    pipeline = read(streams=("bids=b.json", "asks=a.json"), **given)
    assert pipeline.streams["bids"].get("slack") == bids
    assert pipeline.streams["asks"].get("slack") == asks


def test_an_equals_sign_in_an_expression_names_no_stream() -> None:
    pipeline = read(punctuation=["kind='end'"])
    assert pipeline.streams["bids"]["punctuation"] == "kind='end'"


def test_queries_are_numbered_over_arguments_and_files(tmp_path: Path) -> None:
    script = tmp_path / "more.sql"
    script.write_text("SELECT 2;\n-- the last; really\nSELECT 3;\n")
    pipeline = read(sql=("SELECT 1",), files=(script,))
    assert {name: entry.sql for name, entry in pipeline.queries.items()} == {
        "q1": "SELECT 1",
        "q2": "SELECT 2",
        "q3": "-- the last; really\nSELECT 3",
    }


def test_views_may_be_among_the_queries() -> None:
    statements = (
        "CREATE VIEW v AS SELECT * FROM bids; CREATE OR REPLACE VIEW w AS SELECT * FROM v; SELECT 1 FROM w"
    )
    pipeline = read_adhoc([statements], [], ["bids=b"], [], {"time": ["ts"]})
    assert pipeline.views == {"v": "SELECT * FROM bids", "w": "SELECT * FROM v"}
    assert list(pipeline.queries) == ["q1"]
    with pytest.raises(SettingError, match="there is a view v already"):
        read_adhoc([f"CREATE VIEW v AS SELECT 1; {statements}"], [], ["bids=b"], [], {"time": ["ts"]})


def test_summaries_may_be_options_or_among_the_queries() -> None:
    one, two = (f"CREATE SUMMARY {name} ON bids(site) WITH GRANULARITY '10 s'" for name in ("one", "two"))
    pipeline = read_adhoc([f"{one}; SELECT 1"], [], ["bids=b"], [], {"time": ["ts"]}, summaries=[two])
    assert pipeline.summaries == [two, one]
    assert [entry.sql for entry in pipeline.queries.values()] == ["SELECT 1"]
    with pytest.raises(SettingError, match="there is a summary one already"):
        read_adhoc([one, "SELECT 1"], [], ["bids=b"], [], {"time": ["ts"]}, summaries=[one])
    with pytest.raises(SQLError, match="--summary SELECT 2: expected CREATE"):
        read_adhoc(["SELECT 1"], [], ["bids=b"], [], {"time": ["ts"]}, summaries=["SELECT 2"])


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no stream", {"streams": ()}, "name a stream to read"),
    ("a stream without a path", {"streams": ("bids",)}, "--from bids: write NAME=PATH"),
    ("a stream given twice", {"streams": ("a=x", "a=y")}, "a is given twice"),
    ("a table without a name", {"tables": ("=x",)}, "--table =x: write NAME=PATH"),
    ("no query", {"sql": ()}, "give a query"),
    ("only a semicolon", {"sql": (";",)}, "give a query"),
    ("no time", {"time": []}, "--time is missing: the column of bids"),
    ("a bad duration", {"slack": ["3 minuets"]}, "--from bids.slack: .*did you mean minute"),
    ("a file that isn't there", {"files": (Path("absent.sql"),)}, "--sql-file absent.sql"),
]


@pytest.mark.parametrize(("given", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        read(**given)


STATEMENTS = [
    ("nothing", "  ", []),
    ("one without a semicolon", "SELECT 1", ["SELECT 1"]),
    ("a semicolon in a string", "SELECT 'a;b'; SELECT 2", ["SELECT 'a;b'", "SELECT 2"]),
    ("a doubled quote", "SELECT 'it''s; so'; SELECT 2", ["SELECT 'it''s; so'", "SELECT 2"]),
    ("a semicolon in a comment", "SELECT /* ; */ 1; SELECT 2", ["SELECT /* ; */ 1", "SELECT 2"]),
    ("an open quote runs to the end", "SELECT 'a; b", ["SELECT 'a; b"]),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in STATEMENTS], ids=[c[0] for c in STATEMENTS])
def test_statements(text: str, expected: list[str]) -> None:
    assert split_statements(text) == expected


def test_reader_options_are_for_all_streams_or_for_one() -> None:
    given = ["header=true", "a=timestampFormat=M/d/yyyy H:mm:ss"]
    found = read_adhoc(["SELECT 1"], [], ["a=a.csv", "b=b.csv"], [], {"time": ["ts"]}, given)
    assert found.streams["a"]["options"] == {"header": "true", "timestampFormat": "M/d/yyyy H:mm:ss"}
    assert found.streams["b"]["options"] == {"header": "true"}


def test_a_reader_option_without_a_value_is_refused() -> None:
    with pytest.raises(SettingError, match="write KEY=VALUE"):
        read_adhoc(["SELECT 1"], [], ["a=a.csv"], [], {"time": ["ts"]}, ["header"])
