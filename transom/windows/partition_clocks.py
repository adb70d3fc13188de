"""How far each partition of a source has come: the watermark follows the slowest one that is live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PartitionClocks:
    """The newest time of each partition, and the engine's clock when it last brought a row."""

    newest: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)

    def after(self, newest: Mapping[str, int], clock: int) -> PartitionClocks:
        """The clocks after a batch in which partitions brought rows up to these times.

        >>> PartitionClocks({"0": 7}, {"0": 1}).after({"0": 5, "1": 3}, clock=2)
        PartitionClocks(newest={'0': 7, '1': 3}, seen={'0': 2, '1': 2})
        """
        if not newest:
            return self
        later = {name: max(time, self.newest.get(name, time)) for name, time in newest.items()}
        return PartitionClocks({**self.newest, **later}, {**self.seen, **dict.fromkeys(newest, clock)})

    def slowest(self, clock: int, idle: int | None, since: int = 0) -> int | None:
        """The newest time of the slowest partition that brought a row within `idle`; None if there is none.

        `since` is when the engine was started: while it was down, no partition was silent. A batch that began before
        that is replayed as it was.

        >>> clocks = PartitionClocks({"0": 70, "1": 30}, {"0": 9, "1": 4})
        >>> clocks.slowest(10, idle=None), clocks.slowest(10, idle=5), clocks.slowest(99, idle=5)
        (30, 70, None)
        """
        start = since if since <= clock else 0
        live = [
            time
            for name, time in self.newest.items()
            if idle is None or clock - max(self.seen[name], start) <= idle
        ]
        return min(live, default=None)

    def to_json(self) -> Any:
        """The clocks for a checkpoint."""
        return {"newest": dict(self.newest), "seen": dict(self.seen)}

    @classmethod
    def from_json(cls, stored: Any) -> PartitionClocks:
        """The clocks of a checkpoint."""
        return cls(stored["newest"], stored["seen"])
