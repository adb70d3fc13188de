"""Rows as the bodies of requests that push them: streams of Arrow, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from transom.api.formats import MEDIA_TYPES, RowsFormat
from transom.client.http import json_ready
from transom.errors import SettingError

LINES_MEDIA_TYPE = "application/x-ndjson"
BODY_BYTES = 8 << 20  # about, of a request
BODY_ROWS = 20_000  # mappings in a request


@dataclass(frozen=True)
class EncodedRows:
    """Some rows as the body of a request."""

    content: bytes
    media_type: str


def encoded_rows(rows: pa.Table | Iterable[Mapping[str, Any]]) -> Iterator[EncodedRows]:
    """Rows in bodies of a few megabytes: a table of Arrow, pandas, Polars or DuckDB, or mappings."""
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        yield from _encoded_table(pa.table(rows))
        return
    records = iter(rows)
    while part := list(islice(records, BODY_ROWS)):
        if not all(isinstance(row, Mapping) for row in part):
            raise SettingError("push takes a table, or mappings from column to value")
        lines = (json.dumps(json_ready(row), ensure_ascii=False) for row in part)
        yield EncodedRows("\n".join(lines).encode(), LINES_MEDIA_TYPE)


def _encoded_table(table: pa.Table) -> Iterator[EncodedRows]:
    count = max(1, int(table.num_rows * BODY_BYTES / max(table.nbytes, 1)))
    for start in range(0, table.num_rows, count):
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table.slice(start, count))
        yield EncodedRows(buffer.getvalue().to_pybytes(), MEDIA_TYPES[RowsFormat.ARROW])
