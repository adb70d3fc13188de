"""EXPLAIN: how the queries of an engine are computed, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.aggregates.accumulators import Extreme
from transom.control.rules import StreamRules
from transom.durations import format_duration
from transom.elements import ClockKind, WindowSpec
from transom.plan.compiled import CompiledQuery, Slot
from transom.plan.text import predicate_text


def explain(streams: Mapping[str, StreamRules], queries: Sequence[CompiledQuery]) -> str:
    """The plan of all queries, by stream: what is computed for every row, then query by query."""
    lines: list[str] = []
    for name, rules in streams.items():
        reading = [query for query in queries if query.query.stream == name]
        scalars = dict.fromkeys(scalar.sql for query in reading for scalar in query.query.scalars())
        used = sum(1 for query in reading for _ in query.query.scalars())
        lines.append(f"stream {name}: {len(reading)} queries, time {rules.clock.attribute}")
        slack, horizon = (_length(value, rules.clock.kind) for value in (rules.slack, rules.horizon))
        lines.append(f"  slack {slack}, horizon {horizon}")
        lines.append(f"  project: {len(scalars)} scalar expressions for {used} uses")
        lines += [f"    {sql}" for sql in scalars]
        joins = dict.fromkeys((join.table, join.on) for query in reading for join in query.query.joins)
        lines += [f"  join {table} on {on}" for table, on in joins]
        for query in reading:
            lines += [f"  {line}" for line in _query(query)]
    return "\n".join(lines)


def _query(query: CompiledQuery) -> list[str]:
    bound = query.query
    lines = [
        f"query {query.name}",
        f"  window {_window(bound.window, bound.clock.kind)} on {bound.clock.attribute or 'rows'}",
    ]
    if bound.where is not None:
        lines.append(f"  where {predicate_text(bound.where)}")
    if bound.keys:
        lines.append(f"  group by {', '.join(key.scalar.sql for key in bound.keys)}")
    kept = "every tuple" if query.naive else ", ".join(["rows", *map(_slot, query.slots)])
    lines.append(f"  keep per slice and group: {kept}")
    if bound.having is not None:
        lines.append(f"  having {bound.having}")
    return lines


def _window(spec: WindowSpec, kind: ClockKind) -> str:
    shown = f"range {_length(spec.range, kind)}, slide {_length(spec.slide, kind)}"
    if spec.phase:
        shown += f", ends at {_length(spec.phase, kind)} past each slide"
    overhang = spec.range % spec.slide
    if not overhang:
        return f"{shown}; slices of {_length(spec.slide, kind)}"
    return f"{shown}; paired slices of {_length(spec.slide - overhang, kind)} and {_length(overhang, kind)}"


def _slot(slot: Slot) -> str:
    kept = slot.accumulator
    name = kept.function if isinstance(kept, Extreme) else type(kept).__name__.lower()
    shown = f"{name}({slot.argument.sql})" if slot.argument is not None else "count(*)"
    return shown if slot.where is None else f"{shown} where {predicate_text(slot.where)}"


def _length(value: int | None, kind: ClockKind) -> str:
    if value is None:
        return "none"
    return format_duration(value) if kind is ClockKind.TIME else str(value)
