"""The estimator of a query: it projects final values, bounds them, measures its accuracy, and decides when to emit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transom.columns.array_bytes import pack, unpack
from transom.columns.arrays import Ints
from transom.elements import Emit
from transom.estimates.conformal_bounds import ConformalBounds
from transom.estimates.early_decisions import EarlyDecisions
from transom.estimates.early_values import EarlyValues, Estimates, FinalValues, ItemKind, numbers
from transom.estimates.estimator_stack import EarlyRows, EstimatedQuery, EstimatorStack, FinalRows
from transom.estimates.experts import Experts
from transom.estimates.group_profiles import GroupProfiles
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits
from transom.estimates.monitor import Accuracy, Monitor, Quality
from transom.estimates.pending_values import Pending, PendingRows
from transom.estimates.seasons import Seasons
from transom.estimates.stored_form import (
    decode_arrays,
    decode_emit,
    decode_item,
    encode_arrays,
    encode_emit,
    encode_item,
)

MANY_GROUPS = 2_048  # whose profiles are worth a part of a snapshot of their own


@dataclass(frozen=True)
class Estimator:
    """The statistics that a query has learned from pairs of early and final values; immutable.

    `point` is the part of the slide at which windows are emitted, if the query asks for an accuracy. An estimator
    learns as a stack of one query does; the estimators of a batch are stacked to learn in the same steps.
    """

    query: EstimatedQuery
    groups: GroupProfiles
    experts: Experts
    bounds: ConformalBounds
    seasons: Seasons
    monitor: Monitor
    pending: Pending
    point: float
    decisions: EarlyDecisions | None = None  # of a query WITH CONFIDENCE

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
            EstimatedQuery(emit, tuple(items), range_in_slides, limits),
            GroupProfiles.empty(count),
            Experts.empty(count),
            ConformalBounds.empty(count, emit.confidence),
            Seasons.empty(count),
            Monitor.empty(len(items)),
            Pending(),
            emit.between[1],
        )

    def estimate(self, values: EarlyValues) -> Estimates:
        """Projections of the finals, and bounds that contain the finals with the query's confidence."""
        return self._stack.estimate(self._early_rows(values))

    def with_observation(self, values: EarlyValues, estimates: Estimates) -> Estimator:
        """The estimator with early values and their estimates, pending until their finals arrive."""
        return self.with_early(self._early_rows(values), estimates)

    def with_early(self, values: EarlyRows, estimates: Estimates) -> Estimator:
        """The same with values as the rows of a stack of one query."""
        return replace(self, pending=self._stack.with_early(values, estimates).pending[0])

    def with_finals(self, finals: FinalValues, quality: Quality | None = None) -> Estimator:
        """Pair finals with their pending early values, and learn from the pairs."""
        values = numbers(finals.items, self.query.items)
        query = np.zeros(len(finals.window), np.int64)
        rows = FinalRows(query, finals.group, finals.window, values, finals.made, finals.items, finals.end)
        return next(split_stack(self._stack.with_finals(rows, quality)))

    def without(self, window: Ints, group: Ints | None = None) -> Estimator:
        """The estimator without pending values of windows, or of groups, that closed without a final."""
        return replace(self, pending=self.pending.without(window, group))

    def since(self, window: int) -> Estimator:
        """The estimator without pending values of earlier windows, which are closed and get no further finals."""
        pending = self.pending.since(window)
        return self if pending is self.pending else replace(self, pending=pending)

    def accuracy(self) -> Accuracy:
        """The monitor's scores (thesis, figure 6.4)."""
        items = tuple(
            self.monitor.item(place, item.name)
            for place, item in enumerate(self.query.items)
            if not item.is_condition
        )
        total, recent = self.monitor.scores()
        emit = self.query.emit
        point = None if emit.accuracy is None else self.point
        decisions = None if self.decisions is None else self.decisions.report()
        return Accuracy(total, recent, items, emit.confidence, emit.accuracy, point, decisions)

    @cached_property
    def _stack(self) -> EstimatorStack:
        return stack_of([self])

    def _early_rows(self, values: EarlyValues) -> EarlyRows:
        return EarlyRows(
            np.zeros(len(values.window), np.int64),
            values.group,
            values.window,
            values.slides_left,
            numbers(values.items, self.query.items),
            values.made,
            values.emitted,
            values.items,
            values.end,
        )

    @cached_property
    def packed(self) -> bytes:
        """What most batches change, as bytes: all but many profiles of groups, and the early decisions."""
        return self._packed(with_groups=not self.has_many_groups)

    def dumps(self) -> bytes:
        """The estimator as bytes without its early decisions; `loads` restores it exactly, but for the limits."""
        return self._packed(with_groups=True)

    @property
    def has_many_groups(self) -> bool:
        """Whether the profiles of groups are so many that they are packed by themselves."""
        return len(self.groups.key) > MANY_GROUPS

    def pack_groups(self) -> bytes:
        """The profiles of groups, as bytes."""
        return pack({}, encode_arrays("groups", self.groups))

    def _packed(self, with_groups: bool) -> bytes:
        pending = PendingRows.concatenated(self.pending.parts) if self.pending.parts else None
        arrays = encode_arrays("groups", self.groups) if with_groups else {}
        arrays |= encode_arrays("experts", self.experts)
        arrays |= encode_arrays("bounds", self.bounds) | encode_arrays("seasons", self.seasons)
        arrays |= encode_arrays("monitor", self.monitor)
        if pending is not None:
            arrays |= encode_arrays("pending", pending)
        arrays["monitor.total"] = self.monitor.total[0]
        meta = {
            "emit": encode_emit(self.query.emit),
            "items": [encode_item(item) for item in self.query.items],
            "range": self.query.range_in_slides,
            "point": self.point,
        }
        return pack(meta, arrays)

    @classmethod
    def loads(
        cls,
        data: bytes,
        limits: EstimateLimits = DEFAULT_LIMITS,
        groups_data: bytes | None = None,
        decisions: bytes | None = None,
    ) -> Estimator:
        """The estimator in bytes that `dumps` returned, or in those of its parts."""
        meta, arrays = unpack(data)
        if groups_data is not None:
            arrays |= unpack(groups_data)[1]
        items = [decode_item(item) for item in meta["items"]]
        empty = cls.of(decode_emit(meta["emit"]), items, meta["range"], limits)
        groups, monitor = decode_arrays("groups", arrays), decode_arrays("monitor", arrays)
        groups["query"] = np.zeros(len(groups["key"]), np.int64)
        monitor["recent_query"] = np.zeros(len(monitor["recent"]), np.int64)
        monitor["total"] = monitor["total"][None]
        pending = decode_arrays("pending", arrays)
        return replace(
            empty,
            groups=GroupProfiles(**groups),
            experts=Experts.of_stored(decode_arrays("experts", arrays)),
            bounds=replace(empty.bounds, **decode_arrays("bounds", arrays)),
            seasons=replace(empty.seasons, **decode_arrays("seasons", arrays)),
            monitor=Monitor(**monitor),
            pending=Pending((PendingRows(**pending),) if pending else ()),
            point=meta["point"],
            decisions=None if decisions is None else EarlyDecisions.loads(decisions),
        )


def stack_of(estimators: Sequence[Estimator]) -> EstimatorStack:
    """The statistics of estimators whose queries have equal stack keys, as one stack."""
    return EstimatorStack(
        [one.query for one in estimators],
        GroupProfiles.stacked([one.groups for one in estimators]),
        Experts.stacked([one.experts for one in estimators]),
        ConformalBounds.stacked([one.bounds for one in estimators]),
        Seasons.stacked([one.seasons for one in estimators]),
        Monitor.stacked([one.monitor for one in estimators]),
        [one.pending for one in estimators],
        [one.point for one in estimators],
    )


def split_stack(stack: EstimatorStack) -> Iterator[Estimator]:
    """The estimators of a stack; their arrays are views of the stack's."""
    count = len(stack.queries)
    parts = (
        one.split(count) for one in (stack.groups, stack.experts, stack.bounds, stack.seasons, stack.monitor)
    )
    for fields in zip(stack.queries, *parts, stack.pending, stack.points, strict=True):
        yield Estimator(*fields)
