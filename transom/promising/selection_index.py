"""The conditions of many selections over one stream, evaluated in one pass over the tuples of a batch.

As in the families of window queries, every scalar has one axis with the constants of all conditions, and one search
per tuple places its value there. The tuples are sorted by place. So the tuples of a range are a slice of the sorted
ones, and the tuples that a selection compares further are those of its most selective range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask
from transom.kernel.predicates import evaluate
from transom.plan.axis import Axis, axis_kind, is_searchable
from transom.plan.boxes import OwnBoxes, own_boxes
from transom.sql.query import And, Predicate, Scalar, scalars_of
from transom.windows.intervals import HIGHEST

MAX_BOXES = 64  # of one condition; a condition with more is evaluated tuple by tuple
FIRST_ROWS = 256  # so many rows of an order are searched at least
MATRIX_CELLS = 1 << 22  # of the rows and selections that are compared at a time
_ANY = HIGHEST  # a range that ends here has no end


@dataclass(frozen=True)
class SelectedRows:
    """The rows that selections select: those of selection `n` are `rows[bounds[n]:bounds[n + 1]]`."""

    rows: Ints
    bounds: Ints

    @property
    def counts(self) -> Ints:
        """How many rows each selection selects."""
        return np.diff(self.bounds)

    @property
    def members(self) -> Ints:
        """The selection of each row."""
        return np.repeat(np.arange(len(self.bounds) - 1), self.counts)

    def of(self, number: int) -> Ints:
        """The rows of one selection, in ascending order."""
        return np.sort(self.rows[self.bounds[number] : self.bounds[number + 1]])

    def first(self, counts: Ints) -> SelectedRows:
        """The first rows of each selection: `counts[n]` of selection `n`."""
        ends = np.cumsum(counts)
        places = np.repeat(self.bounds[:-1] - (ends - counts), counts) + np.arange(
            ends[-1] if len(ends) else 0
        )
        return SelectedRows(self.rows[places], np.concatenate([[0], ends]))

    def where(self, numbers: Ints) -> SelectedRows:
        """The rows of some selections."""
        counts = np.zeros(len(self.bounds) - 1, np.int64)
        counts[numbers] = self.counts[numbers]
        chosen = self.first(counts)
        return SelectedRows(chosen.rows, np.concatenate([chosen.bounds[:-1][numbers], chosen.bounds[-1:]]))

    def ordered_by(self, place: Ints) -> SelectedRows:
        """The rows of each selection by their places; `place` has a different one for every row of the table."""
        size = len(place)
        row_at = np.empty(size, np.int64)
        row_at[place] = np.arange(size)
        codes = np.sort(self.members * size + place[self.rows])
        return SelectedRows(row_at[codes % size] if size else self.rows, self.bounds)


@dataclass(frozen=True)
class _AxisRanges:
    """The ranges of boxes on an axis: of a box without a condition on it, all codes."""

    axis: Axis
    has_range: Mask
    starts: Ints
    stops: Ints


@dataclass(frozen=True)
class SelectionIndex:
    """The boxes of the conditions, in the order of their selections, and what no axis can evaluate.

    Box `b` belongs to selection `owners[b]`. A row that lies in a box of a selection satisfies the selection's
    searchable conditions; `rests` are the other conditions, by selection.
    """

    size: int
    owners: Ints
    ranges: tuple[_AxisRanges, ...]
    rests: tuple[tuple[int, Predicate], ...]

    @classmethod
    def of(cls, conditions: Sequence[Predicate | None]) -> SelectionIndex:
        """The index of the conditions of selections; None selects everything."""
        boxed = [_boxed(condition) for condition in conditions]
        owners = np.repeat(np.arange(len(boxed)), [len(own.boxes) for own, _ in boxed])
        axes: dict[str, list[Axis]] = {}
        for own, _ in boxed:
            for axis in own.axes:
                axes.setdefault(axis.scalar.sql, []).append(axis)
        merged = {sql: Axis.merged(parts) for sql, parts in axes.items()}
        starts = {sql: np.zeros(len(owners), np.int64) for sql in axes}
        stops = {sql: np.full(len(owners), _ANY) for sql in axes}
        first = 0
        for own, _ in boxed:
            codes = np.array(own.boxes, np.int64).reshape(len(own.boxes), len(own.axes), 2)
            last = first + len(own.boxes)
            for place, axis in enumerate(own.axes):
                finer = _finer_codes(axis, merged[axis.scalar.sql])
                starts[axis.scalar.sql][first:last] = finer[codes[:, place, 0]]
                stops[axis.scalar.sql][first:last] = finer[codes[:, place, 1]]
            first = last
        ranges = tuple(
            _AxisRanges(axis, stops[sql] != _ANY, starts[sql], np.minimum(stops[sql], axis.size))
            for sql, axis in merged.items()
        )
        rests = tuple((number, rest) for number, (_, rest) in enumerate(boxed) if rest is not None)
        return cls(len(boxed), owners, ranges, rests)

    @cached_property
    def is_counted(self) -> Mask:
        """The selections whose tuples can be counted without looking at them: one range, and nothing else."""
        ranges = sum(
            (side.has_range.astype(np.int64) for side in self.ranges), np.zeros(len(self.owners), np.int64)
        )
        boxes = np.bincount(self.owners, minlength=self.size)
        is_counted = boxes <= 1
        is_counted[self.owners[ranges > 1]] = False
        is_counted[[number for number, _ in self.rests]] = False
        return is_counted

    def placed(self, rows: int, column: Callable[[Scalar], pa.Array]) -> IndexedRows:
        """The rows of a table on the axes; `column` reads the table's columns."""
        codes = [
            side.axis.codes(column(side.axis.scalar)).astype(np.int64, copy=False) for side in self.ranges
        ]
        truths: dict[Predicate, Mask] = {}
        for _, rest in self.rests:
            if rest not in truths:
                truths[rest] = _truth(evaluate(rest, column))
        return IndexedRows(self, rows, tuple(codes), truths)


@dataclass(frozen=True)
class IndexedRows:
    """Rows of a table with their codes on the axes, and whether they satisfy the conditions that have no axes."""

    index: SelectionIndex
    size: int
    codes: tuple[Ints, ...]
    truths: Mapping[Predicate, Mask]

    def at(self, rows: Ints) -> IndexedRows:
        """Some of the rows, numbered anew."""
        codes = tuple(codes[rows] for codes in self.codes)
        truths = {rest: truth[rows] for rest, truth in self.truths.items()}
        return IndexedRows(self.index, len(rows), codes, truths)

    def counts(self) -> Ints:
        """How many rows each selection selects."""
        index = self.index
        others = np.flatnonzero(~index.is_counted)
        counts = np.zeros(index.size, np.int64)
        if len(others):
            counts[others] = self.selected(others).counts
        fewest = np.full(len(index.owners), self.size)
        for side, (before, _) in zip(index.ranges, self._sorted, strict=True):
            mine = side.has_range
            fewest[mine] = (before[side.stops] - before[side.starts])[mine]
        boxes = index.is_counted[index.owners]
        counts[index.owners[boxes]] = fewest[boxes]
        return counts

    def selected(self, members: Ints | None = None) -> SelectedRows:
        """The rows that each selection selects, or each of some selections."""
        index = self.index
        wanted = np.ones(index.size, bool)
        if members is not None:
            wanted[:] = False
            wanted[members] = True
        boxes, found = self._pairs(wanted[index.owners])
        owners = index.owners[boxes]
        if (np.diff(owners) < 0).any():
            order = np.argsort(owners, kind="stable")
            owners, found = owners[order], found[order]
        if index.rests:
            keep = np.ones(len(found), bool)
            bounds = np.searchsorted(owners, np.arange(index.size + 1))
            for number, rest in index.rests:
                mine = slice(bounds[number], bounds[number + 1])
                keep[mine] = self.truths[rest][found[mine]]
            owners, found = owners[keep], found[keep]
        numbers = np.arange(index.size) if members is None else members
        return SelectedRows(found, np.append(np.searchsorted(owners, numbers), len(found)))

    @cached_property
    def _sorted(self) -> tuple[tuple[Ints, Ints], ...]:
        """For each axis: how many rows are before each code, and the rows by code."""
        return tuple(
            (
                np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=side.axis.size))]),
                np.argsort(codes, kind="stable"),
            )
            for side, codes in zip(self.index.ranges, self.codes, strict=True)
        )

    def _pairs(self, wanted: Mask) -> tuple[Ints, Ints]:
        """The wanted boxes and the rows that lie in them, by the range of each box that has the fewest rows."""
        ranges = self.index.ranges
        fewest, primary = np.full(len(wanted), self.size), np.full(len(wanted), -1)
        starts = np.zeros(len(wanted), np.int64)
        for number, (side, (before, _)) in enumerate(zip(ranges, self._sorted, strict=True)):
            first = before[side.starts]
            counts = before[side.stops] - first
            better = side.has_range & (counts < fewest)
            fewest[better], starts[better], primary[better] = counts[better], first[better], number
        parts = []
        for number in range(-1, len(ranges)):
            boxes = np.flatnonzero((primary == number) & wanted)
            if not len(boxes):
                continue
            counts = fewest[boxes]
            ends = np.cumsum(counts)
            pair_boxes = np.repeat(boxes, counts)
            found = np.repeat(starts[boxes] - (ends - counts), counts) + np.arange(len(pair_boxes))
            if number >= 0:
                found = self._sorted[number][1][found]
            for other, (side, codes) in enumerate(zip(ranges, self.codes, strict=True)):
                if other != number and side.has_range[boxes].any():
                    code = codes[found]
                    inside = (code >= side.starts[pair_boxes]) & (code < side.stops[pair_boxes])
                    pair_boxes, found = pair_boxes[inside], found[inside]
            parts.append((pair_boxes, found))
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([boxes for boxes, _ in parts]), np.concatenate([found for _, found in parts])

    def first_selected(self, members: Ints, limits: Ints, order: Ints) -> SelectedRows:
        """The first `limits[n]` rows of selection `members[n]` in an order of all rows; each has more rows than that.

        The beginning of the order is searched first, and more of it only for selections that lack rows.
        """
        shares = limits / np.maximum(self.counts()[members], 1)
        part = max(
            FIRST_ROWS, round(1.2 * self.size * float(np.quantile(shares, 0.75))) if len(shares) else 0
        )
        found = np.zeros(len(members), np.int64)
        parts: list[tuple[Ints, Ints]] = []  # places among the members, and rows
        searching, begin = np.arange(len(members)), 0
        while begin < self.size and len(searching):
            here = order[begin : begin + part]
            indexed, step = self.at(here), max(MATRIX_CELLS // len(here), 1)
            for some in np.split(searching, range(step, len(searching), step)):
                place, row = np.nonzero(indexed._matrix(members[some]))
                counts = np.bincount(place, minlength=len(some))
                taken = np.minimum(limits[some] - found[some], counts)
                rank = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
                chosen = rank < taken[place]
                parts.append((some[place[chosen]], here[row[chosen]]))
                found[some] += taken
            searching = searching[found[searching] < limits[searching]]
            begin += part
        if not parts:
            return SelectedRows(np.zeros(0, np.int64), np.zeros(len(members) + 1, np.int64))
        owners = np.concatenate([owner for owner, _ in parts])
        rows = np.concatenate([rows for _, rows in parts])
        if (np.diff(owners) < 0).any():
            rows = rows[np.argsort(owners, kind="stable")]
        return SelectedRows(rows, np.concatenate([[0], np.cumsum(found)]))

    def _matrix(self, members: Ints) -> Mask:
        """Which rows each of some selections selects."""
        index = self.index
        place = np.full(index.size, -1)
        place[members] = np.arange(len(members))
        boxes = np.flatnonzero(place[index.owners] >= 0)
        inside = np.ones((len(boxes), self.size), bool)
        for side, codes in zip(index.ranges, self.codes, strict=True):
            ranged = np.flatnonzero(side.has_range[boxes])
            if len(ranged):
                small: Any = np.uint16 if side.axis.size < 2**16 else np.int64  # the smaller, the faster
                own = codes.astype(small)
                starts, stops = (
                    one[boxes[ranged]].astype(small)[:, None] for one in (side.starts, side.stops)
                )
                hits = own >= starts
                hits &= own < stops
                if len(ranged) == len(boxes):
                    inside &= hits
                else:
                    inside[ranged] &= hits
        owners = place[index.owners[boxes]]
        if len(boxes) != len(members) or (owners != np.arange(len(members))).any():
            matrix = np.zeros((len(members), self.size), bool)
            np.logical_or.at(matrix, owners, inside)
            inside = matrix
        for number, rest in index.rests:
            if place[number] >= 0:
                inside[place[number]] &= self.truths[rest]
        return inside


def _boxed(condition: Predicate | None) -> tuple[OwnBoxes, Predicate | None]:
    """The boxes of what axes can evaluate of a condition, and the rest of it."""
    conjuncts = () if condition is None else condition.parts if isinstance(condition, And) else (condition,)
    searched = [part for part in conjuncts if _has_axes(part)]
    scalars = {scalar.sql: scalar for part in searched for scalar in scalars_of(part)}
    boxes = own_boxes(searched, list(scalars.values()), MAX_BOXES) if scalars else None
    if boxes is None:
        searched, boxes = [], OwnBoxes((), ((),))
    rest = tuple(part for part in conjuncts if part not in searched)
    return boxes, None if not rest else rest[0] if len(rest) == 1 else And(rest)


def _has_axes(part: Predicate) -> bool:
    """Whether each scalar of a condition has an axis, and reads nothing but that axis."""
    return is_searchable(part) or (
        all(axis_kind(scalar.type) is not None for scalar in scalars_of(part))
        and own_boxes([part], list({one.sql: one for one in scalars_of(part)}.values()), MAX_BOXES)
        is not None
    )


def _finer_codes(axis: Axis, finer: Axis) -> Ints:
    """The code of a finer axis at which each code of an axis begins, and the end of the last."""
    places = finer.places_of(axis.thresholds) if axis.thresholds else np.zeros(0, np.int64)
    return np.concatenate([[0], places + 1, [finer.null, finer.size]])


def _truth(values: pa.Array) -> Mask:
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(bool, copy=False)
