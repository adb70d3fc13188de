"""The conditions that a WHERE clause combines with AND, and what the planner derives from them once.

A query and its selection have the same object, so that a selection with other windows or aggregates derives nothing
anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from transom.plan.axis import axis_kind, is_searchable, one_sided
from transom.plan.boxes import ONE_SIDED, OwnBoxes, own_boxes
from transom.plan.predicate_text import predicate_text
from transom.sql.query import And, Comparison, Predicate, Scalar, scalars_of

MANY = 1 << 62
# What the selections of a grid have in common: the texts of conjuncts that all of them have, and the scalars that
# their other conjuncts read.
GridFrame = tuple[frozenset[str], tuple[Scalar, ...]]


@dataclass(frozen=True)
class Conjunction:
    """Conditions that all hold."""

    parts: tuple[Predicate, ...]
    _ranges: dict[str, OwnBoxes] = field(default_factory=dict, init=False, repr=False, compare=False)
    _boxes: list[tuple[GridFrame, OwnBoxes | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, predicate: Predicate | None) -> Conjunction:
        """The conditions that a predicate combines with AND."""
        if predicate is None:
            return cls(())
        return cls(predicate.parts if isinstance(predicate, And) else (predicate,))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts of the conditions."""
        return tuple([predicate_text(part) for part in self.parts])

    @cached_property
    def scalars(self) -> dict[str, Scalar]:
        """The scalars that the conditions read, by their SQL."""
        return {scalar.sql: scalar for part in self.parts for scalar in scalars_of(part)}

    @cached_property
    def by_scalar(self) -> tuple[dict[str, Predicate], tuple[Predicate, ...]]:
        """The conditions that an axis can evaluate, by scalar, and the others."""
        searchable: dict[str, list[Predicate]] = {}
        others = []
        for part in self.parts:
            if is_searchable(part):
                scalar = part.scalar if isinstance(part, Comparison) else next(iter(scalars_of(part)))
                searchable.setdefault(scalar.sql, []).append(part)
            else:
                others.append(part)
        joined = {
            sql: parts[0] if len(parts) == 1 else And(tuple(parts)) for sql, parts in searchable.items()
        }
        return joined, tuple(others)

    @cached_property
    def rest_of(self) -> dict[str, frozenset[str]]:
        """For each scalar that an axis can evaluate, the texts of the conditions on everything else."""
        searchable, others = self.by_scalar
        known = dict(zip(map(id, self.parts), self.texts, strict=True))
        texts = {sql: known.get(id(part)) or predicate_text(part) for sql, part in searchable.items()}
        every = frozenset([*texts.values(), *(known[id(part)] for part in others)])
        return {sql: every - {text} for sql, text in texts.items()}

    def by_text(self) -> Iterator[tuple[str, Predicate]]:
        """The conditions, each with its text."""
        return zip(self.texts, self.parts, strict=True)

    def own_boxes(self, frame: GridFrame, most: int) -> OwnBoxes | None:
        """The boxes of the conditions that not all selections of a grid have; None if these are not few boxes."""
        for known, boxes in self._boxes:
            if known == frame:
                return boxes
        varying = [part for text, part in self.by_text() if text not in frame[0]]
        boxes = own_boxes(varying, frame[1], most)
        self._boxes[:] = [(frame, boxes)]  # only the newest: a plan asks for one frame
        return boxes

    def own_ranges(self, sql: str) -> OwnBoxes:
        """The ranges of one scalar, given by its SQL, that the conditions select."""
        ranges = self._ranges.get(sql)
        if ranges is None:
            ranges = self._ranges[sql] = self._own_ranges(sql)
        return ranges

    def _own_ranges(self, sql: str) -> OwnBoxes:
        part = self.by_scalar[0][sql]
        if isinstance(part, Comparison) and part.op in ONE_SIDED:
            kind = axis_kind(part.scalar.type)
            assert kind is not None
            axis, codes = one_sided(part, kind)
            return OwnBoxes((axis,), tuple([(pair,) for pair in codes.pairs]))
        boxes = own_boxes((part,), (self.scalars[sql],), MANY)
        assert boxes is not None
        return boxes
