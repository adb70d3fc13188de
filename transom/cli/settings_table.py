"""Every setting in one table: the command line, the pipeline file and the docs are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

from transom.durations import parse_duration
from transom.errors import SettingError, near_miss

FORMATS = ("json", "csv", "parquet")  # of files that a path names
REPLAY = ("speed", "delay", "delays", "burst", "seed", "start", "batch")  # options of a replay


@dataclass(frozen=True)
class Setting:
    """A setting: its name, what it takes, what it is when not given, and what it does."""

    name: str
    kind: str
    help: str
    default: str = "none"  # as the docs put it; the engine holds the value itself
    required: bool = False


STREAM = (
    Setting("path", "path", "a file, a directory of files, or a pattern with `*`", required=True),
    Setting(
        "format", "text", "json, csv, parquet, or any other file format that Spark reads", "from the path"
    ),
    Setting("schema", "text", "the columns, as in `site int, price double, ts timestamp`", "from the files"),
    Setting("options", "options", "options of Spark's reader, such as `header: true`"),
    Setting("files_per_batch", "count", "at most so many files in one batch", "1"),
    Setting("time", "text", "the column that holds a row's event time", required=True),
    Setting(
        "slack",
        "slack",
        "how far the watermark stays behind the latest time seen; `none`: only punctuations close windows; "
        "or one for each WATTR, as in `{ts: 30 seconds, seq: 100}`",
        "0 seconds",
    ),
    Setting(
        "horizon",
        "span",
        "rows further ahead of the stream than this are rejected; `none`: no row is",
        "366 days",
    ),
    Setting("live", "flag", "also reject rows that far ahead of this machine's clock", "false"),
    Setting("idle", "duration", "after so long without data, close every window that has begun"),
    Setting("punctuation", "text", "an SQL expression, true for rows that are punctuations and not data"),
    Setting("prod", "text", "an SQL expression, true for rows that are prods and not data"),
    Setting(
        "overload", "text", "what becomes of rows beyond a batch's budget: sideline or shed; none: no budget"
    ),
    Setting("budget", "budget", "how much a batch may process at once"),
    Setting(
        "share", "count", "while new rows come, one that was set aside is taken in for so many of them", "3"
    ),
    Setting(
        "replay",
        "replay",
        "deliver the rows by their times, as in `{speed: 60, delay: 20 seconds}`; with `delays`, `burst`, "
        "`seed`, `start` and `batch` as of `engine.replay`",
        "as fast as they are read",
    ),
)

TABLE = tuple(setting for setting in STREAM if setting.name in ("path", "format", "schema", "options"))

QUERY = (
    Setting("sql", "text", "the query", required=True),
    Setting("partial", "flag", "also report windows that the query saw only in part", "false"),
    Setting("sinks", "sinks", "where this query's results go, typed"),
)

SINK = (
    Setting("format", "text", "parquet, json, csv, or any other format that Spark writes", required=True),
    Setting("path", "path", "the directory to write to, if the format wants one"),
    Setting("options", "options", "options of Spark's writer"),
)

ENGINE = (
    Setting("checkpoint", "path", "the directory to continue from after a restart", "a temporary one"),
    Setting("master", "text", "the Spark master to run on", "local[*]"),
    Setting(
        "strategy",
        "text",
        "how windows are computed: auto, shared_paired, shared_paned, unshared_paired, unshared_paned, naive",
        "auto",
    ),
    Setting("fragments", "text", "how predicates are told: families, joint or unshared", "families"),
    Setting("state", "text", "where slices are kept: auto, driver or executors", "auto"),
    Setting("poll", "duration", "how often to look for new data", "200 ms"),
    Setting(
        "retention", "retention", "how long results are kept: a duration, or a number of batches", "for ever"
    ),
    Setting("max_failures", "count", "a query that fails on so many batches in a row is suspended", "3"),
)

SERVER = (
    Setting("host", "text", "the address to listen on; beyond this machine a token is needed", "127.0.0.1"),
    Setting("port", "port", "the port to listen on; 0: any that is free", "8710"),
    Setting(
        "token_file", "path", "a file with the token that is asked for", "the environment's `TRANSOM_TOKEN`"
    ),
    Setting("hosts", "names", "other names by which it is reached, such as a proxy's"),
    Setting("dashboard", "flag", "whether to serve the dashboard beside the API", "true"),
    Setting("queries", "count", "queries that can be registered", "10000"),
    Setting("subscribers", "count", "readers that can follow results at once", "1000"),
    Setting("rows", "count", "rows of one answer; there is a cursor for the rest", "100000"),
    Setting("body", "count", "bytes of a request", "4194304"),
    Setting("sql", "count", "characters of a query", "65536"),
    Setting("previews", "count", "queries that can be tried out at once", "16"),
    Setting("recent", "count", "bytes of results that are kept in memory for readers", "67108864"),
    Setting(
        "metrics_queries",
        "count",
        "queries with series of their own at /metrics, in the order they were registered",
        "10000",
    ),
)

SECTIONS: Mapping[str, tuple[Setting, ...]] = {
    "streams": STREAM,
    "tables": TABLE,
    "queries": QUERY,
    "sinks": SINK,
    "engine": ENGINE,
    "server": SERVER,
}


# --- what a kind of setting takes ------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"expected text, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingError(f"expected true or false, not {value!r}")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingError(f"expected a whole number of at least 1, not {value!r}")
    return value


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise SettingError(f"expected a port from 0 to 65535, not {value!r}")
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise SettingError(f"expected a list of names, not {value!r}")
    return [_text(each) for each in value]


def _duration(value: Any) -> str:
    text = _text(value) if not isinstance(value, (int, float)) else str(value)
    if parse_duration(text) < 0:
        raise SettingError(f"{value!r} is negative")
    return text


def _span(value: Any) -> str | int | None:
    """A duration, a plain number for a clock that counts something else, or none."""
    if _is_none(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return _duration(value)


def _slack(value: Any) -> str | int | dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {_text(attribute): _span(each) for attribute, each in value.items()}
    return _span(value)


def _is_none(value: Any) -> bool:
    """YAML writes nothing as null; people write none."""
    return value is None or (isinstance(value, str) and value.strip().casefold() == "none")


def _retention(value: Any) -> str | int:
    return _count(value) if isinstance(value, int) else _duration(value)


def _options(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a mapping of options, not {value!r}")
    return {
        _text(name): str(each).lower() if isinstance(each, bool) else str(each)
        for name, each in value.items()
    }


def _replay(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a mapping such as {{speed: 60}}, not {value!r}")
    for name in value:
        if name not in REPLAY:
            raise SettingError(f"a replay has no option {name}{near_miss(str(name), REPLAY)}")
    return dict(value)


def _sinks(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SettingError(f"expected a list of sinks, each with a format, not {value!r}")
    return value


KINDS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "path": _text,
    "flag": _flag,
    "count": _count,
    "port": _port,
    "names": _names,
    "duration": _duration,
    "span": _span,
    "slack": _slack,
    "retention": _retention,
    "budget": _retention,
    "options": _options,
    "sinks": _sinks,
    "replay": _replay,
}

KINDS_EXPLAINED = {
    "text": "text",
    "path": "a path; a relative one is relative to the pipeline file",
    "flag": "`true` or `false`",
    "count": "a whole number of at least 1",
    "port": "a port, from 0 to 65535",
    "names": "a list of names",
    "duration": "a duration, such as `30 seconds`",
    "span": "a duration, a whole number on an integer clock, or `none`",
    "slack": "a span, or a mapping from WATTR to span",
    "retention": "a duration, or a number of batches",
    "budget": "a duration, or a number of rows",
    "options": "a mapping from option to value",
    "sinks": "a list of sinks",
    "replay": "a mapping from option to value; `{}` for the speed at which it was recorded",
}


def read_settings(section: tuple[Setting, ...], given: Any, where: str) -> dict[str, Any]:
    """The checked settings of one thing; an error names the place and the near miss.

    >>> read_settings(TABLE, {"path": "sites.csv", "fromat": "csv"}, "tables.sites")
    Traceback (most recent call last):
    transom.errors.SettingError: tables.sites.fromat: there is no such setting; did you mean format?
    """
    known = {setting.name: setting for setting in section}
    if not isinstance(given, Mapping):
        raise SettingError(f"{where}: expected a mapping with {', '.join(known)}, not {given!r}")
    for name in given:
        if name not in known:
            raise SettingError(f"{where}.{name}: there is no such setting{near_miss(str(name), known)}")
    for setting in section:
        if setting.required and setting.name not in given:
            raise SettingError(f"{where}: {setting.name} is missing: {setting.help}")
    return {name: check(known[name], value, f"{where}.{name}") for name, value in given.items()}


def check(setting: Setting, value: Any, where: str) -> Any:
    """The value as the engine takes it."""
    try:
        return KINDS[setting.kind](value)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None


def markdown(section: tuple[Setting, ...]) -> str:
    """A section as the table that the docs show."""
    lines = ["| setting | takes | default | what it does |", "| --- | --- | --- | --- |"]
    for setting in section:
        default = "must be given" if setting.required else setting.default
        lines.append(f"| `{setting.name}` | {setting.kind} | {default} | {setting.help} |")
    return "\n".join(lines)
