"""Transom: many standing window-aggregate queries over one stream, in a single pass, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transom.errors import PageError, SettingError, SQLError, StateError, TransomError

if TYPE_CHECKING:
    from transom.client.server import connect
    from transom.spark.engine import Engine

__version__ = "0.1.0"
__all__ = [
    "Engine",
    "PageError",
    "SQLError",
    "SettingError",
    "StateError",
    "TransomError",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    """`Engine` is imported when it is first asked for: the rest of the package needs no Spark. Neither does
    `connect`, but it needs HTTP."""
    if name == "Engine":
        from transom.spark.engine import Engine

        return Engine
    if name == "connect":
        from transom.client.server import connect

        return connect
    raise AttributeError(f"module 'transom' has no attribute {name!r}")
