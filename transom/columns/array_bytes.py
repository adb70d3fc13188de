"""Named arrays and tables as bytes and back, bit by bit: a JSON head, then the buffers one after another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from transom.errors import StateError

ARRAY_FORMAT = 2  # field names are part of the format


def pack(meta: Mapping[str, Any], parts: Mapping[str, Any]) -> bytes:
    """Named arrays and Arrow tables, with JSON metadata, as bytes."""
    head: list[list[Any]] = []
    body: list[bytes] = []
    for name, part in parts.items():
        if isinstance(part, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            body.append(sink.getvalue().to_pybytes())
            head.append([name, None, None, len(body[-1])])
        else:
            body.append(np.ascontiguousarray(part).tobytes())
            head.append([name, part.dtype.str, part.shape, len(body[-1])])
    text = json.dumps({"version": ARRAY_FORMAT, "meta": meta, "parts": head}).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *body])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata and the parts that `pack` made into bytes.

    >>> meta, parts = unpack(pack({"n": 1}, {"x": np.array([0.1, np.nan])}))
    >>> meta, parts["x"]
    ({'n': 1}, array([0.1, nan]))
    """
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    if head["version"] != ARRAY_FORMAT:
        raise StateError(
            f"packed arrays have format {head['version']}, this version of transom reads {ARRAY_FORMAT}"
        )
    at = 8 + size
    parts: dict[str, Any] = {}
    for name, dtype, shape, length in head["parts"]:
        piece = data[at : at + length]
        at += length
        if dtype is None:
            parts[name] = pa.ipc.open_stream(pa.py_buffer(piece)).read_all()
        else:
            parts[name] = np.frombuffer(piece, np.dtype(dtype)).reshape(shape)
    return head["meta"], parts
