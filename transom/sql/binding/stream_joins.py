"""A join of two streams within a time bound: its keys, its bound, and the stream of its pairs.

The query reads the pairs as the rows of a derived stream. Their columns are those of both rows, named
after their streams, and `join_time`, the later time of the two rows. Queries that join the same streams by the same
keys within the same bound read the same stream of pairs, whichever stream they name first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha1

import pyarrow as pa
from sqlglot import exp

from transom.durations import parse_duration
from transom.elements import ClockKind
from transom.errors import SettingError, SQLError
from transom.sql.binding.scope import FromItem, Scope
from transom.sql.catalog import Relation
from transom.sql.interpreter.types import TYPE_NAMES, compared
from transom.sql.query import JOIN_TIME, JoinForm, JoinSide, Scalar, StreamJoin
from transom.sql.syntax.canonical import Printer, bare, whole_number
from transom.sql.syntax.token_reader import LONGEST_LENGTH

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True)
class JoinedSides:
    """What a join of two streams returns, and of which sides it keeps rows without a partner; of SEMI and ANTI JOIN,
    of which side its rows are. The sides are in the order of FROM."""

    form: JoinForm = JoinForm.INNER
    preserved: tuple[bool, bool] = (False, False)


@dataclass
class PairStream:
    """The stream of pairs that a query reads, before the types of its keys are known."""

    id: str
    kind: ClockKind
    sides: tuple[FromItem, FromItem]  # the first and the second, in canonical order
    keys: list[tuple[exp.Expr, exp.Expr]]  # what the condition equates, of the first side and of the second
    texts: list[tuple[str, str]]  # the same as texts over the streams' own rows
    low: int
    high: int
    time_type: pa.DataType  # of a pair's time
    own: tuple[list[exp.Expr], list[exp.Expr]]  # conditions of WHERE that read one of the streams only
    joined: JoinedSides  # in canonical order
    condition: str | None = None  # the rest of ON, over pairs, if it decides which rows have a partner
    conditions: tuple[str | None, str | None] = (
        None,
        None,
    )  # parts of ON over the streams' own rows, likewise
    matched_by: list[exp.Expr] = field(default_factory=list)  # the nodes of these conditions
    condition_columns: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())  # that it reads
    # The types in which the keys are compared, and those of both sides.
    types: list[tuple[pa.DataType, tuple[pa.DataType, pa.DataType]]] = field(default_factory=list)

    def set_types(self, scope: Scope, types: Sequence[tuple[pa.DataType, pa.DataType]]) -> None:
        """Set the types in which keys are compared, given those of both sides."""
        nodes = (node for node, _ in self.keys)
        self.types = [(_compared(scope, node, *own), own) for node, own in zip(nodes, types, strict=True)]

    def finish(self, printer: Printer) -> StreamJoin:
        """The join, with the columns that the query reads of both sides, and the rows that it can use."""
        first, second = (
            JoinSide(
                source.relation.name,
                str(source.prefix),
                str(source.relation.time),
                tuple(
                    _key(texts[place], *kinds, place)
                    for texts, kinds in zip(self.texts, self.types, strict=True)
                ),
                tuple(
                    (name, kind)
                    for name, kind in source.relation.columns.items()
                    if name in source.used or name in self.condition_columns[place]
                ),
                self._filters(place, printer),
                self.conditions[place],
            )
            for place, source in enumerate(self.sides)
        )
        return StreamJoin(
            self.id,
            first,
            second,
            self.low,
            self.high,
            self.kind,
            self.time_type,
            self.joined.form,
            self.joined.preserved,
            self.condition,
        )

    def _filters(self, place: int, printer: Printer) -> frozenset[str] | None:
        """The conditions of WHERE that read one stream only, as a text over its own rows.

        Without the rows that they drop, rows of a preserved stream would seem to have no partner.
        """
        nodes, source = self.own[place], self.sides[place]
        if not nodes or self.joined.preserved[1 - place]:
            return None
        prefix, source.prefix = source.prefix, None
        text = " AND ".join(sorted({f"({printer.root(node)})" for node in nodes}))
        source.prefix = prefix
        return frozenset({text})


def bind_stream_join(
    scope: Scope, printer: Printer, on: list[exp.Expr], where: list[exp.Expr], joined: JoinedSides
) -> tuple[PairStream, list[exp.Expr]]:
    """The stream of pairs of the scope's two streams, and the conditions that are left for WHERE.

    WHERE of an inner join can hold its keys and its bound. In other joins, ON alone decides which rows have a partner.
    """
    binder = _Binder(scope, printer, joined)
    if joined.form is JoinForm.INNER:
        return binder.bind([*on, *where])
    pairs, _ = binder.bind(on)
    pairs.own = binder.one_sided(pairs.sides, where)
    return pairs, where


@dataclass(frozen=True)
class _Linear:
    """`first * t1 + second * t2 + constant`, of the times of both rows."""

    first: int
    second: int
    constant: int

    def plus(self, other: _Linear, factor: int = 1) -> _Linear:
        return _Linear(
            self.first + factor * other.first,
            self.second + factor * other.second,
            self.constant + factor * other.constant,
        )


class _Binder:
    """Reads the conditions of a join of two streams."""

    def __init__(self, scope: Scope, printer: Printer, joined: JoinedSides):
        self.scope, self.parsed, self.printer, self.joined = scope, scope.parsed, printer, joined
        first, second = (source for source in scope.sources if not source.table)
        self.sides = (first, second)
        self.kind = self._kind()
        self.low: int | None = None
        self.high: int | None = None

    def bind(self, conditions: list[exp.Expr]) -> tuple[PairStream, list[exp.Expr]]:
        keys: list[tuple[exp.Expr, exp.Expr]] = []
        rest = []
        for node in conditions:
            if self._bounds(node):
                continue
            if (key := self._key(node)) is not None:
                keys.append(key)
            else:
                rest.append(node)
        self._check(keys)
        return self._pairs(keys, rest), rest

    def _kind(self) -> ClockKind:
        """The kind of both streams' clocks."""
        kinds = []
        for source in self.sides:
            if source.relation.time is None:
                self.parsed.fail(
                    f"{source.alias} has no time column, which a join of streams needs", source.node
                )
            kind = source.relation.columns[source.relation.time]
            kinds.append(ClockKind.INTEGER if pa.types.is_integer(kind) else ClockKind.TIME)
        if kinds[0] is not kinds[1]:
            of = " and ".join(f"{source.alias}.{source.relation.time}" for source in self.sides)
            self.parsed.fail(f"the streams have different clocks: {of} can't be compared", self.sides[1].node)
        return kinds[0]

    # --- keys ---

    def _key(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """The two sides of an equality, if each reads one stream."""
        if not isinstance(node, exp.EQ):
            return None
        places = [self.scope.sources.index(source) for source in self.sides]
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if self.scope.reads(one) == {places[0]} and self.scope.reads(other) == {places[1]}:
                return bare(one), bare(other)
        return None

    # --- the time bound ---

    def _bounds(self, node: exp.Expr) -> bool:
        """Whether a condition bounds the difference of the times; if so, the bound is narrowed by it."""
        differences = list(self._differences(node))
        for kind, value in differences:
            if kind in (exp.GT, exp.GTE, exp.EQ):
                least = value + (kind is exp.GT)
                self.low = least if self.low is None else max(self.low, least)
            if kind in (exp.LT, exp.LTE, exp.EQ):
                most = value - (kind is exp.LT)
                self.high = most if self.high is None else min(self.high, most)
        return bool(differences)

    def _differences(self, node: exp.Expr) -> Iterator[tuple[type[exp.Expr], int]]:
        """Comparisons of the second time minus the first with constants that a condition consists of."""
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            bounds = [self._difference(exp.GTE, node.this, node.args["low"])]
            bounds.append(self._difference(exp.LTE, node.this, node.args["high"]))
            if None not in bounds:
                yield from (bound for bound in bounds if bound is not None)
        elif type(node) in _FLIPPED:
            this, other = bare(node.this), bare(node.expression)
            inner = _absolute(this)
            if inner is not None and isinstance(node, exp.LT | exp.LTE):
                yield from self._within(type(node), inner, other)
            elif (inner := _absolute(other)) is not None and isinstance(node, exp.GT | exp.GTE):
                yield from self._within(_FLIPPED[type(node)], inner, this)
            elif (bound := self._difference(type(node), this, other)) is not None:
                yield bound

    def _within(
        self, kind: type[exp.Expr], inner: exp.Expr, most: exp.Expr
    ) -> Iterator[tuple[type[exp.Expr], int]]:
        """The bounds of abs(inner) < most."""
        above = self._difference(kind, inner, most)
        below = self._difference(_FLIPPED[kind], inner, exp.Neg(this=most.copy()))
        if above is not None and below is not None:
            yield above
            yield below

    def _difference(
        self, kind: type[exp.Expr], this: exp.Expr, other: exp.Expr
    ) -> tuple[type[exp.Expr], int] | None:
        left, right = self._linear(this), self._linear(other)
        if left is None or right is None:
            return None
        whole = left.plus(right, -1)
        if (whole.first, whole.second) == (-1, 1):
            return kind, -whole.constant
        if (whole.first, whole.second) == (1, -1):
            return _FLIPPED[kind], whole.constant
        return None

    def _linear(self, node: exp.Expr) -> _Linear | None:
        node = bare(node)
        match node:
            case exp.Column():
                column = self.scope.find(node)
                if column is None or column.fields or column.name != column.source.relation.time:
                    return None
                place = next((i for i, side in enumerate(self.sides) if side is column.source), None)
                return None if place is None else _Linear(int(place == 0), int(place == 1), 0)
            case exp.Add() | exp.Sub():
                left, right = self._linear(node.this), self._linear(node.expression)
                if left is None or right is None:
                    return None
                return left.plus(right, 1 if isinstance(node, exp.Add) else -1)
            case exp.Neg():
                inner = self._linear(node.this)
                return None if inner is None else _Linear(0, 0, 0).plus(inner, -1)
            case exp.Interval() if self.kind is ClockKind.TIME:
                return _Linear(0, 0, self._duration(node))
            case exp.Literal() if (
                self.kind is ClockKind.INTEGER and not node.is_string and node.name.isdigit()
            ):
                return _Linear(0, 0, whole_number(node.name))
        return None

    def _duration(self, node: exp.Expr) -> int:
        try:
            return parse_duration(node.sql("spark"))
        except SettingError as error:
            self.parsed.fail(str(error), node)

    def _check(self, keys: Sequence[object]) -> None:
        first, second = self.sides
        names = f"{first.alias} and {second.alias}"
        if not keys:
            self._unknown_names()
            column = next(iter(second.relation.columns))
            example = f"{first.alias}.{column} = {second.alias}.{column}"
            self.parsed.fail(f"no equality links {names}; for example {example}", second.node)
        if self.low is None or self.high is None:
            self._unknown_names()
            start, end = (f"{source.alias}.{source.relation.time}" for source in (first, second))
            span = "INTERVAL 10 minutes" if self.kind is ClockKind.TIME else "10"
            self.parsed.fail(
                f"the join of {names} needs a time bound with a lower and an upper limit; for example "
                f"{end} BETWEEN {start} AND {start} + {span}",
                second.node,
            )
        if max(abs(self.low), abs(self.high)) > LONGEST_LENGTH:
            self.parsed.fail(f"the time bound of {names} is longer than any stream", second.node)
        if self.low > self.high:
            self.parsed.fail(f"no rows of {names} can match: the time bound is empty", second.node)

    def _unknown_names(self) -> None:
        """Report an unknown name, which is a better error than a missing condition."""
        select = self.parsed.select
        parts = [node for join in select.args.get("joins") or () if (node := join.args.get("on")) is not None]
        if (where := select.args.get("where")) is not None:
            parts.append(where)
        for column in (column for part in parts for column in part.find_all(exp.Column)):
            self.scope.column(column)

    # --- the stream ---

    def _pairs(self, keys: list[tuple[exp.Expr, exp.Expr]], rest: list[exp.Expr]) -> PairStream:
        assert self.low is not None and self.high is not None
        once = {(self.printer.root(one), self.printer.root(other)): (one, other) for one, other in keys}
        names = [source.relation.name for source in self.sides]
        joined = self.joined
        is_inner = joined.form is JoinForm.INNER
        kept = () if is_inner else (joined.form.value, *joined.preserved)
        swapped = () if is_inner else (joined.form.value, *joined.preserved[::-1])
        forward = (*names, sorted(once), self.low, self.high, *kept)
        backward = (*names[::-1], sorted((b, a) for a, b in once), -self.high, -self.low, *swapped)
        sides, low, high, texts = self.sides, self.low, self.high, sorted(once)
        nodes = [once[pair] for pair in texts]
        if backward < forward:
            sides, low, high = (sides[1], sides[0]), -high, -low
            texts = sorted((b, a) for a, b in once)
            nodes = [once[b, a][::-1] for a, b in texts]
            joined = JoinedSides(joined.form, joined.preserved[::-1])
        for place, source in enumerate(sides, 1):
            is_same = sides[0].relation.name == sides[1].relation.name
            source.prefix = f"{source.relation.name}#{place}" if is_same else source.relation.name
            source.used.clear()
        columns = {
            f"{source.prefix}.{name}": kind
            for source in sides
            for name, kind in source.relation.columns.items()
        }
        columns[JOIN_TIME] = self._time_type()
        definition: tuple[object, ...] = min(forward, backward)
        id = _name(sides, joined, definition)
        pairs = PairStream(
            id,
            self.kind,
            sides,
            nodes,
            texts,
            low,
            high,
            columns[JOIN_TIME],
            self.one_sided(sides, rest),
            joined,
        )
        if not is_inner:
            self._match_by(pairs, rest)
            pairs.id = _name(sides, joined, (*definition, pairs.condition, pairs.conditions))
        relation = Relation(pairs.id, columns, JOIN_TIME)
        self.scope.pairs = FromItem(pairs.id, relation, sides[0].node, table=False)
        return pairs

    def one_sided(
        self, sides: tuple[FromItem, FromItem], conditions: list[exp.Expr]
    ) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """The conditions that read the first side only, and those that read the second side only."""
        places = [{self.scope.sources.index(source)} for source in sides]
        first, second = ([node for node in conditions if self.scope.reads(node) == place] for place in places)
        return first, second

    def _match_by(self, pairs: PairStream, conditions: list[exp.Expr]) -> None:
        """Let the rest of ON decide which rows are partners."""
        own, pairs.matched_by = self.one_sided(pairs.sides, conditions), conditions
        for node in conditions:
            for column in node.find_all(exp.Column):
                if self.scope.column(column).source not in pairs.sides:
                    message = (
                        "ON of a join of two streams reads these streams only; move this condition to WHERE"
                    )
                    self.parsed.fail(message, node)
        both = [node for node in conditions if not any(node is one for nodes in own for one in nodes)]
        texts = []
        for source, nodes in zip(pairs.sides, own, strict=True):
            prefix, source.prefix = source.prefix, None
            texts.append(self._all_of(nodes))
            source.prefix = prefix
            source.used.clear()
        pairs.conditions = texts[0], texts[1]
        pairs.condition = self._all_of(both)
        first, second = (frozenset(source.used) for source in pairs.sides)
        pairs.condition_columns = first, second

    def _all_of(self, nodes: list[exp.Expr]) -> str | None:
        return " AND ".join(sorted({f"({self.printer.root(node)})" for node in nodes})) or None

    def _time_type(self) -> pa.DataType:
        if self.kind is ClockKind.INTEGER:
            return pa.int64()
        kinds = [source.relation.columns[str(source.relation.time)] for source in self.sides]
        are_zoned = [not pa.types.is_timestamp(kind) or kind.tz is not None for kind in kinds]
        if are_zoned[0] != are_zoned[1]:
            of = " and ".join(f"{source.alias}.{source.relation.time}" for source in self.sides)
            self.parsed.fail(f"one of {of} has a time zone, and the other has none", self.sides[1].node)
        return pa.timestamp("us", "UTC" if are_zoned[0] else None)


def _name(sides: tuple[FromItem, FromItem], joined: JoinedSides, definition: tuple[object, ...]) -> str:
    """The name of a stream of pairs: equal joins have the same name."""
    word = {(True, False): "LEFT ", (False, True): "RIGHT ", (True, True): "FULL ", (False, False): ""}[
        joined.preserved
    ]
    form = f"{joined.form.value.upper()} " if joined.form in (JoinForm.SEMI, JoinForm.ANTI) else ""
    digest = sha1(repr(definition).encode()).hexdigest()[:8]
    return f"{sides[0].relation.name} {word}{form}JOIN {sides[1].relation.name} #{digest}"


def _key(text: str, kind: pa.DataType, own: tuple[pa.DataType, pa.DataType], place: int) -> Scalar:
    """A key in the type in which it is compared."""
    return Scalar(text if own[place] == kind else f"CAST({text} AS {_type_name(kind)})", kind)


def _absolute(node: exp.Expr) -> exp.Expr | None:
    """The argument of abs()."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "abs" and len(node.expressions) == 1:
        return bare(node.expressions[0])
    return None


def _type_name(kind: pa.DataType) -> str | None:
    return f"DECIMAL({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else TYPE_NAMES.get(kind)


def _compared(scope: Scope, node: exp.Expr, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type in which two keys are compared."""
    try:
        kind = left if left == right else compared(left, right)
    except SQLError:
        kind = pa.null()
    if pa.types.is_nested(kind) or _type_name(kind) is None:
        scope.parsed.fail(
            f"a join can't compare values of the types {left} and {right}; cast one of them", node
        )
    return kind
