"""Which exact structure answers an aggregate."""

from __future__ import annotations

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Sum
from transom.aggregates.sketches import Distinct, Quantiles
from transom.ondemand.structures.block_tree import BlockTree
from transom.ondemand.structures.prefix_sums import PrefixSums
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.staircase import Staircase

SKETCH_BLOCK = 128  # entries per block: a sketch of fewer takes as much memory as the entries


def exact_structure(accumulator: Accumulator) -> Structure:
    """The structure that answers an aggregate exactly for any window with the least work per lookup."""
    match accumulator:
        case CountRows() | Count():
            return PrefixSums(accumulator)
        case Sum(input) if pa.types.is_integer(input):
            return PrefixSums(accumulator)
        case Extreme():
            return Staircase(accumulator)
        case Distinct() | Quantiles():
            return BlockTree(accumulator, SKETCH_BLOCK)
    return BlockTree(accumulator)
