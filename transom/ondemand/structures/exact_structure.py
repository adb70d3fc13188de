"""Which exact structure answers an aggregate."""

from __future__ import annotations

from transom.aggregates.accumulators import Accumulator, ExactStore
from transom.ondemand.structures.block_tree import BlockTree
from transom.ondemand.structures.prefix_sums import PrefixSums
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.staircase import Staircase

SKETCH_BLOCK = 128  # entries per block: a sketch of fewer takes as much memory as the entries


def exact_structure(accumulator: Accumulator) -> Structure:
    """The structure that answers an aggregate exactly for any window with the least work per lookup."""
    match accumulator.traits.store:
        case ExactStore.COUNT | ExactStore.TOTAL:
            return PrefixSums(accumulator)
        case ExactStore.LEAST | ExactStore.GREATEST:
            return Staircase(accumulator)
        case ExactStore.STATES:
            return (
                BlockTree(accumulator, SKETCH_BLOCK)
                if accumulator.traits.is_sketch
                else BlockTree(accumulator)
            )
