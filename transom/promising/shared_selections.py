"""Selections over one stream that are planned and answered together: one pass for hundreds of queries.

Their conditions are evaluated by one index. Without a budget, or with one that suffices, the selected tuples of all
queries are read at once. With a smaller one, the tuples of the batch are ordered once for all queries with the same
preference, and each takes the first ones that it selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.promising.answers import (
    Shown,
    answer_in_window,
    outputs_of,
    presented,
    selected_outputs,
    shown_together,
)
from transom.promising.batch_tuples import BatchArrival
from transom.promising.found_tuples import column_reader
from transom.promising.key_matches import EARLIEST
from transom.promising.key_planner import BatchOrder, KeyPlanner
from transom.promising.probe_planner import MAX_DEFERRED_REGIONS
from transom.promising.rarest_first import RareSelections, take_rarest
from transom.promising.regions import Regions
from transom.promising.selection_index import IndexedRows, SelectedRows, SelectionIndex
from transom.promising.tuples import KeptTuples
from transom.results.result_rows import Moment, ResultBatch
from transom.sql.catalog import Scalars
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import Coverage, PreferenceState, PromisingState


@dataclass(frozen=True)
class SelectionGroup:
    """The selections over a summary, and the index of their conditions; `alike` numbers those with equal outputs."""

    queries: tuple[PreferenceQuery, ...]
    index: SelectionIndex
    alike: Ints

    @classmethod
    def of(cls, queries: Sequence[PreferenceQuery]) -> SelectionGroup:
        numbers: dict[object, int] = {}
        alike = [
            numbers.setdefault((query.outputs, query.sides[0].columns, query.expires), len(numbers))
            for query in queries
        ]
        index = SelectionIndex.of([query.sides[0].where for query in queries])
        return cls(tuple(queries), index, np.array(alike, np.int64))


class SelectionGroups:
    """The selections over each summary, made anew when queries join or leave."""

    def __init__(self) -> None:
        self._groups: dict[str, SelectionGroup] = {}

    def of(self, summary: str, queries: Sequence[PreferenceQuery]) -> SelectionGroup:
        known = self._groups.get(summary)
        if (
            known is None
            or len(known.queries) != len(queries)
            or any(one is not other for one, other in zip(known.queries, queries, strict=True))
        ):
            known = self._groups[summary] = SelectionGroup.of(queries)
        return known


@dataclass(frozen=True)
class _Selected:
    """The tuples of a batch that the selections over a summary select; `names` are the selections, in order."""

    tuples: KeptTuples
    group: SelectionGroup
    names: tuple[str, ...]
    rows: IndexedRows
    counts: Ints
    numbers: Mapping[str, int]


class BatchSelections:
    """The selected tuples of a batch whose tuples are on the driver, by selection."""

    def __init__(
        self,
        state: PromisingState,
        arrivals: Mapping[str, BatchArrival],
        queries: Mapping[str, PreferenceQuery],
        groups: SelectionGroups | None = None,
    ):
        groups = SelectionGroups() if groups is None else groups
        members: dict[str, list[str]] = {}
        for name, query in queries.items():
            if len(query.sides) == 1 and query.sides[0].summary in arrivals:
                members.setdefault(query.sides[0].summary, []).append(name)
        self._summaries: dict[str, _Selected] = {}
        for summary, names in members.items():
            run = arrivals[summary].run
            if run is None or state.summaries[summary].files:
                continue
            group = groups.of(summary, [queries[name] for name in names])
            rows = group.index.placed(run.rows, column_reader(run.tuples.table))
            numbers = {name: number for number, name in enumerate(names)}
            self._summaries[summary] = _Selected(
                run.tuples, group, tuple(names), rows, rows.counts(), numbers
            )

    def __iter__(self) -> Iterator[tuple[str, _Selected]]:
        return iter(self._summaries.items())

    def rows(self, summary: str, name: str) -> Ints | None:
        """The rows of a batch's tuples that a query selects; None if they are not at hand."""
        selected = self._summaries.get(summary)
        if selected is None:
            return None
        return selected.rows.selected(np.array([selected.numbers[name]])).of(0)


@dataclass
class SharedAnswers:
    """The results of selections that were answered together, their states, and the probes that they made.

    `times` are the event times of the new results of each batch of results, which are its first rows.
    """

    queries: dict[str, PreferenceState] = field(default_factory=dict)
    batches: list[ResultBatch] = field(default_factory=list)
    times: list[Ints] = field(default_factory=list)
    charge: int = 0


@dataclass(frozen=True)
class _Share:
    """Selections that take their tuples in one order: `numbers` are theirs, `counts` all tuples of each."""

    numbers: Ints
    counts: Ints
    rows: SelectedRows
    order: BatchOrder | None = None  # None: they take all tuples

    @property
    def taken(self) -> Ints:
        return self.rows.counts


def answer_together(
    selections: BatchSelections,
    by_key: KeyPlanner,
    budgets: Mapping[str, int | None],
    moment: Moment,
    scalars: Scalars,
) -> SharedAnswers:
    """Answer the selections that resume nothing: the budget suffices, or the batch uses all of it.

    Selections that are not among the answers have to be planned one by one.
    """
    answers = SharedAnswers()
    for summary, selected in selections:
        for share in _shares(summary, selected, by_key, budgets):
            pending = None if share.order is None else _deferred(summary, selected, share, by_key)
            _answer(answers, selected, share, pending, by_key, moment, scalars)
        if len(members := _rarest_members(selected, by_key, budgets)):
            _answer(answers, *_rarest(summary, selected, members, by_key, budgets), by_key, moment, scalars)
    return answers


def _rarest_members(selected: _Selected, by_key: KeyPlanner, budgets: Mapping[str, int | None]) -> Ints:
    """The selections with asc whose budget may not suffice for the batch and what they have deferred."""
    states = by_key.state.queries
    return np.array(
        [
            number
            for number, (name, query) in enumerate(zip(selected.names, selected.group.queries, strict=True))
            if query.preference.order == "asc"
            and not query.figures
            and query.rest is None
            and budgets[name]
            and (states[name].waits or int(selected.counts[number]) > (budgets[name] or 0))
        ],
        np.int64,
    )


def _rarest(
    summary: str,
    selected: _Selected,
    members: Ints,
    by_key: KeyPlanner,
    budgets: Mapping[str, int | None],
) -> tuple[_Selected, _Share, _Deferred]:
    """What selections with asc take of the batch and of what they have deferred."""
    arrival, queries = (
        by_key.arrivals[summary],
        [selected.group.queries[number] for number in members.tolist()],
    )
    names = [selected.names[number] for number in members.tolist()]
    before = [by_key.state.queries[name].pending[0] for name in names]
    owners = np.repeat(np.arange(len(members)), [len(own) for own in before])
    deferred = Regions.concatenated(before)
    promises: dict[str, tuple[int, Floats]] = {}
    for query in queries:
        if query.promise_in_window not in promises:
            promises[query.promise_in_window] = len(promises), by_key.value_promises(query, arrival)
    columns = {f".{column}": None for query in queries for column in query.sides[0].columns}
    made = take_rarest(
        RareSelections(
            selected.group.index,
            members,
            np.array([budgets[name] for name in names]),
            ["time", *columns],
            np.stack([worth for _, worth in promises.values()]),
            np.array([promises[query.promise_in_window][0] for query in queries]),
            deferred,
            owners,
            _is_reachable(summary, queries, deferred, owners, by_key),
        ),
        selected.rows,
        arrival,
        by_key.batch_id,
        summary,
        by_key.read,
    )
    share = _Share(members, made.rows.counts + made.skipped, made.rows)
    pending = _Deferred(made.pending, made.bounds, made.lost, made.missed)
    return replace(selected, tuples=made.tuples), share, pending


def _shares(
    summary: str, selected: _Selected, by_key: KeyPlanner, budgets: Mapping[str, int | None]
) -> Iterator[_Share]:
    """The selections that are answered together, by the order in which they take their tuples."""
    counts = selected.counts.tolist()
    whole: list[int] = []
    ordered: dict[str | None, list[tuple[int, int]]] = {}
    states = by_key.state.queries
    for number, (name, query) in enumerate(zip(selected.names, selected.group.queries, strict=True)):
        if query.figures or query.rest is not None:
            continue
        budget = budgets[name]
        if budget is None or counts[number] <= budget:
            if not states[name].waits:
                whole.append(number)
        elif budget and (query.is_even or query.ranking is not None):
            ordered.setdefault(query.ranking, []).append((number, budget))
    if whole:
        numbers = np.array(whole)
        yield _Share(numbers, selected.counts[numbers], selected.rows.selected(numbers))
    for ranking, members in ordered.items():
        numbers, limits = np.array(members).T
        order = by_key.order(summary, selected.group.queries[numbers[0]], ranking)
        rows = selected.rows.first_selected(numbers, limits, np.argsort(order.place))
        yield _Share(numbers, selected.counts[numbers], rows, order)


@dataclass(frozen=True)
class _Deferred:
    """The deferred regions of selections, one after the other, and what each can't reach any more."""

    regions: Regions
    bounds: Ints
    lost: Floats
    missed: Ints

    def of(self, place: int) -> Regions:
        """The regions of one selection."""
        some = slice(self.bounds[place], self.bounds[place + 1])
        return self.regions.where(some).most_likely(MAX_DEFERRED_REGIONS)


def _deferred(summary: str, selected: _Selected, share: _Share, by_key: KeyPlanner) -> _Deferred:
    """What selections have deferred before, as far as they can reach it, and the rest of their tuples of the batch."""
    size, state = len(share.numbers), by_key.state
    before = [state.queries[selected.names[number]].pending[0] for number in share.numbers.tolist()]
    assert share.order is not None
    last = share.order.promise_at(share.rows.rows[share.rows.bounds[1:] - 1])  # what is left promises no more
    new = replace(by_key.batch_regions(summary, share.counts, last), done=share.taken)
    regions = Regions.concatenated([*before, new])
    owners = np.concatenate([np.repeat(np.arange(size), [len(own) for own in before]), np.arange(size)])
    queries = [selected.group.queries[number] for number in share.numbers.tolist()]
    is_kept = _is_reachable(summary, queries, regions, owners, by_key)
    gone = ~is_kept
    lost = np.bincount(owners[gone], regions.expected_left[gone], size).astype(np.float64)
    missed = np.bincount(owners[gone], regions.left[gone], size).astype(np.int64)
    order = np.flatnonzero(is_kept)
    order = order[np.argsort(owners[order], kind="stable")]
    bounds = np.searchsorted(owners[order], np.arange(size + 1))
    return _Deferred(regions.where(order), bounds, lost, missed)


def _is_reachable(
    summary: str, queries: Sequence[PreferenceQuery], regions: Regions, owners: Ints, by_key: KeyPlanner
) -> Mask:
    """Whether the tuples of each region are all kept and in the window of its query."""
    kept = by_key.state.summaries[summary].representation
    windows = [query.preference.window for query in queries]
    now = 0 if kept.high is None else kept.high
    since = np.array([EARLIEST if window is None else now - window for window in windows])
    return regions.is_reachable(kept.floor, kept.floor, since[owners])


def _answer(
    answers: SharedAnswers,
    selected: _Selected,
    share: _Share,
    deferred: _Deferred | None,
    by_key: KeyPlanner,
    moment: Moment,
    scalars: Scalars,
) -> None:
    answers.charge += int(share.taken.sum())
    for place, (number, taken) in enumerate(zip(share.numbers.tolist(), share.taken.tolist(), strict=True)):
        name = selected.names[number]
        before = by_key.state.queries[name]
        pending, lost, missed = before.pending, before.lost, before.missed
        if deferred is not None:
            pending = (deferred.of(place),)
            lost, missed = lost + float(deferred.lost[place]), missed + int(deferred.missed[place])
        done = Coverage(before.done.probes + taken, before.done.produced + taken)
        answers.queries[name] = PreferenceState(
            pending, before.since, done, lost, missed, before.selected, registered=before.registered
        )
    alike = selected.group.alike[share.numbers]
    for outputs in np.unique(alike):
        query = selected.group.queries[int(share.numbers[alike == outputs][0])]
        members = np.flatnonzero((alike == outputs) & ((share.taken > 0) | query.expires))
        if not len(members):
            continue
        rows = share.rows.where(members)
        numbers = share.numbers[members]
        shown = Shown(share.taken[members], share.counts[members] - share.taken[members])
        if query.expires:
            _answer_in_windows(answers, selected, numbers, rows, shown, by_key.state, moment, scalars)
            continue
        table = shown_together(query, selected.tuples.table, rows.rows, shown, moment, scalars)
        names = [selected.names[number] for number in numbers.tolist()]
        answers.batches.append(ResultBatch(names, rows.bounds, table))
        answers.times.append(selected.tuples.time[rows.rows])


def _answer_in_windows(
    answers: SharedAnswers,
    selected: _Selected,
    numbers: Ints,
    rows: SelectedRows,
    shown: Shown,
    state: PromisingState,
    moment: Moment,
    scalars: Scalars,
) -> None:
    """Answer selections with windows and the same SELECT list: each has its own tuples that expire."""
    queries = selected.group.queries
    first = queries[int(numbers[0])]
    columns = outputs_of(first, selected.tuples.table, rows.rows, scalars)
    times = selected.tuples.time[rows.rows]
    new = selected_outputs(times, columns)
    high = state.summaries[first.sides[0].summary].representation.high
    for place, number in enumerate(numbers.tolist()):
        name, query = selected.names[number], queries[number]
        start, count = int(rows.bounds[place]), int(shown.produced[place])
        answer = answer_in_window(query, state.queries[name].selected, new.slice(start, count), high)
        answers.queries[name] = replace(answers.queries[name], selected=answer.selected)
        if answer.rows:
            left = int(shown.skipped[place])
            coverage = Coverage(produced=count, skipped=float(left), left=left)
            table = presented(query, answer.columns, answer.rows, moment, coverage)
            answers.batches.append(ResultBatch([name], np.array([0, answer.rows]), table))
            answers.times.append(times[start : start + count])
