"""A small file store under one root, on any file system that Arrow knows: what a checkpoint is kept in."""

from __future__ import annotations

import posixpath
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from transom.errors import SettingError

# Names that are not there yet: a write ends by giving such a file its real name. Listings skip them.
_UNFINISHED = ".unfinished"


class Store:
    """Files and directories under a local path or a URI; names are relative, with slashes.

    >>> store = Store.temporary()
    >>> store.write("batches/000001.json", b"{}")
    >>> store.list("batches"), store.read("batches/000001.json")
    (['000001.json'], b'{}')
    >>> store.delete()
    """

    def __init__(self, uri: str | Path):
        text = str(uri)
        try:
            if "://" in text and not text.startswith("file://"):
                self._fs, self._root = fs.FileSystem.from_uri(text)
                self.uri = text.rstrip("/")
            else:
                local = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
                self._fs, self._root = fs.LocalFileSystem(), str(Path(local).expanduser().absolute())
                self.uri = f"file://{self._root}"  # not escaped: Hadoop reads an address as it is
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise SettingError(f"no place to store files: {text}: {error}") from error

    @classmethod
    def temporary(cls) -> Store:
        """A new, empty local store; the caller deletes it."""
        return cls(tempfile.mkdtemp(prefix="transom-"))

    def path(self, name: str = "") -> str:
        """The address of a file or directory as Spark reads it."""
        return f"{self.uri}/{name}" if name else self.uri

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file or directory."""
        return self._fs.get_file_info(self._at(name)).type != fs.FileType.NotFound

    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError if there is none."""
        with self._fs.open_input_stream(self._at(name)) as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Write a file so that a reader sees all of it or the one before."""
        target = self._at(name)
        directory, base = posixpath.split(target)
        self._fs.create_dir(directory, recursive=True)
        unfinished = f"{directory}/{base}.{uuid.uuid4().hex}{_UNFINISHED}"
        with self._fs.open_output_stream(unfinished) as file:
            file.write(data)
        self._fs.move(unfinished, target)

    def read_table(self, name: str) -> pa.Table:
        """The Arrow table in an IPC file."""
        with self._fs.open_input_file(self._at(name)) as file:
            return pa.ipc.open_file(file).read_all()

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write an Arrow table as an IPC file, all of it or nothing."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_table(table)
        self.write(name, sink.getvalue())

    @contextmanager
    def batches(self, name: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """An IPC file to be read batch by batch."""
        with self._fs.open_input_file(self._at(name)) as file:
            yield pa.ipc.open_file(file)

    @contextmanager
    def writer(self, name: str, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchWriter]:
        """An IPC file to be written piece by piece; it is there when the block is left without an error."""
        target = self._at(name)
        self._fs.create_dir(posixpath.dirname(target), recursive=True)
        unfinished = f"{target}.{uuid.uuid4().hex}{_UNFINISHED}"
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            self._fs.open_output_stream(unfinished) as file,
            pa.ipc.new_file(file, schema, options=options) as writer,
        ):
            yield writer
        self._fs.move(unfinished, target)

    def list(self, name: str = "") -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(name), allow_not_found=True))
        return sorted(info.base_name for info in found if not info.base_name.endswith(_UNFINISHED))

    def delete(self, name: str = "") -> None:
        """Delete a file, or a directory with all in it; nothing happens if there is none."""
        info = self._fs.get_file_info(self._at(name))
        if info.type == fs.FileType.Directory:
            self._fs.delete_dir(info.path)
        elif info.type != fs.FileType.NotFound:
            self._fs.delete_file(info.path)

    def _at(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise SettingError(f"not a name inside the store: {name}")
        return posixpath.join(self._root, name) if name else self._root
