"""The commands for a running server, after their options are parsed: `transom ps`, `tail` and others."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from transom.api.formats import ExportFormat, ResultKind
from transom.api.parameters import with_parameters
from transom.api.records import QueryStatus, StreamStatus
from transom.api.unit_text import units_to_text
from transom.cli.live_output import ResultPrinter
from transom.cli.result_text import (
    Format,
    default_format,
    in_window_order,
    shorten_lookup,
    without_system_columns,
    write_results,
)
from transom.client.connection import Server
from transom.client.connection_errors import ServerError
from transom.client.remote_query import RemoteQuery
from transom.durations import SECOND, format_duration, format_instant
from transom.errors import SettingError

PUSHED_ROWS = 20_000  # in a request
TEXT_TYPES = ("string", "char", "varchar", "date", "timestamp")  # their values are strings in JSON
_SQL_START = re.compile(
    r"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:SELECT|WITH|CREATE|DROP)\s", re.IGNORECASE | re.DOTALL
)


@contextmanager
def connected(url: str, token_file: Path | None) -> Iterator[Server]:
    """A connection to a server, with the token of a file or of the environment."""
    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--token-file {token_file}: {error}") from None
    with Server(url, token) as server:
        yield server


def print_status(server: Server, streams: bool, as_json: bool) -> None:
    """Print the queries or the streams; report on stderr if the engine is not running."""
    status = server.status()
    if status.state != "running":
        failure = f": {status.failure}" if status.failure else ""
        print(f"the engine is {status.state}{failure}", file=sys.stderr)
    records: Sequence[StreamStatus] | Sequence[QueryStatus]
    if streams:
        records = list(server.streams().values())
    else:
        records = [query.info for query in server.queries().values()]
    if not records:
        print("no streams" if streams else "no queries are registered", file=sys.stderr)
    elif as_json:
        for record in records:
            print(json.dumps(asdict(record), ensure_ascii=False))
    else:
        rows = [
            stream_row(record) if isinstance(record, StreamStatus) else query_row(record)
            for record in records
        ]
        table = pa.Table.from_pylist(rows)
        if not streams and not any(row["tags"] for row in rows):
            table = table.drop_columns(["tags"])
        write_results({"": table}, Format.TABLE, sys.stdout)


def query_row(query: QueryStatus) -> dict[str, Any]:
    """A query as a row of a table."""
    last = "" if query.last is None else format_instant(query.last // SECOND * SECOND)
    return {
        "name": query.name,
        "kind": query.kind,
        "window": query.window or "",
        "state": state_text(query),
        "tags": ", ".join(query.tags),
        "results": query.results,
        "last": last,
    }


def state_text(query: QueryStatus) -> str:
    """Whether a query takes part in batches, and why not."""
    if query.suspended:
        return f"suspended: {query.suspended}"
    if query.backfill is not None and not query.paused:
        return f"replays retained rows: {query.backfill:.0%}"
    return "paused" if query.paused else "pending" if query.pending else "runs"


def stream_row(stream: StreamStatus) -> dict[str, Any]:
    """A stream as a row of a table."""
    mark = stream.watermark
    return {
        "name": stream.name,
        "queries": stream.queries,
        "rows": stream.rows,
        "rows/s": round(stream.rate),
        "lag": "ended" if stream.finished else "" if stream.lag is None else _lag_text(stream.lag),
        "watermark": "" if mark is None else format_instant(mark) if stream.is_time else str(mark),
        "late": stream.late,
        "rejected": stream.rejected,
    }


def _lag_text(seconds: float) -> str:
    """A delay in its two largest units.

    >>> _lag_text(2.34), _lag_text(22352891.8)
    ('2.3 s', '36 weeks 6 days')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    words = format_duration(int(seconds) * 1_000_000).split()
    return " ".join(words[:4])


def export_results(server: Server, name: str, out: Path, form: ExportFormat | None, kind: ResultKind) -> None:
    """Write the results of a query to a file, and print its path."""
    try:
        path = server.query(name).export(out, format=None if form is None else form.value, kind=kind.value)
    except OSError as error:
        raise SettingError(f"--out {out}: {error.strerror or error}") from None
    print(path)


def push_files(server: Server, stream: str, files: Sequence[str], wait: float) -> None:
    """Push the rows of files or of stdin, and print how many there were and whether they are committed."""
    for name in files:
        total, is_committed = 0, True
        for rows in _rows_of_file(name):
            answer = server.push(stream, rows, wait=wait)
            total, is_committed = total + answer.rows, answer.committed
        state = "committed" if is_committed else "waiting to be processed"
        print(f"{total:,} {'row' if total == 1 else 'rows'} of {name} {state}")


def _rows_of_file(name: str) -> Iterator[pa.Table | list[Mapping[str, Any]]]:
    """The rows of a file of JSON lines or Parquet, or of stdin, in parts."""
    try:
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            for batch in pq.ParquetFile(name).iter_batches(PUSHED_ROWS):
                yield pa.Table.from_batches([batch])
            return
        with nullcontext(sys.stdin) if name == "-" else open(name, encoding="utf-8") as file:
            numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            while part := list(islice(numbered, PUSHED_ROWS)):
                yield [_row(line, f"{name}, line {number}") for number, line in part]
    except (OSError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise SettingError(f"{name}: {error}") from None


def _row(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise SettingError(f"{where} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise SettingError(f"{where} is not a JSON object")
    return row


def register_queries(
    server: Server,
    words: Sequence[str],
    files: Sequence[Path],
    partial: bool,
    parameters: Sequence[str] = (),
    since: str | None = None,
) -> None:
    """Run CREATE and DROP statements, register queries, and print the names of the queries."""
    name, texts = name_and_texts(words, files)
    statements = list(read_statements(texts, files))
    if not statements:
        raise SettingError("give a query: transom register [NAME] 'SELECT ...', or --sql-file FILE")
    queries = [text for text in statements if not is_create_or_drop(text)]
    values = read_parameters(parameters)
    if values and len(queries) != 1:
        raise SettingError(f"--parameter is for one query, and there are {len(queries)}")
    queries = [with_parameters(text, values) for text in queries]
    if name is not None and len(queries) != 1:
        raise SettingError(f"{name} can name only one query, and there are {len(queries)}")
    for text in statements:
        if is_create_or_drop(text):
            server.execute(text)
    named = [(name, text) for text in queries]
    for query in server.register_each(named, partial=partial, since=since):
        print(query.name, flush=True)


def read_parameters(given: Sequence[str]) -> dict[str, Any]:
    """The values of `--parameter NAME=VALUE`: JSON where a value is that, and text otherwise.

    >>> read_parameters(["limit=5", "site=north", "live=true", "code='5'"])
    {'limit': 5, 'site': 'north', 'live': True, 'code': '5'}
    """
    values: dict[str, Any] = {}
    for pair in given:
        name, equals, written = pair.partition("=")
        if not equals or not name:
            raise SettingError(f"--parameter {pair}: write NAME=VALUE, as in --parameter limit=5")
        if len(written) > 1 and written[0] == written[-1] == "'":
            values[name] = written[1:-1]
            continue
        try:
            values[name] = json.loads(written)
        except ValueError:
            values[name] = written
        if isinstance(values[name], dict):
            raise SettingError(f"--parameter {pair}: an object is no constant")
    return values


def name_and_texts(words: Sequence[str], files: Sequence[Path]) -> tuple[str | None, Sequence[str]]:
    """The optional name and the texts of `[NAME] [SQL]`.

    >>> name_and_texts(["top", "SELECT 1"], []), name_and_texts(["SELECT 1"], [])
    (('top', ['SELECT 1']), (None, ['SELECT 1']))
    >>> name_and_texts(["top"], [Path("top.sql")])
    ('top', [])
    """
    if len(words) > 2 or (len(words) == 2 and is_sql(words[0])):
        raise SettingError(
            "write transom register [NAME] 'SELECT ...'; put several queries into a --sql-file"
        )
    if words and not is_sql(words[0]) and (files or len(words) == 2):
        return words[0], words[1:]
    return None, words


def is_sql(text: str) -> bool:
    """Whether an argument is an SQL statement, not a name.

    >>> is_sql("select 1"), is_sql("selected"), is_sql("-- the last hour\\nSELECT 1")
    (True, False, True)
    """
    return _SQL_START.match(text) is not None


def is_create_or_drop(text: str) -> bool:
    """Whether a text is CREATE or DROP of a view or a summary.

    The parser is not used for that, because it is slow to import.
    """
    start = _SQL_START.match(text)
    return start is not None and start[0].split()[-1].upper() in ("CREATE", "DROP")


def read_statements(texts: Sequence[str], files: Sequence[Path]) -> Iterator[str]:
    """The statements of texts and files; a single statement stays as typed, so that error places match."""
    from transom.cli.adhoc_options import split_statements  # imports the SQL parser, which is slow

    for text in texts:
        statements = split_statements(text)
        yield from statements if len(statements) > 1 else [text]
    for path in files:
        try:
            yield from split_statements(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"--sql-file {path}: {error}") from None


def edit_text(
    server: Server, name: str, text: str | None, file: Path | None, parameters: Sequence[str], dry_run: bool
) -> None:
    """Give a query another text, and print what becomes of its open windows."""
    if (text is None) == (file is None):
        raise SettingError("give the new text as an argument or with --sql-file")
    statements = list(read_statements([] if text is None else [text], [] if file is None else [file]))
    if len(statements) != 1:
        raise SettingError(f"expected one query, found {len(statements)}")
    edited = server.query(name).edit(statements[0], parameters=read_parameters(parameters), dry_run=dry_run)
    print(f"{name}: {edited.message}", file=sys.stderr)


def rename_query(server: Server, name: str, to: str) -> None:
    """Give a query another name."""
    server.query(name).rename(to)
    print(f"{name} is called {to} from the next batch on", file=sys.stderr)


def describe_query(
    server: Server,
    name: str,
    description: str | None,
    tags: Sequence[str] | None,
    units: Mapping[str, str] | None,
) -> None:
    """Set the description, the tags and the units of a query, or print them if nothing is given."""
    query = server.query(name)
    if description is None and tags is None and units is None:
        print(query.description or "no description")
        print(f"tags: {', '.join(query.tags) or 'none'}")
        if query.units:
            print(f"units: {units_to_text(query.units)}")
        return
    query.describe(description, tags, units)


def pause_queries(server: Server, names: Sequence[str]) -> None:
    """Let queries take no part in batches until they are resumed."""
    for name in names:
        server.query(name).pause()


def resume_queries(server: Server, names: Sequence[str]) -> None:
    """Let suspended and paused queries take part in batches again."""
    for name in names:
        server.query(name).resume()


def drop_queries(server: Server, names: Sequence[str]) -> None:
    """Drop queries in this order."""
    for name in names:
        server.query(name).drop()
        print(f"{name} leaves with the next batch", file=sys.stderr)


def print_new_results(
    server: Server, names: Sequence[str], from_start: bool, form: Format | None, full: bool
) -> None:
    """Print results as they are made, until all queries are dropped or Ctrl-C."""
    form = default_format(form, sys.stdout)
    if form.is_csv and len(names) > 1:
        raise SettingError("CSV can print the results of only one query; use --format json for several")
    queries = [server.query(name) for name in names]
    for query in queries:
        if query.on_demand:
            raise SettingError(
                f"{query.name} has no SLIDE and emits no results: use transom lookup {query.name}"
            )
    printer = ResultPrinter(form, full, len(names) > 1, sys.stdout)
    try:
        for query, results in follow_all(queries, from_start):
            if results is None:
                print(f"{query.name} was dropped", file=sys.stderr)
            else:
                printer.add(query.name, results, kind="found" if query.has_preference else None)
                printer.check()
    except KeyboardInterrupt:
        pass  # Ctrl-C ends the command


def _report_disconnect(error: ServerError) -> None:
    print(f"{error}; trying again for five minutes", file=sys.stderr, flush=True)


def follow_all(
    queries: Sequence[RemoteQuery], from_start: bool
) -> Iterator[tuple[RemoteQuery, pa.Table | None]]:
    """Results of several queries as they are made; None for a query that was dropped."""
    queue: SimpleQueue[tuple[RemoteQuery, pa.Table | None, Exception | None]] = SimpleQueue()

    def follow(query: RemoteQuery, tables: Iterator[pa.Table]) -> None:
        try:
            for table in tables:
                queue.put((query, table, None))
            queue.put((query, None, None))
        except Exception as error:
            queue.put((query, None, error))

    tails = [
        (query, query.tail(from_start=from_start, on_disconnect=_report_disconnect)) for query in queries
    ]
    for query, tables in tails:
        threading.Thread(target=follow, args=(query, tables), daemon=True).start()
    running = len(queries)
    while running:
        query, table, error = queue.get()
        if error is not None:
            raise error
        running -= table is None
        yield query, table


def print_early_results(
    server: Server,
    names: Sequence[str],
    stream: str | None,
    until: str | None,
    at: str | None,
    where: Sequence[str],
    form: Format | None,
    full: bool,
) -> None:
    """Print early results of open windows."""
    form, pattern = default_format(form, sys.stdout), where_pattern(server, where)
    options: dict[str, Any] = {"until": parse_time(until), "at": parse_time(at), "where": pattern}
    if names:
        results = {name: server.query(name).prod(**options) for name in names}
    else:
        results = server.prod(stream, **options)
    if not results:
        print("no open window has rows yet", file=sys.stderr)
    shown = {
        name: in_window_order(table if full else without_system_columns(table))
        for name, table in results.items()
    }
    write_results(shown, form, sys.stdout, named=len(names) != 1)
    sys.stdout.flush()


def print_answer(
    server: Server,
    name_or_sql: str,
    range: str | None,
    rows: int | None,
    at: str | None,
    where: Sequence[str],
    form: Format | None,
    full: bool,
) -> None:
    """Print the current answer of an on-demand query, given by name or as SQL."""
    form, pattern = default_format(form, sys.stdout), where_pattern(server, where)
    if not is_sql(name_or_sql):
        length = int(range) if range is not None and range.strip().isdigit() else range
        answer = server.query(name_or_sql).lookup(length, rows, at=parse_time(at), where=pattern)
    elif range is not None or rows is not None:
        raise SettingError(
            "--range and --rows need the name of a query; write the window into the SQL instead"
        )
    else:
        answer = server.lookup(name_or_sql, at=parse_time(at), where=pattern)
    shown = in_window_order(answer if full else shorten_lookup(answer, form))
    write_results({name_or_sql: shown}, form, sys.stdout)
    sys.stdout.flush()


def parse_time(text: str | None) -> str | int | None:
    """A time of the command line; a plain number stays a number."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text.strip()) else text


def where_pattern(server: Server, where: Sequence[str]) -> dict[str, Any] | None:
    """The pattern of `--where COLUMN=VALUE ...`, with values of the columns' types."""
    if not where:
        return None
    types = {
        name.casefold(): kind for stream in server.streams().values() for name, kind in stream.columns.items()
    }
    pattern: dict[str, list[Any]] = {}
    for pair in where:
        column, equals, text = pair.partition("=")
        if not equals or not column.strip():
            raise SettingError(f"--where {pair}: write COLUMN=VALUE")
        pattern.setdefault(column.strip(), []).append(where_value(text, column.strip(), types))
    return {column: values[0] if len(values) == 1 else values for column, values in pattern.items()}


def where_value(text: str, column: str, types: Mapping[str, str]) -> Any:
    """A value of `--where`: JSON, or text if the column's type is text or time.

    >>> where_value("1", "site", {"site": "int"}), where_value("1", "zip", {"zip": "string"})
    (1, '1')
    >>> where_value("PDX", "city", {})
    'PDX'
    """
    if types.get(column.casefold(), "").lower().startswith(TEXT_TYPES):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
