"""Scalars in this process that may also ask for the current time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from transom.backends.expressions import at_clock
from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql.interpreter.scalars import InterpretedScalars


class LocalScalars(InterpretedScalars):
    """The interpreter's scalars, with the current time in place of the calls that ask for it.

    The runtime gives most expressions the time of their batch before they come here.
    """

    def types(self, columns: Columns, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        return super().types(columns, [at_clock(text, 0) for text in expressions])

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        now = time.time_ns() // 1000
        return super().project(table, {name: at_clock(text, now) for name, text in expressions.items()})
