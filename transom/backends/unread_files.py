"""The files of a path on this machine that were not read yet. Only those are checked for size and age."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection
from pathlib import Path

from transom.errors import SettingError


def unread_files(path: Path, done: Collection[str], spelled: Callable[[str], str] = str) -> list[str]:
    """The visible files with something in them that are not done, oldest first, then by name.

    A path is a file, a directory or a glob. `spelled` is how a file's path is spelled in the list and in `done`.
    """
    places = [str(path)] if path.exists() else glob.glob(str(path))
    if not places:
        raise SettingError(f"no such file or directory: {path}")
    found: dict[str, int] = {}
    for place in places:
        for file in _files(place, done, spelled):
            name = spelled(file)
            try:
                status = os.stat(file)
            except FileNotFoundError:  # deleted since it was listed
                continue
            if status.st_size:
                found[name] = status.st_mtime_ns // 1_000_000
    return sorted(found, key=lambda name: (found[name], name))


def file_version(path: str) -> tuple[int, int] | None:
    """When a file was modified, in milliseconds, and its size; None if there is no such file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns // 1_000_000, status.st_size


def _files(place: str, done: Collection[str], spelled: Callable[[str], str]) -> list[str]:
    """The visible files of a directory, or a file, unless they are done."""
    if not os.path.isdir(place):
        return [] if os.path.basename(place).startswith((".", "_")) or spelled(place) in done else [place]
    with os.scandir(place) as entries:
        return [
            entry.path
            for entry in entries
            if not entry.name.startswith((".", "_")) and spelled(entry.path) not in done and entry.is_file()
        ]
