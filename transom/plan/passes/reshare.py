"""Re-sharing: queries move between shared and unshared slices while they run, as the rate of their tuples changes.

Queries that move add to a new selection and continue to read the one that they leave: their slices lie in
both. All queries of a selection move together, so that no query adds to a selection that another left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transom.columns.table_columns import ROWS
from transom.kernel.sheets import rows_of
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.context import PlanContext
from transom.plan.cost import Cost, is_better, shared, unshared
from transom.plan.decisions import Choice, Decision, LazyChoices
from transom.plan.layout import Layout
from transom.plan.passes.admission import slices_held
from transom.plan.slot_sources import in_layout_order, slots_to_keep
from transom.plan.strategy import Strategy
from transom.plan.subject import Subject
from transom.state.state import SelectionState, State


def reshare(context: PlanContext) -> Decision | None:
    """Share the slices of queries, or stop sharing them, where that is clearly cheaper at the measured rate."""
    queries, state, strategy = context.reconsider, context.state, context.strategy
    weighed: list[_Weighed] = []
    if strategy.adapts:
        alike: dict[str, list[CompiledQuery]] = {}
        for query in queries:
            alike.setdefault(query.selection, []).append(query)
        for members in alike.values():
            if len({query.query.window for query in members}) > 1 and _can_move(state, members):
                state = _reconsidered(state, members, strategy, weighed)
    state = _tidied(state, queries)
    if state is context.state and not weighed:
        return None
    choices = LazyChoices(lambda: [costs.choice() for costs in weighed])
    stream = queries[0].query.stream
    return Decision(choices, replaces=stream, state=state)


def _can_move(state: State, members: Sequence[CompiledQuery]) -> bool:
    """Whether queries can move: they are not naive, their slices are on the driver, and what they missed is known."""
    query_states = [state.queries[query.name] for query in members]
    if any(query.naive or query.is_keyed for query in members) or any(
        each.unseen is None for each in query_states
    ):
        return False
    homes = {home for each in query_states for home in each.homes}
    return not any(state.selections[home].on_executors for home in homes)


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
    state: State, members: Sequence[CompiledQuery], strategy: Strategy, weighed: list[_Weighed]
) -> State:
    """Share the slices of one selection's queries, or stop sharing them, if that is clearly better."""
    homes = {state.queries[query.name].homes[0] for query in members}
    windows = dict.fromkeys(query.query.window for query in members)
    rate = _rate(state, homes, max(window.range for window in windows))
    if rate is None:
        return state
    together, apart = shared(windows, rate, strategy.paned), unshared(windows, rate)
    clearly, name, before = strategy.limits.clearly_better, members[0].selection, state
    if len(homes) == 1 and is_better(apart, together, clearly):
        by_window = {query.query.window: f"{name} for {query.name}" for query in reversed(members)}
        state = _moved(state, members, {query.name: by_window[query.query.window] for query in members})
    elif len(homes) > 1 and is_better(together, apart, clearly):
        state = _moved(state, members, {query.name: name for query in members})
    if state is not before:
        homes = {state.queries[query.name].homes[0] for query in members}
    stream, moved = members[0].query.stream, state is not before
    weighed.append(
        _Weighed(stream, tuple(sorted(homes)), len(windows), moved, rate, together, apart, clearly)
    )
    return state


def _rate(state: State, homes: set[int], longest: int) -> float | None:
    """Tuples per unit of time in the retained slices; with unshared slices, the rate of the busiest selection.

    Slices of at least the `longest` range are retained. Fewer are there if the time before and after them is empty.
    """
    rates = []
    for home in homes:
        sheet = state.sheets.get(state.selections[home].sheet)
        starts, stops = slices_held(state, home)
        if sheet is None or not len(starts):
            continue
        rows = rows_of(sheet, home)[ROWS].to_numpy().sum()
        rates.append(float(rows) / max(longest, int(stops.max()) - int(starts.min())))
    return max(rates, default=None)


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


def _tidied(state: State, queries: Sequence[CompiledQuery]) -> State:
    """Remove selections that queries left and that hold no slices any more."""
    several = [query.name for query in queries if len(state.queries[query.name].homes) > 1]
    if not several:
        return state
    changed = dict(state.queries)
    for name in several:
        first, *old = changed[name].homes
        left = [home for home in old if len(slices_held(state, home)[0])]
        changed[name] = replace(changed[name], homes=(first, *left))
    used = {home for query_state in changed.values() for home in query_state.homes}
    selections = {home: selection for home, selection in state.selections.items() if home in used}
    floors = {home: floor for home, floor in state.floors.items() if home in used}
    return replace(state, queries=changed, selections=selections, floors=floors)
