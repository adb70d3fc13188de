"""The form of every file that Transom itself writes under a checkpoint: a header, the content, and a checksum.

    header    "transom" and the version of this form             8 bytes
    content   JSON, an Arrow file, or a packed state
    trailer   the length of the content, and a CRC-32           12 bytes

The checksum covers the file's name too: a file under another file's name is noticed. Every single flipped bit,
every truncation and every file that grew is found when the file is read.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Protocol

from transom.errors import CheckpointError

FRAME_VERSION = 1
HEADER = struct.pack("<7sB", b"transom", FRAME_VERSION)
_TRAILER = struct.Struct("<QI")
FRAME_OVERHEAD = len(HEADER) + _TRAILER.size

_WHAT_TO_DO = (
    "restore the file from a backup of the checkpoint, or start with a new checkpoint directory and the "
    "whole stream"
)


class ByteSink(Protocol):
    """A file that is being written."""

    def write(self, data: Any) -> Any: ...


class FramedWriter:
    """Writes a framed file piece by piece; `finish` writes the trailer."""

    def __init__(self, name: str, sink: ByteSink):
        self._sink, self._length, self._crc = sink, 0, _crc_of_name(name)
        self.closed = False  # Arrow asks
        sink.write(HEADER)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._crc = zlib.crc32(view, self._crc)
        self._length += view.nbytes
        self._sink.write(view)
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: Arrow flushes what it writes to."""

    def close(self) -> None:
        """Do nothing: Arrow closes what it writes to, and the trailer is still to come."""

    def finish(self) -> None:
        """Write the trailer: the file is whole."""
        self._sink.write(_TRAILER.pack(self._length, self._crc))


def content(name: str, data: bytes) -> memoryview:
    """The content of a framed file; CheckpointError if it is not as it was written."""
    view = memoryview(data)
    if bytes(view[: len(HEADER)]) != HEADER:
        if bytes(view[:6]) == b"ARROW1" or bytes(view[:2]) == b'{"' or bytes(view[:4]) == b"\xff" * 4:
            raise CheckpointError(
                f"{name} of the checkpoint has format 7 or older, which has no checksums: continue it with the "
                "version of transom that wrote it, or start with a new checkpoint directory"
            )
        raise damaged(name, "it is empty" if not data else "its header is not one of Transom's")
    if len(view) < FRAME_OVERHEAD:
        raise damaged(name, "it is truncated")
    inner = view[len(HEADER) : -_TRAILER.size]
    length, crc = _TRAILER.unpack(view[-_TRAILER.size :])
    if length != inner.nbytes:
        raise damaged(name, "it is truncated, or its length is damaged")
    if zlib.crc32(inner, _crc_of_name(name)) != crc:
        raise damaged(name, "its checksum does not fit its content")
    return inner


def damaged(name: str, what: str) -> CheckpointError:
    """The error for a file that is not as it was written."""
    return CheckpointError(f"{name} of the checkpoint is damaged: {what}; {_WHAT_TO_DO}")


def missing(name: str) -> MissingFile:
    """The error for a file that is not there any more."""
    return MissingFile(f"{name} of the checkpoint is missing; {_WHAT_TO_DO}")


class MissingFile(CheckpointError, FileNotFoundError):
    """A file of the checkpoint is not there."""


def _crc_of_name(name: str) -> int:
    return zlib.crc32(HEADER, zlib.crc32(name.encode()))
