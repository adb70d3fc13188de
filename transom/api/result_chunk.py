"""A part of a query's results."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class ResultChunk:
    """Some results of a query and the cursor after them."""

    table: pa.Table
    cursor: str
    more: bool = False  # whether more results are available now
