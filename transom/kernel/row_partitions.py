"""The partition of each row: how far the partitions have come with a batch, and the delays of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask
from transom.windows.delays import DelayCounts
from transom.windows.intervals import LOWEST
from transom.windows.partition_clocks import SHARED, PartitionClocks


@dataclass(frozen=True)
class RowPartitions:
    """The names of a batch's partitions, and the number of each row's name; rows without one have the shared clock."""

    names: list[str]
    codes: Ints

    @classmethod
    def of(cls, partitions: pa.ChunkedArray) -> RowPartitions:
        """The partitions of some rows."""
        encoded = partitions.cast(pa.string()).combine_chunks().fill_null(SHARED).dictionary_encode()
        return cls(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False))

    def tops(self, times: Ints, accepted: Mask) -> dict[str, int]:
        """The newest time of each partition."""
        tops = np.full(len(self.names), LOWEST)
        np.maximum.at(tops, self.codes[accepted], times[accepted])
        return {name: top for name, top in zip(self.names, tops.tolist(), strict=True) if top > LOWEST}

    def delays(
        self, clocks: PartitionClocks, times: Ints, accepted: Mask, watermark: int, by_group: bool
    ) -> DelayCounts | None:
        """The delays of the rows behind their partition's newest time; rows of new partitions have none."""
        if not clocks.names:
            return None
        places = clocks.places(self.names)
        of_rows = places[self.codes]
        judged = accepted & (of_rows >= 0)
        of_rows, times = of_rows[judged], times[judged]
        own = clocks.closed[of_rows]
        until = np.maximum(own, watermark) if by_group else np.full(len(times), watermark)
        return DelayCounts.of(
            clocks.sketch_numbers[of_rows],
            clocks.newest[of_rows] - times,
            times < until,
            times < (own if by_group else np.minimum(own, watermark)),
            clocks.sketches,
        )
