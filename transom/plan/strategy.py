"""What a user chooses about sharing: which work is shared, and where state is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from transom.plan.limits import Limits


class Place(str, Enum):
    """Where slices are kept: chosen by their size, always on the driver, or always on the executors."""

    AUTO = "auto"
    DRIVER = "driver"
    EXECUTORS = "executors"


class FragmentSharing(str, Enum):
    """How predicates are shared: not at all, by one signature over all predicates, or by families."""

    UNSHARED = "unshared"
    JOINT = "joint"
    FAMILIES = "families"


@dataclass(frozen=True)
class Strategy:
    """How slices and predicates are shared, where state is kept, and the limits of these decisions."""

    shared: bool = True  # whether queries over the same rows share slices
    paned: bool = False  # whether slices are panes instead of paired windows
    fragments: FragmentSharing = FragmentSharing.FAMILIES
    place: Place = Place.AUTO
    adapts: bool = False  # whether queries stop and start sharing slices as measured rates change
    rolls: bool = True  # whether groups are rolled up from finer groups of other queries
    limits: Limits = field(default_factory=Limits)

    @property
    def rolls_up(self) -> bool:
        """Whether families that differ only in GROUP BY share cells: only where all else is shared."""
        return self.rolls and self.shared and self.fragments is FragmentSharing.FAMILIES
