"""The table of all settings; the command line, the pipeline file and the docs use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

from transom.backends.connection import Decoder
from transom.backends.secrets import option_texts
from transom.durations import parse_duration
from transom.errors import SettingError, near_miss
from transom.windows.learned_slack import slack_share

REPLAY_OPTIONS = ("speed", "delay", "delays", "burst", "seed", "start", "batch")


@dataclass(frozen=True)
class Setting:
    """A setting: its name, its type, its default and its meaning."""

    name: str
    kind: str
    help: str
    default: str = "none"  # as text for the docs; the engine has the value itself
    required: bool = False


STREAM = (
    Setting(
        "path",
        "path",
        "a file, a directory of files, or a pattern with `*`; a lake's table, if it has a path",
    ),
    Setting(
        "push",
        "flag",
        "rows are pushed over HTTP, into a server: the stream has a `schema`, and neither `path` nor `format`",
        "false",
    ),
    Setting(
        "format",
        "text",
        "json, csv, parquet, delta, or any other format that Spark reads, such as kafka; required without a path",
        "from the path",
    ),
    Setting(
        "schema",
        "text",
        "the columns, as in `site int, price double, ts timestamp`; with `decode`, those of the decoded values",
        "from the source",
    ),
    Setting(
        "options",
        "options",
        "options of Spark's reader, such as `header: true` or `subscribe: bids`, or of "
        "[Delta Lake](../lake.md#delta-lake)",
    ),
    Setting(
        "select",
        "text",
        "an SQL view over the rows: `SELECT ... FROM name WHERE ...`, with the name of this entry",
    ),
    Setting(
        "decode",
        "decode",
        "how a binary column becomes columns: json, csv, avro or protobuf, or a mapping (see [decode](#decode))",
    ),
    Setting("files_per_batch", "count", "the largest number of files in a batch", "1"),
    Setting(
        "time",
        "text",
        "the column that holds a row's event time, or an SQL expression such as `event.ts` or `to_timestamp(text)`",
        required=True,
    ),
    Setting("time_unit", "text", "the unit of a time that is a whole number since 1970: s, ms or us"),
    Setting(
        "slack",
        "slack",
        "how far the watermark stays behind the newest time; `none`: only punctuations close windows; "
        "a share of the rows, as in `99.9%`: the slack is learned; "
        "or a value for each WATTR, as in `{ts: 30 seconds, seq: 100}`",
        "0 seconds",
    ),
    Setting("slack_start", "span", "the slack that is used until it is learned", "1 minute"),
    Setting("slack_min", "span", "the least slack that is learned", "0 seconds"),
    Setting("slack_max", "span", "the largest slack that is learned; `none`: any", "none"),
    Setting(
        "horizon",
        "span",
        "rows that are further ahead of the stream than this are rejected; `none`: none are",
        "366 days",
    ),
    Setting("live", "flag", "also reject rows that are that far ahead of this machine's clock", "false"),
    Setting(
        "max_ahead",
        "span",
        "rows that are further ahead of this machine's clock than this are rejected; `none`: none are",
        "1 day",
    ),
    Setting("idle", "duration", "close every window that has begun after this time without data"),
    Setting("punctuation", "text", "an SQL expression that is true for rows that are punctuations, not data"),
    Setting("prod", "text", "an SQL expression that is true for rows that are prods, not data"),
    Setting(
        "overload",
        "text",
        "what to do with rows beyond a batch's budget: sideline or shed; none: there is no budget",
    ),
    Setting("budget", "budget", "how much a batch may process"),
    Setting("share", "count", "while new rows arrive, process one sidelined row for this many new rows", "3"),
    Setting(
        "partition",
        "partition",
        "an SQL expression that tells a row's partition: the watermark follows the partition that is furthest behind; "
        "`none`: it follows the newest row",
        "Kafka's partitions",
    ),
    Setting(
        "partition_idle",
        "span",
        "the watermark does not wait for a partition or a group without rows for this time; `none`: it waits for all",
        "1 minute",
    ),
    Setting(
        "watermark_by",
        "text",
        "a column: each of its values has a clock of its own, and windows of queries that group by it close group "
        "by group",
    ),
    Setting(
        "watermark_clocks",
        "count",
        "how many partitions or groups have a clock of their own; the others share one",
        "100000",
    ),
    Setting(
        "retain",
        "span",
        "keep accepted rows for this long of the stream's time: queries that are registered later can ask for them "
        "with `since`; `none`: they are not kept",
        "none",
    ),
    Setting(
        "replay",
        "replay",
        "deliver the rows by their times, as in `{speed: 60, delay: 20 seconds}`; also `delays`, `burst`, "
        "`seed`, `start` and `batch`, as for `engine.replay`",
        "as fast as possible",
    ),
)

TABLE = (
    *(setting for setting in STREAM if setting.name in ("path", "format", "schema", "options", "select")),
    Setting("refresh", "duration", "how often a running engine reads the table again", "never"),
)

QUERY_SETTINGS = (
    Setting("sql", "text", "the query", required=True),
    Setting("partial", "flag", "also report windows that the query saw only in part", "false"),
    Setting(
        "since",
        "text",
        "when the query is new, replay the rows that its stream retains since then, as in `24 hours ago`",
    ),
    Setting("sinks", "sinks", "where to write this query's results, with typed columns"),
)

SINK = (
    Setting(
        "format",
        "text",
        "parquet, json, csv, delta, or any other format that Spark writes, such as kafka",
        required=True,
    ),
    Setting("path", "path", "the directory to write to, if the format has one"),
    Setting(
        "options",
        "options",
        "options of Spark's writer, such as `topic: results`, or of [Delta Lake](../lake.md#delta-lake)",
    ),
)

ALERT = (
    Setting("query", "text", "the query, which has HAVING: the alert fires while it is true", required=True),
    Setting("for_windows", "count", "windows in a row for which HAVING holds until the alert fires", "1"),
    Setting("resolve_after", "count", "windows in a row without it until the alert is resolved", "1"),
    Setting("repeat_every", "length", "the time between two reminders, as in `1 hour`"),
    Setting(
        "labels", "texts", "texts by which sinks and silences tell alerts apart, such as `severity: page`"
    ),
    Setting("annotations", "texts", "texts for people; `{name}` stands for a value of the result"),
    Setting("sinks", "names", "the sinks that get its events, by their names", "all"),
)

ALERT_SINK = (
    Setting("file", "path", "a directory: one file of JSON lines for each batch with events"),
    Setting(
        "webhook", "text", "a URL to which events are posted; it may have [references to secrets](#secrets)"
    ),
    Setting("topic", "text", "a topic of Kafka: one message for each event"),
    Setting(
        "options", "options", "options of Spark's writer for the topic, such as `kafka.bootstrap.servers`"
    ),
    Setting("format", "text", "the body of a webhook's requests: transom or alertmanager", "transom"),
    Setting("secret", "text", "the key of the signature of a webhook's requests, as in `${env:HOOK_SECRET}`"),
    Setting("headers", "options", "further headers of a webhook's requests"),
    Setting("timeout", "duration", "how long a webhook waits for an answer", "10 s"),
    Setting("attempts", "count", "after so many failed attempts, a webhook gives a request up", "20"),
)

ENGINE = (
    Setting(
        "checkpoint",
        "path",
        "the directory of the state that a restart continues from",
        "a temporary directory",
    ),
    Setting("backend", "text", "where batches are computed: spark, or local (this process, no JVM)", "spark"),
    Setting("master", "text", "the Spark master to run on", "local[*]"),
    Setting("spark", "options", "Spark's configuration, such as `spark.jars.packages`"),
    Setting(
        "strategy",
        "text",
        "how windows are computed: auto, shared_paired, shared_paned, unshared_paired, unshared_paned, naive",
        "auto",
    ),
    Setting("fragments", "text", "how predicates are evaluated: families, joint or unshared", "families"),
    Setting("state", "text", "where slices are kept: auto, driver or executors", "auto"),
    Setting("poll", "duration", "the interval between checks for new data", "200 ms"),
    Setting(
        "retention",
        "retention",
        "how long results can be read back: a duration, or a number of batches",
        "for ever",
    ),
    Setting("max_failures", "count", "suspend a query after this many failed batches in a row", "3"),
    Setting(
        "batch_deadline",
        "duration",
        "the longest time of a batch before a query is suspended",
        "any time; with `transom serve` 2 minutes",
    ),
    Setting(
        "longest_window",
        "count",
        "the longest RANGE, SLIDE or ROWS; times in microseconds",
        "9007199254740992",
    ),
    Setting("session_gap", "count", "the longest gap of SESSION; times in microseconds", "2678400000000"),
    Setting("rows_of_key", "count", "the most ROWS with PARTITION BY", "10000"),
    Setting("windows_per_row", "count", "the most windows that hold a row: RANGE divided by SLIDE", "100000"),
    Setting("group_bytes", "count", "the most bytes of a query's slices of one group", "1073741824"),
    Setting("select_items", "count", "the most columns of a query's results", "1000"),
    Setting("expression_length", "count", "the most characters of a query's expressions", "100000"),
    Setting(
        "text_bytes", "count", "the longest text that an expression makes of texts of 1,000 bytes", "16777216"
    ),
    Setting("summary_bytes", "count", "the most bytes of a summary's cells", "1073741824"),
    Setting(
        "stream_expressions", "count", "the most different expressions of all queries of a stream", "10000"
    ),
    Setting(
        "join_bound",
        "count",
        "the longest time bound of a join of two streams; times in microseconds",
        "2678400000000",
    ),
    Setting("row_results", "count", "the most results of a query without a window in a batch", "5000000"),
    Setting("joined_pairs", "count", "the most pairs of a join of two streams in a batch", "5000000"),
    Setting("join_rows", "count", "the most rows that a join of two streams keeps", "20000000"),
    Setting(
        "collected_values", "count", "the most values of a list or text of an aggregate in one group", "10000"
    ),
    Setting(
        "correctable_results",
        "count",
        "the most results of closed windows that a query with EMIT CORRECTIONS keeps",
        "1000000",
    ),
    Setting(
        "past_windows",
        "count",
        "the most rows that a query remembers of past windows, and its most empty windows in a batch",
        "1000000",
    ),
    Setting(
        "lookup_rows", "count", "the most retained rows that a lookup of a past window reads", "10000000"
    ),
    Setting(
        "sealed_selections",
        "count",
        "the most selections of a stream whose sealed slices are kept beside retained rows",
        "16",
    ),
    Setting(
        "backfill_results",
        "count",
        "the most results of the past of a query, which wait until it takes part",
        "5000000",
    ),
    Setting(
        "process_ends", "count", "how many processes end in a batch before a query is suspended for it", "8"
    ),
    Setting("sync", "flag", "whether a batch waits until its files are on disk", "true"),
    Setting(
        "traces",
        "flag",
        "whether each batch is a span of OpenTelemetry, sent to where its environment variables say; "
        "needs `transom[otel]`",
        "false",
    ),
)

SERVER = (
    Setting(
        "host", "text", "the address to listen on; any but a loopback address needs a token", "127.0.0.1"
    ),
    Setting("port", "port", "the port to listen on; 0: any free port", "8710"),
    Setting(
        "token_file",
        "path",
        "a file with a token of the role admin that clients must send",
        "`TRANSOM_TOKEN` of the environment",
    ),
    Setting("tokens", "tokens", "further tokens, each with a name and a role"),
    Setting("hosts", "names", "further host names that lead to the server, such as a proxy's"),
    Setting("dashboard", "flag", "whether to serve the dashboard beside the API", "true"),
    Setting("queries", "count", "the largest number of registered queries", "10000"),
    Setting("subscribers", "count", "the largest number of readers that follow results", "1000"),
    Setting("rows", "count", "the largest number of rows in an answer; a cursor leads to the rest", "100000"),
    Setting("body", "count", "the largest size of a request, in bytes", "4194304"),
    Setting("push_body", "count", "the largest size of a request that pushes rows, in bytes", "33554432"),
    Setting(
        "pushed_rows",
        "count",
        "the largest number of pushed rows of a stream that wait; more are refused with 429",
        "500000",
    ),
    Setting("sql", "count", "the longest query, in characters", "65536"),
    Setting("previews", "count", "the largest number of previews", "16"),
    Setting("request_rate", "count", "requests a second of one client; a tail is one request", "200"),
    Setting("request_burst", "count", "requests of one client at once", "1000"),
    Setting("registration_rate", "count", "registrations and previews a second of one client", "20"),
    Setting("registration_burst", "count", "registrations and previews of one client at once", "500"),
    Setting(
        "connections",
        "count",
        "the largest number of connections; at most half of the file descriptors of the process",
        "2000",
    ),
    Setting(
        "peer_connections",
        "count",
        "the largest number of connections from one address of another machine",
        "200",
    ),
    Setting("request_seconds", "count", "the number of seconds in which a request must arrive", "30"),
    Setting("recent", "count", "the size of recent results kept in memory for readers, in bytes", "67108864"),
    Setting(
        "metrics_queries",
        "count",
        "the number of queries with metrics of their own at /metrics, in the order of registration",
        "10000",
    ),
)

TOKEN = (
    Setting("name", "text", "the name of the client; letters, digits, and any of `_.-`", required=True),
    Setting("role", "text", "read, register or admin", required=True),
    Setting("token_file", "path", "a file with the token"),
    Setting("token_env", "text", "the environment variable that holds the token"),
)

SETTING_SECTIONS: Mapping[str, tuple[Setting, ...]] = {
    "streams": STREAM,
    "tables": TABLE,
    "queries": QUERY_SETTINGS,
    "sinks": SINK,
    "alerts": ALERT,
    "alert_sinks": ALERT_SINK,
    "engine": ENGINE,
    "server": SERVER,
    "tokens": TOKEN,
}


# --- types of settings -----------------------------------------------------------------------


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


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a mapping from name to text, not {value!r}")
    return {_text(name): _text(each) for name, each in value.items()}


def _length(value: Any) -> str | int:
    return _count(value) if isinstance(value, int) else _duration(value)


def _duration(value: Any) -> str:
    text = _text(value) if not isinstance(value, (int, float)) else str(value)
    if parse_duration(text) < 0:
        raise SettingError(f"{value!r} is negative")
    return text


def _span(value: Any) -> str | int | None:
    """A duration, a plain number for an integer clock, or none."""
    if _is_none(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return _duration(value)


def _slack(value: Any) -> str | int | dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {_text(attribute): _slack_value(each) for attribute, each in value.items()}
    return _slack_value(value)


def _slack_value(value: Any) -> str | int | None:
    return value if slack_share(value) is not None else _span(value)


def _is_none(value: Any) -> bool:
    """Whether a value means none; YAML has null, and users also write none."""
    return value is None or (isinstance(value, str) and value.strip().casefold() == "none")


def _retention(value: Any) -> str | int:
    return _count(value) if isinstance(value, int) else _duration(value)


def _options(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a mapping of options, not {value!r}")
    for name, each in value.items():
        if isinstance(each, (Mapping, list)) or each is None:
            raise SettingError(f"{name}: expected text, a number, true or false, not {each!r}")
    return option_texts({_text(name): each for name, each in value.items()})


def _decode(value: Any) -> str | dict[str, Any]:
    try:
        Decoder.of(value)
    except SettingError as error:
        raise SettingError(str(error).removeprefix("decode: ").removeprefix("decode.")) from None
    return value if isinstance(value, str) else dict(value)


def _partition(value: Any) -> str | None:
    return None if _is_none(value) else _text(value)


def _replay(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a mapping such as {{speed: 60}}, not {value!r}")
    for name in value:
        if name not in REPLAY_OPTIONS:
            raise SettingError(f"a replay has no option {name}{near_miss(str(name), REPLAY_OPTIONS)}")
    return dict(value)


def _sinks(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SettingError(f"expected a list of sinks, each with a format, not {value!r}")
    return value


def _tokens(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SettingError(f"expected a list of tokens, each with a name and a role, not {value!r}")
    return value


CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "path": _text,
    "flag": _flag,
    "count": _count,
    "port": _port,
    "names": _names,
    "texts": _texts,
    "length": _length,
    "duration": _duration,
    "span": _span,
    "slack": _slack,
    "retention": _retention,
    "budget": _retention,
    "options": _options,
    "decode": _decode,
    "sinks": _sinks,
    "replay": _replay,
    "partition": _partition,
    "tokens": _tokens,
}

KIND_TEXTS = {
    "text": "text",
    "path": "a path; a relative one is relative to the pipeline file",
    "flag": "`true` or `false`",
    "count": "a whole number of at least 1",
    "port": "a port, from 0 to 65535",
    "names": "a list of names",
    "texts": "a mapping from name to text",
    "length": "a duration; a number on the clock of a query whose windows are not of time",
    "duration": "a duration, such as `30 seconds`",
    "span": "a duration, a whole number on an integer clock, or `none`",
    "slack": "a span, a share of the rows such as `99.9%`, or a mapping from WATTR to span",
    "retention": "a duration, or a number of batches",
    "budget": "a duration, or a number of rows",
    "options": "a mapping from option to value; `${env:NAME}` and `${file:PATH}` stand for [secrets](#secrets)",
    "decode": "a format, or a mapping of [its settings](#decode)",
    "sinks": "a list of sinks",
    "partition": "an SQL expression, or `none`",
    "replay": "a mapping from option to value; `{}` for the recorded speed",
    "tokens": "a list of [tokens](#tokens)",
}


def read_settings(section: tuple[Setting, ...], given: Any, where: str) -> dict[str, Any]:
    """The checked settings of a stream, a query and so on; an error names the place and the near miss.

    >>> read_settings(TABLE, {"path": "sites.csv", "fromat": "csv"}, "tables.sites")
    Traceback (most recent call last):
    transom.errors.SettingError: tables.sites.fromat: there is no such setting; did you mean format?
    """
    by_name = {setting.name: setting for setting in section}
    if not isinstance(given, Mapping):
        raise SettingError(f"{where}: expected a mapping with {', '.join(by_name)}, not {given!r}")
    for name in given:
        if name not in by_name:
            hint = near_miss(str(name), by_name)
            if not hint and "options" in by_name:
                hint = "; an option of the format is written under options"
            raise SettingError(f"{where}.{name}: there is no such setting{hint}")
    for setting in section:
        if setting.name == "path" and given.get("push") is True and "push" in by_name:
            continue  # a stream that is pushed has no files
        if setting.required and setting.name not in given:
            raise SettingError(f"{where}: {setting.name} is missing: {setting.help}")
    return {name: check_setting(by_name[name], value, f"{where}.{name}") for name, value in given.items()}


def check_setting(setting: Setting, value: Any, where: str) -> Any:
    """The value as the engine expects it."""
    try:
        return CHECKS[setting.kind](value)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None


def markdown(section: tuple[Setting, ...]) -> str:
    """A section as a table for the docs."""
    lines = ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
    for setting in section:
        default = "required" if setting.required else setting.default
        lines.append(f"| `{setting.name}` | {setting.kind} | {default} | {setting.help} |")
    return "\n".join(lines)
