"""The statistics of one query or of several, as arrays: all of these queries learn and estimate in the same steps.

The queries of a stack are numbered. Each array has the rows of query 0, then those of query 1, and so on: a row per
mark, per group, or per mark with scores. What a query learns does not depend on the others in its stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints, Mask
from transom.elements import Emit
from transom.estimates.accuracy_loop import next_point
from transom.estimates.conformal_bounds import ConformalBounds
from transom.estimates.early_values import Estimates, ItemKind
from transom.estimates.experts import (
    Expert,
    ExpertProjections,
    Experts,
    ProjectionInput,
    even_arrival_factor,
)
from transom.estimates.group_profiles import GroupProfiles, rows_to_keep, sampled_groups
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits
from transom.estimates.marks import MARKS, MarkRuns, marks
from transom.estimates.monitor import Monitor, Quality
from transom.estimates.pending_values import Pending, PendingRows, final_positions
from transom.estimates.quality import pair_accuracies
from transom.estimates.seasons import NO_TIME, HourFactors, HourPairs, Seasons


@dataclass(frozen=True)
class EstimatedQuery:
    """What estimates depend on of a query: EMIT EARLY, its items, and how many slides its range is."""

    emit: Emit
    items: tuple[ItemKind, ...]
    range_in_slides: float
    limits: EstimateLimits = DEFAULT_LIMITS

    @cached_property
    def grows(self) -> tuple[bool, ...]:
        """Which of the numeric items grow."""
        return tuple(item.grows for item in self.items if item.is_number)

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Which items are numbers."""
        return tuple(item.is_number for item in self.items)

    @cached_property
    def stack_key(self) -> object:
        """Queries of equal keys can be in one stack. A user's quality function sees one query at a time."""
        return self.numeric, self.limits, None if self.emit.quality is None else id(self)


@dataclass(frozen=True)
class EarlyRows:
    """Early values of open windows of a stack's queries; arrays of equal length."""

    query: Ints  # ascending
    group: Ints
    window: Ints
    slides_left: Floats
    numbers: Floats  # by numeric item
    made: int
    emitted: Mask
    items: pa.Table | None = None  # in their own types, for a user's quality function
    end: Ints | None = None  # of the window, in microseconds; None if the clock does not tell the time

    def take(self, at: Ints) -> EarlyRows:
        """The rows at some places, in ascending order."""
        return EarlyRows(
            self.query[at],
            self.group[at],
            self.window[at],
            self.slides_left[at],
            self.numbers[at],
            self.made,
            self.emitted[at],
            None if self.items is None else self.items.take(at),
            None if self.end is None else self.end[at],
        )

    def part(self, start: int, stop: int) -> EarlyRows:
        """Some of the rows, one after the other."""
        return EarlyRows(
            self.query[start:stop],
            self.group[start:stop],
            self.window[start:stop],
            self.slides_left[start:stop],
            self.numbers[start:stop],
            self.made,
            self.emitted[start:stop],
            None if self.items is None else self.items.slice(start, stop - start),
            None if self.end is None else self.end[start:stop],
        )


@dataclass(frozen=True)
class FinalRows:
    """Finals of a stack's queries; arrays of equal length."""

    query: Ints
    group: Ints
    window: Ints
    numbers: Floats  # by numeric item
    made: int
    items: pa.Table | None = None  # in their own types, for a user's quality function
    end: Ints | None = None  # of the window, in microseconds; None if the clock does not tell the time

    def of_query(self, number: int) -> FinalRows:
        """The finals of one query, as the only query of a stack."""
        mine = np.flatnonzero(self.query == number)
        query, items = np.zeros(len(mine), np.int64), None if self.items is None else self.items.take(mine)
        end = None if self.end is None else self.end[mine]
        return FinalRows(
            query, self.group[mine], self.window[mine], self.numbers[mine], self.made, items, end
        )


@dataclass(frozen=True)
class EstimatorStack:
    """The statistics of queries whose items are alike; immutable."""

    queries: Sequence[EstimatedQuery]
    groups: GroupProfiles
    experts: Experts
    bounds: ConformalBounds
    seasons: Seasons
    monitor: Monitor
    pending: Sequence[Pending]
    points: Sequence[float]  # of the slide, at which windows are emitted, where a query asks for an accuracy

    def estimate(self, values: EarlyRows) -> Estimates:
        """Projections of the finals, and bounds that contain the finals with the query's confidence."""
        end = _or_no_time(values.end, len(values.query))
        given = self._input(values.query, values.numbers, values.slides_left, values.group, end)
        projected = self.experts.projected(given, self.groups)
        unit = self._units(values.query, given, projected)
        finals = self.groups.finals(len(self.queries))
        low, high = self.bounds.around(projected, unit, given.mark, finals)
        return Estimates(projected, low, high, self.experts.usual_errors(given.mark) * unit)

    def with_early(self, values: EarlyRows, estimates: Estimates) -> EstimatorStack:
        """The stack with early values and their estimates, pending until their finals arrive."""
        rows = PendingRows(
            values.group,
            values.window,
            values.slides_left,
            np.full(len(values.group), values.made),
            values.emitted,
            values.numbers,
            estimates.projected,
            estimates.low,
            estimates.high,
            values.items if self.queries[0].emit.quality is not None else None,
        )
        pending = list(self.pending)
        for query, mine in _runs(values.query):
            part, limits = rows.part(mine.start, mine.stop), self.queries[query].limits
            if len(part) > limits.observed_groups:
                mark = marks(part.slides_left)
                part = part.take(rows_to_keep(part.group, part.window, mark, part.emitted, limits))
            pending[query] = pending[query].with_rows(part, limits)
        return replace(self, pending=pending)

    def since(self, window: Ints) -> EstimatorStack:
        """The stack without pending values of windows before one for each query: they get no further finals."""
        pending = [own.since(first) for own, first in zip(self.pending, window.tolist(), strict=True)]
        return replace(self, pending=pending)

    def with_finals(self, finals: FinalRows, quality: Quality | None = None) -> EstimatorStack:
        """Pair finals with their pending early values, and learn from the pairs."""
        sample = self._sample(finals)
        query, group, window = finals.query[sample], finals.group[sample], finals.window[sample]
        values = finals.numbers[sample]
        groups = self.groups.with_finals(query, group, window, values)
        pairs, of, place, pending = self._split_pending(query, window, group)
        if not len(pairs):
            return replace(self, groups=groups.bounded(self._limits.groups), pending=pending)
        by_mark = np.lexsort((pairs.group, pairs.window, pairs.slides_left, of))
        pairs, of, place = pairs.take(by_mark), of[by_mark], place[by_mark]
        runs, final = MarkRuns(of * MARKS + marks(pairs.slides_left)), values[place]
        windows, missed = _distinct_windows(of, pairs.window, len(self.queries)), _missed(pairs, final)
        end = _or_no_time(finals.end, len(finals.query))[sample][place]
        after = self._with_pairs(pairs, of, end, runs, windows, final, missed, groups)
        kinds = self.queries[0].items
        raw, projected = pair_accuracies(
            kinds, pairs, final, finals.items, finals.made, sample[place], quality, self._limits
        )
        monitor = self.monitor.with_pairs(
            pairs.window,
            windows[runs.query],
            pairs.emitted,
            runs,
            raw,
            projected,
            _by_item(missed, np.array(self.queries[0].numeric, np.bool_), np.nan),
            self._limits.recent_windows,
        )
        points = self._points_after(monitor, np.unique(runs.query).tolist())
        return replace(after, monitor=monitor, pending=pending, points=points)

    def _points_after(self, monitor: Monitor, queries: Sequence[int]) -> Sequence[float]:
        """Where windows are emitted after some queries compared early values with finals."""
        points = list(self.points)
        for i in queries:
            emit = self.queries[i].emit
            if emit.accuracy is not None:
                windows, _, curve = monitor.curve(i)
                points[i] = next_point(points[i], windows, curve, emit.accuracy, emit.between)
        return points

    def _sample(self, finals: FinalRows) -> Ints:
        """The rows of finals to learn from, in a fixed order, independent of the order of the groups."""
        order = np.lexsort((finals.window, finals.group, finals.query))
        limit = self._limits.groups
        if len(order) <= limit:
            return order
        query, kept = finals.query[order], np.ones(len(order), np.bool_)
        for _, mine in _runs(query):
            if mine.stop - mine.start > limit:
                kept[mine] = sampled_groups(finals.group[order[mine]], limit)
        return order[kept]

    def _split_pending(
        self, query: Ints, window: Ints, group: Ints
    ) -> tuple[PendingRows, Ints, Ints, Sequence[Pending]]:
        """The pending rows of finals, the query and the final of each, and the rows that stay pending."""
        parts = [(i, part) for i, pending in enumerate(self.pending) for part in pending.parts]
        if not parts:
            none = PendingRows.empty(self.groups.level.shape[1])
            return none, np.empty(0, np.int64), np.empty(0, np.int64), self.pending
        rows = PendingRows.concatenated([part for _, part in parts])
        of = np.repeat([i for i, _ in parts], [len(part) for _, part in parts])
        place = final_positions((of, rows.window, rows.group), (query, window, group))
        hit = place >= 0
        stays = ~hit & (rows.window >= self._oldest(query, window)[of])
        pending, rest = list(self.pending), rows.take(stays)
        left = {number: mine for number, mine in _runs(of[stays])}
        for i in np.unique(of[~stays]).tolist():
            pending[i] = Pending((rest.part(left[i].start, left[i].stop),) if i in left else ())
        return rows.take(hit), of[hit], place[hit], pending

    def _oldest(self, query: Ints, window: Ints) -> Ints:
        """By query, the window before which pending rows will have no final.

        A window far behind the newest final closed without one (HAVING), or never closes.
        """
        lowest = np.iinfo(np.int64).min
        newest = np.full(len(self.queries), lowest)
        np.maximum.at(newest, query, window)
        ranges = np.array([one.range_in_slides for one in self.queries])
        behind = np.rint(np.maximum(self._limits.windows_behind, 16 * ranges)).astype(np.int64)
        return np.where(newest > lowest, newest - behind, lowest)

    def _with_pairs(
        self,
        pairs: PendingRows,
        of: Ints,
        end: Ints,
        runs: MarkRuns,
        windows: Ints,
        final: Floats,
        missed: Floats,
        groups: GroupProfiles,
    ) -> EstimatorStack:
        """The stack after learning from pairs; all of its parts are tested before they learn."""
        given = self._input(of, pairs.early, pairs.slides_left, pairs.group, end)
        at = groups.places(of, pairs.group)
        own = ExpertProjections(self.experts, self.groups, given)
        projections = own.all()
        # A group's first final becomes its level, so the pair gives information only about the group's profile.
        is_known = (given.at >= 0)[:, None]
        level = np.where(is_known, _rows(self.groups.level, given.at), groups.level[at])
        level = np.where(level > 0, level, self._typical[of])
        error = np.abs(final - pairs.projected)
        is_taught = self.experts.is_taught(runs.mark)  # without a profile, an error has no predictive value
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            unit = self._units(of, given, pairs.projected)
            scores = np.where(is_taught, (final - pairs.projected) / unit, np.nan)
            usual_error = self.experts.error[runs.mark]
            error_in_units = error / (level * given.hour.used_width)
            hour_pairs = HourPairs(
                final=final / level,
                usual=own.usual_at_hour,
                increment=(final - pairs.early) / level,
                added=(projections[Expert.ADDED] - pairs.early) / level,
                scaled=(projections[Expert.RATIO] - pairs.early) / level,
                error=np.where(is_taught, error / level, np.nan),
                relative_error=error_in_units / usual_error,
            )
            group_values = (
                hour_pairs.increment,
                hour_pairs.added,
                hour_pairs.scaled,
                np.where(is_taught, error_in_units, np.nan),
                usual_error,
            )
        by_run = windows[runs.query]
        return replace(
            self,
            groups=groups.with_pairs(at, windows, group_values).bounded(self._limits.groups),
            experts=self.experts.with_pairs(
                runs, by_run, given, final, level, projections, own.usual_of_line, error_in_units
            ),
            bounds=self.bounds.with_pairs(runs, by_run, scores, missed),
            seasons=self.seasons.with_pairs(given.hour, windows, hour_pairs),
        )

    def _input(
        self, query: Ints, early: Floats, slides_left: Floats, group: Ints, end: Ints
    ) -> ProjectionInput:
        grows = self._grows[query]
        factor = even_arrival_factor(slides_left, self._ranges[query], grows)
        mark = query * MARKS + marks(slides_left)
        at, hour = self.groups.places(query, group), HourFactors(self.seasons, query, end, self._grows)
        return ProjectionInput(early, slides_left, mark, at, grows, factor, hour)

    def _units(self, query: Ints, given: ProjectionInput, projected: Floats) -> Floats:
        """The unit of each score: the group's level times the width of its errors, or the projection."""
        is_known = (given.at >= 0)[:, None]
        unit = np.where(is_known, _rows(self._widths, given.at), np.abs(projected))
        return np.where(unit > 0, unit, self._typical[query]) * given.hour.used_width

    @cached_property
    def _widths(self) -> Floats:
        return self.groups.level * self.groups.wide

    @cached_property
    def _typical(self) -> Floats:
        """By query and item, the level to use for groups whose level is zero."""
        mean = self.groups.mean_levels(len(self.queries))
        return np.where(mean > 0, mean, 1.0)

    @cached_property
    def _grows(self) -> Mask:
        return np.array([query.grows for query in self.queries], np.bool_)

    @cached_property
    def _ranges(self) -> Floats:
        return np.array([query.range_in_slides for query in self.queries], np.float64)

    @property
    def _limits(self) -> EstimateLimits:
        return self.queries[0].limits


def _runs(query: Ints) -> Iterator[tuple[int, slice]]:
    """Each query with the range of its rows; `query` ascends."""
    if len(query):
        firsts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
        edges = [*firsts.tolist(), len(query)]
        for number, (start, stop) in zip(query[firsts].tolist(), pairwise(edges), strict=True):
            yield number, slice(start, stop)


def _distinct_windows(query: Ints, window: Ints, queries: int) -> Ints:
    """How many windows there are, by query.

    >>> _distinct_windows(np.array([0, 0, 2, 2]), np.array([5, 5, 5, 7]), 3).tolist()
    [1, 0, 2]
    """
    distinct, rank = np.unique(window, return_inverse=True)
    return np.bincount(np.unique(query * len(distinct) + rank) // len(distinct), minlength=queries)


def _or_no_time(end: Ints | None, size: int) -> Ints:
    return np.full(size, NO_TIME) if end is None else end


def _rows(values: Floats, at: Ints) -> Floats:
    """The rows of groups; an arbitrary row at -1, which the caller replaces."""
    return values[at] if len(values) else np.zeros((len(at), values.shape[1]))


def _missed(pairs: PendingRows, final: Floats) -> Floats:
    """1 for a final out of bounds, 0 for one within, NaN without a final or without bounds."""
    unknown = np.isnan(final) | np.isnan(pairs.low) | np.isnan(pairs.high)
    return np.where(unknown, np.nan, (final < pairs.low) | (final > pairs.high))


def _by_item(columns: Floats, numeric: Mask, filler: float) -> Floats:
    """Columns by numeric item as columns by item, the others filled."""
    spread = np.full((len(columns), len(numeric)), filler)
    spread[:, numeric] = columns
    return spread
