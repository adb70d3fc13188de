"""Which summaries guide a query WITH PREFERENCE to its tuples, and which equality joins two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NoReturn

from sqlglot import exp

from transom.elements import Summary
from transom.sql.binding.promises import leaves_of, no_summary, stream_column, summaries_on
from transom.sql.binding.scope import ResolvedColumn, Scope
from transom.sql.clauses.preference import PreferenceClause
from transom.sql.clauses.promise_reader import COUNT, Leaf
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import Parsed


@dataclass(frozen=True)
class Equality:
    """A condition that equates a column of the first stream with one of the second."""

    node: exp.Expr
    columns: tuple[ResolvedColumn, ResolvedColumn]


@dataclass(frozen=True)
class Guides:
    """The summary of each side, the equality that joins them, and the columns of the promise."""

    summaries: tuple[Summary, ...]
    link: Equality | None
    leaves: Mapping[int, ResolvedColumn]  # by the id of the leaf, which the clause keeps

    def column_of(self, leaf: Leaf) -> ResolvedColumn:
        """The column of a leaf of the promise."""
        return self.leaves[id(leaf)]


def find_guides(
    parsed: Parsed,
    scope: Scope,
    clause: PreferenceClause,
    conditions: Sequence[exp.Expr],
    summaries: Mapping[str, Summary],
) -> Guides:
    """Find the summaries for a query, or raise an error with the statement that creates them."""
    leaves = leaves_of(clause.promise)
    columns = {id(leaf): stream_column(parsed, scope, leaf) for leaf in leaves}
    finder = _Finder(parsed, scope, clause, summaries, [(leaf, columns[id(leaf)]) for leaf in leaves])
    if len(scope.streams) == 1:
        return Guides((finder.alone(),), None, columns)
    link, chosen = finder.joined(conditions)
    return Guides(chosen, link, columns)


class _Finder:
    """Finds the summaries that can guide one query."""

    def __init__(
        self,
        parsed: Parsed,
        scope: Scope,
        clause: PreferenceClause,
        summaries: Mapping[str, Summary],
        leaves: Sequence[tuple[Leaf, ResolvedColumn]],
    ):
        self.parsed, self.scope, self.summaries, self.leaves = parsed, scope, summaries, leaves
        self.window = clause.preference.window or 0

    def alone(self) -> Summary:
        """The summary of a selection: the one whose column the promise counts, or the stream's only one."""
        stream = self.scope.stream.relation.name
        counted = [(leaf, column) for leaf, column in self.leaves if leaf.counted]
        for leaf, column in counted:
            if not summaries_on(self.summaries, stream, column.name):
                self._fail_without(column, leaf.column)
            if column.name != counted[0][1].name:
                message = f"a selection is led by one column, and {counted[0][1].name} is counted already"
                self.parsed.fail(message, leaf.column)
        if counted:
            return self._best(summaries_on(self.summaries, stream, counted[0][1].name))
        return self._only(stream)

    def _only(self, stream: str) -> Summary:
        """The only summary of a stream, for a promise without counts."""
        candidates = summaries_on(self.summaries, stream)
        columns = sorted({summary.column for summary in candidates})
        if not candidates:
            leaf = next((column for _, column in self.leaves), None)
            name = leaf.name if leaf is not None else next(iter(self.scope.stream.relation.columns))
            self.parsed.fail(no_summary(stream, name), self.scope.stream.node)
        if len(columns) > 1:
            listed = ", ".join(columns)
            message = f"{stream} has summaries of {listed}: choose one with {COUNT}(column) in the promise"
            self.parsed.fail(message, self.scope.stream.node)
        return self._best(candidates)

    def _best(self, candidates: Sequence[Summary]) -> Summary:
        """The first of a column's summaries that covers the whole window, if there is one."""
        return next((summary for summary in candidates if summary.reach >= self.window), candidates[0])

    # --- joins ---------------------------------------------------------------------------------

    def joined(self, conditions: Sequence[exp.Expr]) -> tuple[Equality, tuple[Summary, ...]]:
        """The equality that two streams are joined on, and the summaries of its columns."""
        equalities = [one for node in conditions if (one := self._equality(node)) is not None]
        if not equalities:
            first, second = (source.alias for source in self.scope.streams)
            message = f"no equality links {second} to {first}; a join WITH PREFERENCE has one between columns"
            self.parsed.fail(message, self.scope.streams[1].node)
        link = self._link(equalities)
        self._check_types(link)
        self._check_leaves(link)
        return link, self._pair(link)

    def _equality(self, node: exp.Expr) -> Equality | None:
        if not isinstance(node, exp.EQ):
            return None
        parts = bare(node.this), bare(node.expression)
        found = [self.scope.find(part) for part in parts if isinstance(part, exp.Column)]
        streams = self.scope.streams
        sides = {
            streams.index(column.source): column
            for column in found
            if column is not None and not column.source.table
        }
        if len(sides) < 2 or any(column.fields for column in sides.values()):
            return None
        return Equality(node, (sides[0], sides[1]))

    def _link(self, equalities: Sequence[Equality]) -> Equality:
        """The equality of summarized columns; of several, the one whose columns the promise counts."""
        summarized = [equality for equality in equalities if all(map(self._of, equality.columns))]
        if not summarized:
            self._no_summaries(equalities)
        if len(summarized) == 1:
            return summarized[0]
        counted = {self._id(column) for leaf, column in self.leaves if leaf.counted}
        wanted = [equality for equality in summarized if counted & set(map(self._id, equality.columns))]
        if len(wanted) == 1:
            return wanted[0]
        message = f"two equalities join summarized columns; choose one with {COUNT} in the promise"
        self.parsed.fail(message, (wanted or summarized)[1].node)

    def _no_summaries(self, equalities: Sequence[Equality]) -> NoReturn:
        counted = {self._id(column) for leaf, column in self.leaves if leaf.counted}
        likely = [one for one in equalities if counted & set(map(self._id, one.columns))] or equalities
        node = likely[0].node
        for column in likely[0].columns:
            if not self._of(column):
                self._fail_without(column, node)
        raise AssertionError("one of the columns has no summary")

    def _check_types(self, link: Equality) -> None:
        first, second = link.columns
        if first.type != second.type:
            named = [f"{column.source.alias}.{column.name} is {column.type}" for column in link.columns]
            message = f"the columns of the equality are of one type, and {' and '.join(named)}"
            self.parsed.fail(message, link.node)

    def _check_leaves(self, link: Equality) -> None:
        """Check that the promise of a join uses only the joined columns."""
        allowed = set(map(self._id, link.columns))
        for leaf, column in self.leaves:
            if self._id(column) in allowed:
                continue
            if leaf.counted and not self._of(column):
                self._fail_without(column, leaf.column)
            listed = " and ".join(f"{one.source.alias}.{one.name}" for one in link.columns)
            self.parsed.fail(f"the promise of a join can use only the joined columns, {listed}", leaf.column)

    def _pair(self, link: Equality) -> tuple[Summary, ...]:
        """Summaries of both columns with the same buckets; if possible, ones that cover the whole window."""
        pairs = list(product(*map(self._of, link.columns)))
        alike = [pair for pair in pairs if len({(summary.buckets, summary.between) for summary in pair}) == 1]
        if not alike:
            named = [f"{summary.name} has {_buckets(summary)}" for summary in pairs[0]]
            message = f"the summaries of a join have the same buckets, and {' and '.join(named)}"
            self.parsed.fail(message, link.node)
        long = (pair for pair in alike if all(summary.reach >= self.window for summary in pair))
        return next(long, alike[0])

    @staticmethod
    def _id(column: ResolvedColumn) -> tuple[str, str]:
        return column.source.relation.name, column.name

    def _of(self, column: ResolvedColumn) -> list[Summary]:
        return summaries_on(self.summaries, *self._id(column))

    def _fail_without(self, column: ResolvedColumn, node: exp.Expr) -> NoReturn:
        self.parsed.fail(no_summary(column.source.relation.name, column.name), node)


def _buckets(summary: Summary) -> str:
    between = "" if summary.between is None else f" BETWEEN {summary.between[0]:g} AND {summary.between[1]:g}"
    return f"BUCKETS {summary.buckets}{between}"
