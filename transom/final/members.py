"""Joining and leaving: which selection a query shares its slices with, and what it may answer at once.

A query that joins adds its windows and aggregates to the selection that asks for the same tuples, if there
is one. Slices kept from before hold everything that was accepted; as far as none of them lies across
an edge of the newcomer's windows, they answer for it exactly, and the rest it has missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_not

from transom.algorithms.intervals import LOWEST, IntervalSet
from transom.algorithms.slicing import progressions
from transom.partial.sheets import combine, rows_of, without
from transom.plan.compiled import CompiledQuery, Slot
from transom.plan.families import Fragments, Selection
from transom.plan.layout import Layout, reshaped
from transom.state.state import QueryState, SelectionState, State


@dataclass(frozen=True)
class Strategy:
    """How work is shared: slices (`shared`, of which kind), and predicates' fragments."""

    shared: bool = True
    paned: bool = False
    fragments: Fragments = Fragments.FAMILIES


def admit(
    state: State,
    newcomers: Sequence[CompiledQuery],
    living: Mapping[str, CompiledQuery],
    strategy: Strategy,
    partial: Iterable[str] = (),
) -> State:
    """The state after some queries joined; `living` are all queries, newcomers included.

    Those in `partial` also report windows that they saw only in part: they keep slices of their own.
    """
    apart = set(partial)
    homes = {state.selections[own.homes[0]].name: own.homes[0] for own in state.queries.values() if own.homes}
    change = _Change(state)
    for query in newcomers:
        missed = state.missed(query.query.clock)
        is_private = query.naive or not strategy.shared or (query.name in apart and missed != IntervalSet())
        name = f"{query.selection} for {query.name}" if is_private else query.selection
        if name not in homes:
            homes[name] = change.open(name, query)
            change.queries[query.name] = QueryState((homes[name],), missed)
            continue
        home = homes[name]
        change.queries[query.name] = QueryState((home,), change.unseen(home, query, missed, strategy.paned))
        change.extend(home, query, living)
    return change.state()


def release(state: State, names: Iterable[str], living: Mapping[str, CompiledQuery]) -> State:
    """The state after some queries left; `living` are those that stay."""
    change = _Change(state)
    touched = dict.fromkeys(
        home for name in names if name in change.queries for home in change.queries.pop(name).homes
    )
    readers: dict[int, list[str]] = {}
    for name, own in change.queries.items():
        for home in own.homes:
            if home in touched:
                readers.setdefault(home, []).append(name)
    for home in touched:
        if home not in readers:
            change.close(home)
            continue
        slots = {slot.key: slot for name in readers[home] for slot in living[name].slots}
        change.reslot(
            home,
            [slots[key] for key in change.selections[home].slots if key in slots],
            living[readers[home][0]],
        )
    return change.state()


def is_kept(state: State, own: QueryState, query: CompiledQuery) -> bool:
    """Whether a query's slices have the types that it has now."""
    slots = {slot.key for slot in query.slots}
    return all(slots <= set(state.selections[home].slots) for home in own.homes)


def settle(state: State, living: Mapping[str, CompiledQuery]) -> State:
    """The state without queries that take no part any more: they were suspended."""
    gone = [name for name in state.queries if name not in living]
    return release(state, gone, living) if gone else state


Known = dict[int, tuple[tuple[CompiledQuery, ...], tuple[str, ...], Selection]]


def selections(state: State, queries: Iterable[CompiledQuery], known: Known | None = None) -> list[Selection]:
    """The selections that some queries add to, as the kernel computes them; all their members are given.

    `known` are those of a page before: where nothing changed, they are used again.
    """
    members: dict[int, list[CompiledQuery]] = {}
    for query in queries:
        members.setdefault(state.queries[query.name].homes[0], []).append(query)
    found = []
    for home, own in members.items():
        slots = state.selections[home].slots
        old = known.get(home) if known is not None else None
        if old is None or old[1] != slots or len(old[0]) != len(own) or any(map(is_not, old[0], own)):
            old = tuple(own), slots, _selection(home, state.selections[home], own)
            if known is not None:
                known[home] = old
        found.append(old[2])
    return found


def _selection(home: int, own: SelectionState, queries: Sequence[CompiledQuery]) -> Selection:
    first = queries[0]
    known = {slot.key: slot for query in queries for slot in query.slots}
    slots = tuple(known[key] for key in own.slots)
    return Selection(
        home,
        own.name,
        first.query.clock,
        tuple(join.id for join in first.query.joins),
        first.conjuncts,
        tuple(key.scalar for key in first.query.keys),
        slots,
        tuple(dict.fromkeys(query.query.window for query in queries)),
        Layout.of(first, slots),
        tuple(query.name for query in queries),
    )


class _Change:
    """A state being changed: the new one is made at the end, the old one stays as it is."""

    def __init__(self, state: State):
        self.before = state
        self.queries = dict(state.queries)
        self.selections = dict(state.selections)
        self.sheets = dict(state.sheets)
        self.next = max(state.selections, default=0) + 1
        self.gone: dict[str, list[int]] = {}

    def state(self) -> State:
        for sheet, homes in self.gone.items():
            self.sheets[sheet] = without(self.sheets[sheet], homes)
        sheets = {name: table for name, table in self.sheets.items() if table.num_rows}
        return replace(self.before, queries=self.queries, selections=self.selections, sheets=sheets)

    def open(self, name: str, query: CompiledQuery) -> int:
        home, self.next = self.next, self.next + 1
        layout = Layout.of(query, query.slots)
        self.selections[home] = SelectionState(name, layout.key, tuple(slot.key for slot in query.slots))
        return home

    def close(self, home: int) -> None:
        own = self.selections.pop(home)
        if own.sheet in self.sheets:
            self.gone.setdefault(own.sheet, []).append(home)

    def unseen(
        self, home: int, query: CompiledQuery, missed: IntervalSet | None, paned: bool
    ) -> IntervalSet | None:
        """What retained slices don't answer of all that a newcomer has missed."""
        own = self.selections[home]
        if not missed or not {slot.key for slot in query.slots} <= set(own.slots):
            return missed
        lost = missed & IntervalSet.of((LOWEST, own.floor))
        if own.sheet not in self.sheets:
            return lost
        rows = rows_of(self.sheets[own.sheet], home)
        starts, stops = rows["slice"].to_numpy(), rows["stop"].to_numpy()
        around, _ = progressions([[query.query.window]], paned).around(stops - 1, 0)
        across = around > starts  # an edge lies inside
        cut = zip(starts[across].tolist(), stops[across].tolist(), strict=True)
        return lost | IntervalSet.of(*dict.fromkeys(cut))

    def extend(self, home: int, query: CompiledQuery, living: Mapping[str, CompiledQuery]) -> None:
        """Let a selection keep what a newcomer needs, too."""
        own = self.selections[home]
        missing = [slot for slot in query.slots if slot.key not in own.slots]
        if missing:
            known = {
                slot.key: slot
                for name, state in self.queries.items()
                if home in state.homes
                for slot in living[name].slots
            }
            self.reslot(home, [*(known[key] for key in own.slots), *missing], query)

    def reslot(self, home: int, slots: Sequence[Slot], query: CompiledQuery) -> None:
        """Let a selection keep other slots: its slices move to the sheet where such are."""
        own = self.selections[home]
        keys = tuple(slot.key for slot in slots)
        if keys == own.slots:
            return
        layout = Layout.of(query, slots)
        self.selections[home] = replace(own, sheet=layout.key, slots=keys)
        if own.sheet not in self.sheets:
            return
        moved = reshaped(rows_of(self.sheets[own.sheet], home), own.slots, slots)
        self.sheets[own.sheet] = without(self.sheets[own.sheet], [home])
        there = self.sheets.get(layout.key, layout.schema.empty_table())
        self.sheets[layout.key] = combine(layout, [there, moved.cast(layout.schema)])
