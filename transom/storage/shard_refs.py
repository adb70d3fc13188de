"""Files that hold a part of the state: where they are and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ShardRef:
    """Files of cells, one for each partition of the groups that has any, and which slices they hold.

    `parts` are the partitions with their rows and bytes, `held` the slices (start, stop) of each selection
    that hold tuples and may still be needed.
    """

    name: str
    parts: tuple[tuple[int, int, int], ...]
    held: Mapping[int, tuple[tuple[int, int], ...]]

    def file(self, partition: int) -> str:
        return f"{self.name}-{partition:04d}.arrow"

    @property
    def files(self) -> list[str]:
        return [self.file(partition) for partition, _, _ in self.parts]

    @property
    def sizes(self) -> list[int]:
        return [size for _, _, size in self.parts]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows, _ in self.parts)

    @property
    def bytes(self) -> int:
        return sum(size for _, _, size in self.parts)
