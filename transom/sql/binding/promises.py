"""Promises bound to streams: their names resolved, and the summaries of their counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from transom.columns.types import is_number
from transom.elements import Summary
from transom.sql.binding.scope import ResolvedColumn, Scope
from transom.sql.clauses.promise_reader import Leaf, WrittenPromise
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise
from transom.sql.syntax.canonical import quote
from transom.sql.syntax.parsed_query import Parsed

_PLAIN = re.compile(r"[^\W\d]\w*")


def summaries_on(summaries: Mapping[str, Summary], stream: str, column: str | None = None) -> list[Summary]:
    """The summaries of a stream, or those of one of its columns, in order of their names."""
    return [
        summaries[name]
        for name in sorted(summaries)
        if summaries[name].stream == stream and column in (None, summaries[name].column)
    ]


def no_summary(stream: str, column: str) -> str:
    """The error for a column without a summary, with the statement that creates one.

    >>> no_summary("store1", "item")  # doctest: +NORMALIZE_WHITESPACE
    "item of store1 has no summary; make one with CREATE SUMMARY store1_item ON store1(item)
    WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
    """
    name = re.sub(r"\W", "_", f"{stream}_{column}")
    on = f"{_written(stream)}({_written(column)})"
    return (
        f"{column} of {stream} has no summary; make one with "
        f"CREATE SUMMARY {_written(name)} ON {on} WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
    )


def _written(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def leaves_of(written: WrittenPromise) -> list[Leaf]:
    """The columns and counts of a promise, from left to right."""
    if isinstance(written, Leaf):
        return [written]
    return [] if isinstance(written, Number) else [*leaves_of(written.left), *leaves_of(written.right)]


def stream_column(parsed: Parsed, scope: Scope, leaf: Leaf) -> ResolvedColumn:
    """The column of a stream that a leaf names; unless it is counted, it must be a number."""
    column = scope.once(leaf.column)
    if column.source.table:
        parsed.fail(
            f"a promise can use only columns of a stream, and {column.name} is a table's", leaf.column
        )
    if column.fields:
        parsed.fail("a promise can't use a field of a struct", leaf.column)
    if not leaf.counted and not is_number(column.type):
        parsed.fail(f"a promise is a number, and {column.name} is {column.type}", leaf.column)
    return column


def bound_promise(written: WrittenPromise, column_of: Callable[[Leaf], ResolvedColumn]) -> Promise:
    """A promise with streams' names instead of aliases, given the columns of its leaves."""
    match written:
        case Number():
            return written
        case Leaf():
            column = column_of(written)
            stream = column.source.relation.name
            if not written.counted:
                return Column(stream, column.name)
            return EstimatedCount(stream, column.name, column.source.occurrence)
    return Arithmetic(
        written.op, bound_promise(written.left, column_of), bound_promise(written.right, column_of)
    )


def summarized_promise(parsed: Parsed, scope: Scope, written: WrittenPromise) -> Promise:
    """The promise of ON OVERLOAD PREFER over the stream of a window query; each counted column has a summary."""

    def resolved_column(leaf: Leaf) -> ResolvedColumn:
        column = stream_column(parsed, scope, leaf)
        stream = column.source.relation.name
        if leaf.counted and not summaries_on(scope.catalog.summaries, stream, column.name):
            parsed.fail(no_summary(stream, column.name), leaf.column)
        return column

    return bound_promise(written, resolved_column)
