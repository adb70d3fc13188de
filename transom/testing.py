"""Tools for tests and trials of queries: the thesis's Expensive operator."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

from transom.errors import SettingError


def expensive(seconds: float) -> Callable[[Any], Any]:
    """A function for `engine.udf` that gives back its argument, after so much processor time (4.3.2).

    >>> expensive(0.001)(7)
    7
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise SettingError(f"expensive takes seconds, such as 0.001, not {seconds!r}")

    def work(value: Any) -> Any:
        until = thread_time() + seconds
        while thread_time() < until:
            pass
        return value

    return work
