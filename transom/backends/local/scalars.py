"""Scalars in this process that may also ask for the current time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from transom.backends.expressions import at_clock
from transom.backends.scalar_worker import ScalarWorker, ThreadLimit, needs_worker
from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql.interpreter.scalars import InterpretedScalars


class LocalScalars(InterpretedScalars):
    """The interpreter's scalars, with the current time in place of the calls that ask for it.

    The runtime gives most expressions the time of their batch before they come here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._worker = ScalarWorker()
        self._limit = ThreadLimit()

    def types(self, columns: Columns, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        return super().types(columns, [at_clock(text, 0) for text in expressions])

    def limited(self, until: float) -> AbstractContextManager[None]:
        """Let expressions of this thread be evaluated where they can be killed, until a time."""
        return self._limit.limited(until)

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        now = time.time_ns() // 1000
        texts = {name: at_clock(text, now) for name, text in expressions.items()}
        until = self._limit.until
        apart: dict[str, str] = {}
        if until is not None and table.num_rows and table.num_columns:
            apart = {
                n: text for n, text in texts.items() if needs_worker(text) and not self.calls_python(text)
            }
        if until is None or not apart:
            return super().project(table, texts)
        used = self.used_columns(table, apart.values()) or table.column_names[:1]
        theirs = self._worker.project(table.select(used), apart, until)
        ours = super().project(table, {name: text for name, text in texts.items() if name not in apart})
        columns = [theirs[name] if name in apart else ours[name] for name in texts]
        return pa.table(columns, names=list(texts))

    def prepare(self) -> None:
        """Start the process that evaluates expressions over texts."""
        self._worker.prepare()

    def stop(self) -> None:
        """End the process that evaluates expressions over texts."""
        self._worker.stop()
