"""The multi-resolution index over a granularity: pairs of zones, pairs of pairs, up to the top (3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints, Keys
from transom.promising.summary_protocol import CellSummaries

LIKELY = 0.5  # a value with a lower estimated count is assumed not to occur


@dataclass(frozen=True, eq=False)
class Node:
    """The sum of two nodes of the next finer level, or a single zone (no children)."""

    number: int
    summaries: CellSummaries
    below: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Pyramid:
    """The nodes of every level, the finest first; the last level has one or two nodes, or none without zones."""

    levels: tuple[tuple[Node, ...], ...] = ()

    def over(self, zones: Mapping[int, CellSummaries]) -> Pyramid:
        """The pyramid over numbered zones; nodes with unchanged zones are reused.

        Node k consists of nodes 2k and 2k + 1 of the level below, so zones can be added and removed at the
        ends without moving the others.
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
        """By zone, the estimated count of each key; 0 where a coarser level finds it unlikely."""
        found = {node.number: np.zeros(len(keys)) for node in self.levels[0]} if self.levels else {}
        for root in self.levels[-1] if self.levels else ():
            _descend(root, np.arange(len(keys)), buckets, root.summaries.places(keys), found)
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of the nodes above the zones."""
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


def _same(first: Node, second: Node) -> bool:
    return first is second


def _descend(node: Node, rows: Ints, cells: Ints, places: NDArray, counts_found: dict[int, Floats]) -> None:
    """Write the estimates of the keys that are still likely into the zones below a node."""
    if len(node.below) == 1:
        return _descend(node.below[0], rows, cells, places, counts_found)
    if not len(rows) or not node.summaries.counts.any():
        return None
    estimates = node.summaries.read(cells, places)
    if not node.below:
        counts_found[node.number][rows] = np.clip(estimates, 0, node.summaries.counts[cells])
        return None
    likely = np.flatnonzero(estimates >= LIKELY)
    if len(likely) < len(rows):
        rows, cells, places = rows[likely], cells[likely], places.take(likely, -1)
    for below in node.below:
        _descend(below, rows, cells, places, counts_found)
    return None
