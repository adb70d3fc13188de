"""Directories of files whose names or contents the driver does not choose: a list of them makes them complete.

A backend writes plain Parquet files, and tasks write results under random names. The driver then seals the
directory: it writes `_files.json` with the name, the size and the checksum of every file. A reader finds missing,
truncated and changed files by it, and passes over files that tasks added later.
"""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Collection, Iterator

from transom.backends.base import Frame
from transom.errors import CheckpointError
from transom.storage.failpoints import failpoint
from transom.storage.file_store import Store
from transom.storage.framed_file import damaged, missing
from transom.storage.write_errors import writable

SEAL = "_files.json"


def write_frame(store: Store, directory: str, rows: Frame, partition_by: str | None = None) -> None:
    """Let the backend write rows as Parquet files; `seal` makes the directory complete."""
    with writable(store.path(directory)):
        failpoint(directory, "write")
        rows.write_parquet(store.path(directory), partition_by)
        failpoint(directory, "written")


def seal(store: Store, directory: str, under: str = "") -> int:
    """List the files of a directory, or of a directory in it, in its seal; the number of their bytes."""
    files = [
        {"name": name, "size": size, "crc": _checksum(store, f"{directory}/{name}")}
        for name, size in sorted(store.files(directory).items())
        if not under or name.startswith(f"{under}/")
    ]
    store.note([f"{directory}/{file['name']}" for file in files])
    store.write(f"{directory}/{SEAL}", json.dumps({"files": files}).encode())
    return sum(int(str(file["size"])) for file in files)


def is_sealed(store: Store, directory: str) -> bool:
    """Whether a directory is complete."""
    return store.exists(f"{directory}/{SEAL}")


def sealed_directories(store: Store, name: str) -> Iterator[str]:
    """The sealed directories at and below a directory."""
    try:
        entries = store.list(name)
    except NotADirectoryError:
        return
    if SEAL in entries:
        yield name
        return
    for entry in entries:
        yield from sealed_directories(store, f"{name}/{entry}")


def sealed_files(store: Store, directory: str, under: Collection[str] = ()) -> list[str]:
    """The files that a directory had when it was sealed, or those of directories in it; CheckpointError if one of
    them is missing or changed."""
    seal_name = f"{directory}/{SEAL}"
    try:
        listed = json.loads(store.read(seal_name))["files"]
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise damaged(seal_name, str(error)) from error
    found = _sizes(store, directory, under)
    chosen = [file for file in listed if not under or posixpath.dirname(file["name"]) in under]
    for file in chosen:
        name = f"{directory}/{file['name']}"
        if file["name"] not in found:
            raise missing(name)
        if found[file["name"]] != file["size"] or file["crc"] != _checksum(store, name):
            raise damaged(name, "its checksum does not fit its content")
    return [f"{directory}/{file['name']}" for file in chosen]


def _sizes(store: Store, directory: str, under: Collection[str]) -> dict[str, int]:
    """The files below a directory, or below directories in it, with their sizes."""
    if not under:
        return store.files(directory)
    return {
        f"{inner}/{name}": size
        for inner in under
        for name, size in store.files(f"{directory}/{inner}").items()
    }


def _checksum(store: Store, name: str) -> int | None:
    """The checksum of a file; a framed file has its own."""
    return None if name.endswith(".arrow") else zlib.crc32(store.raw(name))
