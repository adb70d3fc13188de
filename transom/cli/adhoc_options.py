"""The options of `transom query` and `transom replay`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transom.cli.pipeline import Pipeline, QueryEntry, Settings, check_summaries
from transom.cli.settings_table import STREAM, TABLE, read_settings
from transom.errors import SettingError
from transom.sql.clauses.summary import is_statement
from transom.sql.clauses.view import CreateViewStatement, is_view_statement, read_view_statement

INTEGER_KINDS = ("count", "span", "slack")  # kinds of settings whose value may be a plain number


def read_adhoc(
    sql: Sequence[str],
    sql_files: Sequence[Path],
    streams: Sequence[str],
    tables: Sequence[str],
    per_stream: Mapping[str, Sequence[str] | None],
    options: Sequence[str] = (),
    master: str | None = None,
    summaries: Sequence[str] = (),
) -> Pipeline:
    """A pipeline from queries, `NAME=PATH` pairs and `[STREAM=]VALUE` settings.

    CREATE VIEW and CREATE SUMMARY may be among the queries.
    """
    sources = _pairs(streams, "--from")
    if not sources:
        raise SettingError("name a stream to read: --from bids=bids.json")
    settings: dict[str, Settings] = {name: {"path": path} for name, path in sources.items()}
    for option, values in per_stream.items():
        for name, value in _by_stream(option, values or (), settings).items():
            settings[name][option] = value
    for name, key, value in _reader_options(options, settings):
        settings[name].setdefault("options", {})[key] = value
    for name, each in settings.items():
        if "time" not in each:
            raise SettingError(f"--time is missing: the column of {name} that holds a row's event time")
    created, queries = _statements(sql, sql_files)
    created = [*(text for summary in summaries for text in split_statements(summary)), *created]
    texts = [text for text in created if not is_view_statement(text)]
    return Pipeline(
        streams={name: read_settings(STREAM, each, f"--from {name}") for name, each in settings.items()},
        tables={
            name: read_settings(TABLE, {"path": path}, f"--table {name}")
            for name, path in _pairs(tables, "--table").items()
        },
        queries=queries,
        engine={} if master is None else {"master": master},
        views=read_views([text for text in created if is_view_statement(text)]),
        summaries=check_summaries(texts, [f"--summary {text}" for text in texts]),
    )


def read_views(statements: Sequence[str]) -> dict[str, str]:
    """The SELECT of each CREATE VIEW statement by name."""
    views: dict[str, str] = {}
    for text in statements:
        statement = read_view_statement(text)
        if not isinstance(statement, CreateViewStatement):
            raise SettingError(f"{text}: there is no view to drop yet")
        if statement.name in views and not statement.replaces:
            raise SettingError(f"{text}: there is a view {statement.name} already")
        views[statement.name] = statement.select
    return views


def read_replay(
    path: str, settings: Mapping[str, Any], replay: Mapping[str, Any], options: Sequence[str]
) -> dict[str, Any]:
    """The arguments of `engine.replay` from the settings of the stream and of the replay."""
    given = {name: value for name, value in settings.items() if value is not None} | {"path": path}
    pairs = list(_reader_options(options, {path: None}))
    if pairs:
        given["options"] = {key: value for _, key, value in pairs}
    checked = read_settings(STREAM, given, "replay")
    return {name: value for name, value in checked.items() if name != "path"} | dict(replay)


def split_statements(text: str) -> list[str]:
    """The statements of an SQL script, split at semicolons outside of quotes and comments.

    >>> split_statements("SELECT ';' -- one; only\\n; SELECT 2;")
    ["SELECT ';' -- one; only", 'SELECT 2']
    """
    statements, start, at = [], 0, 0
    while at < len(text):
        if text[at] in "'\"`":
            at = _end(text, text[at], at + 1)
        elif text.startswith("--", at):
            at = _end(text, "\n", at)
        elif text.startswith("/*", at):
            at = _end(text, "*/", at + 2)
        elif text[at] == ";":
            statements.append(text[start:at])
            at = start = at + 1
        else:
            at += 1
    statements.append(text[start:])
    return [statement.strip() for statement in statements if statement.strip()]


def _end(text: str, mark: str, start: int) -> int:
    position = text.find(mark, start)
    return len(text) if position < 0 else position + len(mark)


def _statements(sql: Sequence[str], sql_files: Sequence[Path]) -> tuple[list[str], dict[str, QueryEntry]]:
    """The statements that are not queries, and the queries in order, named q1, q2 and so on."""
    statements = [statement for text in sql for statement in split_statements(text)]
    for path in sql_files:
        try:
            statements += split_statements(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"--sql-file {path}: {error}") from None
    queries = [statement for statement in statements if not is_statement(statement)]
    if not queries:
        raise SettingError("give a query, as text or with --sql-file")
    return [statement for statement in statements if is_statement(statement)], {
        f"q{number}": QueryEntry(statement) for number, statement in enumerate(queries, 1)
    }


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        name, equals, path = pair.partition("=")
        if not (equals and name.strip() and path.strip()):
            raise SettingError(f"{option} {pair}: write NAME=PATH, as in {option} bids=bids.json")
        if name in pairs:
            raise SettingError(f"{option} {pair}: {name} is given twice")
        pairs[name] = path
    return pairs


def _reader_options(options: Sequence[str], streams: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Stream, key and value of each `[STREAM=]KEY=VALUE`."""
    for option in options:
        name, equals, rest = option.partition("=")
        owners, pair = ([name], rest) if name in streams and "=" in rest else (list(streams), option)
        key, equals, value = pair.partition("=")
        if not (equals and key.strip()):
            raise SettingError(f"--option {option}: write KEY=VALUE, as in --option header=true")
        for owner in owners:
            yield owner, key.strip(), value


def _by_stream(option: str, values: Sequence[str], streams: Mapping[str, Any]) -> dict[str, Any]:
    """The value of an option for each stream; a value for one stream overrides a value for all."""
    common, specific = {}, {}
    for value in values:
        name, equals, rest = value.partition("=")
        if equals and name in streams:  # otherwise the = belongs to an expression
            specific[name] = _typed(option, rest)
        else:
            common = dict.fromkeys(streams, _typed(option, value))
    return common | specific


def _typed(option: str, value: str) -> str | int:
    kind = next(setting.kind for setting in STREAM if setting.name == option)
    return int(value) if kind in INTEGER_KINDS and value.strip().isdigit() else value
