"""What a query or a summary would cost, estimated before it is registered, and the refusal of what costs too much.

The estimates need no data. They bound what one row or one group can cost: how many windows hold a row, how many
bytes the slices of a group take, how long a text an expression can make. What depends on the data is left to the
quarantine of the runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, singledispatch

from sqlglot import exp

from transom.durations import DAY, SECOND
from transom.elements import Summary, WindowSpec
from transom.errors import CostError, SQLError
from transom.plan.limits import Limits
from transom.promising.zones import ZONES_PER_GRANULARITY
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import OnDemandQuery, Query, RowQuery, Scalar, StreamJoin, scalars_of
from transom.sql.syntax.spark_parser import parse_expression

COLUMN_BYTES = 1_000.0  # assumed of a text in a column
UNKNOWN_COUNT = 1_000.0  # assumed of a number of repetitions that is no constant
STATE_BYTES = 16  # of an accumulator in a slice; sketches say how large they are
SKETCH_BYTES = 4_096
COUNTER_BYTES = 8
_GROWING = re.compile(
    r"(?i)\b(hex|replace|repeat|space|[lr]pad|base64|url_encode|array_repeat)\b|\|\||concat|to_json"
)
_SKETCHES = (
    "approx_count_distinct", "approx_percentile", "approx_top_k", "histogram_numeric", "hll_sketch_agg",
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """An estimated quantity, and what to change to make it smaller."""

    limit: str  # the field of Limits
    amount: float
    text: str  # what there is so much of
    advice: str


def check_query(name: str, query: BoundQuery, limits: Limits) -> None:
    """Refuse a query that costs more than the limits allow."""
    _check(name, _estimates(query), limits)


def check_summary(summary: Summary, limits: Limits) -> None:
    """Refuse a summary that takes more memory than the limits allow."""
    amount = summary_bytes(summary)
    advice = "use fewer BUCKETS, or a smaller COUNTSKETCH"
    _check(
        summary.name, [Estimate("summary_bytes", amount, "bytes in the cells of a summary", advice)], limits
    )


class StreamExpressions:
    """The different expressions of all queries of a stream: a batch evaluates each once for every row."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Query, frozenset[str]]] = {}  # by name: listing them takes long

    def check(self, new: Mapping[str, Query], registered: Mapping[str, Query], limits: Limits) -> None:
        """Refuse queries that give their streams more expressions than the limits allow, beside registered ones."""
        queries = {**registered, **new}
        self._texts = {
            name: kept
            if (kept := self._texts.get(name)) is not None and kept[0] is query
            else (query, frozenset(scalar.sql for scalar in query.scalars()))
            for name, query in queries.items()
        }
        advice = "use expressions that other queries of the stream have"
        for stream in dict.fromkeys(query.stream for query in new.values()):
            texts = [texts for query, texts in self._texts.values() if query.stream == stream]
            what = f"expressions for each row of {stream}, with those of all queries"
            amount = len(frozenset[str]().union(*texts))
            names = [name for name, query in new.items() if query.stream == stream]
            _check(names[-1], [Estimate("stream_expressions", amount, what, advice)], limits)


def summary_bytes(summary: Summary) -> int:
    """The most bytes that the cells of a summary take.

    >>> summary_bytes(Summary("s", "bids", "site", 10_000_000))
    7864320
    """
    cell = summary.rows * summary.width * COUNTER_BYTES if summary.kind == "countsketch" else COUNTER_BYTES
    return cell * summary.buckets * ZONES_PER_GRANULARITY * summary.depth


def _check(name: str, estimates: Iterable[Estimate], limits: Limits) -> None:
    for one in estimates:
        most = getattr(limits, one.limit)
        if one.amount > most:
            raise CostError(
                f"{name + ' ' if name else 'the query '}would have {_number(one.amount)} {one.text}, "
                f"and the limit is {most:,}: {one.advice}, or raise the setting {one.limit}"
            )


def _number(amount: float) -> str:
    return f"{amount:,.0f}" if amount < 1e15 else f"{amount:.2g}"


@singledispatch
def _estimates(query: BoundQuery) -> Iterator[Estimate]:
    """What a query costs."""
    raise TypeError(f"the cost of {type(query).__name__} can't be estimated")


@_estimates.register
def _(query: PreferenceQuery) -> Iterator[Estimate]:
    texts = [output.sql for output in query.outputs]
    texts += [figure.argument.sql for figure in query.figures if figure.argument is not None]
    texts += [key.scalar.sql for key in query.keys]
    texts += [scalar.sql for side in query.sides for scalar in scalars_of(side.where)]
    texts += [text for text in (query.rest, query.having) if text is not None]
    items = len(query.outputs) + len(query.figures)
    yield Estimate("select_items", items, "columns in its results", "split it into several queries")
    yield _length_estimate(texts)
    yield _text_estimate(max((_text_bytes(text, {}) for text in texts), default=0.0))


def _length_estimate(texts: Iterable[str]) -> Estimate:
    size, advice = sum(map(len, texts)), "split it into several queries"
    return Estimate("expression_length", size, "characters in its expressions", advice)


@_estimates.register
def _(query: RowQuery) -> Iterator[Estimate]:
    yield Estimate(
        "select_items", len(query.items), "columns in its results", "split it into several queries"
    )
    if query.stream_join is not None:
        yield _bound_estimate(query.stream_join)
    yield _length_estimate(scalar.sql for scalar in query.scalars())
    yield _text_estimate(_longest_text(query))


def _bound_estimate(join: StreamJoin) -> Estimate:
    reach = max(join.high, 0) - min(join.low, 0)
    what = f"units of {join.kind.value} in the time bound of its join"
    return Estimate("join_bound", reach, what, "use a shorter time bound")


@_estimates.register
def _(query: Query) -> Iterator[Estimate]:
    spec = query.window
    yield Estimate(
        "select_items", len(query.items), "columns in its results", "split it into several queries"
    )
    if not query.is_on_demand:  # a lookup's window may be longer than all of time
        longest = max(spec.range, spec.slide, abs(spec.phase))
        yield Estimate(
            "longest_window", longest, f"units of {query.clock.kind.value} in a window", "shorten the window"
        )
        if spec.is_session:
            what = f"units of {query.clock.kind.value} in the gap of its sessions"
            yield Estimate("session_gap", spec.range, what, "use a shorter gap")
        if spec.is_keyed:
            yield Estimate("rows_of_key", spec.range, "rows kept for each key", "use fewer ROWS")
        per_row = 1 if spec.is_session else -(-_usual_range(spec) // spec.slide)
        yield Estimate(
            "windows_per_row", per_row, "windows for each row", "use a longer SLIDE or a shorter RANGE"
        )
    if query.retention:
        reach = spec.range + query.retention
        yield Estimate(
            "longest_window",
            reach,
            f"units of {query.clock.kind.value} in a window and in EMIT CORRECTIONS WITHIN",
            "use a shorter WITHIN",
        )
        yield Estimate(
            "correctable_results",
            query.retention // spec.slide,
            "results to keep for corrections, for each group",
            "use a shorter WITHIN or a longer SLIDE",
        )
    texts = [*(scalar.sql for scalar in query.over_pairs.scalars()), *(item.sql for item in query.items)]
    if (join := query.stream_join) is not None:
        yield _bound_estimate(join)
        texts += [key.sql for side in join.sides for key in side.keys]
        texts += join.condition_texts
    yield Estimate(
        "past_windows",
        max([query.most_empty, *(lag.windows for lag in query.lags)]),
        "past windows to look back at, for each group",
        "use a smaller number of windows in EMIT EMPTY FOR or LAG",
    )
    yield _length_estimate(texts)
    advice = "use a longer SLIDE or fewer aggregates"
    yield Estimate("group_bytes", _group_bytes(query), "bytes for each group", advice)
    yield _text_estimate(_longest_text(query))


def _usual_range(spec: WindowSpec) -> int:
    """The range of a window; of a calendar without the day that a zone can repeat once in its history."""
    return spec.range if spec.calendar is None else spec.range - DAY + 3_600 * SECOND


@singledispatch
def _group_bytes(query: Query) -> float:
    """The most bytes of the slices of one group: two slices for each slide, a state for each aggregate.

    Slices and results of closed windows are kept as long as late rows can correct them.
    """
    states = sum(SKETCH_BYTES if call.function in _SKETCHES else STATE_BYTES for call in query.calls)
    slides = 1 if query.window.is_session else -(-query.window.range // query.window.slide)
    results = query.retention // query.window.slide
    return 2.0 * (slides + results) * (states + STATE_BYTES) + float(results * len(query.items) * STATE_BYTES)


@_group_bytes.register
def _(query: OnDemandQuery) -> float:
    """The same for the structure of an on-demand query."""
    using = query.using
    slices = 1 if using.slice is None else max(1, query.window.range // using.slice)
    return float(slices * max(using.buckets or 1, len(using.bounds)) * STATE_BYTES)


# --- the growth of texts -------------------------------------------------------------------------


def _text_estimate(amount: float) -> Estimate:
    advice = "nest fewer functions that make texts longer"
    return Estimate(
        "text_bytes", amount, f"bytes in a text, made of texts of {COLUMN_BYTES:,.0f} bytes", advice
    )


def _longest_text(query: Query) -> float:
    """The longest text that an expression of the query makes."""
    found = [_text_bytes(scalar.sql, {}) for scalar in query.over_pairs.scalars()]
    if query.stream_join is not None:
        found += [_text_bytes(text, {}) for text in query.stream_join.condition_texts]
    values = {f"a{i}": _longest(call.args) for i, call in enumerate(query.calls)}
    values |= {f"k{i}": _longest([key.scalar]) for i, key in enumerate(query.keys)}
    found += [_text_bytes(item.sql, values) for item in query.items]
    found += [_text_bytes(scalar.sql, values) for scalar in scalars_of(query.kept)]
    return max(found, default=0.0)


def _longest(scalars: Iterable[Scalar]) -> float:
    return max((_text_bytes(scalar.sql, {}) for scalar in scalars), default=COLUMN_BYTES)


def _text_bytes(text: str, columns: Mapping[str, float]) -> float:
    """The most bytes of an expression's value, given those of columns.

    >>> _text_bytes("hex(replace(`name`, 'a', 'bbbb'))", {})
    8000.0
    """
    if _GROWING.search(text) is None:
        return max(COLUMN_BYTES, *columns.values()) if columns else COLUMN_BYTES
    try:
        return _bytes(_parsed(text), columns)
    except SQLError:  # Spark reads it all the same
        return COLUMN_BYTES


_parsed = lru_cache(maxsize=256)(parse_expression)


def _bytes(node: exp.Expr, columns: Mapping[str, float]) -> float:
    if isinstance(node, exp.Literal):
        return float(len(node.name))
    if isinstance(node, exp.Column):
        return columns.get(node.name, COLUMN_BYTES)
    children = list(node.expressions if isinstance(node, exp.Anonymous) else node.iter_expressions())
    sizes = [_bytes(child, columns) for child in children]
    if isinstance(node, exp.DPipe):
        return sum(sizes)
    if not isinstance(node, exp.Anonymous) or not sizes:
        return max(sizes, default=COLUMN_BYTES)
    return _call_bytes(node.name.casefold(), children, sizes)


def _call_bytes(function: str, args: list[exp.Expr], sizes: list[float]) -> float:
    """The most bytes of a function's value, given those of its arguments."""
    match function:
        case "hex":
            return 2 * sizes[0]
        case "base64":
            return 4 / 3 * sizes[0]
        case "url_encode":
            return 3 * sizes[0]
        case "to_json":
            return 2 * sum(sizes)
        case "replace" if len(sizes) == 3:
            sought = sizes[1] if isinstance(args[1], exp.Literal) else 1.0
            return sizes[0] * max(1.0, sizes[2] / max(sought, 1.0))
        case "regexp_replace" if len(sizes) >= 3:
            return sizes[0] * (1 + sizes[2])
        case "repeat" | "array_repeat" if len(args) == 2:
            return sizes[0] * _count(args[1])
        case "space":
            return _count(args[0])
        case "lpad" | "rpad" if len(args) >= 2:
            return max(sizes[0], _count(args[1]))
        case "concat" | "concat_ws" | "array" | "struct" | "named_struct" | "map" | "array_join":
            return sum(sizes)
    return max(sizes)


def _count(node: exp.Expr) -> float:
    """A number of repetitions."""
    if isinstance(node, exp.Literal) and not node.is_string:
        try:
            return float(node.name)
        except ValueError:
            pass
    return UNKNOWN_COUNT
