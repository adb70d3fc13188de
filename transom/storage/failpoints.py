"""Failpoints: named moments around every write, at which a test ends the process or lets the write fail.

A failpoint costs one comparison unless a test arms it. Its name is the part of the checkpoint that is written, or
`sink` or `merge` (of a sink's files), and a moment:

    create, rename, renamed     a file is about to be written, is written under another name, has its name
    write, written              the backend is about to write Parquet files, has written them
    delete, deleted             a file or a directory is about to be deleted, is deleted
    begin, end                  a step of a batch that other systems see, or that waits for the disk
"""

from __future__ import annotations

from collections.abc import Callable

_FILE = ("create", "rename", "renamed")
_DELETION = ("delete", "deleted")
_PARQUET = ("write", "written")

_MOMENTS: dict[str, tuple[str, ...]] = {
    "alerts": _FILE,
    "delivery": ("begin", "end"),
    "feeds": (*_FILE, *_DELETION),
    "flush": ("begin", "end"),
    "glances": (*_FILE, *_DELETION),
    "history": (*_FILE, *_PARQUET, *_DELETION),
    "late": (*_FILE, *_PARQUET, *_DELETION),
    "lease": (*_FILE, *_DELETION),
    "log": (*_FILE, *_DELETION),
    "merge": ("create", "begin", "rename", "renamed"),
    "prods": (*_FILE, *_DELETION),
    "rejected": (*_FILE, *_PARQUET, *_DELETION),
    "results": (*_FILE, *_DELETION),
    "runs": (*_FILE, *_DELETION),
    "shards": (*_FILE, *_DELETION),
    "sidelined": (*_FILE, *_PARQUET, *_DELETION),
    "sink": _FILE,
    "state": (*_FILE, *_DELETION),
    "tables": (*_FILE, *_PARQUET),
}
FAILPOINTS = tuple(f"{part}.{moment}" for part, moments in _MOMENTS.items() for moment in moments)

_armed: Callable[[str], None] | None = None


def failpoint(file: str, moment: str) -> None:
    """Call what a test has armed, with the name of this failpoint."""
    if _armed is not None:
        _armed(f"{file.partition('/')[0]}.{moment}")


def arm(action: Callable[[str], None] | None) -> None:
    """Call this at every failpoint of this process from now on; None: nothing."""
    global _armed
    _armed = action
