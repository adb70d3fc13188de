"""Threads in which the page asks the service, so that whoever waits for Spark lets the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")

THREADS = 16
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="page")


def later(ask: Callable[Given, object], *args: Given.args, **named: Given.kwargs) -> None:
    """Have a function called, some time; who asks does not wait, and may be gone by then."""
    _POOL.submit(ask, *args, **named)


async def in_thread(ask: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """Call a function that may take its time."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, partial(ask, *args, **named))
