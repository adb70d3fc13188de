"""The names that a query can use: streams, tables and functions; and the protocol for typing expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping, Protocol, Sequence

import pyarrow as pa

from transom.elements import Summary
from transom.errors import SQLError


@dataclass(frozen=True)
class Relation:
    """A stream or a static table, with its columns in order. `time` is a stream's default WATTR.

    `unjoinable` says why a stream can't be joined with another one. `time_sql` is the expression whose values the time
    column has, in canonical text, if the stream was declared with one. `unsupported` are columns that were left out
    because of their types.
    """

    name: str
    columns: Mapping[str, pa.DataType]
    time: str | None = None
    unjoinable: str | None = None
    time_sql: str | None = None
    is_declared: bool = True  # otherwise its rows are the results of a query, or derived from other streams
    unsupported: Mapping[str, str] = field(default_factory=dict)


def _is_unique(table: str, keys: Sequence[str]) -> bool:
    """What a catalog without rows says of its tables."""
    return True


class Scalars(Protocol):
    """Types and evaluates scalar expressions in Spark SQL's dialect: in Spark, or by the interpreter."""

    def types(
        self, columns: Mapping[str, pa.DataType], expressions: Sequence[str]
    ) -> list[pa.DataType | SQLError]:
        """The type of each expression over the columns, or its error; one call for many expressions."""
        ...

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """A table with one column for each named expression, row by row."""
        ...


@dataclass(frozen=True)
class Catalog:
    """The names that a query can use; like Spark, lookups of names ignore case."""

    streams: Mapping[str, Relation] = field(default_factory=dict)
    tables: Mapping[str, Relation] = field(default_factory=dict)
    functions: frozenset[str] = frozenset()  # user-defined scalar functions that the program registered
    utc: bool = True  # whether a time written without a zone is in UTC; otherwise Spark has to read it
    zone: str = "UTC"  # of times that are written without an offset
    qualities: frozenset[str] = frozenset()  # functions that compare an early value with the final one
    queries: frozenset[str] = frozenset()  # suggestions for unknown names
    summaries: Mapping[str, Summary] = field(default_factory=dict)  # of streams, by their names
    views: Mapping[str, str] = field(default_factory=dict)  # the SELECT of each view, by name
    collected_values: int = 10_000  # most values that an aggregate such as collect_list has in a group
    # Whether no two rows of a static table have the same values in some columns, by the name of the table.
    is_unique: Callable[[str, Sequence[str]], bool] = field(default=_is_unique, compare=False)
