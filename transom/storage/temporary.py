"""Temporary directories that outlive their process only if it is killed: the next process removes them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"transom-(?P<machine>[0-9a-f]{8})-(?P<process>\d+)-\w+")


def temporary_directory() -> Path:
    """A new directory; its name says which process made it. Those of processes that were killed are removed."""
    remove_stale(Path(tempfile.gettempdir()))
    return Path(tempfile.mkdtemp(prefix=f"transom-{_machine()}-{os.getpid()}-"))


def remove_stale(root: Path) -> None:
    """Remove the directories of this user's processes on this machine that have ended."""
    for directory in root.glob("transom-*"):
        name = _NAME.fullmatch(directory.name)
        if name is None or name["machine"] != _machine() or _is_running(int(name["process"])):
            continue
        with suppress(OSError):  # another process removes it, too
            if directory.lstat().st_uid == os.getuid() and not directory.is_symlink():
                shutil.rmtree(directory, ignore_errors=True)


def _machine() -> str:
    """The machine, or the container: the numbers of processes mean nothing outside of it."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        space = ""
    return f"{zlib.crc32(f'{socket.gethostname()} {space}'.encode()):08x}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
