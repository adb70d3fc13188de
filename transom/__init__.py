"""Transom: many standing window-aggregate queries over one stream, in a single pass, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transom.errors import (
    BatchError,
    CheckpointError,
    CostError,
    MissingPackage,
    SettingError,
    SQLError,
    StateError,
    TransomError,
    WriteError,
)
from transom.extras import extra_needed
from transom.plan.limits import Limits
from transom.version import __version__

if TYPE_CHECKING:
    from transom.client.connection import connect
    from transom.runtime.engine import Engine
    from transom.web_service import serving

__all__ = [
    "BatchError",
    "CheckpointError",
    "CostError",
    "Engine",
    "Limits",
    "MissingPackage",
    "SQLError",
    "SettingError",
    "StateError",
    "TransomError",
    "WriteError",
    "__version__",
    "connect",
    "serving",
]


def __getattr__(name: str) -> Any:
    """`Engine` is imported when it is first asked for: the rest of the package needs no Spark. Neither do
    `connect` and `serving`, but they need the packages of the extras client and server."""
    if name == "Engine":
        from transom.runtime.engine import Engine

        return Engine
    if name == "connect":
        with extra_needed("transom.connect"):
            from transom.client.connection import connect

        return connect
    if name == "serving":
        with extra_needed("transom.serving"):
            from transom.web_service import serving

        return serving
    raise AttributeError(f"module 'transom' has no attribute {name!r}")
