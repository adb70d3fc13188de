"""The estimator of a query: it projects final values, bounds them, measures its accuracy, and decides when to emit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transom.columns.array_bytes import pack, unpack
from transom.columns.arrays import Floats, Ints, Mask
from transom.elements import Emit
from transom.estimates.accuracy_loop import next_point
from transom.estimates.conformal_bounds import ConformalBounds
from transom.estimates.early_values import EarlyValues, Estimates, FinalValues, ItemKind, numbers
from transom.estimates.experts import (
    Expert,
    ExpertProjections,
    Experts,
    ProjectionInput,
    even_arrival_factor,
)
from transom.estimates.group_profiles import GroupProfiles, rows_to_keep, sampled_groups
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits
from transom.estimates.marks import MarkRuns, marks
from transom.estimates.monitor import Accuracy, Monitor, Quality
from transom.estimates.pending_values import Pending, PendingRows
from transom.estimates.quality import pair_accuracies
from transom.estimates.stored_form import (
    decode_arrays,
    decode_emit,
    decode_item,
    encode_arrays,
    encode_emit,
    encode_item,
)


@dataclass(frozen=True)
class Estimator:
    """The statistics that a query has learned from pairs of early and final values; immutable.

    `point` is the part of the slide at which windows are emitted, if the query asks for an accuracy.
    """

    emit: Emit
    items: tuple[ItemKind, ...]
    range_in_slides: float
    groups: GroupProfiles
    experts: Experts
    bounds: ConformalBounds
    monitor: Monitor
    pending: Pending
    point: float
    limits: EstimateLimits = DEFAULT_LIMITS

    @classmethod
    def of(
        cls,
        emit: Emit,
        items: Sequence[ItemKind],
        range_in_slides: float,
        limits: EstimateLimits = DEFAULT_LIMITS,
    ) -> Estimator:
        """An estimator that has learned nothing: it emits windows as late as EMIT allows."""
        count = sum(item.is_number for item in items)
        return cls(
            emit,
            tuple(items),
            range_in_slides,
            GroupProfiles.empty(count),
            Experts.empty(count),
            ConformalBounds.empty(count, emit.confidence),
            Monitor.empty(len(items)),
            Pending(),
            emit.between[1],
            limits,
        )

    def estimate(self, values: EarlyValues) -> Estimates:
        """Projections of the finals, and bounds that contain the finals with the query's confidence."""
        given = self._input(numbers(values.items, self.items), values.slides_left, values.group)
        projected = self.experts.projected(given, self.groups, self._grows)
        low, high = self.bounds.around(projected, self._units(given.at, projected), given.mark)
        return Estimates(projected, low, high)

    def with_observation(self, values: EarlyValues, estimates: Estimates) -> Estimator:
        """The estimator with early values and their estimates, pending until their finals arrive."""
        mark = marks(values.slides_left)
        rows_kept = rows_to_keep(values.group, values.window, mark, values.emitted, self.limits)
        rows = PendingRows(
            values.group,
            values.window,
            values.slides_left,
            np.full(len(values.group), values.made),
            values.emitted,
            numbers(values.items, self.items),
            estimates.projected,
            estimates.low,
            estimates.high,
            values.items if self.emit.quality is not None else None,
        )
        rows = rows if rows_kept.all() else rows.take(rows_kept)
        return replace(self, pending=self.pending.with_rows(rows, self.limits))

    def with_finals(self, finals: FinalValues, quality: Quality | None = None) -> Estimator:
        """Pair finals with their pending early values, and learn from the pairs."""
        # Sums are taken in a fixed order, independent of the order of the groups.
        order = np.lexsort((finals.window, finals.group))
        sample = order[sampled_groups(finals.group, self.limits.groups)[order]]
        group, window = finals.group[sample], finals.window[sample]
        values = numbers(finals.items, self.items)[sample]
        pairs, place, pending = self.pending.split(window, group)
        if len(window):  # a window far behind the newest closed without a final (HAVING), or never closes
            behind = round(max(self.limits.windows_behind, 16 * self.range_in_slides))
            pending = pending.since(int(window.max()) - behind)
        groups = self.groups.with_finals(group, window, values)
        if pairs is None:
            return replace(self, groups=groups.bounded(self.limits.groups), pending=pending)
        by_mark = np.lexsort((pairs.group, pairs.window, pairs.slides_left))
        pairs, place = pairs.take(by_mark), place[by_mark]
        runs, final = MarkRuns(marks(pairs.slides_left)), values[place]
        missed = _missed(pairs, final)
        after = self._with_pairs(pairs, runs, final, missed, groups)
        raw, projected = pair_accuracies(
            self.items, pairs, final, finals, sample[place], quality, self.limits
        )
        monitor = self.monitor.with_pairs(
            pairs.window,
            pairs.emitted,
            runs,
            raw,
            projected,
            _by_item(missed, self._numeric, np.nan),
            self.limits.recent_windows,
        )
        point = self.point
        if self.emit.accuracy is not None:
            windows, _, curve = monitor.curve()
            point = next_point(point, windows, curve, self.emit.accuracy, self.emit.between)
        return replace(after, monitor=monitor, pending=pending, point=point)

    def without(self, window: Ints, group: Ints | None = None) -> Estimator:
        """The estimator without pending values of windows, or of groups, that closed without a final."""
        return replace(self, pending=self.pending.without(window, group))

    def since(self, window: int) -> Estimator:
        """The estimator without pending values of earlier windows, which are closed and get no further finals."""
        pending = self.pending.since(window)
        return self if pending is self.pending else replace(self, pending=pending)

    def accuracy(self) -> Accuracy:
        """The monitor's scores (thesis, figure 6.4)."""
        items = tuple(self.monitor.item(place, item.name) for place, item in enumerate(self.items))
        total, recent = self.monitor.scores()
        point = None if self.emit.accuracy is None else self.point
        return Accuracy(total, recent, items, self.emit.confidence, self.emit.accuracy, point)

    def _with_pairs(
        self, pairs: PendingRows, runs: MarkRuns, final: Floats, missed: Floats, groups: GroupProfiles
    ) -> Estimator:
        """The estimator after learning from pairs; groups, experts and bounds are tested before they learn."""
        windows = len(np.unique(pairs.window))
        given = self._input(pairs.early, pairs.slides_left, pairs.group)
        at = groups.places(pairs.group)
        projections = ExpertProjections(self.experts, self.groups, given).all()
        # A group's first final becomes its level, so the pair gives information only about the group's profile.
        is_known = (given.at >= 0)[:, None]
        level = np.where(is_known, _rows(self.groups.level, given.at), groups.level[at])
        level = np.where(level > 0, level, self._typical)
        error = np.abs(final - pairs.projected)
        is_taught = self.experts.count[runs.mark] > 0  # without a profile, an error has no predictive value
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            unit = self._units(given.at, pairs.projected)
            scores = np.where(is_taught, (final - pairs.projected) / unit, np.nan)
            group_values = (
                (final - pairs.early) / level,
                (projections[Expert.ADDED] - pairs.early) / level,
                (projections[Expert.RATIO] - pairs.early) / level,
                np.where(is_taught, error / level, np.nan),
                self.experts.error[runs.mark],
            )
        return replace(
            self,
            groups=groups.with_pairs(at, windows, group_values).bounded(self.limits.groups),
            experts=self.experts.with_pairs(runs, windows, given, final, level, projections, error),
            bounds=self.bounds.with_pairs(runs, windows, scores, missed),
        )

    def _input(self, early: Floats, slides_left: Floats, group: Ints) -> ProjectionInput:
        factor = even_arrival_factor(slides_left, self.range_in_slides, self._grows)
        return ProjectionInput(early, slides_left, marks(slides_left), self.groups.places(group), factor)

    def _units(self, at: Ints, projected: Floats) -> Floats:
        """The unit of each score: the group's level times the width of its errors, or the projection."""
        is_known = (at >= 0)[:, None]
        unit = np.where(is_known, _rows(self._widths, at), np.abs(projected))
        return np.where(unit > 0, unit, self._typical)

    @cached_property
    def _widths(self) -> Floats:
        return self.groups.level * self.groups.wide

    @cached_property
    def _typical(self) -> Floats:
        """By item, the level to use for groups whose level is zero."""
        level = self.groups.level
        mean = level.mean(axis=0) if len(level) else np.zeros(level.shape[1])
        return np.where(mean > 0, mean, 1.0)

    @cached_property
    def _grows(self) -> Mask:
        return np.array([item.grows for item in self.items if item.is_number], np.bool_)

    @cached_property
    def _numeric(self) -> Mask:
        return np.array([item.is_number for item in self.items], np.bool_)

    @cached_property
    def packed(self) -> bytes:
        """`dumps`, cached: a checkpoint reads it again while the estimator is unchanged."""
        return self.dumps()

    def dumps(self) -> bytes:
        """The estimator as bytes; `loads` restores it exactly, but for the limits."""
        pending = PendingRows.concatenated(self.pending.parts) if self.pending.parts else None
        arrays = encode_arrays("groups", self.groups) | encode_arrays("experts", self.experts)
        arrays |= encode_arrays("bounds", self.bounds) | encode_arrays("monitor", self.monitor)
        if pending is not None:
            arrays |= encode_arrays("pending", pending)
        used = self.bounds.place > 0
        arrays["bounds.scores"] = self.bounds.scores[used]
        meta = {
            "emit": encode_emit(self.emit),
            "items": [encode_item(item) for item in self.items],
            "range": self.range_in_slides,
            "point": self.point,
        }
        return pack(meta, arrays)

    @classmethod
    def loads(cls, data: bytes, limits: EstimateLimits = DEFAULT_LIMITS) -> Estimator:
        """The estimator in bytes that `dumps` returned."""
        meta, arrays = unpack(data)
        items = [decode_item(item) for item in meta["items"]]
        empty = cls.of(decode_emit(meta["emit"]), items, meta["range"], limits)
        bounds, pending = decode_arrays("bounds", arrays), decode_arrays("pending", arrays)
        scores = empty.bounds.scores.copy()
        scores[bounds["place"] > 0] = bounds["scores"]
        return replace(
            empty,
            groups=GroupProfiles(**decode_arrays("groups", arrays)),
            experts=Experts(**decode_arrays("experts", arrays)),
            bounds=replace(empty.bounds, **(bounds | {"scores": scores})),
            monitor=Monitor(**decode_arrays("monitor", arrays)),
            pending=Pending((PendingRows(**pending),) if pending else ()),
            point=meta["point"],
        )


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
