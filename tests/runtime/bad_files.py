"""Directories of input files, some of which are not what they should be."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import at, bids_table
from transom.durations import parse_instant

NOON = parse_instant(at("12:00"))
COUNT = "SELECT count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute]"


def put(place: Path, name: str, content: pa.Table | bytes | str, number: int) -> Path:
    """Write a file; `number` is its place in the order of modification times."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / name
    if isinstance(content, pa.Table):
        pq.write_table(content, file)
    else:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(file, (1_357_000_000 + number,) * 2)
    return file


def three_files(place: Path, second: pa.Table | bytes | str | None = None, name: str = "b.parquet") -> Path:
    """A directory of two good Parquet files with one bid each, and another file between them."""
    put(place, "a.parquet", bids_table((1, 1.0, "12:00:10")), 0)
    put(place, name, bids_table((2, 2.0, "12:00:20")) if second is None else second, 1)
    put(place, "c.parquet", bids_table((3, 4.0, "12:00:30")), 2)
    return place


def retyped(column: str, kind: pa.DataType, values: list[Any] | None = None) -> pa.Table:
    """A bid whose column has another type."""
    table = bids_table((2, 2.0, "12:00:20"))
    new = table[column].cast(kind) if values is None else pa.array(values, kind)
    return table.set_column(table.column_names.index(column), column, new)


def stream_engine(
    make_engine: EngineFactory, checkpoint: Path | None, files: Path, **options: Any
) -> transom.Engine:
    """An engine with a stream of the bids of a directory."""
    engine = make_engine(checkpoint)
    engine.stream("bids", str(files), **{"time": "ts"} | options)
    return engine


def problems(engine: transom.Engine) -> list[tuple[str, str, str | None]]:
    """The problems of the stream's files: the kind, the file's name, the column."""
    rows = engine.file_problems("bids").to_pylist()
    return [(row["problem"], os.path.basename(row["file"]), row["column"]) for row in rows]


def truncated(table: pa.Table, place: Path) -> bytes:
    """The first half of a Parquet file."""
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, place / "whole")
    whole = (place / "whole").read_bytes()
    (place / "whole").unlink()
    return whole[: len(whole) // 2]


def damaged_page(place: Path) -> bytes:
    """A Parquet file whose footer is good, and whose data is not."""
    put(place, "_whole", bids_table(*[(n % 7, n / 3, "12:00:20") for n in range(5000)]), 0)
    whole = bytearray((place / "_whole").read_bytes())
    (place / "_whole").unlink()
    whole[4:2000] = os.urandom(1996)
    return bytes(whole)


def truncated_gzip(text: str) -> bytes:
    """A compressed file without its end."""
    return gzip.compress(text.encode())[:-20]


def broken_text(packed: bytes) -> pa.Array:
    """A text column of one row with any bytes in it."""
    return pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, len(packed)], np.int32)), pa.py_buffer(packed)
    )
