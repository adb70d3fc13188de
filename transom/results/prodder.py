"""The Prodder: it prods queries with EMIT EARLY (thesis, section 3.2, source c).

    SLIDE 20, AT 75% OF SLIDE          0         20        40        60
                            window     |         [---------|---------)
                            its mark                            ^ 55: once the stream has come so far

Each window has marks in its last slide. When the stream's time passes a mark, the window is read: marks that
the query names are reported, marks of a grid only teach how good an early result is at that point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from transom.elements import Clock, ClockKind, Prod
from transom.plan.compiled_query import CompiledQuery
from transom.results.batch_input import BatchInput
from transom.results.early_results import EVERYTHING, WindowRequest, window_requests
from transom.state.state import ProdderState, State, StreamState
from transom.windows import ids as windows
from transom.windows.intervals import LOWEST, IntervalSet, union
from transom.windows.stream_rules import StreamRules

GRID = tuple(step / 20 for step in range(1, 21))  # parts of the slide
COARSE_GRID = (0.2, 0.4, 0.6, 0.8, 1.0)  # as fine as MAX_MARK_DISTANCE needs
DECISION_REACH = 9  # slides before its end from which on a window is decided: the earliest mark


@dataclass(frozen=True)
class DueWindows:
    """The windows that are read when a batch ends: those to report, those only to learn from, and those to decide."""

    reported: tuple[WindowRequest, ...]
    observed: tuple[WindowRequest, ...]
    looked: tuple[WindowRequest, ...]  # those of which HAVING is to be decided
    prodders: Mapping[str, ProdderState]
    now: Mapping[str, int]  # how far the clocks have come of queries that say EMIT EARLY
    before: Mapping[str, int]  # how far they had come after the batch before


def due_windows(state: State, batches: Sequence[BatchInput], prods: Sequence[Prod], clock: int) -> DueWindows:
    """The open windows to read after a batch: prodded ones, and those whose marks the stream passed."""
    prodders, now, before = dict(state.prodders), dict[str, int](), dict[str, int]()
    reported: dict[str, WindowRequest] = {}
    observed: list[WindowRequest] = []
    looked: list[WindowRequest] = []
    known: dict[object, IntervalSet] = {}  # most queries of a batch have passed the same marks

    def passed(query: CompiledQuery, prodder: ProdderState, points: tuple[float, ...]) -> IntervalSet:
        window = query.query.window
        ends = (window.slide, window.phase) if window.calendar is None else window
        key = ends, prodder.position, here, points
        if key not in known:
            known[key] = crossed(query, prodder, here, points)
        return known[key]

    for batch in batches:
        stream = state.stream(batch.rules.clock.stream)
        reported |= window_requests(prods, batch.queries)
        for query in batch.queries:
            if query.query.emit is None:
                continue
            prodder = prodders.get(query.name, ProdderState())
            prodder = replace(prodder, fresh=prodder.fresh or _brings_rows(batch))
            here = batch.origin.now if batch.origin else now_of(query.query.clock, stream, batch.rules, clock)
            wanted = passed(query, prodder, points_of(query, state))
            if is_due(query, prodder, clock):
                wanted, prodder = EVERYTHING, replace(prodder, prodded=clock, fresh=False)
            if query.query.early_decision is not None:
                if is_decided_always(query) and (_brings_rows(batch) or here != prodder.position):
                    wanted = near_windows(query, here)
                if wanted:
                    looked.append(WindowRequest(query, wanted))
                wanted, looks = IntervalSet(), wanted
            else:
                looks = IntervalSet()
            request = reported.get(query.name, WindowRequest(query))
            request = replace(request, wids=request.wids | wanted)
            if request.wids or request.patterned:
                reported[query.name] = request
            grid = COARSE_GRID if _is_on_executors(query, state) else GRID
            marks = passed(query, prodder, grid) - request.wids - looks
            if marks and query.query.window.is_shared_by_groups:
                observed.append(WindowRequest(query, marks))
            if prodder.position is not None:
                before[query.name] = prodder.position
            if here is not None:
                prodder, now[query.name] = replace(prodder, position=here), here
            prodders[query.name] = prodder
    return DueWindows(tuple(reported.values()), tuple(observed), tuple(looked), prodders, now, before)


def is_decided_always(query: CompiledQuery) -> bool:
    """Whether HAVING is decided with every batch in which the stream moved: EMIT EARLY names no other moments."""
    emit = query.query.emit
    has_moments = emit is not None and (emit.every is not None or emit.at or emit.accuracy is not None)
    return query.query.early_decision is not None and not has_moments


def near_windows(query: CompiledQuery, now: int | None) -> IntervalSet:
    """The windows that end soon enough to be decided."""
    if now is None:
        return EVERYTHING
    spec = query.query.window
    return IntervalSet.of((LOWEST, windows.last_ended(spec, now + DECISION_REACH * spec.slide) + 1))


def _is_on_executors(query: CompiledQuery, state: State) -> bool:
    """Whether a query's slices are on the executors: reading them takes a job."""
    return any(state.selections[home].on_executors for home in state.queries[query.name].homes)


def _brings_rows(batch: BatchInput) -> bool:
    """Whether rows came, or of a stream of results, rows that they are made of."""
    return batch.outcome.rows > 0 or (batch.origin is not None and bool(batch.origin.arrived))


def now_of(clock: Clock, stream: StreamState, rules: StreamRules, engine_clock: int) -> int | None:
    """How far a clock has come: by its rows, and for the time of a live stream by the engine's clock too."""
    if clock.kind is ClockKind.ROWS:
        return stream.totals.accepted
    high = stream.clock(clock).high
    if rules.live and clock == rules.clock and clock.kind is ClockKind.TIME and high is not None:
        return max(high, engine_clock)
    return high


def is_due(query: CompiledQuery, prodder: ProdderState, clock: int) -> bool:
    """Whether it is time to report all open windows again, and something has come since the last time."""
    emit = query.query.emit
    if emit is None or emit.every is None or not prodder.fresh:
        return False
    return prodder.prodded is None or clock - prodder.prodded >= emit.every


def points_of(query: CompiledQuery, state: State) -> tuple[float, ...]:
    """The parts of the slide at which a query reports its windows: as tuned, as learned, or as its SQL says."""
    emit = query.query.emit
    tuned = state.prodders.get(query.name, ProdderState()).point
    if tuned is not None:
        return (tuned,)
    if emit is None or emit.accuracy is None:
        return () if emit is None else emit.at
    learned = state.estimators.get(query.name)
    return (emit.between[1] if learned is None else learned.point,)


def crossed(
    query: CompiledQuery, prodder: ProdderState, now: int | None, points: Iterable[float]
) -> IntervalSet:
    """The windows whose marks the clock has passed since the query's last batch."""
    if now is None:
        return IntervalSet()
    spec, ranges = query.query.window, []
    for point in points:
        first = LOWEST if prodder.position is None else windows.wid_by_mark(spec, point, prodder.position)
        ranges.append(IntervalSet.of((first, windows.wid_by_mark(spec, point, now))))
    return union(ranges)


def due_streams(
    state: State, queries: Mapping[str, CompiledQuery], rules: Mapping[str, StreamRules], clock: int
) -> list[str]:
    """The streams with queries that are to report by the engine's clock now, whether rows come or not."""
    due: dict[str, None] = {}
    for name, prodder in state.prodders.items():
        query = queries.get(name)
        if query is None:
            continue
        root = query
        while root.query.stream not in rules and root.query.stream in queries:
            root = queries[root.query.stream]
        stream = root.query.streams[0]  # a batch of either stream concerns a join
        if stream in due or stream not in rules:
            continue
        is_joined = root.query.stream_join is not None
        if is_due(query, prodder, clock) or (
            rules[stream].live
            and not is_joined
            and _passed(query, root, prodder, state, rules[stream], clock)
        ):
            due[stream] = None
    return list(due)


def _passed(
    query: CompiledQuery,
    root: CompiledQuery,
    prodder: ProdderState,
    state: State,
    rules: StreamRules,
    clock: int,
) -> bool:
    """Whether a live stream's clock has passed a mark that its rows have not."""
    stream, followed = state.stream(root.query.stream), root.query.clock
    high = stream.clock(followed).high
    if high is None:
        return False
    spec, reach = query.query.window, 0 if root is query else root.query.window.range
    marks = crossed(query, prodder, now_of(followed, stream, rules, clock), points_of(query, state))
    last = windows.wid_to(spec, high + reach)  # later ones are empty
    return bool(marks) and marks.pairs[0][0] <= last
