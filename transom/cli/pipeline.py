"""The pipeline file: YAML that declares streams, queries and so on; it is checked before anything starts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

import yaml

from transom.backends.secrets import with_absolute_files
from transom.cli.settings_table import (
    ALERT,
    ALERT_SINK,
    ENGINE,
    QUERY_SETTINGS,
    SERVER,
    SETTING_SECTIONS,
    SINK,
    STREAM,
    TABLE,
    TOKEN,
    Setting,
    read_settings,
)
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.clauses.summary import parse_summary

Settings = dict[str, Any]

NESTED_SECTIONS = ("tokens",)  # in the section `server`
SECTION_NAMES = (*(name for name in SETTING_SECTIONS if name not in NESTED_SECTIONS), "views", "summaries")


@dataclass(frozen=True)
class QueryEntry:
    """A query of a pipeline and its sinks."""

    sql: str
    partial: bool = False
    sinks: list[Settings] = field(default_factory=list)
    since: str | None = None


SERVED_BATCH_DEADLINE = "2 minutes"  # unless the file has another


@dataclass(frozen=True)
class Pipeline:
    """The checked content of a pipeline file, with absolute paths."""

    streams: Mapping[str, Settings]
    queries: Mapping[str, QueryEntry]
    tables: Mapping[str, Settings] = field(default_factory=dict)
    sinks: list[Settings] = field(default_factory=list)
    engine: Settings = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)  # the SELECT of each view, by name
    summaries: list[str] = field(default_factory=list)  # CREATE SUMMARY statements
    server: Settings = field(default_factory=dict)
    alerts: Mapping[str, Settings] = field(default_factory=dict)
    alert_sinks: Mapping[str, Settings] = field(default_factory=dict)


def load_pipeline(path: Path, served: bool = False) -> Pipeline:
    """Read and check a pipeline file; relative paths in it are relative to its directory.

    A file for `transom serve` may have no queries.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{path}: this is not UTF-8 text") from None
    try:
        given = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise SettingError(f"{path}: this is not YAML: {error}") from None
    try:
        return read_pipeline(given, path.resolve().parent, served)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    except SQLError as error:
        raise SQLError(f"{path}: {error.message}", error.text, error.start, error.end) from None


def read_pipeline(given: Any, base: Path, served: bool = False) -> Pipeline:
    """A pipeline from the content of a YAML file."""
    if not isinstance(given, Mapping):
        raise SettingError(f"expected a mapping with {', '.join(SECTION_NAMES)}")
    for name in given:
        if name not in SECTION_NAMES:
            raise SettingError(f"{name}: there is no such section{near_miss(str(name), SECTION_NAMES)}")
    streams = _sources(given, "streams", STREAM, base)
    if not streams:
        raise SettingError("streams: a pipeline needs at least one stream")
    for name, settings in streams.items():
        _check_pushed(settings, f"streams.{name}")
    queries = {
        name: _query(entry, f"queries.{name}", base) for name, entry in _mapping(given, "queries").items()
    }
    if not queries and not served:
        raise SettingError("queries: a pipeline needs at least one query")
    tables = _sources(given, "tables", TABLE, base)
    for name in tables:
        if name.casefold() in {stream.casefold() for stream in streams}:
            raise SettingError(f"tables.{name}: a stream has this name already")
    # Anybody with a token may register queries with a server.
    defaults = {"batch_deadline": SERVED_BATCH_DEADLINE} if served else {}
    return Pipeline(
        streams=streams,
        queries=queries,
        tables=tables,
        sinks=_sinks(given.get("sinks") or [], "sinks", base),
        engine=defaults | _settings(ENGINE, given.get("engine") or {}, "engine", base),
        views=_views(given),
        summaries=_summaries(given.get("summaries") or []),
        server=_server(given.get("server") or {}, base),
        alerts=_named_settings(given, "alerts", ALERT, base),
        alert_sinks=_alert_sinks(given, base),
    )


# Settings of streams that read a source.
_OF_SOURCES = ("path", "format", "options", "select", "decode", "files_per_batch", "replay")


def _check_pushed(settings: Settings, where: str) -> None:
    """Check that a stream that is pushed has a schema, and no settings of sources."""
    if not settings.get("push"):
        return
    for name in _OF_SOURCES:
        if name in settings:
            raise SettingError(f"{where}.{name}: a stream with push reads no source")
    if "schema" not in settings:
        raise SettingError(f"{where}: schema is missing: a stream with push needs its columns")


def _server(given: Any, base: Path) -> Settings:
    settings = _settings(SERVER, given, "server", base)
    for at, entry in enumerate(settings.get("tokens", ())):
        settings["tokens"][at] = _settings(TOKEN, entry, f"server.tokens[{at}]", base)
    return settings


def _named_settings(
    given: Mapping[str, Any], section: str, table: tuple[Setting, ...], base: Path
) -> dict[str, Settings]:
    entries = _mapping(given, section).items()
    return {name: _settings(table, entry, f"{section}.{name}", base) for name, entry in entries}


# The kinds of alert sinks, with their other settings.
_OF_ALERT_SINKS: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "topic": ("options",),
    "webhook": ("format", "secret", "headers", "timeout", "attempts"),
}


def _alert_sinks(given: Mapping[str, Any], base: Path) -> dict[str, Settings]:
    sinks = _named_settings(given, "alert_sinks", ALERT_SINK, base)
    for name, settings in sinks.items():
        where = f"alert_sinks.{name}"
        kinds = [kind for kind in _OF_ALERT_SINKS if kind in settings]
        if len(kinds) != 1:
            raise SettingError(f"{where}: give file, a directory, topic, a topic of Kafka, or webhook, a URL")
        if wrong := settings.keys() - {kinds[0], *_OF_ALERT_SINKS[kinds[0]]}:
            raise SettingError(f"{where}: {min(wrong)} is no setting of a {kinds[0]}")
        for key in ("webhook", "secret"):
            if key in settings:
                settings[key] = with_absolute_files({key: settings[key]}, base)[key]
    return sinks


def _views(given: Mapping[str, Any]) -> dict[str, str]:
    views = {}
    for name, text in _mapping(given, "views").items():
        if not isinstance(text, str) or not text.strip():
            raise SettingError(f"views.{name}: expected SELECT as text, not {text!r}")
        views[name] = text.strip().rstrip(";").rstrip()
    return views


def _summaries(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise SettingError(f"summaries: expected a list of CREATE SUMMARY statements, not {given!r}")
    for at, text in enumerate(given):
        if not isinstance(text, str):
            raise SettingError(f"summaries[{at}]: expected CREATE SUMMARY as text, not {text!r}")
    return check_summaries(given, [f"summaries[{at}]" for at in range(len(given))])


def check_summaries(texts: Sequence[str], places: Sequence[str]) -> list[str]:
    """The texts; raise if one is not CREATE SUMMARY or repeats a name. An error names the place."""
    names = set[str]()
    for text, where in zip(texts, places, strict=True):
        try:
            name = parse_summary(text).name
        except SQLError as error:
            raise SQLError(f"{where}: {error.message}", error.text, error.start, error.end) from None
        if name.casefold() in names:
            raise SettingError(f"{where}: there is a summary {name} already")
        names.add(name.casefold())
    return list(texts)


def _mapping(given: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    entries = given.get(section) or {}
    if not isinstance(entries, Mapping):
        raise SettingError(f"{section}: expected a mapping from name to settings, not {entries!r}")
    for name in entries:
        if not isinstance(name, str):
            raise SettingError(f"{section}.{name}: YAML reads this name as {name!r}; put it in quotes")
    return entries


def _sources(
    given: Mapping[str, Any], section: str, table: tuple[Setting, ...], base: Path
) -> dict[str, Settings]:
    sources = {}
    for name, entry in _mapping(given, section).items():
        where = f"{section}.{name}"
        sources[name] = settings = _settings(table, entry, where, base)
        if "path" not in settings and "format" not in settings and not settings.get("push"):
            raise SettingError(f"{where}: path is missing: give a path of files, or a format such as kafka")
        if isinstance(settings.get("decode"), dict):
            for file in ("schema_file", "descriptor_file"):
                if file in settings["decode"]:
                    settings["decode"][file] = _absolute(settings["decode"][file], base)
    return sources


def _settings(table: tuple[Setting, ...], given: Any, where: str, base: Path) -> Settings:
    settings = read_settings(table, given, where)
    for setting in table:
        if setting.kind == "path" and setting.name in settings:
            settings[setting.name] = _absolute(settings[setting.name], base)
        elif setting.kind == "options" and setting.name in settings:
            settings[setting.name] = with_absolute_files(settings[setting.name], base)
    return settings


def _absolute(path: str, base: Path) -> str:
    return path if "://" in path else str(base / path)


def _query(entry: Any, where: str, base: Path) -> QueryEntry:
    given = {"sql": entry} if isinstance(entry, str) else entry
    settings = read_settings(QUERY_SETTINGS, given, where)
    settings["sinks"] = _sinks(settings.get("sinks", []), f"{where}.sinks", base)
    return QueryEntry(**settings)


def _sinks(given: Any, where: str, base: Path) -> list[Settings]:
    if not isinstance(given, list):
        raise SettingError(f"{where}: expected a list of sinks, not {given!r}")
    return [_settings(SINK, sink, f"{where}[{at}]", base) for at, sink in enumerate(given)]


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys; PyYAML keeps the last and silently loses the others."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
