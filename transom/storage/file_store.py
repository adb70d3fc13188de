"""A small file store under one root, on any file system that Arrow knows: what a checkpoint is kept in."""

from __future__ import annotations

import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from transom.errors import CheckpointError, SettingError
from transom.storage.failpoints import failpoint
from transom.storage.framed_file import FramedWriter, content, damaged, missing
from transom.storage.temporary import temporary_directory
from transom.storage.write_errors import writable

# Names that are not there yet: a write ends by giving such a file its real name. Listings skip them.
_UNFINISHED = ".unfinished"
_SYNC_THREADS = 8
_LEAST_BYTES_FOR_THREADS = 1 << 20


def is_of_batches_to(batch_id: int, name: str) -> bool:
    """Whether a file, whose name begins with the number of its batch, is of a batch up to this one.

    A file with another name is none of an engine's.

    >>> [is_of_batches_to(12, name) for name in ("0000000012.json", "0000000013-5c1f03ab", "notes.txt")]
    [True, False, False]
    """
    digits = re.match(r"\d+", name)
    return digits is not None and int(digits[0]) <= batch_id


class Store:
    """Files and directories under a local path or a URI; names are relative, with slashes.

    >>> store = Store.temporary()
    >>> store.write("batches/000001.json", b"{}")
    >>> store.list("batches"), store.read("batches/000001.json")
    (['000001.json'], b'{}')
    >>> store.delete()
    """

    def __init__(self, uri: str | Path, sync: bool = False):
        self.sync = sync  # whether files are brought to disk; only local files can be
        # Of the lease, if there is one.
        self.guarded: Callable[[], AbstractContextManager[None]] = nullcontext
        self._unsynced: dict[str, None] = {}  # files and directories that `flush` brings to disk
        self._fs, self._root = file_system(uri)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        # Not escaped: Hadoop reads an address as it is.
        self.uri = f"file://{self._root}" if self._is_local else str(uri).rstrip("/")

    @classmethod
    def temporary(cls) -> Store:
        """A new, empty local store; the caller deletes it."""
        return cls(temporary_directory())

    def path(self, name: str = "") -> str:
        """The address of a file or directory as Spark reads it."""
        return f"{self.uri}/{name}" if name else self.uri

    @property
    def local_path(self) -> str | None:
        """The store's directory, if it is on this machine."""
        return self._root if self._is_local else None

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file or directory."""
        return self._fs.get_file_info(self._at(name)).type != fs.FileType.NotFound

    def read(self, name: str) -> bytes:
        """The content of a file that `write` wrote; CheckpointError if it is damaged or missing."""
        return bytes(self._content(name))

    def write(self, name: str, data: Any) -> None:
        """Write a file with a checksum, so that a reader sees all of it or the file before."""
        with self._framed(name) as file:
            file.write(data)

    def read_table(self, name: str) -> pa.Table:
        """The Arrow table that `write_table` or `writer` wrote."""
        with self.batches(name) as reader:
            return reader.read_all()

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write an Arrow table as an IPC file with a checksum, all of it or nothing."""
        self.write(name, packed_table(table, "zstd"))

    @contextmanager
    def batches(self, name: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """An IPC file to be read batch by batch; its checksum is checked first."""
        packed = pa.py_buffer(self._content(name))
        try:
            reader = pa.ipc.open_file(packed)
        except pa.ArrowException as error:
            raise damaged(name, str(error)) from error
        yield reader

    @contextmanager
    def writer(self, name: str, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchWriter]:
        """An IPC file to be written piece by piece; it is there when the block is left without an error."""
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            self._framed(name) as file,
            pa.PythonFile(file, mode="w") as sink,
            pa.ipc.new_file(sink, schema, options=options) as writer,
        ):
            yield writer

    def raw(self, name: str) -> bytes:
        """The bytes of a file that the backend wrote; CheckpointError if it is missing."""
        try:
            with self._opened(self._at(name)) as file:
                return file.read()
        except FileNotFoundError:
            raise missing(name) from None
        except OSError as error:
            raise CheckpointError(f"{name} of the checkpoint can't be read: {error}") from error

    def note(self, names: Iterable[str]) -> None:
        """Let the next `flush` wait for files that the backend wrote, too."""
        paths = [self._at(name) for name in names]
        self._changed(*paths, *sorted({posixpath.dirname(path) for path in paths}))

    def flush(self) -> None:
        """Wait until all that was written is on disk.

        Threads do it at the same time: file systems then bring several files to disk in one step.
        """
        unsynced, self._unsynced = self._unsynced, {}
        try:
            with writable(self.uri):
                failpoint("flush", "begin")
                sync_paths(list(unsynced))
                failpoint("flush", "end")
        except BaseException:
            self._unsynced = {**unsynced, **self._unsynced}
            raise

    def _changed(self, *paths: str) -> None:
        if self.sync and self._is_local:
            self._unsynced.update(dict.fromkeys(paths))

    def __getstate__(self) -> dict[str, Any]:
        """A store goes to tasks, which write files under new names, and bring them to disk one by one."""
        return {**self.__dict__, "_unsynced": {}, "guarded": nullcontext}

    def _make_directory(self, path: str) -> None:
        """Make a directory and those above it; with `sync`, their entries are on disk."""
        if self._is_local and os.path.isdir(path):
            return
        if self._fs.get_file_info(path).type == fs.FileType.Directory:
            return
        above = posixpath.dirname(path)
        if above != path:
            self._make_directory(above)
        self._fs.create_dir(path, recursive=False)
        self._changed(above)

    def _opened(self, path: str) -> Any:
        return open(path, "rb") if self._is_local else self._fs.open_input_stream(path)

    def _created(self, path: str) -> Any:
        return open(path, "wb") if self._is_local else self._fs.open_output_stream(path, buffer_size=1 << 16)

    def _content(self, name: str) -> memoryview:
        return content(name, self.raw(name))

    @contextmanager
    def _framed(self, name: str) -> Iterator[FramedWriter]:
        """A file with a checksum; it gets its name when the block is left without an error."""
        target = self._at(name)
        directory, base = posixpath.split(target)
        unfinished = f"{directory}/{base}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with writable(target):
                failpoint(name, "create")
                self._make_directory(directory)
                with self._created(unfinished) as file:
                    framed = FramedWriter(name, file)
                    yield framed
                    framed.finish()
                failpoint(name, "rename")
                with self.guarded():
                    self._fs.move(unfinished, target)
                failpoint(name, "renamed")
            self._changed(target, directory)
        except BaseException:
            with suppress(OSError):
                self._fs.delete_file(unfinished)
            raise

    def list(self, name: str = "") -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(name), allow_not_found=True))
        return sorted(info.base_name for info in found if not info.base_name.endswith(_UNFINISHED))

    def directories(self, name: str) -> Sequence[str]:
        """The names of the directories in a directory, sorted; none if it does not exist."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(name), allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def files(self, name: str) -> dict[str, int]:
        """The files in a directory and below, with their sizes; hidden ones and unfinished ones are left out."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(name), allow_not_found=True, recursive=True))
        start = len(self._at(name)) + 1
        return {
            info.path[start:]: info.size
            for info in found
            if info.type == fs.FileType.File
            and not info.base_name.startswith((".", "_"))
            and not info.base_name.endswith(_UNFINISHED)
        }

    def delete(self, name: str = "") -> None:
        """Delete a file, or a directory with all in it; nothing happens if there is none."""
        info = self._fs.get_file_info(self._at(name))
        if info.type == fs.FileType.NotFound:
            return
        with writable(info.path):
            failpoint(name, "delete")
            with self.guarded():
                if info.type == fs.FileType.Directory:
                    self._fs.delete_dir(info.path)
                else:
                    self._fs.delete_file(info.path)
            failpoint(name, "deleted")

    def _at(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise SettingError(f"not a name inside the store: {name}")
        return posixpath.join(self._root, name) if name else self._root


def file_system(uri: str | Path) -> tuple[fs.FileSystem, str]:
    """The file system of a local path or a URI, and the path as it knows it."""
    text = str(uri)
    try:
        if "://" in text and not text.startswith("file://"):
            return fs.FileSystem.from_uri(text)
        local = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
        return fs.LocalFileSystem(), str(Path(local).expanduser().absolute())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise SettingError(f"no place to store files: {text}: {error}") from error


def sync_paths(paths: Sequence[str]) -> None:
    """Wait until files and entries of directories are on disk."""
    if len(paths) < 2:
        for path in paths:
            _sync(path)
        return
    list(_sync_threads(os.getpid()).map(_sync, paths))


@cache
def _sync_threads(process: int) -> ThreadPoolExecutor:
    """The threads of a process that wait for the disk, started once: a forked process has none of its parent's."""
    return ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="transom sync")


def _sync(path: str) -> None:
    """Wait until a file's bytes, or a directory's entries, are on disk."""
    with writable(path):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # deleted since it was written
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def packed_table(table: pa.Table, compression: str | None) -> pa.Buffer:
    """A table as an IPC file."""
    sink = pa.BufferOutputStream()
    # For a small table, handing its columns to threads takes longer than compressing them.
    is_large = table.nbytes >= _LEAST_BYTES_FOR_THREADS
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=is_large)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()
