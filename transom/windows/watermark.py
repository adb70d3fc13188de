"""What the clocks of a stream's partitions or groups close after a batch."""

from __future__ import annotations

from dataclasses import dataclass

from transom.windows.closed_time import Closed
from transom.windows.group_closings import GroupClosings


@dataclass(frozen=True)
class Watermark:
    """The time before which everything is closed, and what is closed for groups beyond that.

    `slack` is the largest one of the live partitions: clocks of other columns have it.
    """

    until: int | None
    slack: int = 0
    groups: GroupClosings | None = None

    def closing(self, closed: Closed) -> Closed:
        """Closed time with what the watermark closes."""
        if self.until is not None:
            closed = closed.close(self.until)
        return closed if self.groups is None else closed.with_groups(self.groups)
