"""What is remembered of past windows, for queries whose results depend on them (LAG, EMIT EMPTY)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class PastWindows:
    """Results of past windows, and where queries began.

    `tables` are by the types of groups and values: each has the rows of all queries with these types. A row is the
    `query`, the `window` (its id), the `kind` of the row, the group (`k0`..) and values (`v0`..). `starts` are by
    query the first window with a row that came after the query joined, of queries that EMIT EMPTY.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)

    def without(self, names: Collection[str]) -> PastWindows:
        """The same after some queries left."""
        gone = pa.array(list(names), pa.string())
        tables = {
            kind: table.filter(pc.invert(pc.is_in(table["query"], gone)))
            for kind, table in self.tables.items()
        }
        starts = {name: start for name, start in self.starts.items() if name not in set(names)}
        return PastWindows({kind: table for kind, table in tables.items() if table.num_rows}, starts)

    def with_all(self, other: PastWindows) -> PastWindows:
        """The same with what is remembered for other queries."""
        kinds = {
            kind: [each.tables[kind] for each in (self, other) if kind in each.tables]
            for kind in other.tables
        }
        tables = {kind: pa.concat_tables(tables) for kind, tables in kinds.items()}
        return PastWindows({**self.tables, **tables}, {**self.starts, **other.starts})

    def renamed(self, name: str, to: str) -> PastWindows:
        """The same after a query got another name."""
        tables = {
            kind: table.set_column(
                table.schema.get_field_index("query"),
                table.schema.field("query"),
                pc.if_else(pc.equal(table["query"], name), to, table["query"]),
            )
            for kind, table in self.tables.items()
        }
        return PastWindows(tables, {to if each == name else each: at for each, at in self.starts.items()})
