"""Plans the probes of a batch: the driver decides by summaries alone, and defers probes beyond the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from transom.columns.arrays import Ints, Mask
from transom.kernel.predicates import evaluate
from transom.promising.batch_tuples import BatchArrival
from transom.promising.found_tuples import TupleReading, truth_of
from transom.promising.joins import BatchValues, join_regions
from transom.promising.key_planner import KeyPlanner
from transom.promising.probes import Probe, TupleReader
from transom.promising.regions import WHOLE_BATCH, Regions, spend_budget
from transom.promising.selections import BatchCells, batch_cells, cell_counts
from transom.sql.preference_query import PreferenceQuery, Side
from transom.state.promising import Coverage, PreferenceState, PromisingState

MAX_DEFERRED_REGIONS = 100_000  # of a query; beyond this number, unlikely regions are dropped first


def reachable_regions(state: PromisingState, query: PreferenceQuery, side: int, regions: Regions) -> Regions:
    """The deferred regions of a side whose tuples are all kept and may still be in the window."""
    states = [state.summaries[one.summary].representation for one in query.sides]
    probing, probed = states[side], states[len(states) - 1 - side]
    window = query.preference.window
    now = min((one.high for one in states if one.high is not None), default=None)
    since = None if window is None or now is None else now - window
    return regions.reachable(probed.floor, probing.floor, since)


def is_on_executors(state: PromisingState, query: PreferenceQuery) -> bool:
    """Whether tasks make a query's probes: tuples that it reads are in files.

    All tuples that an outer join reads are on the driver. Those in files arrived before the query joined.
    """
    return query.outer is None and any(state.summaries[side.summary].files for side in query.sides)


class ProbePlanner:
    """Plans the probes of queries, given the summaries with the batch's tuples inserted.

    Where the tuples are at hand, with `read`, matches are looked up by key, and a summary is asked only if the
    budget does not suffice for all of them.
    """

    def __init__(
        self,
        state: PromisingState,
        arrivals: Mapping[str, BatchArrival],
        batch_id: int,
        read: TupleReader | None = None,
        selected: Callable[[str, str], Ints | None] | None = None,
    ):
        self.state, self.batch_id = state, batch_id
        self.arrivals = {name: arrival for name, arrival in arrivals.items() if arrival.rows}  # not only late
        self.by_key = None if read is None else KeyPlanner(state, self.arrivals, batch_id, read, selected)
        self._cells: dict[tuple[str, int | None], BatchCells] = {}  # shared by selections
        self._deferred: dict[str, list[Regions]] = {}

    def plan(self, name: str, query: PreferenceQuery, budget: int | None) -> list[Probe]:
        """The probes that a query makes among the batch's tuples and in deferred regions."""
        if self.by_key is not None and not is_on_executors(self.state, query):
            return self._plan_by_key(self.by_key, name, query, budget)
        fresh = [
            self._regions(query, number) if side.summary in self.arrivals else Regions.none()
            for number, side in enumerate(query.sides)
        ]
        return self._spent(name, query, fresh, self.deferred(name, query), budget)

    def _plan_by_key(
        self, by_key: KeyPlanner, name: str, query: PreferenceQuery, budget: int | None
    ) -> list[Probe]:
        """All matches if the budget suffices; otherwise those that the query prefers."""
        readings = [self.reading(name, query, side) for side in range(len(query.sides))]
        matches = [by_key.matches(name, reading) for reading in readings]
        waiting = self.deferred(name, query)
        total = sum(found.total for found in matches if found is not None) + _left(waiting)
        if budget is None or total <= budget:
            return [
                Probe(
                    name,
                    query,
                    side,
                    own,
                    own.left,
                    0,
                    not self.arrivals,
                    reading.since,
                    reading.keys,
                    whole=None if found is None else found.whole(),
                    returned=reading.returned,
                )
                for side, (reading, found, own) in enumerate(zip(readings, matches, waiting, strict=True))
            ]
        lines = [None if found is None else found.lines() for found in matches]
        fresh = [
            Regions.none() if found is None else by_key.regions(reading, found)
            for reading, found in zip(readings, lines, strict=True)
        ]
        probes = self._spent(name, query, fresh, waiting, budget)
        return [replace(probe, found=found) for probe, found in zip(probes, lines, strict=True)]

    def reading(self, name: str, query: PreferenceQuery, side: int) -> TupleReading:
        """How a query reads tuples, when those of a side arrive."""
        shapes = [self.state.summaries[one.summary].representation.shape for one in query.sides]
        own = self.state.queries[name]
        return TupleReading(
            query, side, tuple(shape.column for shape in shapes), own.since, own.unmatched.returned
        )

    def plan_rest(self, probes: Sequence[Probe], budget: int) -> list[Probe]:
        """The probes that a query makes next with another budget, in the regions that its last probes left."""
        fresh, waiting = zip(*(probe.rest() for probe in probes), strict=True)
        return self._spent(probes[0].name, probes[0].query, fresh, waiting, budget)

    def _spent(
        self,
        name: str,
        query: PreferenceQuery,
        fresh: Sequence[Regions],
        waiting: Sequence[Regions],
        budget: int | None,
    ) -> list[Probe]:
        now, later = spend_budget(
            Regions.concatenated(fresh), Regions.concatenated(waiting), query.preference.order, budget
        )
        parts = _split(now, fresh), _split(later, waiting)
        reading = self.reading(name, query, 0)
        probes = []
        for side, (new, old) in enumerate(zip(fresh, waiting, strict=True)):
            taken = np.concatenate([parts[0][side], parts[1][side]])
            both = Regions.concatenated([new, old])
            probe = Probe(
                name, query, side, both, taken, len(new), not self.arrivals, reading.since, reading.keys
            )
            probes.append(replace(probe, returned=reading.returned))
        return probes

    def deferred(self, name: str, query: PreferenceQuery) -> list[Regions]:
        """The deferred regions of a query whose tuples are all kept and may still be in the window."""
        if name not in self._deferred:
            self._deferred[name] = self._reachable(name, query)
        return self._deferred[name]

    def _reachable(self, name: str, query: PreferenceQuery) -> list[Regions]:
        deferred = []
        for side, regions in enumerate(self.state.queries[name].pending):
            if not len(regions):
                deferred.append(regions)
                continue
            if is_on_executors(self.state, query):
                regions = regions.where(regions.bucket != WHOLE_BATCH)  # a task has only a part of its tuples
            deferred.append(reachable_regions(self.state, query, side, regions))
        return deferred

    def state_after(
        self, name: str, query: PreferenceQuery, probes: Sequence[Probe], charge: int, rows: int
    ) -> PreferenceState:
        """A query's state after its last probes of a batch, whose probes cost `charge` and produced `rows`."""
        query_state = self.state.queries[name]
        if not query_state.waits and not any(len(probe.regions) for probe in probes):
            done = Coverage(query_state.done.probes + charge, query_state.done.produced + rows)
            return replace(query_state, done=done)
        left = [probe.regions.after(probe.taken) for probe in probes]
        best_regions = [regions.most_likely(MAX_DEFERRED_REGIONS) for regions in left]
        waiting = self.deferred(name, query)
        dropped = [
            (before, after)
            for before, after in zip([*query_state.pending, *left], [*waiting, *best_regions], strict=True)
            if before is not after
        ]
        lost = sum(_awaited([before]) - _awaited([after]) for before, after in dropped)
        missed = sum(_left([before]) - _left([after]) for before, after in dropped)
        done = Coverage(query_state.done.probes + charge, query_state.done.produced + rows)
        return replace(
            query_state,
            pending=tuple(best_regions),
            done=done,
            lost=query_state.lost + lost,
            missed=query_state.missed + missed,
        )

    def _regions(self, query: PreferenceQuery, number: int) -> Regions:
        """The regions of the tuples that arrived on one side of a query, with their promises."""
        side = query.sides[number]
        arrival, probing = self.arrivals[side.summary], self.state.summaries[side.summary].representation
        matching = _matching(side, arrival)
        if len(query.sides) == 1:
            cells = self._batch_cells(side.summary, query.preference.window)
            regions_of = cells.even_regions if query.is_even else cells.regions
            return regions_of(matching, query.preference, query.promise)
        probed = self.state.summaries[query.sides[1 - number].summary].representation
        matching &= truth_of(arrival.column.is_valid())  # NULL equals nothing
        if probed.high is None or not matching.any():
            return Regions.none()
        values = arrival.values
        if not matching.all():
            values = BatchValues(
                **{one.name: getattr(values, one.name)[matching] for one in fields(BatchValues)}
            )
        counted = query.counted_as(number), query.counted_as(1 - number)
        regions = join_regions(
            values, self.batch_id, probing, probed, query.preference, query.promise, counted
        )
        return regions.evenly_promising() if query.samples else regions

    def _batch_cells(self, summary: str, window: int | None) -> BatchCells:
        if (summary, window) not in self._cells:
            arrival, own = self.arrivals[summary], self.state.summaries[summary].representation
            counts = cell_counts(arrival.steps, own)
            self._cells[summary, window] = batch_cells(
                arrival.values, self.batch_id, own, counts, window, arrival.means
            )
        return self._cells[summary, window]


def _matching(side: Side, arrival: BatchArrival) -> Mask:
    """Which arrived values may match a side's conditions, by the summary."""
    if side.guide is None:
        return np.ones(len(arrival.column), bool)
    return truth_of(
        evaluate(
            side.guide,
            lambda scalar: arrival.column if scalar.column is not None else arrival.guides[scalar.sql],
        )
    )


def _split(taken: Ints, parts: Sequence[Regions]) -> list[Ints]:
    return np.split(taken, np.cumsum([len(part) for part in parts])[:-1])


def _awaited(parts: Sequence[Regions]) -> float:
    """The expected output of the remaining probes of some regions."""
    return sum(float(part.expected_left.sum()) for part in parts)


def _left(parts: Sequence[Regions]) -> int:
    """The probes that are left of some regions."""
    return sum(int(part.left.sum()) for part in parts)
