"""The kinds of summaries: count-sketches, histograms, or only counts of tuples (3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from transom.columns import array_bytes
from transom.promising.histograms import Histograms, Tallies
from transom.promising.sketches import CountSketches
from transom.promising.summary_protocol import CellSummaries


def empty_summaries(kind: str, cells: int, rows: int = 5, width: int = 16) -> CellSummaries:
    """Summaries of cells without tuples; `kind` is countsketch, histogram, or none.

    >>> empty_summaries("histogram", 3).cells
    3
    """
    match kind:
        case "countsketch":
            return CountSketches.empty(cells, rows, width)
        case "histogram":
            return Histograms.empty(cells)
        case "none":
            return Tallies.empty(cells)
    raise ValueError(f"no summary is of kind {kind}")


def unpack_summaries(data: bytes) -> CellSummaries:
    """The summaries in bytes that `packed` returned.

    >>> import numpy as np
    >>> some = empty_summaries("countsketch", 1).summarize(np.array([0]), np.array([7], np.uint64))
    >>> unpack_summaries(some.packed()).estimate(np.array([0]), np.array([7], np.uint64))
    array([1.])
    """
    meta, parts = array_bytes.unpack(data)
    kinds: dict[str, type[CountSketches] | type[Histograms] | type[Tallies]] = {
        "countsketch": CountSketches,
        "histogram": Histograms,
        "none": Tallies,
    }
    return kinds[meta["kind"]].unpacked(meta, parts)


def concat_summaries(parts: Sequence[CellSummaries]) -> CellSummaries:
    """The cells of summaries of one kind and shape, one after another."""
    return parts[0].concat(parts[1:])
