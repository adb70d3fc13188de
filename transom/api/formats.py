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


class ExportFormat(StrEnum):
    """The format of a file with results."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


EXPORT_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSON: "application/json",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
    ExportFormat.ARROW: "application/vnd.apache.arrow.file",
}


class ResultKind(StrEnum):
    """Which results of a query are wanted."""

    FINAL = "final"
    EARLY = "early"
    ALL = "all"
