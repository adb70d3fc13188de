"""The planner: runs the passes in order, remembers their decisions, and reuses a plan while nothing changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_not
from threading import Lock
from typing import Any

from transom.errors import SettingError
from transom.gc_pause import pause_garbage_collection
from transom.kernel.aggregate import Interest
from transom.kernel.query_counts import QueryIndex
from transom.ondemand.store_specs import StoreSet
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Derived, Membership, Observed, Pass, PlanContext, StreamMemory
from transom.plan.decisions import Choice, Decision, DecisionLog, DecisionRecord, PlacementDecision
from transom.plan.families import Family, Selection
from transom.plan.layout import Layout
from transom.plan.passes import PASSES
from transom.plan.passes.admission import selections
from transom.plan.passes.placement import (
    EXECUTORS,
    ON_EXECUTORS,
    PLACEMENT,
    stores_that_move,
    summary_that_moves,
)
from transom.plan.passes.stores import store_sets
from transom.plan.query_interests import interests_of, query_index
from transom.plan.strategy import Strategy
from transom.plan.subject import Subject
from transom.state.pass_decisions import PassDecisions
from transom.state.state import State, StoreState

SUMMARIES = "summaries"  # reviews of the structures of summaries, which are not among the passes over queries


@dataclass(frozen=True)
class SharedPlan:
    """The plan of a stream: its selections, their families, and what decides which rows are late."""

    selections: tuple[Selection, ...]
    families: tuple[Family, ...]
    interests: tuple[Interest, ...]
    index: QueryIndex = field(default_factory=QueryIndex)  # the queries, as the kernel counts rows for them

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that it fills, by their keys."""
        return {selection.layout.id: selection.layout for selection in self.selections}


EMPTY_PLAN = SharedPlan((), (), ())


@dataclass
class _Planned:
    """The inputs of a stream's last plan; the planner reuses the plan while they are the same."""

    memory: StreamMemory = field(default_factory=StreamMemory)
    selections: list[Selection] = field(default_factory=list)
    families: tuple[Family, ...] = ()
    apart: frozenset[int] = frozenset()
    on_executors: frozenset[int] = frozenset()
    young_after: int = 0
    queries: list[CompiledQuery] = field(default_factory=list)
    homes: list[int] = field(default_factory=list)  # of the queries
    slots: list[tuple[str, ...]] = field(default_factory=list)  # that their homes keep
    forced: list[int | None] = field(default_factory=list)
    interests: tuple[Interest, ...] = ()
    index: QueryIndex = field(default_factory=QueryIndex)
    plan: SharedPlan | None = None
    sources: tuple[object, ...] = ()  # the objects that queries, their states and selections were read from

    def copy(self) -> _Planned:
        return _Planned(**{**vars(self), "memory": self.memory.copy()})


class Planner:
    """Decides what queries share and where state is kept, by running the passes in order.

    A batch calls it three times: when the batch begins (`begin`), for the plan of its rows (`plan`), and after they
    are aggregated (`place`). Each call runs the same passes over a `PlanContext`. The planner remembers their
    decisions, and EXPLAIN prints them.
    """

    def __init__(self, strategy: Strategy | None = None, passes: Sequence[Pass] = PASSES):
        self.strategy = Strategy() if strategy is None else strategy
        self.passes = _checked(passes)
        self._streams: dict[str, _Planned] = {}
        self._store_sets: dict[str, tuple[list[CompiledQuery], tuple[StoreSet, ...]]] = {}
        self._derived: dict[object, tuple[tuple[object, ...], Any]] = {}
        self._log = DecisionLog()
        self._lock = Lock()  # prods and EXPLAIN use the planner beside the batches

    def forget(self) -> None:
        """Forget the plans of all streams; they are made anew."""
        with self._lock:
            self._streams.clear()
            self._store_sets.clear()
            self._derived.clear()

    def what_if(self) -> Planner:
        """A copy of this planner, for plans that must not change it."""
        fork = Planner(self.strategy, self.passes)
        with self._lock:
            fork._streams = {name: planned.copy() for name, planned in self._streams.items()}
            fork._store_sets, fork._log = dict(self._store_sets), self._log.copy()
        return fork

    def _run(self, context: PlanContext) -> PlanContext:
        """Run all passes, record their decisions, and return the context after them."""
        for each in self.passes:
            decision = each.run(context)
            if decision is not None:
                self._log.record(each.name, decision)
                context = context.after(decision)
        return context

    # --- when a batch begins ---

    def begin(self, state: State, membership: Membership, reconsider: Sequence[CompiledQuery] = ()) -> State:
        """The state after queries joined and left; the queries in `reconsider` may also share differently."""
        with self._lock:
            context = PlanContext(state, state, self.strategy, membership=membership, reconsider=reconsider)
            if reconsider:
                stream = self._streams.setdefault(reconsider[0].query.stream, _Planned())
                context = replace(context, memory=stream.memory)
            return self._run(context).state

    def store_sets(self, stream: str, queries: Sequence[CompiledQuery]) -> tuple[StoreSet, ...]:
        """The stores that the on-demand queries of a stream need; they change when one joins or leaves."""
        with self._lock:
            planned = self._store_sets.get(stream)
            if planned is None or not _same(queries, planned[0]):
                planned = self._store_sets[stream] = list(queries), store_sets(queries)
            return planned[1]

    def all_store_sets(self, queries: Sequence[CompiledQuery]) -> list[StoreSet]:
        """The same for on-demand queries of all streams."""
        streams: dict[str, list[CompiledQuery]] = {}
        for query in queries:
            streams.setdefault(query.query.stream, []).append(query)
        return [each for stream, members in streams.items() for each in self.store_sets(stream, members)]

    # --- the plan of its rows ---

    def plan(self, state: State, queries: Sequence[CompiledQuery]) -> SharedPlan:
        """The plan for the queries of one stream: the same object as long as nothing changes."""
        if not queries:
            return EMPTY_PLAN
        with self._lock, pause_garbage_collection():
            return self._plan(state, queries)

    def _plan(self, state: State, queries: Sequence[CompiledQuery]) -> SharedPlan:
        last = self._streams.setdefault(queries[0].query.stream, _Planned())
        sources = queries, state.queries, state.selections, state.young_after
        if last.plan is None or last.apart or not _same(sources, last.sources):
            last.sources = ()
            last.plan = self._changed_plan(state, queries, last)
            last.sources = sources
        return last.plan

    def _changed_plan(self, state: State, queries: Sequence[CompiledQuery], last: _Planned) -> SharedPlan:
        query_states = [state.queries[query.name] for query in queries]
        forced = [each.forced for each in query_states]
        homes = [each.homes[0] for each in query_states]
        states = [state.selections[home] for home in homes]
        slots = [each.slots for each in states]
        members = list(queries)
        same_queries = _same(members, last.queries)
        same_homes = homes == last.homes
        if same_queries and same_homes and slots == last.slots:
            planned_selections = last.selections
        else:
            planned_selections = selections(state, queries, last.memory.selections)
            last.homes, last.slots = homes, slots
        apart = frozenset(
            home
            for home, each in zip(homes, states, strict=True)
            if each.alone_until and each.alone_until > state.batch_id
        )
        on_executors = frozenset(home for home, each in zip(homes, states, strict=True) if each.on_executors)
        alone = apart, on_executors, state.young_after
        same_families = alone == (last.apart, last.on_executors, last.young_after)
        if last.plan is None or not _same(planned_selections, last.selections) or not same_families:
            self._decide(state, last, planned_selections)
            last.apart, last.on_executors, last.young_after = alone
        elif forced == last.forced and same_queries:
            return last.plan
        if forced != last.forced or not same_queries:
            last.forced, last.queries, last.interests = (
                forced,
                members,
                interests_of(state, queries, last.memory.interests),
            )
            same_homes = False
        if not same_homes:
            last.index = query_index(state, queries, last.interests)
        return SharedPlan(tuple(planned_selections), last.families, last.interests, last.index)

    def _decide(self, state: State, last: _Planned, new_selections: list[Selection]) -> None:
        context = PlanContext(state, state, self.strategy, selections=new_selections, memory=last.memory)
        last.families, last.selections = self._run(context).families, new_selections
        memory = last.memory
        memory.selections = {selection.id: memory.selections[selection.id] for selection in new_selections}
        memory.forget_departed(len(new_selections))
        if not memory.selections:
            last.selections, last.homes = [], []
        self._log.prune(new_selections[0].clock.stream, {str(selection.id) for selection in new_selections})

    def derived(self, stream: str, make: Callable[..., Derived], *sources: object) -> Derived:
        """What `make` makes of some objects, once for each stream while they are the very same objects."""
        with self._lock:
            last = self._derived.get((stream, make))
        if last is None or not _same(sources, last[0]):
            last = sources, make(*sources)
            with self._lock:
                self._derived[stream, make] = last
        made: Derived = last[1]
        return made

    # --- when they are aggregated ---

    def place(self, state: State, queries: Sequence[CompiledQuery], observed: Observed) -> frozenset[object]:
        """The groups of selections that move to the executors, given what a batch brought to a stream."""
        with self._lock:
            context = PlanContext(state, state, self.strategy, observed=observed, observed_queries=queries)
            decisions = self._run(context).decisions
        moves = (decision.moved for decision in decisions if isinstance(decision, PlacementDecision))
        return frozenset[object]().union(*moves)

    def moves_stores(self, store_set: StoreSet, stores: Sequence[StoreState]) -> bool:
        """Whether stores over the same groups move to the executors, given what they hold after a batch."""
        reason = stores_that_move(stores, self.strategy)
        if reason is not None:
            about = Subject.stores(store_set.selection)
            choice = Choice(store_set.clock.stream, about, EXECUTORS, reason, ON_EXECUTORS)
            self._record(PLACEMENT, Decision([choice]))
        return reason is not None

    # --- summaries ---

    def moves_summary(self, name: str, stream: str, tuples: int) -> bool:
        """Whether the tuples of a summary move to the executors, given how many are on the driver."""
        reason = summary_that_moves(tuples, self.strategy)
        if reason is not None:
            choice = Choice(stream, Subject.summary(name), EXECUTORS, reason, ON_EXECUTORS)
            self._record(PLACEMENT, Decision([choice]))
        return reason is not None

    def record_structure(self, name: str, stream: str, structure: str, reason: str) -> None:
        """Record the structure that a review chose for a summary."""
        choice = Choice(stream, Subject.summary(name), f"structure {structure}", reason, structure)
        self._record(SUMMARIES, Decision([choice]))

    def end_summary(self, name: str) -> None:
        """Remove the decisions about a summary that a program dropped."""
        self._record(SUMMARIES, Decision(ended=[Subject.summary(name)]))

    def rename_query(self, name: str, to: str) -> None:
        """Let the decisions about a query be about it under another name."""
        with self._lock:
            self._log.rename_query(name, to)

    def _record(self, pass_name: str, decision: Decision) -> None:
        with self._lock:
            self._log.record(pass_name, decision)

    # --- what was decided ---

    def families(self, stream: str) -> tuple[Family, ...]:
        """The families of a stream's last plan."""
        last = self._streams.get(stream)
        return () if last is None else last.families

    def decisions(self, stream: str) -> Iterator[tuple[str, list[Choice]]]:
        """The choices that hold for a stream, of each pass, in the order of the passes."""
        with self._lock:
            log = self._log.copy()
        names = dict.fromkeys([*(each.name for each in self.passes), *log.passes(stream)])
        for name in names:
            yield name, list(log.of(stream, name))

    def records(self, stream: str) -> list[DecisionRecord]:
        """The same as records."""
        return [
            DecisionRecord.of(name, choice) for name, choices in self.decisions(stream) for choice in choices
        ]

    def stored_decisions(self) -> tuple[PassDecisions, ...]:
        """The decisions that a checkpoint stores."""
        with self._lock:
            return self._log.stored()

    def restore_decisions(self, decisions: Iterable[PassDecisions]) -> None:
        """Begin with the decisions that a checkpoint stores."""
        with self._lock:
            self._log.restore(decisions)


def _checked(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """The passes, if each of them is a `Pass` under a name of its own."""
    for each in passes:
        if not isinstance(each, Pass):
            raise SettingError(f"not a planner pass: {each!r}; write Pass('its name', its_function)")
    repeated = [name for name, count in Counter(each.name for each in passes).items() if count > 1]
    if repeated:
        raise SettingError(f"two planner passes have the name {repeated[0]!r}")
    return tuple(passes)


def _same(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two lists hold the very same objects."""
    return len(ones) == len(others) and not any(map(is_not, ones, others))
