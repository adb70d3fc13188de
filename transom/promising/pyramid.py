"""The multi-resolution index over a granularity: pairs of zones, pairs of pairs, up to the top (3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.promising.summary_protocol import CellSummaries, Floats, Ints, Keys

LIKELY = 0.5  # a value that is estimated to occur less often is taken not to occur


@dataclass(frozen=True, eq=False)
class Node:
    """The zones below added up: what two nodes of a finer level, or a zone (no children), come to."""

    number: int
    summaries: CellSummaries
    below: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Pyramid:
    """The nodes of every level, finest first; the last has one or two (none if there are no zones)."""

    levels: tuple[tuple[Node, ...], ...] = ()

    def over(self, zones: Mapping[int, CellSummaries]) -> Pyramid:
        """This one, kept up: over numbered zones, with the nodes whose zones are the same as they were.

        Node k of a level is made of 2k and 2k + 1 of the one below, so that zones come and go at the ends
        without moving the others.
        """
        old = self.levels[0] if self.levels else ()
        level = _leaves(zones, {node.number: node for node in old})
        levels = [level]
        while len(levels) <= len(zones).bit_length() and len(level) > 1:  # 7 and 8 meet only at level 4
            old = self.levels[len(levels)] if len(levels) < len(self.levels) else ()
            level = _above(level, {node.number: node for node in old})
            levels.append(level)
        return Pyramid(tuple(levels))

    def estimate(self, keys: Keys, buckets: Ints) -> dict[int, Floats]:
        """By zone, how often each key is estimated to occur; 0 where a coarser level finds it unlikely."""
        found = {node.number: np.zeros(len(keys)) for node in self.levels[0]} if self.levels else {}
        for root in self.levels[-1] if self.levels else ():
            _descend(root, np.arange(len(keys)), buckets, root.summaries.places(keys), found)
        return found

    @property
    def nbytes(self) -> int:
        """Of what is not the zones' own."""
        return sum(node.summaries.nbytes for level in self.levels for node in level if len(node.below) > 1)


def _leaves(zones: Mapping[int, CellSummaries], old: Mapping[int, Node]) -> tuple[Node, ...]:
    return tuple(
        old[number]
        if number in old and old[number].summaries is zones[number]
        else Node(number, zones[number])
        for number in sorted(zones)
    )


def _above(level: tuple[Node, ...], old: Mapping[int, Node]) -> tuple[Node, ...]:
    pairs: dict[int, tuple[Node, ...]] = {}
    for node in level:
        pairs[node.number // 2] = (*pairs.get(node.number // 2, ()), node)
    made = []
    for number, below in pairs.items():
        before = old.get(number)
        if before and len(before.below) == len(below) and all(map(_same, before.below, below)):
            made.append(before)
        else:
            summaries = below[0].summaries if len(below) == 1 else below[0].summaries.add(below[1].summaries)
            made.append(Node(number, summaries, below))
    return tuple(made)


def _same(one: Node, other: Node) -> bool:
    return one is other


def _descend(node: Node, rows: Ints, cells: Ints, places: NDArray, found: dict[int, Floats]) -> None:
    """Finds the estimates of some rows' keys, which are still likely, in the zones below a node."""
    if len(node.below) == 1:
        return _descend(node.below[0], rows, cells, places, found)
    if not len(rows) or not node.summaries.counts.any():
        return None
    estimates = node.summaries.read(cells, places)
    if not node.below:
        found[node.number][rows] = np.clip(estimates, 0, node.summaries.counts[cells])
        return None
    likely = np.flatnonzero(estimates >= LIKELY)
    if len(likely) < len(rows):
        rows, cells, places = rows[likely], cells[likely], places.take(likely, -1)
    for below in node.below:
        _descend(below, rows, cells, places, found)
    return None
