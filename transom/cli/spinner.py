"""A spinner that says what takes the time, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOADING = "Loading Transom"  # while modules are imported


@contextmanager
def spinner(work: str) -> Iterator[None]:
    """Show the work on stderr while the block runs; a stderr that is no terminal stays silent.

    Spinners can't be nested: each would erase the line of the other.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # only here: it takes time to import, too

    with Console(stderr=True).status(f"{work} ..."):
        yield
