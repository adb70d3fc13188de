"""What the shell asks of a running server: `transom ps`, `register`, `drop`, `tail`, `prod` and `lookup`."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from transom.api.records import QueryStatus, StreamStatus
from transom.cli.live_output import Printer
from transom.cli.lookups import default_format
from transom.cli.result_text import Format, arranged, of_lookup, without_system_columns, write
from transom.client.connection import Server
from transom.client.connection_errors import ServerError
from transom.client.remote_query import RemoteQuery
from transom.durations import format_instant
from transom.errors import SettingError

SECOND = 1_000_000
WORDED = ("string", "char", "varchar", "date", "timestamp")  # types whose values are not JSON's numbers
_SQL = re.compile(
    r"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:SELECT|WITH|CREATE|DROP)\s", re.IGNORECASE | re.DOTALL
)


@contextmanager
def connected(url: str, token_file: Path | None) -> Iterator[Server]:
    """The server at an address, with the token of a file or of the environment."""
    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--token-file {token_file}: {error}") from None
    with Server(url, token) as server:
        yield server


def ps(server: Server, streams: bool, as_json: bool) -> None:
    """Print the queries, or the streams; what is wrong with the server goes to stderr."""
    status = server.status()
    if status.state != "running":
        failure = f": {status.failure}" if status.failure else ""
        print(f"the engine is {status.state}{failure}", file=sys.stderr)
    told: Sequence[StreamStatus] | Sequence[QueryStatus]
    if streams:
        told = list(server.streams().values())
    else:
        told = [query.info for query in server.queries().values()]
    if not told:
        print("no streams" if streams else "no queries are registered", file=sys.stderr)
    elif as_json:
        for one in told:
            print(json.dumps(asdict(one), ensure_ascii=False))
    else:
        rows = [stream_row(one) if isinstance(one, StreamStatus) else query_row(one) for one in told]
        write({"": pa.Table.from_pylist(rows)}, Format.TABLE, sys.stdout)


def query_row(query: QueryStatus) -> dict[str, Any]:
    """A query as a line for people."""
    state = f"suspended: {query.suspended}" if query.suspended else "waits" if query.waits else "runs"
    last = "" if query.last is None else format_instant(query.last // SECOND * SECOND)
    return {
        "name": query.name,
        "kind": query.kind,
        "window": query.window or "",
        "state": state,
        "results": query.results,
        "last": last,
    }


def stream_row(stream: StreamStatus) -> dict[str, Any]:
    """A stream as a line for people."""
    mark = stream.watermark
    return {
        "name": stream.name,
        "queries": stream.queries,
        "rows": stream.rows,
        "rows/s": round(stream.rate),
        "lag": "ended" if stream.finished else "" if stream.lag is None else f"{stream.lag:.1f} s",
        "watermark": "" if mark is None else format_instant(mark) if stream.is_time else str(mark),
        "late": stream.late,
        "rejected": stream.rejected,
    }


def register(server: Server, words: Sequence[str], files: Sequence[Path], partial: bool) -> None:
    """Register queries, and run CREATE SUMMARY; print the names of the queries."""
    name, texts = named(words, files)
    statements = list(statements_of(texts, files))
    if not statements:
        raise SettingError("give a query: transom register [NAME] 'SELECT ...', or --sql-file FILE")
    queries = [text for text in statements if not is_statement(text)]
    if name is not None and len(queries) != 1:
        raise SettingError(f"{name} is a name for one query, and there are {len(queries)}")
    for text in statements:
        if is_statement(text):
            server.execute(text)
    for query in server.register_each([(name, text) for text in queries], partial=partial):
        print(query.name, flush=True)


def named(words: Sequence[str], files: Sequence[Path]) -> tuple[str | None, Sequence[str]]:
    """The name, if there is one, and the texts, of `[NAME] [SQL]`.

    >>> named(["top", "SELECT 1"], []), named(["SELECT 1"], []), named(["top"], [Path("top.sql")])
    (('top', ['SELECT 1']), (None, ['SELECT 1']), ('top', []))
    """
    if len(words) > 2 or (len(words) == 2 and is_sql(words[0])):
        raise SettingError("write transom register [NAME] 'SELECT ...'; several queries are in a --sql-file")
    if words and not is_sql(words[0]) and (files or len(words) == 2):
        return words[0], words[1:]
    return None, words


def is_sql(text: str) -> bool:
    """Whether a word of the command line is a statement, and not a name.

    >>> is_sql("select 1"), is_sql("selected"), is_sql("-- the last hour\\nSELECT 1")
    (True, False, True)
    """
    return _SQL.match(text) is not None


def is_statement(text: str) -> bool:
    found = _SQL.match(text)
    return found is not None and found[0].split()[-1].upper() in ("CREATE", "DROP")


def statements_of(texts: Sequence[str], files: Sequence[Path]) -> Iterator[str]:
    """The statements of texts and files; a single one as it was typed, so that errors point into that."""
    from transom.cli.adhoc_options import split_statements  # with it comes the parser, which takes its time

    for text in texts:
        found = split_statements(text)
        yield from found if len(found) > 1 else [text]
    for path in files:
        try:
            yield from split_statements(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"--sql-file {path}: {error}") from None


def drop(server: Server, names: Sequence[str]) -> None:
    """Let queries leave, in this order."""
    for name in names:
        server.query(name).drop()
        print(f"{name} leaves with the next batch", file=sys.stderr)


def tail(server: Server, names: Sequence[str], from_start: bool, form: Format | None, full: bool) -> None:
    """Print results as they come, until all queries were dropped, or Ctrl-C."""
    form = default_format(form, sys.stdout)
    if form is Format.CSV and len(names) > 1:
        raise SettingError("results that come together are of one query in CSV; --format json has any number")
    queries = [server.query(name) for name in names]
    for query in queries:
        if query.on_demand:
            raise SettingError(
                f"{query.name} has no SLIDE: nothing is pushed; try transom lookup {query.name}"
            )
    printer = Printer(form, full, len(names) > 1, sys.stdout)
    try:
        for query, results in together(queries, from_start):
            if results is None:
                print(f"{query.name} was dropped", file=sys.stderr)
            else:
                printer.add(query.name, results, kind="found" if query.has_preference else None)
                printer.check()
    except KeyboardInterrupt:
        pass  # the way to end it


def _tell_away(error: ServerError) -> None:
    print(f"{error}; asking again, for five minutes", file=sys.stderr, flush=True)


def together(
    queries: Sequence[RemoteQuery], from_start: bool
) -> Iterator[tuple[RemoteQuery, pa.Table | None]]:
    """The results of queries as they come, whosoever, and None of each that has left."""
    came: SimpleQueue[tuple[RemoteQuery, pa.Table | None, Exception | None]] = SimpleQueue()

    def follow(query: RemoteQuery, tables: Iterator[pa.Table]) -> None:
        try:
            for table in tables:
                came.put((query, table, None))
            came.put((query, None, None))
        except Exception as error:
            came.put((query, None, error))

    followed = [(query, query.tail(from_start=from_start, on_disconnect=_tell_away)) for query in queries]
    for pair in followed:
        threading.Thread(target=follow, args=pair, daemon=True).start()
    left = len(queries)
    while left:
        query, table, error = came.get()
        if error is not None:
            raise error
        left -= table is None
        yield query, table


def prod(
    server: Server,
    names: Sequence[str],
    stream: str | None,
    until: str | None,
    at: str | None,
    where: Sequence[str],
    form: Format | None,
    full: bool,
) -> None:
    """Print what is known now of open windows."""
    form, pattern = default_format(form, sys.stdout), pattern_of(server, where)
    asked: dict[str, Any] = {"until": moment(until), "at": moment(at), "where": pattern}
    if names:
        told = {name: server.query(name).prod(**asked) for name in names}
    else:
        told = server.prod(stream, **asked)
    if not told:
        print("nothing is known yet of any open window", file=sys.stderr)
    shown = {name: arranged(table if full else without_system_columns(table)) for name, table in told.items()}
    write(shown, form, sys.stdout, named=len(names) != 1)
    sys.stdout.flush()


def lookup(
    server: Server,
    asked: str,
    range: str | None,
    rows: int | None,
    at: str | None,
    where: Sequence[str],
    form: Format | None,
    full: bool,
) -> None:
    """Print the answer now of a query without SLIDE, by its name or as text."""
    form, pattern = default_format(form, sys.stdout), pattern_of(server, where)
    if not is_sql(asked):
        length = int(range) if range is not None and range.strip().isdigit() else range
        found = server.query(asked).lookup(length, rows, at=moment(at), where=pattern)
    elif range is not None or rows is not None:
        raise SettingError(
            "--range and --rows are for a query that has a name; write the window into the SQL"
        )
    else:
        found = server.lookup(asked, at=moment(at), where=pattern)
    write({asked: arranged(found if full else of_lookup(found, form))}, form, sys.stdout)
    sys.stdout.flush()


def moment(text: str | None) -> str | int | None:
    """A time of the command line: a plain number is meant as one."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text.strip()) else text


def pattern_of(server: Server, where: Sequence[str]) -> dict[str, Any] | None:
    """The pattern of `--where COLUMN=VALUE ...`, its values in the words of the streams' columns."""
    if not where:
        return None
    types = {name.casefold(): kind for one in server.streams().values() for name, kind in one.columns.items()}
    found: dict[str, list[Any]] = {}
    for pair in where:
        column, equals, text = pair.partition("=")
        if not equals or not column.strip():
            raise SettingError(f"--where {pair}: write COLUMN=VALUE")
        found.setdefault(column.strip(), []).append(typed(text, column.strip(), types))
    return {column: values[0] if len(values) == 1 else values for column, values in found.items()}


def typed(text: str, column: str, types: Mapping[str, str]) -> Any:
    """A value as JSON, unless its column is of text or time.

    >>> typed("1", "site", {"site": "int"}), typed("1", "zip", {"zip": "string"}), typed("PDX", "city", {})
    (1, '1', 'PDX')
    """
    if types.get(column.casefold(), "").lower().startswith(WORDED):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
