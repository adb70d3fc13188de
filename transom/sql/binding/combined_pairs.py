"""Aggregates over a join of two streams that need no pairs: their partial values follow from the rows.

A query that counts pairs, or aggregates values of one stream, by keys of the join alone, reads combined pairs: those of
one row with all its earlier partners are one row of the stream, with their number and the sums of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.aggregate_calls import Draft
from transom.sql.binding.scope import Scope
from transom.sql.binding.stream_joins import PairStream
from transom.sql.query import (
    PAIR_COUNT,
    Call,
    CombinedKey,
    CombinedPart,
    CombinedValue,
    JoinForm,
    Key,
    Query,
    Scalar,
    StreamJoin,
)
from transom.sql.syntax.canonical import Printer, quote

# What each function needs to know of the values of combined pairs.
_PARTS: dict[str, tuple[CombinedPart, ...]] = {
    "count_rows": (),
    "count": (CombinedPart.COUNT,),
    "sum": (CombinedPart.SUM,),
    "avg": (CombinedPart.TOTAL, CombinedPart.COUNT),
    "min": (CombinedPart.MIN,),
    "max": (CombinedPart.MAX,),
}


def combine_pairs(
    query: Query,
    scope: Scope,
    pairs: PairStream,
    printer: Printer,
    drafts: Sequence[Draft],
    keys: Sequence[exp.Expr],
) -> Query:
    """The query over combined pairs, if it is equivalent; otherwise the query itself.

    A condition of WHERE would need combined pairs of its own, so that queries could not share them.
    """
    join = query.stream_join
    if (
        join is None
        or join.form is not JoinForm.INNER
        or query.joins
        or query.where is not None
        or query.empty is not None
        or query.derived is not None
    ):
        return query
    keys_found = [
        _key(key, node, scope, pairs, printer, join) for key, node in zip(query.keys, keys, strict=True)
    ]
    made_calls = [
        _call(call, draft, scope, pairs, printer) for call, draft in zip(query.calls, drafts, strict=True)
    ]
    if None in keys_found or None in made_calls:
        return query
    values = dict.fromkeys(value for call in made_calls if call is not None for value in call[1])
    combined = replace(
        join,
        id=f"{join.id} combined",
        first=replace(join.first, columns=(), filters=None),
        second=replace(join.second, columns=(), filters=None),
        values=tuple(values),
        combined_keys=tuple(dict.fromkeys(key[1] for key in keys_found if key is not None)),
    )
    return replace(
        query,
        stream=combined.id,
        clock=combined.clock,
        keys=tuple(key[0] for key in keys_found if key is not None),
        calls=tuple(call[0] for call in made_calls if call is not None),
        stream_join=combined,
        pairs_query=query,
    )


def _side(node: exp.Expr, scope: Scope, pairs: PairStream) -> int | None:
    """The side of the join that an expression reads; None: both, or none."""
    reads = scope.reads(node)
    places = [{scope.sources.index(source)} for source in pairs.sides]
    return places.index(reads) if reads in places else None


def _own_text(node: exp.Expr, place: int, pairs: PairStream, printer: Printer) -> str:
    """An expression as a text over the rows of its own stream."""
    source = pairs.sides[place]
    prefix, source.prefix = source.prefix, None
    text = printer.root(node)
    source.prefix = prefix
    return text


def _key(
    key: Key, node: exp.Expr, scope: Scope, pairs: PairStream, printer: Printer, join: StreamJoin
) -> tuple[Key, CombinedKey] | None:
    """A key of GROUP BY, if it is a key of the join, which both rows of a pair have; and its column."""
    place = _side(node, scope, pairs)
    if place is None:
        return None
    text = _own_text(node, place, pairs, printer)
    number = next((i for i, texts in enumerate(pairs.texts) if texts[place] == text), None)
    if number is None:
        return None
    kind, own = join.first.keys[number].type, key.scalar.type
    # Zeros of both signs are equal keys, and the group shows one of them.
    if pa.types.is_floating(kind) or (
        kind != own and not (pa.types.is_integer(kind) and pa.types.is_integer(own))
    ):
        return None
    # The column of a plain key keeps its name, by which prods and punctuations name groups.
    name = key.scalar.column or f"key {number} of {place}"
    return Key(key.name, Scalar(quote(name), own, name)), CombinedKey(number, name, own)


def _call(
    call: Call, draft: Draft, scope: Scope, pairs: PairStream, printer: Printer
) -> tuple[Call, tuple[CombinedValue, ...]] | None:
    """An aggregate whose arguments are combined values, and these; None if it needs the pairs."""
    if call.function not in _PARTS or call.where is not None or len(call.args) > 1:
        return None
    count = Scalar(quote(PAIR_COUNT), pa.int64(), PAIR_COUNT)
    if not call.args:
        return replace(call, args=(count,)), ()
    place, kind = _side(draft.args[0], scope, pairs), call.args[0].type
    if place is None or not (
        pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_float32(kind)
    ):
        return None
    text = _own_text(draft.args[0], place, pairs, printer)
    values = tuple(CombinedValue(place, text, kind, part) for part in _PARTS[call.function])
    args = tuple(Scalar(quote(value.name), value.type, value.name) for value in values)
    return replace(call, args=args), values
