"""The formats of answers."""

from __future__ import annotations

from enum import StrEnum


class PlanFormat(StrEnum):
    """The format of a plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


class RowsFormat(StrEnum):
    """The format of rows."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


MEDIA_TYPES = {
    RowsFormat.JSON: "application/json",
    RowsFormat.CSV: "text/csv",
    RowsFormat.ARROW: "application/vnd.apache.arrow.stream",
}
