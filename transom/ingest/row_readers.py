"""What all queries that read a stream need of its rows: with thousands of queries, a list of all of them costs more
than a small batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from transom.plan.compiled_query import CompiledQuery
from transom.sql.query import Join, merged_table_joins


@dataclass(frozen=True)
class RowReaders:
    """The queries that share a pass over the rows of a stream; the same object as long as the queries are the same."""

    queries: Sequence[CompiledQuery]

    @classmethod
    def of(cls, *queries: Iterable[CompiledQuery]) -> RowReaders:
        """Queries of several kinds."""
        return cls(tuple(chain.from_iterable(queries)))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the queries."""
        return frozenset([query.name for query in self.queries])

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The column of each scalar that the queries read."""
        # Many queries need the same scalars, so that equal lists are read once.
        lists = dict.fromkeys([query.query.scalar_texts for query in self.queries])
        return {sql: f"c{i}" for i, sql in enumerate(dict.fromkeys(chain.from_iterable(lists)))}

    @cached_property
    def is_combined(self) -> bool:
        """Whether some query reads combined pairs."""
        return any(query.is_combined for query in self.queries)

    @cached_property
    def by_joins(self) -> tuple[tuple[tuple[Join, ...], tuple[CompiledQuery, ...]], ...]:
        """The queries by their joins; equal joins may occur repeatedly."""
        by_id: dict[int, list[CompiledQuery]] = {}  # joins are slow to hash, and most queries share them
        for query in self.queries:
            by_id.setdefault(id(query.query.joins), []).append(query)
        return tuple([(members[0].query.joins, tuple(members)) for members in by_id.values()])

    @cached_property
    def joins(self) -> tuple[Join, ...]:
        """The joins of the queries, each once, with all columns that any of them reads."""
        return tuple(merged_table_joins(join for joins, _ in self.by_joins for join in joins))
