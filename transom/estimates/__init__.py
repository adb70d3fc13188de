"""Early results that say how good they are: projected, bounded, monitored, and timed to an accuracy."""

from __future__ import annotations

from transom.estimates.learned import Learned
from transom.estimates.monitor import Accuracy, Item, Mark, Quality, Score
from transom.estimates.sightings import Estimates, Finals, ItemKind, Sight

__all__ = [
    "Accuracy",
    "Estimates",
    "Finals",
    "Item",
    "ItemKind",
    "Learned",
    "Mark",
    "Quality",
    "Score",
    "Sight",
]
