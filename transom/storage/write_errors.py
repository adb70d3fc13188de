"""What a program is told when a file can't be written: which file, why, and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from transom.errors import WriteError

_FULL = "free some space there"
_FORBIDDEN = "let this user write there"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "allow larger files there (`ulimit -f`, or another file system)",
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EIO: "check the disk",
}


@contextmanager
def writable(path: str) -> Iterator[None]:
    """WriteError if a disk is full, broken or read-only while a file is written; other errors as they are."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is None:
            raise
        file, reason = path.removeprefix("file://"), os.strerror(error.errno or 0)
        raise WriteError(
            f"{file} can't be written: {reason}; {remedy}, and start the engine again: nothing is lost"
        ) from error
