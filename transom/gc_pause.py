"""A pause of Python's garbage collector for work that makes many objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_pauses: list[None] = []  # one for each pause that turned the collector off and still lasts


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the search for cycles: with ten thousand queries, each search visits millions of objects.

    A context manager and a decorator. The search that is due after a pause begins when it ends.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _pauses.append(None)
    try:
        yield
    finally:
        _pauses.pop()
        gc.enable()


@contextmanager
def allow_garbage_collection() -> Iterator[None]:
    """Let the collector work for a while within a pause: during work that may take long, and run users' functions."""
    if not _pauses:
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        if _pauses:  # a pause of another thread may have ended, or still last
            gc.disable()
