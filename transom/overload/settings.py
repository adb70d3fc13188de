"""The setting for rows beyond a batch's budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overload:
    """What happens to rows beyond a batch's budget, which is a number of rows or of microseconds.

    With `shed` these rows are dropped. Otherwise they are sidelined, and for every `share` new rows one
    sidelined row is resumed.
    """

    budget: int
    in_time: bool = False
    shed: bool = False
    share: int = 3
