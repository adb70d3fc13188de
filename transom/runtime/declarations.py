"""What a program declared: streams, static tables, functions, and quality functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from transom.backends.base import Backend
from transom.elements import Clock
from transom.errors import SettingError, near_miss
from transom.estimates import Quality
from transom.ingest.sources import DerivedSource
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.plan.limits import Limits
from transom.sql.catalog import Catalog, Relation
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query
from transom.storage.file_store import Store
from transom.windows.stream_rules import DerivedRules, StreamRules


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

    def adopt(self, queries: Iterable[Query]) -> None:
        """Declare the derived streams that queries read."""
        for query in queries:
            derived = query.derived
            if derived is None or derived.name in self.streams:
                continue
            inputs = [self.stream(name) for name in derived.streams]
            for stream in inputs:
                if stream.rules.overload is not None:
                    raise SettingError(
                        f"{stream.name} sidelines or sheds rows of bursts: UNION ALL and explode can't read it"
                    )
            clock = Clock(derived.name, derived.time, inputs[0].rules.clock.kind)
            stream = Stream(
                derived.name,
                dict(derived.columns),
                StreamRules(clock, slack=None),
                DerivedSource(dict(derived.columns)),
                derived=derived,
            )
            self.streams = {**self.streams, stream.name: stream}  # others may be reading the streams

    def derived(self, names: Collection[str]) -> dict[str, DerivedRules]:
        """The rules of those of the named streams that are derived."""
        rules = {}
        for name in names:
            stream = self.streams.get(name)
            if stream is not None and stream.derived is not None:
                inputs = tuple(self.streams[each].rules for each in stream.derived.streams)
                rules[name] = DerivedRules(stream.rules, inputs, stream.derived.is_exploded)
        return rules

    def release(self, names: Collection[str]) -> None:
        """Forget derived streams that no query reads."""
        if names:
            self.streams = {name: stream for name, stream in self.streams.items() if name not in names}

    def catalog(self) -> Catalog:
        """The names that queries can use, without summaries."""
        streams = {
            name: Relation(
                name,
                stream.columns,
                stream.rules.clock.attribute,
                _unjoinable(stream),
                None if stream.event_time is None else stream.event_time.sql,
                unsupported=stream.unsupported,
            )
            for name, stream in self.queried().items()
            if stream.derived is None
        }
        tables = {name: Relation(name, self.tables.columns(name, v)) for name, v in self.versions.items()}
        functions = frozenset(self.functions)
        return Catalog(
            streams,
            tables,
            functions,
            self.backend.in_utc,
            self.backend.time_zone,
            frozenset(self.qualities),
            collected_values=self.limits.collected_values,
            is_unique=self._is_unique,
        )

    def _is_unique(self, table: str, keys: Sequence[str]) -> bool:
        """Whether no two rows of a static table, as it is now, have the same values in some columns."""
        return self.tables.is_unique(table, self.versions[table], keys)

    def check_version(
        self, table: str, version: int, queries: Iterable[Query], preferred: Iterable[PreferenceQuery] = ()
    ) -> None:
        """Refuse a new version of a table in which the columns that queries read are not what they were.

        The tables of queries with a preference have one row for each key.
        """
        if table not in self.versions:
            return
        before, after = (self.tables.columns(table, v) for v in (self.versions[table], version))
        of_preferred = [join for query in preferred for side in query.sides for join in side.joins]
        for join in (*(join for query in queries for join in query.joins), *of_preferred):
            for column in (*join.keys, *join.columns) if join.table == table else ():
                if after.get(column) != before[column]:
                    raise SettingError(f"queries need the column {column} of {table}, {before[column]}")
        for join in of_preferred:
            if join.table != table or join.is_membership or self.tables.is_unique(table, version, join.keys):
                continue
            keys = ", ".join(join.keys)
            raise SettingError(
                f"queries WITH PREFERENCE need one row of {table} for each {keys}, and there are several"
            )


def _unjoinable(stream: Stream) -> str | None:
    """Why a stream can't be joined with another one."""
    if stream.rules.overload is None:
        return None
    return "it has a budget, and the rows that bursts defer would miss their partners; declare it without one"
