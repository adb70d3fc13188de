"""From the state and the queries of an engine to what EXPLAIN shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from transom.columns.groups import group
from transom.columns.table_columns import SELECTION, SLICE
from transom.durations import HOUR, format_instant
from transom.elements import Clock, ClockKind, Overload, Summary
from transom.estimates import Accuracy
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.context import Membership
from transom.plan.explain.early_text import emit_text
from transom.plan.explain.element_text import (
    call_text,
    corrections_text,
    having_text,
    instant,
    length_text,
    overload_text,
    past_text,
    slot_text,
    window_text,
)
from transom.plan.explain.promising import preference_plans, summary_plans
from transom.plan.explain.records import (
    ChoicePlan,
    Explanation,
    FamilyPlan,
    Holding,
    JoinedTable,
    KeptSlot,
    PassPlan,
    Projected,
    QueryPlan,
    SelectionPlan,
    Shards,
    Slicing,
    SlotReader,
    StreamJoinPlan,
    StreamPlan,
    ViewPlan,
    Window,
    WorkDone,
)
from transom.plan.explain.row_queries import row_queries_plan
from transom.plan.explain.stores import store_set_plans
from transom.plan.families import Family, Selection, family_kind, family_numbers
from transom.plan.passes.admission import slices_held
from transom.plan.passes.rollups import rollup_groups
from transom.plan.planner import Planner
from transom.plan.predicate_text import predicate_text
from transom.plan.slot_sources import source_slot
from transom.plan.strategy import Strategy
from transom.results.cascade import cascade_order, derived_rules
from transom.results.join_clock import merged_joins, pair_rules
from transom.results.preference_input import preference_rules
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import And, Comparison, JoinSide, Member, Not, Or, Predicate, StreamJoin
from transom.state.state import State, StreamState, Work
from transom.state.stream_joins import JoinState
from transom.windows.slices import count_edges, next_edges, progressions
from transom.windows.stream_rules import StreamRules

NEXT = 5  # edges that are shown
MOST_EDGES = 100_000  # that are counted one by one


@dataclass(frozen=True)
class Explained:
    """What EXPLAIN needs: the rules of streams, the state, all queries, and the planner of the batches.

    Queries that wait to join are among the queries. Those named in `again` replace queries of the state
    that are about to leave. `partial` are queries that also report windows seen in part, `suspended` says why
    some take no part. `preference_queries` are the queries with a preference, `summaries` guide them.
    `by_spark` are the scalar expressions of each stream that Spark evaluates, with the reasons, and `by_worker` those
    that a worker process evaluates.
    """

    rules: Mapping[str, StreamRules]
    state: State
    queries: Mapping[str, CompiledQuery]
    planner: Planner = field(default_factory=Planner)
    again: Collection[str] = ()
    partial: Collection[str] = ()
    suspended: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # the stream, and why
    summaries: Mapping[str, Summary] = field(default_factory=dict)
    preference_queries: Mapping[str, PreferenceQuery] = field(default_factory=dict)
    views: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)  # the text, and the readers
    definitions: Mapping[str, str] = field(default_factory=dict)  # of derived streams
    by_spark: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    by_worker: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def strategy(self) -> Strategy:
        return self.planner.strategy

    @cached_property
    def what_if(self) -> Planner:
        """A planner with the decisions that were made, to which those for waiting queries are added."""
        return self.planner.what_if()

    @cached_property
    def joined(self) -> State:
        """The state once all that waits took effect: the same passes decide as when a batch begins."""
        leaving = [name for name in self.state.queries if name not in self.standing or name in self.again]
        here = self.state.queries.keys() - set(leaving)
        membership = Membership(
            self.standing,
            [query for name, query in self.standing.items() if name not in here],
            leaving,
            self.partial,
            self.what_if.all_store_sets(self.looking),
            {query.query.stream for query in self.queries.values()}
            - (self.rules.keys() - self.definitions.keys()),
        )
        return self.what_if.begin(self.state, membership)

    @cached_property
    def standing(self) -> Mapping[str, CompiledQuery]:
        """The queries whose results are pushed."""
        return {name: query for name, query in self.queries.items() if query.is_standing}

    @cached_property
    def looking(self) -> Sequence[CompiledQuery]:
        """The on-demand queries."""
        return [query for query in self.queries.values() if query.is_on_demand]

    @cached_property
    def row_queries(self) -> Sequence[CompiledQuery]:
        """The queries without a window."""
        return [query for query in self.queries.values() if query.is_row_query]

    @cached_property
    def readers(self) -> Mapping[str, Sequence[str]]:
        """The names of the queries that read each query's results."""
        cascade = cascade_order(list(self.queries.values()), self.rules)
        return {inner.name: [outer.name for outer in outers] for inner, outers in cascade}

    def is_pending(self, name: str) -> bool:
        return name in self.again or (name in self.standing and name not in self.state.queries)


def gather(explained: Explained) -> Explanation:
    """Describe what the planner decided; for queries that wait, what it decides when they join."""
    holding, planner = held_by_selection(explained.joined), explained.what_if
    streams = []
    inner = {
        query.name: query for query, _ in cascade_order(list(explained.queries.values()), explained.rules)
    }
    pushed = [*explained.standing.values(), *explained.row_queries]
    joins = merged_joins([join for query in pushed if (join := query.query.stream_join)])
    derived = {name: pair_rules(join) for name, join in joins.items()}
    derived |= {name: derived_rules(query) for name, query in inner.items()}
    read = {query.query.stream for query in explained.queries.values()}
    derived |= {
        name: preference_rules(name, query)
        for name, query in explained.preference_queries.items()
        if name in read
    }
    for name, rules in {**explained.rules, **derived}.items():
        reading = [query for query in explained.standing.values() if query.query.stream == name]
        families = planner.plan(explained.joined, reading).families
        kin = _kin(families)
        described = [
            _Describing(explained, family, holding).family(kin[i]) for i, family in enumerate(families)
        ]
        numbers = family_numbers(families)
        ordered = [
            replace(family_plan, id=number, kin=tuple(sorted(numbers[place] for place in family_plan.kin)))
            for number, family_plan in sorted(zip(numbers, described, strict=True), key=lambda pair: pair[0])
        ]
        decisions = tuple(
            PassPlan(
                family_plan,
                tuple(ChoicePlan(choice.about, choice.chosen, choice.reason) for choice in choices),
            )
            for family_plan, choices in (
                planner.decisions(name) if reading or _looks(explained, name) or planner.records(name) else ()
            )
        )
        stream = _stream(explained, name, rules, reading, ordered, decisions)
        if name in joins:
            kept = explained.state.joins.get(name, JoinState())
            stream = replace(stream, pairs=_join_plan(joins[name], kept), results_of=None)
        streams.append(stream)
    state, windows = explained.state, {name: query.query for name, query in explained.queries.items()}
    files = Shards(
        sum(len(ref.parts) for ref in state.shards),
        sum(ref.rows for ref in state.shards),
        sum(ref.bytes for ref in state.shards),
    )
    return Explanation(
        state.batch_id,
        _slices(explained),
        explained.strategy.fragments.value,
        explained.strategy.place.value,
        files,
        tuple(streams),
        tuple(summary_plans(explained.summaries, explained.preference_queries, windows, state.promising)),
        tuple(
            preference_plans(explained.preference_queries, windows, state.promising, explained.again),
        ),
        tuple(ViewPlan(name, text, tuple(readers)) for name, (text, readers) in explained.views.items()),
    )


def _slices(explained: Explained) -> str:
    """The name of the strategy, as an engine is given it."""
    strategy = explained.strategy
    if any(query.naive for query in explained.queries.values()):
        return "naive"
    if strategy.adapts:
        return "auto"
    return f"{'shared' if strategy.shared else 'unshared'}_{'paned' if strategy.paned else 'paired'}"


def _looks(explained: Explained, stream: str) -> bool:
    return any(query.query.stream == stream for query in explained.looking)


def _slack(rules: StreamRules) -> str | None:
    """The slack of a stream, and what it is the slack of."""
    kind = rules.clock.kind
    text = None if rules.slack is None else length_text(rules.slack, kind)
    if rules.learned is not None:
        text = f"learned for {rules.learned.share:.6g} of the rows, at first {text}"
    if rules.group is not None:
        return f"{text or 'none'} for each {rules.group}"
    return text


def _stream(
    explained: Explained,
    name: str,
    rules: StreamRules,
    reading: Sequence[CompiledQuery],
    families: Sequence[FamilyPlan],
    decisions: tuple[PassPlan, ...],
) -> StreamPlan:
    looking = [query for query in explained.looking if query.query.stream == name]
    of_rows = [query for query in explained.row_queries if query.query.stream == name]
    everyone = [*reading, *looking, *of_rows]
    uses = Counter(scalar.sql for query in everyone for scalar in query.query.scalars())
    joins = {
        join.id: JoinedTable(join.id, join.table, join.on) for query in everyone for join in query.query.joins
    }
    kind, preferred = rules.clock.kind, explained.preference_queries.get(name)
    return StreamPlan(
        name,
        rules.clock.attribute,
        _slack(rules),
        None if rules.horizon is None else length_text(rules.horizon, kind),
        None if rules.idle is None else length_text(rules.idle, ClockKind.TIME),
        len(reading),
        {query: why for query, (stream, why) in explained.suspended.items() if stream == name},
        tuple(
            Projected(
                sql,
                count,
                explained.by_spark.get(name, {}).get(sql),
                sql in explained.by_worker.get(name, ()),
            )
            for sql, count in uses.items()
        ),
        tuple(joins.values()),
        work_done(explained.state.stream(name).work),
        tuple(families),
        None if rules.overload is None else _overload(rules.overload),
        _sidelined(explained.state.stream(name), rules.clock),
        None if name in explained.rules else name,
        len(looking),
        store_set_plans(
            explained.what_if.store_sets(name, looking),
            looking,
            explained.state,
            explained.joined,
            explained.is_pending,
        ),
        sum(name in (side.stream for side in query.sides) for query in explained.preference_queries.values()),
        decisions,
        derived_from=explained.definitions.get(name),
        rows=row_queries_plan(of_rows, explained.again.__contains__),
        preferred_from=() if preferred is None or name in explained.rules else preferred.streams,
    )


def _join_plan(join: StreamJoin, kept: JoinState) -> StreamJoinPlan:
    """A join of two streams, and what it keeps."""
    first, second = join.sides
    low, high = (length_text(abs(bound), join.kind) for bound in (join.low, join.high))
    signs = ["-" * (bound < 0) for bound in (join.low, join.high)]
    return StreamJoinPlan(
        (first.stream, second.stream),
        tuple(
            f"{one.sql} of {first.prefix} = {other.sql} of {second.prefix}"
            for one, other in zip(first.keys, second.keys, strict=True)
        ),
        f"{second.prefix}.{second.time} is {signs[0]}{low} to {signs[1]}{high} after {first.prefix}.{first.time}",
        (tuple(name for name, _ in first.columns), tuple(name for name, _ in second.columns)),
        kept.rows,
        (_filter_text(first), _filter_text(second)),
        kept.late,
        kept.bytes,
        join.form.value,
        join.preserved,
        length_text(join.wait, join.kind) if join.wait else None,
        join.is_combined,
        tuple(join.condition_texts),
    )


def _filter_text(side: JoinSide) -> str | None:
    return None if side.filters is None else " OR ".join(sorted(side.filters))


Kin = tuple[tuple[str, ...] | None, tuple[int, ...]]  # groups that are rolled up, and the places of the kin


def _kin(families: Sequence[Family]) -> list[Kin]:
    """For each family the groups that it may be rolled up from, and with which others."""
    kin: list[Kin] = [(None, ())] * len(families)
    for places in rollup_groups(families):
        keys = tuple(dict.fromkeys(key.sql for place in places for key in families[place].keys))
        for place in places:
            kin[place] = keys, tuple(other for other in places if other != place)
    return kin


def _overload(overload: Overload) -> str:
    budget = length_text(overload.budget, ClockKind.TIME) if overload.in_time else f"{overload.budget:,} rows"
    if overload.shed:
        return f"budget {budget}; rows beyond it are shed"
    return f"budget {budget}; rows beyond it are sidelined, and resumed 1 for every {overload.share} new rows"


def _sidelined(stream: StreamState, clock: Clock) -> str | None:
    if not stream.sidelined:
        return None
    is_time = clock.kind is ClockKind.TIME
    ends = ([format_instant(end) if is_time else str(end) for end in pair] for pair in stream.held(clock))
    held = ", ".join(f"{start} to {stop}" for start, stop in ends)
    return f"{stream.totals.sidelined:,} rows since {format_instant(stream.sidelined[0].since)}; held: {held}"


def work_done(work: Work) -> WorkDone:
    """Work with its ratio."""
    done = work.partials + work.finals
    ratio = (work.unshared_partials + work.unshared_finals) / done if done else None
    return WorkDone(work.partials, work.finals, work.unshared_partials, work.unshared_finals, ratio)


def held_by_selection(state: State) -> dict[int, Holding]:
    """What each selection holds, all found at once."""
    holdings = {}
    for home, selection in state.selections.items():
        slices = (
            {pair for ref in state.shards for pair in ref.held.get(home, ())}
            if selection.on_executors
            else ()
        )
        holdings[home] = (
            Holding("executors", len(slices), None) if selection.on_executors else Holding("driver", 0, 0)
        )
    for sheet in state.sheets.values():
        homes = sheet[SELECTION].to_numpy()
        counted = zip(*(part.tolist() for part in np.unique(homes, return_counts=True)), strict=True)
        pairs = group([homes, sheet[SLICE].to_numpy()], len(homes))
        slices_of = Counter(homes[pairs.firsts].tolist())
        holdings |= {home: Holding("driver", slices_of[home], rows) for home, rows in counted}
    return holdings


class _Describing:
    """A family being described."""

    def __init__(self, explained: Explained, family: Family, holding: Mapping[int, Holding]):
        self.explained, self.planned, self.holding = explained, family, holding
        clock = family.clock
        high = explained.state.stream(clock.stream).clock(clock).high
        self.clock, self.now = clock, high

    def family(self, kin: Kin) -> FamilyPlan:
        family = self.planned
        selections = [self._selection(member) for member in family.members]
        selections.sort(key=lambda selection: -len(selection.queries))
        conjuncts = {predicate_text(part) for member in family.members for part in member.where.parts}
        axis, grid, kind = family.axis, family.grid, family_kind(family)
        constants = {
            repr(value)
            for member in family.members
            if axis is not None
            for value in _constants(member.where.by_scalar[0][axis.scalar.sql])
        }
        constants |= {
            repr(value)
            for member in family.members
            if grid is not None
            for part in member.where.parts
            if part not in family.rest
            for value in _constants(part)
        }
        axes = grid.axes if grid is not None else () if axis is None else (axis,)
        return FamilyPlan(
            0,
            kind,
            " and ".join(axis.scalar.sql for axis in axes) or None,
            len(constants),
            axis.size if axis is not None else None if kind in ("signature", "grid") else 1,
            None if grid is None else len(grid.owners),
            len(conjuncts),
            tuple(map(predicate_text, family.rest)),
            self.clock.attribute or "rows",
            tuple(key.sql for key in family.keys),
            family.members[0].joins,
            *kin,
            sum(len(selection.queries) for selection in selections),
            tuple(selections),
        )

    def _selection(self, member: Selection) -> SelectionPlan:
        queries = [self.explained.queries[name] for name in member.queries]
        axis = self.planned.axis
        where = " AND ".join(map(predicate_text, member.where.parts)) or None
        return SelectionPlan(
            member.id,
            where,
            where if axis is None else predicate_text(member.where.by_scalar[0][axis.scalar.sql]),
            member.name != queries[0].selection and not member.layout.keyed,
            len(member.windows),
            self._slicing(member),
            tuple(_kept(member.slots, queries)) if member.merged else None,
            self.holding[member.id],
            tuple(map(self._query, queries)),
        )

    def _query(self, query: CompiledQuery) -> QueryPlan:
        query_state = self.explained.joined.queries[query.name]
        spec, kind = query.query.window, self.clock.kind
        return QueryPlan(
            query.name,
            Window(window_text(spec, kind), spec.range, spec.slide, spec.phase),
            tuple(map(call_text, query.query.calls)),
            having_text(query.query),
            self.explained.is_pending(query.name),
            query_state.homes[1:],
            None if query_state.unseen is None else tuple(query_state.unseen),
            self._early(query),
            tuple(self.explained.readers.get(query.name, ())),
            None if query.query.overload is None else overload_text(query.query.overload),
            past_text(query.query),
            self._corrections(query),
        )

    def _corrections(self, query: CompiledQuery) -> str | None:
        if query.query.corrections is None:
            return None
        reported = self.explained.state.reported.get(query.name)
        registered = self.explained.state.queries.get(query.name)
        homes = () if registered is None else registered.homes
        slices = sum(len(slices_held(self.explained.state, home)[0]) for home in homes)
        return corrections_text(query.query, reported, slices)

    def _early(self, query: CompiledQuery) -> str | None:
        if query.query.emit is None:
            return None
        prodder = self.explained.state.prodders.get(query.name)
        return emit_text(
            query.query.emit, self._accuracy(query.name), prodder.point if prodder is not None else None
        )

    def _accuracy(self, name: str) -> Accuracy | None:
        learned = self.explained.state.estimators.get(name)
        return None if learned is None else learned.accuracy()

    def _slicing(self, member: Selection) -> Slicing:
        kind, paned = self.clock.kind, self.explained.strategy.paned
        if member.layout.gap is not None:
            return Slicing(0, "", 0, (), (), (), length_text(member.layout.gap, kind))
        if member.layout.keyed:
            return Slicing(0, "", 0, (), (), (), by_key=True)
        edges_of = progressions([member.windows], paned)
        per = HOUR if kind is ClockKind.TIME else max(spec.slide for spec in member.windows)
        now = 0 if self.now is None else self.now
        following = next_edges(edges_of, now, NEXT)
        edges = () if self.now is None else tuple(following)
        return Slicing(
            count_edges(edges_of, now, now + per, MOST_EDGES),
            "hour" if kind is ClockKind.TIME else str(per),
            per,
            tuple(length_text(later - edge, kind) for edge, later in pairwise(following)),
            edges,
            tuple(instant(edge, self.clock) for edge in edges),
        )


def _kept(slots: Sequence[Slot], queries: Sequence[CompiledQuery]) -> Iterator[KeptSlot]:
    readers: dict[str, list[SlotReader]] = {slot.id: [] for slot in slots}
    for query in queries:
        for call, places in zip(query.query.calls, query.reads, strict=True):
            for slot in dict.fromkeys(source_slot(query.slots[place], readers) for place in places):
                if slot is not None:
                    readers[slot.id].append(SlotReader(query.name, call_text(call)))
    for slot in slots:
        yield KeptSlot(slot_text(slot), tuple(readers[slot.id]))


def _constants(predicate: Predicate) -> Iterator[Any]:
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _constants(part)
        case Not(part):
            yield from _constants(part)
        case Comparison(_, _, value):
            yield value
        case Member(_, values):
            yield from values
