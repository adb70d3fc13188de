"""Boxes: predicates over several scalars as unions of disjoint boxes of axis codes.

A conjunction of conditions on different scalars is a box: a range of codes on each axis. Any AND, OR and NOT of
such conditions is a union of boxes. The boxes of a member are disjoint, so that sums over them add up: no float is
ever subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from transom.columns.arrays import Ints
from transom.plan.axis import Axis, axis_kind, is_searchable, one_sided
from transom.sql.query import And, Comparison, Not, Or, Predicate, Scalar, scalars_of
from transom.windows.intervals import IntervalSet

# A set of tuples: on each axis, by the SQL of its scalar, the codes that it holds; all codes of axes left out.
Product = Mapping[str, IntervalSet]
ONE_SIDED = frozenset(("<", "<=", ">", ">="))
Box = tuple[tuple[int, int], ...]  # a range of codes for each axis


@dataclass(frozen=True)
class OwnBoxes:
    """The boxes of one predicate, on axes that have only the thresholds of this predicate."""

    axes: tuple[Axis, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Grid:
    """The axes of a family and the boxes of its members, in the order of the members.

    Box `i` belongs to member `owners[i]` and holds the codes `starts[i, a]` to `stops[i, a]` on axis `a`.
    """

    axes: tuple[Axis, ...]
    owners: Ints
    starts: Ints
    stops: Ints

    @classmethod
    def of(cls, members: Sequence[OwnBoxes]) -> Grid:
        """The grid of predicates over the same scalars: its axes have the thresholds of all of them."""
        boxes = [box for member in members for box in member.boxes]
        owners = np.repeat(np.arange(len(members)), [len(member.boxes) for member in members])
        own_axes = list(zip(*(member.axes for member in members), strict=True))
        axes = tuple(map(Axis.merged, own_axes))
        codes = np.array(boxes, np.int64).reshape(len(boxes), len(axes), 2)
        for place, (axis, parts) in enumerate(zip(axes, own_axes, strict=True)):
            codes[:, place] = _codes_in(axis, parts, owners, codes[:, place])
        return cls(axes, owners, codes[:, :, 0].copy(), codes[:, :, 1].copy())

    def of_members(self, first: int, stop: int) -> Grid:
        """The boxes of some members, numbered from 0."""
        chosen = (self.owners >= first) & (self.owners < stop)
        return Grid(self.axes, self.owners[chosen] - first, self.starts[chosen], self.stops[chosen])


def _codes_in(axis: Axis, parts: Sequence[Axis], owners: Ints, codes: Ints) -> Ints:
    """The codes of an axis that codes on coarser axes, given by their places, begin with."""
    places = axis.places_of([threshold for part in parts for threshold in part.thresholds])
    counts = np.array([len(part.thresholds) for part in parts], np.int64)
    firsts = (np.cumsum(counts) - counts)[owners][:, None]
    nulls = (counts + 1)[owners][:, None]
    is_threshold = (codes > 0) & (codes < nulls)
    at = np.where(is_threshold, firsts + codes - 1, 0)
    found = np.where(is_threshold, places[at] + 1 if len(places) else 0, 0)
    return np.where(codes < nulls, found, axis.null + codes - nulls)


def own_boxes(conjuncts: Sequence[Predicate], scalars: Sequence[Scalar], most_boxes: int) -> OwnBoxes | None:
    """The boxes of a conjunction over some scalars; None if an axis can't evaluate a part, or with too many boxes."""
    parts: dict[str, list[Predicate]] = {scalar.sql: [] for scalar in scalars}
    for part in (part for conjunct in conjuncts for part in _single_scalar_parts(conjunct)):
        if not is_searchable(part):
            return None
        parts[next(iter(scalars_of(part))).sql].append(part)
    kinds = [axis_kind(scalar.type) for scalar in scalars]
    if None in kinds:
        return None
    if sum(map(len, parts.values())) == len(conjuncts):  # each conjunct reads one scalar
        sides = [_side(scalar, parts[scalar.sql]) for scalar in scalars]
        axes = {scalar.sql: axis for scalar, (axis, _) in zip(scalars, sides, strict=True)}
        codes = {scalar.sql: codes for scalar, (_, codes) in zip(scalars, sides, strict=True)}
        sets: list[Product] | None = [codes] if all(codes.values()) else []
    else:
        axes = {scalar.sql: Axis.of(scalar, parts[scalar.sql]) for scalar in scalars}
        sets = _true(And(tuple(conjuncts)), axes, most_boxes)
    boxes = None if sets is None else _split(sets, axes, most_boxes)
    return None if boxes is None else OwnBoxes(tuple(axes.values()), tuple(boxes))


def _side(scalar: Scalar, parts: Sequence[Predicate]) -> tuple[Axis, IntervalSet]:
    """The axis of some conditions on one scalar, and the codes for which all of them are true."""
    if len(parts) == 1 and isinstance(parts[0], Comparison) and parts[0].op in ONE_SIDED:
        kind = axis_kind(scalar.type)
        assert kind is not None
        return one_sided(parts[0], kind)
    axis = Axis.of(scalar, parts)
    return axis, axis.true(And(tuple(parts))) if parts else IntervalSet(((0, axis.size),))


def _single_scalar_parts(predicate: Predicate) -> Iterable[Predicate]:
    """The largest parts of a predicate that read one scalar."""
    if (
        not isinstance(predicate, And | Or | Not)
        or len({scalar.sql for scalar in scalars_of(predicate)}) == 1
    ):
        yield predicate
        return
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _single_scalar_parts(part)
        case Not(part):
            yield from _single_scalar_parts(part)


def _true(
    predicate: Predicate, axes: Mapping[str, Axis], most: int, negated: bool = False
) -> list[Product] | None:
    """Disjoint sets of the tuples for which a predicate is true, or false if negated; None: too many.

    SQL's AND is true where all parts are, and false where any part is; where a part is null, neither holds.
    """
    names = {scalar.sql for scalar in scalars_of(predicate)}
    if len(names) == 1:
        (name,) = names
        codes = axes[name].true(Not(predicate) if negated else predicate)
        return [{name: codes}] if codes else []
    match predicate:
        case Not(part):
            return _true(part, axes, most, not negated)
        case And(parts) | Or(parts):
            sides = [_true(part, axes, most, negated) for part in parts]
            is_all = isinstance(predicate, And) != negated
            sets: list[Product] | None = [{}] if is_all else []
            for side in sides:
                if sets is None or side is None:
                    return None
                sets = _intersected(sets, side) if is_all else _united(sets, side, axes, most)
                sets = sets if len(sets) <= most else None
            return sets
    raise TypeError(f"not a predicate: {predicate!r}")


def _intersected(left: list[Product], right: list[Product]) -> list[Product]:
    pairs = (_both(one, other) for one in left for other in right)
    return [pair for pair in pairs if all(pair.values())]


def _both(one: Product, other: Product) -> dict[str, IntervalSet]:
    common = {name: codes & one[name] for name, codes in other.items() if name in one}
    return {**one, **other, **common}


def _united(left: list[Product], right: list[Product], axes: Mapping[str, Axis], most: int) -> list[Product]:
    """Disjoint sets with the tuples of either side: of the right side, what no set on the left holds.

    It stops soon after there are more than `most`.
    """
    for rest in right:
        pieces = [rest]
        for hole in left:
            pieces = [piece for one in pieces for piece in _without(one, hole, axes)]
            if len(pieces) > most:
                break
        left = [*left, *pieces]
        if len(left) > most:
            break
    return left


def _without(one: Product, hole: Product, axes: Mapping[str, Axis]) -> list[Product]:
    """A set without the tuples of another, as disjoint sets: the first axis on which a tuple leaves the hole."""
    pieces: list[Product] = []
    inside = dict(one)
    for name, codes in hole.items():
        every = IntervalSet.of((0, axes[name].size))
        here = inside.get(name, every)
        outside, common = here - codes, here & codes
        if outside:
            pieces.append({**inside, name: outside})
        if not common:
            return pieces
        inside[name] = common
    return pieces


def _split(sets: Iterable[Product], axes: Mapping[str, Axis], most: int) -> list[Box] | None:
    """Sets as boxes; None: more than `most`."""
    boxes: list[Box] = []
    for one in sets:
        ranges = [one[name].pairs if name in one else ((0, axis.size),) for name, axis in axes.items()]
        if len(boxes) + int(np.prod([len(pairs) for pairs in ranges])) > most:
            return None
        boxes += product(*ranges)
    return boxes
