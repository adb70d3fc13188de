"""Re-sharing: queries move between shared and unshared slices while they run, as the rate of their tuples changes.

Queries that move add to a new selection and continue to read the one that they leave: their slices lie in
both. All queries of a selection move together, so that no query adds to a selection that another left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_not
from typing import NamedTuple

import numpy as np

from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.context import PlanContext
from transom.plan.cost import Cost, WindowCosts, is_better
from transom.plan.decisions import Choice, Decision, LazyChoices
from transom.plan.layout import Layout
from transom.plan.passes.admission import slices_held
from transom.plan.slot_sources import in_layout_order, slots_to_keep
from transom.plan.strategy import Strategy
from transom.plan.subject import Subject
from transom.state.state import QueryState, SelectionState, State


def reshare(context: PlanContext) -> Decision | None:
    """Share the slices of queries, or stop sharing them, where that is clearly cheaper at the measured rate."""
    queries, state, strategy = context.reconsider, context.state, context.strategy
    if not queries:
        return None
    weighed: list[_Weighed] = []
    if strategy.adapts:
        candidates = context.memory.derived(
            _candidates, queries, state.queries, state.selections, strategy.paned, context.memory.candidates
        )
        rates = _rates(state, candidates)
        for candidate in candidates:
            state = _reconsidered(state, candidate, rates, strategy, weighed)
    several = context.memory.derived(_with_several_homes, queries, state.queries)
    if several:
        state = _tidied(state, several)
    if state is context.state and not weighed:
        return None
    choices = LazyChoices(lambda: [costs.choice() for costs in weighed])
    stream = queries[0].query.stream
    return Decision(choices, replaces=stream, state=state)


@dataclass(frozen=True)
class MovableQueries:
    """The queries of one selection, which have several kinds of window and can move."""

    members: Sequence[CompiledQuery]
    homes: tuple[int, ...]  # that they add to
    costs: WindowCosts
    longest: int  # of the ranges of their windows


# By selection: the queries, their states and those of their selections, and the candidate that they are, if any.
KnownMovable = dict[str, tuple[Sequence[object], MovableQueries | None]]


def _candidates(
    queries: Sequence[CompiledQuery],
    query_states: Mapping[str, QueryState],
    selections: Mapping[int, SelectionState],
    paned: bool,
    known: KnownMovable,
) -> list[MovableQueries]:
    """The queries that can move, by selection; `known` has those of the last plan, and then those of this one."""
    alike: dict[str, list[CompiledQuery]] = {}
    for query in queries:
        alike.setdefault(query.selection, []).append(query)
    before = dict(known)
    known.clear()
    candidates = []
    for name, members in alike.items():
        if len(members) == 1:
            continue
        own = [query_states[query.name] for query in members]
        sources = [*members, *own, *(selections[home] for each in own for home in each.homes)]
        last = before.get(name)
        if last is None or len(last[0]) != len(sources) or any(map(is_not, last[0], sources)):
            last = sources, _candidate(members, own, selections, paned)
        known[name] = last
        if last[1] is not None:
            candidates.append(last[1])
    return candidates


def _candidate(
    members: Sequence[CompiledQuery],
    query_states: Sequence[QueryState],
    selections: Mapping[int, SelectionState],
    paned: bool,
) -> MovableQueries | None:
    """The queries of a selection, if they can move."""
    windows = tuple(dict.fromkeys(query.query.window for query in members))
    if len(windows) == 1 or not _can_move(query_states, selections, members):
        return None
    homes = tuple(sorted({own.homes[0] for own in query_states}))
    longest = max(window.range for window in windows)
    return MovableQueries(members, homes, WindowCosts(windows, paned), longest)


def _with_several_homes(
    queries: Sequence[CompiledQuery], query_states: Mapping[str, QueryState]
) -> list[str]:
    """The queries that moved and still read a selection that they left."""
    return [query.name for query in queries if len(query_states[query.name].homes) > 1]


def _can_move(
    query_states: Sequence[QueryState],
    selections: Mapping[int, SelectionState],
    members: Sequence[CompiledQuery],
) -> bool:
    """Whether queries can move: they are not naive, their slices are on the driver, and what they missed is known."""
    if any(query.naive or query.is_keyed for query in members) or any(
        each.unseen is None for each in query_states
    ):
        return False
    homes = {home for each in query_states for home in each.homes}
    return not any(selections[home].on_executors for home in homes)


@dataclass(frozen=True)
class _Weighed:
    """The costs by which queries of one selection were left together, or apart, or moved."""

    stream: str
    homes: tuple[int, ...]  # where the queries are now
    windows: int
    moved: bool
    rate: float
    together: Cost
    apart: Cost
    clearly: float

    def choice(self) -> Choice:
        is_shared = len(self.homes) == 1
        chosen = f"{'shared' if is_shared else 'unshared'} slices for {self.windows:,} kinds of window"
        here, there = (self.together, self.apart) if is_shared else (self.apart, self.together)
        other = "unshared" if is_shared else "shared"
        costs = f"at the measured rate {other} slices cost {there.total / here.total:.2f} times as much"
        rule = f"a change must cost less than {self.clearly:g} times as much"
        chosen = f"moved to {chosen}" if self.moved else chosen
        kind = "shared_slices" if is_shared else "unshared_slices"
        return Choice(self.stream, Subject.selections(self.homes), chosen, f"{costs}; {rule}", kind)


def _reconsidered(
    state: State,
    candidate: MovableQueries,
    rates: Mapping[int, _SliceRate],
    strategy: Strategy,
    weighed: list[_Weighed],
) -> State:
    """Share the slices of one selection's queries, or stop sharing them, if that is clearly better."""
    members, homes, costs = candidate.members, candidate.homes, candidate.costs
    # With unshared slices, the rate of the busiest selection.
    busiest = [rates[home].within(candidate.longest) for home in homes if home in rates]
    if not busiest:
        return state
    rate = max(busiest)
    together, apart = costs.shared(rate), costs.unshared(rate)
    clearly, name, before = strategy.limits.clearly_better, members[0].selection, state
    if len(homes) == 1 and is_better(apart, together, clearly):
        by_window = {query.query.window: f"{name} for {query.name}" for query in reversed(members)}
        state = _moved(state, members, {query.name: by_window[query.query.window] for query in members})
    elif len(homes) > 1 and is_better(together, apart, clearly):
        state = _moved(state, members, {query.name: name for query in members})
    if state is not before:
        homes = tuple(sorted({state.queries[query.name].homes[0] for query in members}))
    stream, moved = members[0].query.stream, state is not before
    weighed.append(_Weighed(stream, homes, len(costs.windows), moved, rate, together, apart, clearly))
    return state


class _SliceRate(NamedTuple):
    """The tuples in the retained slices of a selection, and the time from the first slice to the last."""

    tuples: int
    time: int

    def within(self, longest: int) -> float:
        """Tuples per unit of time.

        Slices of at least the `longest` range are retained. Fewer are there if the time before and after them is empty.
        """
        return self.tuples / max(longest, self.time)


def _rates(state: State, candidates: Sequence[MovableQueries]) -> dict[int, _SliceRate]:
    """The tuples in the retained slices of the candidates' selections, of those that have slices."""
    homes = {home for candidate in candidates for home in candidate.homes}
    rates: dict[int, _SliceRate] = {}
    sheets = {state.selections[home].sheet for home in homes}
    for selections, starts, stops, rows in Sheets.of(state.sheets).slices_of(sheets):
        heads = np.flatnonzero(np.diff(selections, prepend=-1))
        sums = np.add.reduceat(rows, heads).tolist()
        times = (np.maximum.reduceat(stops, heads) - np.minimum.reduceat(starts, heads)).tolist()
        held = zip(selections[heads].tolist(), map(_SliceRate, sums, times), strict=True)
        rates.update((home, rate) for home, rate in held if home in homes)
    return rates


def _moved(state: State, members: Sequence[CompiledQuery], names: Mapping[str, str]) -> State:
    """Move queries to new selections, which keep the slots that all of their queries need."""
    queries, selections, floors = dict(state.queries), dict(state.selections), dict(state.floors)
    last_selection, opened = state.last_selection, dict[str, int]()
    slots: dict[str, dict[str, Slot]] = {}
    for query in members:
        slots_so_far = slots.get(names[query.name], {})
        slots[names[query.name]] = slots_to_keep((*slots_so_far.values(), *query.slots))
    slots = {name: in_layout_order(own) for name, own in slots.items()}
    for query in members:
        name = names[query.name]
        if name not in opened:
            last_selection += 1
            opened[name] = last_selection
            layout = Layout.of(query, slots[name].values())
            missed = state.missed(query.query.clock)
            if missed:
                floors[last_selection] = missed.pairs[-1][1]
            selections[last_selection] = SelectionState(
                name, layout.id, tuple(slots[name]), group_types=layout.group_types
            )
        query_state = queries[query.name]
        queries[query.name] = replace(query_state, homes=(opened[name], *query_state.homes))
    return replace(
        state, queries=queries, selections=selections, floors=floors, last_selection=last_selection
    )


def _tidied(state: State, several: Sequence[str]) -> State:
    """Remove selections that queries left and that hold no slices any more; `several` are the queries that moved."""
    changed = dict(state.queries)
    homes = {home for name in several for home in changed[name].homes[1:]}
    held = {home for home in homes if len(slices_held(state, home)[0])}
    for name in several:
        first, *old = changed[name].homes
        left = [home for home in old if home in held]
        if len(left) < len(old):
            changed[name] = replace(changed[name], homes=(first, *left))
    if all(changed[name] is state.queries[name] for name in several):
        return state
    used = {home for query_state in changed.values() for home in query_state.homes}
    selections = {home: selection for home, selection in state.selections.items() if home in used}
    floors = {home: floor for home, floor in state.floors.items() if home in used}
    return replace(state, queries=changed, selections=selections, floors=floors)
