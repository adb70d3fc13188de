"""Views by their definition: the rows of a view are computed from the rows of its streams, one batch at a time.

The engine inlines views. Here the columns of a view are columns of the rows, and a query over the view is a query over
these rows that wants only those for which the view's condition holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.elements import Clock, Punctuation
from transom.oracle.batches import OracleBatch, OracleOutcome, OracleRow, OracleStreamRules
from transom.oracle.joins import without_joins
from transom.oracle.naive import Oracle, OracleStream
from transom.sql.catalog import Relation, Scalars
from transom.sql.interpreter.values import table_of, table_rows
from transom.sql.query import And, Query, Scalar, Truth

IN_VIEW = "in the view"  # the column that says whether a row is in the view


@dataclass(frozen=True)
class OracleView:
    """A view of a stream: its columns as expressions over the stream's columns, and its condition.

    One of the columns is the stream's time, `time`, by which batches are accepted and windows close.
    """

    name: str
    columns: Mapping[str, str]
    types: Mapping[str, pa.DataType]
    time: str
    where: str = "true"

    def relation(self) -> Relation:
        """The view as a stream that queries can be bound to."""
        return Relation(self.name, {**self.types, IN_VIEW: pa.bool_()}, self.time)

    def batches(
        self, batches: Sequence[OracleBatch], columns: Mapping[str, pa.DataType], scalars: Scalars
    ) -> list[OracleBatch]:
        """The batches of the view; a row that is not in the view is there too, because time passes by it."""
        return [
            replace(batch, stream=self.name, rows=self._rows(batch.rows, columns, scalars))
            for batch in batches
        ]

    def _rows(
        self, rows: Sequence[OracleRow | str], columns: Mapping[str, pa.DataType], scalars: Scalars
    ) -> list[OracleRow | str]:
        whole = [row for row in rows if isinstance(row, dict)]
        if not whole:
            return list(rows)
        expressions = {**self.columns, IN_VIEW: self.where}
        return list(table_rows(scalars.project(table_of(whole, columns), expressions)))

    def query(self, query: Query) -> Query:
        """A query that is bound to the view, without the rows that are not in it."""
        inside = Truth(Scalar(f"`{IN_VIEW}`", pa.bool_(), IN_VIEW))
        return replace(query, where=inside if query.where is None else And((inside, query.where)))


SOURCE = "the source"  # the column that says which stream a row of a union came from


class UnionStream(OracleStream):
    """The rows of several streams: its watermark is the least of theirs, and there is none before all brought rows."""

    slacks: Mapping[str, int]

    def closings(self, clock: Clock) -> list[Punctuation]:
        tops: dict[str, int] = {}
        for row in self.accepted:
            tops[row[SOURCE]] = max(row[clock.attribute], tops.get(row[SOURCE], row[clock.attribute]))
        if tops.keys() != self.slacks.keys():
            return []
        return [Punctuation(clock, until=min(top - self.slacks[source] for source, top in tops.items()))]


def answer_union(
    queries: Mapping[str, Query],
    batches: Sequence[OracleBatch],
    name: str,
    rules: OracleStreamRules,
    slacks: Mapping[str, int],
    scalars: Scalars,
) -> OracleOutcome:
    """The answers of queries over a union; its batches have the column `SOURCE`, and its streams these slacks."""
    oracle = Oracle(queries, batches, {name: rules}, scalars, without_joins)
    stream = UnionStream(rules, oracle.streams[name].columns)
    stream.slacks = slacks
    oracle.streams[name] = stream
    for number, batch in enumerate(batches):
        oracle.run(number, batch)
    return oracle.outcome


def exploded(rows: Sequence[OracleRow], array: str, position: str, element: str) -> list[OracleRow]:
    """Each row once for every element of an array; a row without elements once, with the position null."""
    made: list[OracleRow] = []
    for row in rows:
        made += [{**row, position: place, element: value} for place, value in enumerate(row[array] or [])]
        if not row[array]:
            made.append({**row, position: None, element: None})
    return made
