"""One query must never hurt another's batch: a query whose own functions fail is suspended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from transom.runtime.registry import Registry

log = logging.getLogger("transom")


def suspend(registry: Registry, name: str, reason: str) -> None:
    """Let a query take no part in batches any more, and say why."""
    registry.update(name, suspended=reason, failing=0)
    log.warning("query %s is suspended: %s", name, reason)


def suspend_failed(
    registry: Registry, failed: Mapping[str, Exception], error_text: Callable[[Exception], str]
) -> None:
    """Suspend queries whose functions failed."""
    for name, error in failed.items():
        suspend(registry, name, f"its function failed: {error_text(error)}")


def suspend_failing(
    registry: Registry,
    attempts: Mapping[str, Callable[[], object]],
    error_text: Callable[[Exception], str],
) -> bool:
    """Try queries one by one, and suspend those that fail; whether there were any."""
    failed: dict[str, Exception] = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:
            failed[name] = error
    suspend_failed(registry, failed, error_text)
    return bool(failed)
