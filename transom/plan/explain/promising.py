"""EXPLAIN of summaries and of queries with a preference, as records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from transom.columns.table_columns import aggregate_column, group_column
from transom.elements import ClockKind, Preference, Summary
from transom.plan.explain.element_text import length_text, promise_text
from transom.plan.predicate_text import predicate_text
from transom.promising.representation import Zones
from transom.sql.preference_query import PreferenceKey, PreferenceQuery, Side
from transom.sql.promise import counts
from transom.sql.query import Query
from transom.state.promising import PreferenceState, PromisingState


@dataclass(frozen=True)
class GranularityPlan:
    """A granularity of a summary: the time that it covers, and its zones and tuples."""

    number: int  # from 1, the newest and finest
    covers: str
    length: int
    zones: int
    tuples: int


@dataclass(frozen=True)
class SummaryPlan:
    """A summary: its structure, its contents, and the queries that it guides."""

    name: str
    stream: str
    column: str
    structure: str
    chosen: bool  # whether the structure is the engine's choice
    buckets: int
    counts: str  # what counts the values of a cell
    reach: str  # for how long tuples are kept
    granularities: tuple[GranularityPlan, ...]
    zones: int
    tuples: int
    bytes: int  # of the summaries of cells, without the tuples
    arrived: int
    late: int
    place: str
    pending: bool
    readers: tuple[str, ...]


@dataclass(frozen=True)
class SidePlan:
    """A stream of a query with a preference; the summary evaluates `guide`, a part of `where`."""

    stream: str
    summary: str
    where: str | None
    guide: str | None
    tables: tuple[str, ...] = ()  # the static tables that are joined to its tuples


@dataclass(frozen=True)
class PreferencePlan:
    """A query with a preference: its budget, the deferred regions, and its results so far."""

    name: str
    kind: str  # join, left join, right join, full join, selection or aggregates
    order: str
    promise: str
    fade: float
    window: str | None
    budget: str | None
    sides: tuple[SidePlan, ...]
    rest: str | None  # the condition on pairs besides the equality
    keys: tuple[str, ...]  # of GROUP BY
    having: str | None
    combined: bool  # whether its aggregates over a join are computed without pairs
    pending: bool
    regions: int  # deferred
    probes_left: int  # in these
    probes: int
    produced: int
    skipped: float
    share: float
    readers: tuple[str, ...] = ()  # the queries that read its results


def summary_plans(
    summaries: Mapping[str, Summary],
    preference_queries: Mapping[str, PreferenceQuery],
    queries: Mapping[str, Query],
    state: PromisingState,
) -> Iterator[SummaryPlan]:
    """Summaries as they are, or will be with the next batch."""
    for name, summary in summaries.items():
        summary_state = state.summaries.get(name)
        kept = None if summary_state is None else summary_state.representation.settle()
        zones = None if kept is None else kept.zones()
        shape = summary if kept is None else kept.shape
        led = (
            query for query, reader in preference_queries.items() if name in (s.summary for s in reader.sides)
        )
        counting = (
            query
            for query, reader in queries.items()
            if reader.overload is not None and counts(reader.overload.promise, summary.stream, summary.column)
        )
        yield SummaryPlan(
            name,
            summary.stream,
            summary.column,
            shape.structure,
            summary.structure == "auto" and summary_state is not None,
            shape.buckets if shape.structure not in ("none", "time") else 1,
            "exact histograms"
            if shape.kind == "histogram"
            else f"count sketches of {shape.rows} by {shape.width}",
            _time(summary.reach),
            tuple(_granularities(shape, zones)),
            0 if zones is None else len(zones.since),
            0 if zones is None else int(zones.counts.sum()),
            0 if summary_state is None else summary_state.representation.nbytes,
            0 if summary_state is None else summary_state.arrived,
            0 if summary_state is None else summary_state.late,
            "executors" if summary_state is not None and summary_state.files else "driver",
            summary_state is None,
            (*led, *counting),
        )


def _granularities(shape: Summary, zones: Zones | None) -> Iterator[GranularityPlan]:
    for number in range(1, shape.depth + 1):
        covers = shape.granularity * shape.rate ** (number - 1)
        mine = None if zones is None else zones.granularity == number
        yield GranularityPlan(
            number,
            _time(covers),
            covers,
            0 if mine is None else int(mine.sum()),
            0 if mine is None or zones is None else int(zones.counts[mine].sum()),
        )


def preference_plans(
    preference_queries: Mapping[str, PreferenceQuery],
    queries: Mapping[str, Query],
    state: PromisingState,
    again: Collection[str],
) -> Iterator[PreferencePlan]:
    """Queries with a preference; those `again` take the place of others that are about to leave."""
    for name, query in preference_queries.items():
        query_state = None if name in again else state.queries.get(name)
        pending = () if query_state is None else query_state.pending
        done = (query_state or PreferenceState(())).coverage
        yield PreferencePlan(
            name,
            _kind(query),
            query.preference.order,
            promise_text(query.promise, streams=len(query.sides) > 1),
            query.preference.fade,
            None if query.preference.window is None else _time(query.preference.window),
            _budget(query.preference),
            tuple(map(_side, query.sides)),
            query.rest,
            tuple(_key(query, key) for key in query.keys),
            None if query.having is None else _having(query, query.having),
            query.is_combined,
            query_state is None,
            sum(map(len, pending)),
            sum(int(regions.left.sum()) for regions in pending),
            done.probes,
            done.produced,
            done.skipped,
            done.share,
            tuple(reader for reader, each in queries.items() if each.stream == name),
        )


def _kind(query: PreferenceQuery) -> str:
    if query.figures:
        return "aggregates"
    if query.outer is not None:
        return query.outer.form
    return "join" if len(query.sides) == 2 else "selection"


def _side(side: Side) -> SidePlan:
    where = None if side.where is None else predicate_text(side.where)
    guide = None if side.guide is None else predicate_text(side.guide)
    tables = tuple(f"{join.table} on {join.on}" for join in side.joins)
    return SidePlan(side.stream, side.summary, where, guide, tables)


def _key(query: PreferenceQuery, key: PreferenceKey) -> str:
    if len(query.sides) == 1 or key.side is None:
        return key.scalar.sql
    return f"{key.scalar.sql} of {query.sides[key.side].stream}"


def _having(query: PreferenceQuery, having: str) -> str:
    """HAVING with the keys and aggregates in place of their names."""
    texts = {group_column(at): _key(query, key) for at, key in enumerate(query.keys)}
    for at, figure in enumerate(query.figures):
        call = "count(*)" if figure.argument is None else f"{figure.function}({figure.argument.sql})"
        texts[aggregate_column(at)] = call
    return re.sub(r"`([ak]\d+)`", lambda name: texts.get(name[1], name[0]), having)


def _budget(preference: Preference) -> str | None:
    if preference.time is not None:
        return _time(preference.time)
    return None if preference.probes is None else f"{preference.probes:,} probes"


def _time(micros: int) -> str:
    return length_text(micros, ClockKind.TIME)
