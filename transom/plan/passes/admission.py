"""Admission: which selection a query joins, and which windows retained slices already answer for it.

A query that joins adds its windows and aggregates to the selection that reads the same tuples, if there is
one. Retained slices hold everything that was accepted: where none of them lies across an edge of the
new query's windows they answer exactly; the rest the query has missed.

A query that takes the place of another joins while the other one's slices are still there. If they are all that it
needs, it goes on as if it had always been there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.table_columns import SLICE, STOP
from transom.elements import Clock
from transom.gc_pause import pause_garbage_collection
from transom.kernel.sheets import rows_of
from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.context import Known, Membership, PlanContext
from transom.plan.decisions import Choice, Decision
from transom.plan.families import Selection
from transom.plan.layout import Layout, with_slots
from transom.plan.replacement import Replacement
from transom.plan.slot_sources import (
    in_layout_order,
    is_answered,
    readable_slots,
    slots_to_keep,
    source_slot,
    source_slots,
)
from transom.plan.strategy import Strategy
from transom.plan.subject import Subject
from transom.state.state import QueryState, SelectionState, State
from transom.storage.shard_refs import ShardRef
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.slices import crossed_slices


@pause_garbage_collection()
def admission(context: PlanContext) -> Decision | None:
    """Apply the queries of a batch that leave and join."""
    change = context.membership
    if change is None or change.changes_nothing:
        return None
    replaced = list(change.replaced.values())
    renamed = {one.renamed.name: one.renamed for one in replaced}
    state = _rename_replaced(context.state, replaced)
    state = release(state, change.leaving, {**change.queries, **renamed})
    state, choices = _admit(state, replace(change, queries={**change.queries, **renamed}), context.strategy)
    state = release(state, renamed, change.queries)
    has_left = change.leaving or renamed
    closed = () if not has_left else context.state.selections.keys() - state.selections.keys()
    ended = [*map(Subject.query, [*change.leaving, *change.replaced]), *Subject.selections(closed)]
    return Decision(choices, ended=ended, state=state)


def _rename_replaced(state: State, replaced: Sequence[Replacement]) -> State:
    """The state in which replaced queries have other names; what does not hold for their successors is gone."""
    if not replaced:
        return state
    names = {one.before.name: one.renamed.name for one in replaced}
    past = [one.after.name for one in replaced if not one.keeps_past]
    reported = [one.after.name for one in replaced if not one.keeps_reported]
    prodders = [one.after.name for one in replaced if not one.keeps_prodder]
    estimators = [one.after.name for one in replaced if not one.keeps_estimator]
    return replace(
        state,
        queries={names.get(name, name): own for name, own in state.queries.items()},
        accounts=state.accounts.without([one.after.name for one in replaced if not one.continues]),
        past=state.past.without(past),
        reported=_without(state.reported, reported),
        prodders=_without(state.prodders, prodders),
        estimators=_without(state.estimators, estimators),
    )


def _admit(state: State, change: Membership, strategy: Strategy) -> tuple[State, list[Choice]]:
    """The state after some queries joined, and the choice for each.

    Queries that report windows seen in part keep slices of their own.
    """
    partial, results = set(change.partial), set(change.result_streams)
    homes = {state.selections[own.homes[0]].name: own.homes[0] for own in state.queries.values() if own.homes}
    changed, choices = _Change(state), []
    # Queries with moments come first, so that others can read theirs.
    for query in sorted(change.joining, key=lambda query: not query.has_moments):
        replacement = change.replaced.get(query.name)
        if replacement is not None and replacement.takes_over(
            state, own := state.queries[replacement.renamed.name]
        ):
            changed.take_over(query, own, replacement.keeps_reported)
            choices.append(
                _choice(
                    query, f"keeps selection {own.homes[0]}", "it needs the same slices", "keeps_selection"
                )
            )
            continue
        missed = None if query.query.stream in results else changed.missed(query.clock)
        private = _why_private(query, strategy, query.name in partial and missed != IntervalSet())
        name = query.selection if private is None else f"{query.selection} for {query.name}"
        if query.is_keyed:  # it numbers the rows of each key from when it joins, and has missed none of them
            name = f"{name} since row {state.stream(query.query.stream).totals.accepted}"
            missed = IntervalSet()
        if query.gap is not None and name in homes:
            name = _with_same_late_rows(name, changed, homes[name])
        if private is not None or name not in homes:
            home = homes[name] = changed.open(name, query)
            changed.join(query, home, missed)
            reason = private or _why_first(query)
            choices.append(_choice(query, f"opens selection {home}", reason, "opens_selection"))
            continue
        home = homes[name]
        others = len(changed.members[home])
        unseen = changed.unseen(home, query, missed, change.queries, strategy.paned)
        changed.join(query, home, unseen)
        changed.extend(home, query, change.queries)
        reason = _why_shared(query, others, missed, unseen)
        choices.append(_choice(query, f"shares selection {home}", reason, "shares_selection"))
    changed.grow(change.queries)
    return changed.state(), choices


def _choice(query: CompiledQuery, chosen: str, reason: str, kind: str) -> Choice:
    return Choice(query.query.stream, Subject.query(query.name), chosen, reason, kind)


def _why_private(query: CompiledQuery, strategy: Strategy, sees_in_part: bool) -> str | None:
    """Why a query keeps slices of its own; None: it may share."""
    if query.naive:
        return "the setting strategy is naive: every tuple is kept"
    if not strategy.shared:
        return "the setting strategy shares no slices"
    return "it reports windows that it saw only in part" if sees_in_part else None


def _why_first(query: CompiledQuery) -> str:
    if query.is_keyed:
        return "no other query with the same PARTITION BY joined between the same two rows"
    return "no other query has the same WHERE, joins and GROUP BY"


def _why_shared(
    query: CompiledQuery, others: int, missed: IntervalSet | None, unseen: IntervalSet | None
) -> str:
    same = "PARTITION BY" if query.is_keyed else "WHERE, joins and GROUP BY"
    reason = f"same {same} as {others:,} other {'query' if others == 1 else 'queries'}"
    if missed and not unseen:
        return f"{reason}; retained slices answer for all rows from before it joined"
    return reason


def _with_same_late_rows(name: str, change: _Change, home: int) -> str:
    """The name of the selection that a query with sessions joins in place of one whose stream ended or fell idle.

    Rows from before that are late for the earlier queries, and not for this one: they keep different sessions.
    """
    forced = [
        own.forced for own in map(change.queries.__getitem__, change.members[home]) if own.forced is not None
    ]
    return f"{name} after {max(forced)}" if forced else name


class SliceHolder(Protocol):
    """An object with slices: a state, or a state that a batch is changing."""

    @property
    def selections(self) -> Mapping[int, SelectionState]: ...
    @property
    def sheets(self) -> Mapping[str, pa.Table]: ...
    @property
    def shards(self) -> Sequence[ShardRef]: ...


def slices_held(state: SliceHolder, home: int) -> tuple[Ints, Ints]:
    """The starts and stops of a selection's slices."""
    selection = state.selections[home]
    if selection.on_executors:
        pairs = [pair for ref in state.shards for pair in ref.held.get(home, ())]
        starts, stops = np.array(pairs, np.int64).reshape(-1, 2).T
        return starts, stops
    if selection.sheet not in state.sheets:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = rows_of(state.sheets[selection.sheet], home)
    return rows[SLICE].to_numpy(), rows[STOP].to_numpy()


def release(state: State, names: Iterable[str], living: Mapping[str, CompiledQuery]) -> State:
    """The state after some queries left; `living` are those that stay."""
    names = list(names)
    if not names:
        return state
    state = replace(state, accounts=state.accounts.without(names))
    if state.past.tables or state.past.starts:
        state = replace(state, past=state.past.without(names))
    if not state.reported.keys().isdisjoint(names):
        state = replace(state, reported=_without(state.reported, names))
    if not (state.prodders.keys() | state.estimators.keys()).isdisjoint(names):
        state = replace(
            state, prodders=_without(state.prodders, names), estimators=_without(state.estimators, names)
        )
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
        keys = change.selections[home].slots
        slots = {
            key: slot for name in readers[home] for key, slot in source_slots(living[name], keys).items()
        }
        change.reslot(home, [slots[key] for key in keys if key in slots], living[readers[home][0]])
    return change.state()


def _without(mapping: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    gone = set(names)
    return {name: value for name, value in mapping.items() if name not in gone}


def is_kept(state: State, query_state: QueryState, query: CompiledQuery) -> bool:
    """Whether a query's slices have the types that the query has now."""
    group_types = Layout.of(query, ()).group_types
    homes = [state.selections[home] for home in query_state.homes]
    return all(is_answered(query, home.slots) and home.group_types == group_types for home in homes)


def release_suspended(state: State, living: Mapping[str, CompiledQuery]) -> State:
    """The state without queries that were suspended."""
    gone = [name for name in state.queries if name not in living]
    return release(state, gone, living) if gone else state


def selections(
    state: State, queries: Iterable[CompiledQuery], remembered: Known | None = None
) -> list[Selection]:
    """The selections that some queries add to; all queries of each selection are given.

    `remembered` are those of an earlier plan: where nothing changed, they are used again.
    """
    members: dict[int, list[CompiledQuery]] = {}
    for query in queries:
        members.setdefault(state.queries[query.name].homes[0], []).append(query)
    planned = []
    for home, members_here in members.items():
        slots = state.selections[home].slots
        old = remembered.get(home) if remembered is not None else None
        if old is None or old[1] != slots or old[0] != tuple(members_here):
            old = tuple(members_here), slots, _selection(home, state.selections[home], members_here)
            if remembered is not None:
                remembered[home] = old
        planned.append(old[2])
    return planned


def _selection(home: int, selection: SelectionState, queries: Sequence[CompiledQuery]) -> Selection:
    first = queries[0]
    readable = readable_slots(queries)
    slots = tuple([readable[key] for key in selection.slots])
    return Selection(
        home,
        selection.name,
        first.clock,
        tuple([join.id for join in first.query.joins]),
        first.where,
        tuple([key.scalar for key in first.query.keys]),
        slots,
        tuple(dict.fromkeys([query.query.window for query in queries])),
        Layout.of(first, slots),
        tuple([query.name for query in queries]),
    )


class _Change:
    """A change of a state: `state()` makes the new one, the old one stays as it is."""

    def __init__(self, state: State):
        self.before = state
        self.queries = dict(state.queries)
        self.selections = dict(state.selections)
        self.floors = dict(state.floors)
        self.sheets = Sheets.of(state.sheets)
        self.last_selection = state.last_selection
        self.gone: dict[str, list[int]] = {}
        self.gone_far: set[int] = set()
        self.moved: dict[int, tuple[Layout, pa.Table]] = {}  # slices that move to another sheet
        self.missed_on: dict[Clock, IntervalSet | None] = {}
        self.own_layouts: dict[object, tuple[Layout, tuple[str, ...]]] = {}
        self.unseen_by_all: dict[tuple[int, str | None], IntervalSet | None] = {}
        self.grown: dict[
            int, dict[str, Slot]
        ] = {}  # all slots that selections keep, where queries added some

    @cached_property
    def members(self) -> dict[int, list[str]]:
        """The names of the queries that read each selection."""
        members: dict[int, list[str]] = {}
        for name, query_state in self.queries.items():
            for home in query_state.homes:
                members.setdefault(home, []).append(name)
        return members

    def kept(self, home: int) -> Collection[str]:
        """The ids of the slots that a selection keeps."""
        return self.grown[home] if home in self.grown else self.selections[home].slots

    def grow(self, living: Mapping[str, CompiledQuery]) -> None:
        """Let selections keep the slots that joining queries added; all at once, because sheets move."""
        for home, slots in self.grown.items():
            if len(slots) > len(self.selections[home].slots):
                ordered = in_layout_order(slots)
                self.reslot(home, list(ordered.values()), living[self.members[home][0]])
        self.grown = {}

    def state(self) -> State:
        sheets = self.sheets.without_selections(self.gone)
        arriving: dict[str, list[pa.Table]] = {}
        for layout, rows in self.moved.values():
            arriving.setdefault(layout.id, []).append(rows)
        sheets = sheets.with_rows({layout.id: layout for layout, _ in self.moved.values()}, arriving)
        return replace(
            self.before,
            queries=self.queries,
            selections=self.selections,
            floors=self.floors,
            sheets=sheets,
            shards=self._shards(),
            last_selection=self.last_selection,
        )

    def _shards(self) -> tuple[ShardRef, ...]:
        if not self.gone_far:
            return self.before.shards
        refs = []
        for ref in self.before.shards:
            held = {home: slices for home, slices in ref.held.items() if home not in self.gone_far}
            if held:
                refs.append(replace(ref, held=held))
        return tuple(refs)

    def missed(self, clock: Clock) -> IntervalSet | None:
        """The times of the rows that a query which joins has missed."""
        if clock not in self.missed_on:
            self.missed_on[clock] = self.before.missed(clock)
        return self.missed_on[clock]

    def open(self, name: str, query: CompiledQuery) -> int:
        self.last_selection += 1
        layout, slots = self._own_layout(query)
        self.selections[self.last_selection] = SelectionState(
            name, layout.id, slots, group_types=layout.group_types
        )
        return self.last_selection

    def _own_layout(self, query: CompiledQuery) -> tuple[Layout, tuple[str, ...]]:
        """The layout of a selection that only this query reads, and the ids of its slots."""
        bound = query.query
        # Most queries have the very aggregates and groups of others; the queries that join keep these alive.
        key = id(query.aggregates), id(bound.keys), bound.stream, query.naive, query.gap, query.is_keyed
        if key not in self.own_layouts:
            slots = in_layout_order(slots_to_keep(query.slots))
            self.own_layouts[key] = Layout.of(query, slots.values()), tuple(slots)
        return self.own_layouts[key]

    def join(self, query: CompiledQuery, home: int, unseen: IntervalSet | None) -> None:
        self.members.setdefault(home, []).append(query.name)
        own = QueryState((home,), unseen, closed_before=self._closed_before(query))
        self.queries[query.name] = own.for_window(query.query.window.shortest)

    def _closed_before(self, query: CompiledQuery) -> Closed | None:
        """What is closed already for a query that corrects results, and has given none of closed windows."""
        if query.query.corrections is None:
            return None
        closed = self.before.stream(query.query.stream).clock(query.clock).closed
        return None if closed.latest is None else closed

    def take_over(self, query: CompiledQuery, own: QueryState, keeps_reported: bool) -> None:
        """Let a query read what the query that it replaces has read; whether its reported results are its own, too."""
        if not keeps_reported:
            own = replace(own, closed_before=self._closed_before(query))
        for home in own.homes:
            self.members.setdefault(home, []).append(query.name)
        self.queries[query.name] = own

    def close(self, home: int) -> None:
        selection = self.selections.pop(home)
        self.floors.pop(home, None)
        if selection.on_executors:
            self.gone_far.add(home)
        elif self.moved.pop(home, None) is None and selection.sheet in self.sheets:
            self.gone.setdefault(selection.sheet, []).append(home)

    def _take(self, home: int, sheet: str) -> pa.Table | None:
        """Take the slices of a selection off their sheet; None if there are none."""
        if home in self.moved:
            return self.moved.pop(home)[1]
        if sheet not in self.sheets:
            return None
        self.gone.setdefault(sheet, []).append(home)
        return rows_of(self.sheets[sheet], home)

    def unseen(
        self,
        home: int,
        query: CompiledQuery,
        missed: IntervalSet | None,
        living: Mapping[str, CompiledQuery],
        paned: bool,
    ) -> IntervalSet | None:
        """The part of what a new query has missed that retained slices do not answer."""
        if not missed or home not in self.before.selections:
            return missed
        across = (
            IntervalSet() if query.gap is not None else self._file_anew(home, query, missed, living, paned)
        )
        kept = self.kept(home)
        if not is_answered(query, kept):
            return missed | across
        before = IntervalSet()
        for slot in (None, *source_slots(query, kept).values()):
            unseen = self._unseen_by_all(home, slot, living)
            if unseen is None:
                return None
            before |= unseen
        return missed & (before | IntervalSet.of((LOWEST, self.floors.get(home, LOWEST)))) | across

    def _file_anew(
        self,
        home: int,
        query: CompiledQuery,
        missed: IntervalSet,
        living: Mapping[str, CompiledQuery],
        paned: bool,
    ) -> IntervalSet:
        """The times that a new query can't answer because slices lie across an edge of its windows.

        Such slices get the first missed time inside them as their start; those on the executors when they are read.
        """
        selection = self.selections[home]
        held = slices_held(self.before, home) if selection.on_executors else self._slices(home)
        if held is None:
            return IntervalSet()
        starts, stops = held
        across, firsts = crossed_slices(starts, stops, query.query.window, missed, paned)
        cut = IntervalSet.of(*zip(starts[across].tolist(), stops[across].tolist(), strict=True))
        if selection.on_executors or not cut:
            return missed & cut
        layout = self.moved[home][0] if home in self.moved else None
        if layout is None:
            readable = readable_slots(living[name] for name in self.members[home])
            layout = Layout.of(query, [readable[key] for key in selection.slots])
        rows = self._take(home, selection.sheet)
        assert rows is not None
        self.moved[home] = layout, rows.set_column(1, SLICE, pa.array(firsts))
        return missed & cut

    def _slices(self, home: int) -> tuple[Ints, Ints] | None:
        sheet = self.sheets.get(self.selections[home].sheet)
        if home in self.moved:
            rows = self.moved[home][1]
        elif sheet is not None:
            rows = rows_of(sheet, home)
        else:
            return None
        return rows[SLICE].to_numpy(), rows[STOP].to_numpy()

    def _unseen_by_all(
        self, home: int, slot: Slot | None, living: Mapping[str, CompiledQuery]
    ) -> IntervalSet | None:
        """The times before a selection, or a slot of it, was opened: all of its queries have missed them."""
        key = home, None if slot is None else slot.id
        if key in self.unseen_by_all:
            return self.unseen_by_all[key]
        unseen_by_members: IntervalSet | None = None
        slots_here = self.kept(home)
        for name in self.members[home]:
            unseen = self.queries[name].unseen
            has_it = slot is None or slot.id in source_slots(living[name], slots_here)
            if unseen is not None and has_it:
                unseen_by_members = unseen if unseen_by_members is None else unseen_by_members & unseen
            if unseen_by_members == IntervalSet():
                break
        self.unseen_by_all[key] = unseen_by_members
        return unseen_by_members

    def extend(self, home: int, query: CompiledQuery, living: Mapping[str, CompiledQuery]) -> None:
        """Let a selection keep the slots that a new query needs."""
        kept = self.kept(home)
        missing = slots_to_keep(slot for slot in query.slots if source_slot(slot, kept) is None)
        if missing and home not in self.grown:
            readable = readable_slots(living[name] for name in self.members[home])
            self.grown[home] = {key: readable[key] for key in kept}
        if missing:
            self.grown[home] |= missing

    def reslot(self, home: int, slots: Sequence[Slot], query: CompiledQuery) -> None:
        """Let a selection keep other slots: its slices move to the sheet of that layout."""
        selection = self.selections[home]
        keys = tuple(slot.id for slot in slots)
        if keys == selection.slots:
            return
        layout = Layout.of(query, slots)
        self.selections[home] = replace(selection, sheet=layout.id, slots=keys)
        rows = None if selection.on_executors else self._take(home, selection.sheet)
        if rows is not None:
            self.moved[home] = layout, with_slots(rows, selection.slots, slots).cast(layout.schema)
