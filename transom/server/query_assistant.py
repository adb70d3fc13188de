"""Help for clients that write queries: completion, example queries, and what the columns of streams are like."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from transom.api.records import (
    CandidateInfo,
    CompletionAnswer,
    StreamColumn,
    StreamColumns,
    TableStatus,
)
from transom.api.value_text import value_to_text
from transom.columns.column_statistics import ColumnStatistics, column_statistics
from transom.errors import SQLError, TransomError
from transom.runtime.engine import Engine
from transom.server.previews import is_preview
from transom.server.query_catalog import QueryCatalog
from transom.server.query_description import sql_type
from transom.sql.editor.completion import KnownNames, KnownRelation, complete
from transom.sql.editor.example_queries import ExampleQuery, StreamSample, example_queries
from transom.texts import cut_text

NAMES_SECONDS = 2.0  # how old the names may be that completion offers
STATISTICS_SECONDS = 20.0  # how old statistics of columns may be
LONGEST_VALUE = 60  # characters of a value that is shown

T = TypeVar("T")


class QueryAssistant:
    """Knows the names that queries can use, and samples of the streams' rows."""

    def __init__(self, engine: Engine, catalog: QueryCatalog):
        self.engine, self.catalog = engine, catalog
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def complete(self, sql: str, cursor: int) -> CompletionAnswer:
        """What can be written at a place of a text."""
        found = complete(sql, cursor, self.names())
        candidates = tuple(
            CandidateInfo(each.label, each.kind, each.detail, each.info, each.insert, each.cursor)
            for each in found.candidates
        )
        return CompletionAnswer(found.start, found.end, candidates)

    def names(self) -> KnownNames:
        """The streams, tables, views, queries and functions that a query can name."""
        return self._recent("names", "", NAMES_SECONDS, self._names)

    def _names(self) -> KnownNames:
        catalog = self.engine.catalog()
        relations = [
            KnownRelation(name, "stream", dict(each.columns), each.time)
            for name, each in catalog.streams.items()
        ]
        relations += [
            KnownRelation(each.name, "table", dict(each.columns)) for each in catalog.tables.values()
        ]
        if catalog.views:
            relations += [
                KnownRelation(name, "view", dict(view.columns)) for name, view in self.engine.views().items()
            ]
        relations += self._queries()
        return KnownNames(tuple(relations), catalog.functions, catalog.qualities)

    def _queries(self) -> list[KnownRelation]:
        """The queries with their result columns: a query can read the results of another one."""
        found = []
        for name, handle in self.engine.queries().items():
            if is_preview(name):
                continue
            try:
                description = self.catalog.description(handle)
            except TransomError:  # it was dropped since, or its stream is gone
                continue
            if description.kind == "standing":
                columns = {
                    each.name: description.schema.field(each.name).type for each in description.columns
                }
                found.append(KnownRelation(name, "query", columns, "window_end"))
        return found

    def tables(self) -> list[TableStatus]:
        """The static tables."""
        catalog = self.engine.catalog()
        return [
            TableStatus(name, {column: sql_type(kind) for column, kind in table.columns.items()})
            for name, table in catalog.tables.items()
        ]

    def sample(self, stream: str) -> pa.Table:
        """Some of the newest rows of a stream."""
        return self._recent("sample", stream, STATISTICS_SECONDS, lambda: self.engine.sample(stream))

    def columns(self, stream: str) -> StreamColumns:
        """The columns of a stream, with statistics of a sample of its rows."""
        return self._recent("columns", stream, STATISTICS_SECONDS, lambda: self._columns(stream))

    def _columns(self, stream: str) -> StreamColumns:
        info, rows = self.engine.streams()[stream], self.sample(stream)
        statistics = column_statistics(rows)
        time_column = info.rules.clock.attribute
        return StreamColumns(
            rows.num_rows,
            tuple(
                _stream_column(name, kind, name == time_column, statistics.get(name))
                for name, kind in info.columns.items()
            ),
        )

    def examples(self) -> list[ExampleQuery]:
        """Example queries over all streams."""
        names = self.names()
        tables = [each for each in names.relations if each.kind == "table"]
        return [
            example
            for each in names.relations
            if each.kind == "stream"
            for example in example_queries(StreamSample(each, self._statistics(each.name)), tables)
        ]

    def _statistics(self, stream: str) -> Mapping[str, ColumnStatistics]:
        try:
            return column_statistics(self.sample(stream))
        except (TransomError, SQLError, pa.ArrowException):  # an example without a sample is better than none
            return {}

    def _recent(self, what: str, of: str, seconds: float, make: Callable[[], T]) -> T:
        """A value that is made anew when it is too old."""
        with self._lock:
            kept = self._kept.get((what, of))
        if kept is not None and time.monotonic() - kept[0] < seconds:
            return kept[1]
        made = make()
        with self._lock:
            self._kept[what, of] = time.monotonic(), made
        return made


def _stream_column(
    name: str, kind: pa.DataType, is_time: bool, found: ColumnStatistics | None
) -> StreamColumn:
    if found is None or not found.rows:
        return StreamColumn(name, sql_type(kind), is_time)
    return StreamColumn(
        name,
        sql_type(kind),
        is_time,
        found.nulls,
        found.distinct,
        _text(found.least),
        _text(found.greatest),
        tuple(str(_text(value)) for value, _ in found.common),
    )


def _text(value: Any) -> str | None:
    return None if value is None else cut_text(value_to_text(value), LONGEST_VALUE)
