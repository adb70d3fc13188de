"""A page as a pure function: what was known, what its rows came to, what was said -> what is known now.

The first half, rows to partials, is `partial.kernel` and runs wherever the rows are; this is the
second, which runs once a page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from transom.algorithms import windows
from transom.algorithms.intervals import HIGHEST, LOWEST, IntervalSet
from transom.algorithms.profile import Profile
from transom.control.closed import Closed
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Kind, Punctuation
from transom.final.closing import Boundary, Reader, close, windows_open
from transom.final.lowering import gathered, lowered, places_of
from transom.final.results import Lowered, Results, finish
from transom.partial.kernel import Outcome
from transom.partial.sheets import combine, rows_of
from transom.plan.compiled import CompiledQuery
from transom.plan.layout import Layout
from transom.sql.catalog import Scalars
from transom.state.state import (
    MOST_OCCUPIED,
    ClockState,
    QueryState,
    SelectionState,
    State,
    StreamState,
    Totals,
)


@dataclass(frozen=True)
class PageInput:
    """What a page brings to its stream."""

    rules: StreamRules
    queries: Sequence[CompiledQuery]  # all that read the stream
    outcome: Outcome = field(default_factory=Outcome)
    punctuations: Sequence[Punctuation] = ()
    ended: bool = False  # the stream ended or fell idle: close every window that holds rows
    partial: frozenset[str] = frozenset()  # queries that also want windows seen only in part


@dataclass(frozen=True)
class PageOutput:
    """The state after a page, its results, and how many slices were combined into them."""

    state: State
    results: Results
    finals: int = 0


@dataclass(frozen=True)
class Concluded:
    """The state after a page and the windows that closed, before their SELECT lists are applied."""

    state: State
    closed: Sequence[Lowered]
    finals: int


def advance(state: State, pages: Sequence[PageInput], scalars: Scalars) -> PageOutput:
    """Process the second half of a page: what it brings to each of the streams that it concerns."""
    done = conclude(state, pages)
    results = finish(done.closed, done.state.page, Kind.FINAL, scalars)
    return PageOutput(done.state, results, done.finals)


def conclude(state: State, pages: Sequence[PageInput]) -> Concluded:
    """All of the second half but the SELECT lists, which only Spark can evaluate."""
    work = _Work(state)
    closed: list[Lowered] = []
    for page in pages:
        closed += work.advance(page)
    after = State(state.page + 1, work.streams, work.queries, work.selections, work.sheets)
    return Concluded(after, closed, work.finals)


def boundary(query: CompiledQuery, stream: StreamState, own: QueryState) -> Boundary:
    """What is closed for a query."""
    closed = stream.clock(query.query.clock).closed
    return Boundary(closed.view(query.key_columns, query.pinned), own.forced_wids())


def open_windows(state: State, queries: Iterable[CompiledQuery], stream: StreamState) -> int:
    """How many windows of some queries hold rows and are not closed, over all groups together."""
    counted: dict[object, int] = {}
    found = 0
    for query in queries:
        own = state.queries.get(query.name)
        if own is None:
            continue
        known = own.homes, query.query.window, own.forced
        if known not in counted:
            sheets = [(state.sheets.get(state.selections[home].sheet), home) for home in own.homes]
            starts = [rows_of(sheet, home)["slice"].to_numpy() for sheet, home in sheets if sheet is not None]
            held = np.unique(np.concatenate(starts)) if starts else np.empty(0, np.int64)
            counted[known] = windows_open(query, held, boundary(query, stream, own))
        found += counted[known]
    return found


def clocks_of(queries: Iterable[CompiledQuery], rules: StreamRules) -> list[Clock]:
    """The clocks that a stream's page must carry: its own and those that its queries' windows follow."""
    return list(dict.fromkeys([rules.clock, *(query.query.clock for query in queries)]))


class _Work:
    """A page's second half under way; what it changes are copies."""

    def __init__(self, state: State):
        self.before = state
        self.streams, self.queries = dict(state.streams), dict(state.queries)
        self.selections, self.sheets = dict(state.selections), dict(state.sheets)
        self.finals = 0

    def advance(self, page: PageInput) -> Iterator[Lowered]:
        name = page.rules.clock.stream
        before = self.before.stream(name)
        after = self.streams[name] = _advance_stream(before, page)
        readers, layouts = self._readers(page.queries)
        for key, layout in layouts.items():
            brought = page.outcome.partials.get(key)
            known = self.sheets.get(key)
            parts = [table for table in (known, brought) if table is not None]
            if brought is not None and brought.num_rows:
                self.sheets[key] = combine(layout, parts)
        scattered: dict[str, list[tuple[Layout, pa.Table, tuple[int, ...]]]] = defaultdict(list)
        filled = [self.sheets[key] for key in layouts if key in self.sheets]
        lasts = _last_slices(filled) if page.ended else {}
        for query in page.queries:
            self._advance_query(query, page, lasts)
        for key, layout in layouts.items():
            if key in self.sheets:
                own = [self._reader(query, home, before, after) for query, home in readers[key]]
                yield from self._close(key, layout, own, page, scattered)
        for query in page.queries:
            if query.name in scattered:
                yield from self._gathered(query, scattered[query.name], page, before, after)

    def _readers(
        self, queries: Sequence[CompiledQuery]
    ) -> tuple[dict[str, list[tuple[CompiledQuery, int]]], dict[str, Layout]]:
        """Who reads which selection of each sheet, and the sheets' layouts."""
        readers: dict[str, list[tuple[CompiledQuery, int]]] = defaultdict(list)
        members: dict[int, list[CompiledQuery]] = defaultdict(list)
        for query in queries:
            for home in self.queries[query.name].homes:
                readers[self.selections[home].sheet].append((query, home))
                members[home].append(query)
        layouts: dict[str, Layout] = {}
        for home, own in members.items():
            selection = self.selections[home]
            if selection.sheet not in layouts:
                slots = {slot.key: slot for query in own for slot in query.slots}
                layouts[selection.sheet] = Layout.of(own[0], [slots[key] for key in selection.slots])
        return readers, layouts

    def _reader(self, query: CompiledQuery, home: int, before: StreamState, after: StreamState) -> Reader:
        was = self.before.queries[query.name]
        return Reader(
            query, home, boundary(query, before, was), boundary(query, after, self.queries[query.name])
        )

    def _advance_query(self, query: CompiledQuery, page: PageInput, lasts: Mapping[int, np.ndarray]) -> None:
        own = self.queries[query.name]
        unseen, forced = own.unseen, own.forced
        if unseen is None:
            unseen = _missed(query.query.clock, page)
        spec = query.query.window
        for home in own.homes if lasts else ():
            if home not in lasts:
                continue
            starts = lasts[home]
            if spec.slide > spec.range:  # the last slice may lie between windows
                starts = rows_of(self.sheets[self.selections[home].sheet], home)["slice"].to_numpy()
                starts = starts[windows.in_some_window(spec, starts)]
            if len(starts):
                wid = int(windows.wid_to(spec, starts).max())
                forced = max(wid + 1, LOWEST if forced is None else forced)
        if unseen is not own.unseen or forced != own.forced:
            self.queries[query.name] = replace(own, unseen=unseen, forced=forced)

    def _close(
        self,
        key: str,
        layout: Layout,
        readers: Sequence[Reader],
        page: PageInput,
        scattered: dict[str, list[tuple[Layout, pa.Table, tuple[int, ...]]]],
    ) -> Iterator[Lowered]:
        sheet = self.sheets[key]
        done = close(layout, sheet, readers)
        self.finals += done.steps
        self._trim(key, sheet, done.kept)
        if not done.table.num_rows:
            return
        slots = {home: self._slots(home) for home in {reader.home for reader in readers}}
        places = [places_of(reader.query, slots[reader.home]) for reader in readers]
        table = done.table
        several = [i for i, reader in enumerate(readers) if len(self.queries[reader.query.name].homes) > 1]
        if several:
            whose = table["reader"].to_numpy()
            for i in several:
                mine = table.filter(pa.array(whose == i))
                if mine.num_rows:
                    scattered[readers[i].query.name].append((layout, mine, places[i]))
            table = table.filter(pa.array(~np.isin(whose, several)))
        if table.num_rows:
            yield from lowered(layout, table, readers, places, self._unseen, page.partial)

    def _gathered(
        self,
        query: CompiledQuery,
        parts: Sequence[tuple[Layout, pa.Table, tuple[int, ...]]],
        page: PageInput,
        before: StreamState,
        after: StreamState,
    ) -> Iterator[Lowered]:
        layout, table = gathered(query, parts)
        table = table.set_column(0, "reader", pa.array(np.zeros(table.num_rows, np.int64)))
        reader = self._reader(query, self.queries[query.name].homes[0], before, after)
        places = tuple(range(len(query.slots)))
        yield from lowered(layout, table, [reader], [places], self._unseen, page.partial)

    def _slots(self, home: int) -> dict[str, int]:
        return {key: i for i, key in enumerate(self.selections[home].slots)}

    def _unseen(self, name: str) -> IntervalSet:
        return self.queries[name].unseen or IntervalSet()

    def _trim(self, key: str, sheet: pa.Table, kept: np.ndarray) -> None:
        """Let slices go that no open window needs, and note how far each selection's memory goes back."""
        if kept.all():
            return
        gone = np.flatnonzero(~kept)
        homes, place = np.unique(sheet["selection"].to_numpy()[gone], return_inverse=True)
        floors = np.full(len(homes), LOWEST)
        np.maximum.at(floors, place, sheet["stop"].to_numpy()[gone])
        for home, floor in zip(homes.tolist(), floors.tolist(), strict=True):
            own: SelectionState | None = self.selections.get(home)
            if own is not None and floor > own.floor:
                self.selections[home] = replace(own, floor=floor)
        if kept.any():
            self.sheets[key] = sheet.filter(pa.array(kept)).combine_chunks()
        else:
            del self.sheets[key]


def _last_slices(sheets: Iterable[pa.Table]) -> dict[int, np.ndarray]:
    """By selection, the start of its last slice."""
    found: dict[int, np.ndarray] = {}
    for table in sheets:
        homes, place = np.unique(table["selection"].to_numpy(), return_inverse=True)
        lasts = np.full(len(homes), LOWEST)
        np.maximum.at(lasts, place, table["slice"].to_numpy())
        found |= dict(zip(homes.tolist(), lasts[:, None], strict=True))
    return found


def _advance_stream(stream: StreamState, page: PageInput) -> StreamState:
    outcome = page.outcome
    totals = stream.totals + Totals(
        outcome.rows, outcome.counted, outcome.unasked, outcome.late, outcome.timeless + outcome.ahead
    )
    followed = clocks_of(page.queries, page.rules)
    clocks = {
        clock: own if clock in followed or not outcome.rows else replace(own, occupied=None)
        for clock, own in stream.clocks.items()
    }
    for clock in followed:
        clocks[clock] = _advance_clock(stream.clock(clock), clock, page, totals)
    for clock in dict.fromkeys(said.clock for said in page.punctuations):
        known = clocks.get(clock) or stream.clock(clock)
        ranges = ((said.until, said.since, said.where) for said in page.punctuations if said.clock == clock)
        clocks[clock] = replace(known, closed=known.closed.close_all(ranges))
    return StreamState(clocks, totals)


def _advance_clock(known: ClockState, clock: Clock, page: PageInput, totals: Totals) -> ClockState:
    profile = page.outcome.clocks.get(clock, Profile())
    tops = [top for top in (known.high, profile.top) if top is not None]
    high = max(tops, default=None)
    slack = page.rules.slack_of(clock)
    closed: Closed = known.closed
    if clock.kind is ClockKind.ROWS:
        closed = closed.close(totals.accepted) if totals.accepted else closed
    elif high is not None and slack is not None:
        closed = closed.close(high - slack)
    occupied = known.occupied if known.occupied is not None else _missed(clock, page)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED)
    return ClockState(high, closed, occupied)


def _missed(clock: Clock, page: PageInput) -> IntervalSet | None:
    """Where rows may lie that came while nobody followed a clock: with disorder of at most the slack,
    none of them lies further up than the first rows seen now plus the slack."""
    runs = page.outcome.clocks.get(clock, Profile()).runs
    if not runs:
        return None
    slack = page.rules.slack_of(clock)
    return IntervalSet.of((LOWEST, HIGHEST if slack is None else runs[0][0] + slack + 1))
