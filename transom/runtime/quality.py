"""Quality functions of the user's: how good an early value was, compared with the final one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

log = logging.getLogger("transom")


def guarded_quality(name: str, function: Callable[[Any, Any, float], Any]) -> Callable[..., float]:
    """A quality function; where it raises, or gives no number, nothing is said about the early value."""
    failed = False

    @wraps(function)
    def guarded(early: Any, final: Any, seconds: float) -> float:
        nonlocal failed
        try:
            return float(function(early, final, seconds))
        except Exception as error:
            if not failed:
                log.warning("the quality %s failed, and may again: %r", name, error)
            failed = True
            return float("nan")

    return guarded
