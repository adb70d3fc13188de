"""What a program declared: streams, static tables, functions, and quality functions."""

from __future__ import annotations

from collections.abc import Iterable

from transom.backends.base import Backend
from transom.errors import SettingError, near_miss
from transom.estimates import Quality
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.plan.limits import Limits
from transom.sql.catalog import Catalog, Relation
from transom.sql.query import Query
from transom.storage.file_store import Store


class Declared:
    """The names that a program declared, by kind."""

    def __init__(self, backend: Backend, store: Store, limits: Limits | None = None):
        self.backend = backend
        self.limits = limits or Limits()
        self.tables = StaticTables(store, backend, self.limits.table_rows)
        self.versions: dict[str, int] = {}  # of the static tables
        self.streams: dict[str, Stream] = {}
        self.functions: set[str] = set()
        self.qualities: dict[str, Quality] = {}

    def stream(self, name: str) -> Stream:
        """A declared stream; SettingError if there is none of this name."""
        if name not in self.streams:
            raise SettingError(f"there is no stream named {name}{near_miss(name, self.streams)}")
        return self.streams[name]

    def queried(self) -> dict[str, Stream]:
        """The streams that queries can read; the rows of the others are prods."""
        return {name: stream for name, stream in self.streams.items() if stream.prods is None}

    def catalog(self) -> Catalog:
        """The names that queries can use, without summaries."""
        streams = {
            name: Relation(name, stream.columns, stream.rules.clock.attribute)
            for name, stream in self.queried().items()
        }
        tables = {name: Relation(name, self.tables.columns(name, v)) for name, v in self.versions.items()}
        functions = frozenset(self.functions)
        return Catalog(
            streams,
            tables,
            functions,
            self.backend.in_utc,
            frozenset(self.qualities),
            collected_values=self.limits.collected_values,
        )

    def check_version(self, table: str, version: int, queries: Iterable[Query]) -> None:
        """Refuse a new version of a table in which the columns that queries read are not what they were."""
        if table not in self.versions:
            return
        before, after = (self.tables.columns(table, v) for v in (self.versions[table], version))
        for query in queries:
            for join in query.joins:
                for column in (*join.keys, *join.columns) if join.table == table else ():
                    if after.get(column) != before[column]:
                        raise SettingError(f"queries need the column {column} of {table}, {before[column]}")
