"""A pause of Python's garbage collector for work that makes many objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY_ADDED = 1_000  # make about a hundred thousand objects

_pauses: set[object] = set()  # those that turned the collector off and still last


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the search for cycles: with ten thousand queries, each search visits millions of objects.

    A context manager and a decorator. The search that is due after a pause begins when it ends.
    """
    if not gc.isenabled():
        yield
        return
    pause = object()
    try:
        _pauses.add(pause)
        gc.disable()
        yield
    finally:
        gc.enable()  # first, because a deadline may interrupt this thread between any two calls
        _pauses.discard(pause)


def collect_after_growth(added: int, present: int) -> None:
    """Search for cycles now if many queries were added to those that are present, and not within the next batch.

    Python searches all objects when their number has grown by a quarter; so does this.
    """
    if gc.isenabled() and added >= MANY_ADDED and 4 * added >= present:
        gc.collect()


@contextmanager
def allow_garbage_collection() -> Iterator[None]:
    """Let the collector work for a while within a pause: during work that may take long, and run users' functions."""
    if gc.isenabled() or not _pauses:
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        if _pauses:  # a pause of another thread may have ended, or still last
            gc.disable()
