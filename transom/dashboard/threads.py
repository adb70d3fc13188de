"""A thread pool for calls to the service, so that a call that waits for Spark does not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from transom.dashboard.display_zone import display_zone, in_zone

P = ParamSpec("P")
_T = TypeVar("_T")

THREADS = 16
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="dashboard")


def run_later(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run a function in the pool without waiting for its result."""
    _POOL.submit(function, *args, **kwargs)


async def run_in_thread(function: Callable[P, _T], *args: P.args, **kwargs: P.kwargs) -> _T:
    """Run a blocking function in the pool and await its result; it formats times in the client's zone."""
    zone, call = display_zone(), partial(function, *args, **kwargs)

    def run() -> _T:
        with in_zone(zone):
            return call()

    return await asyncio.get_running_loop().run_in_executor(_POOL, run)
