"""The values of `transom query --backend`."""

from __future__ import annotations

from enum import StrEnum


class BackendChoice(StrEnum):
    """Where `transom query` runs."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"
