"""This process as a backend: rows are Arrow tables, tasks are plain calls, scalars are interpreted in Python.

It needs no JVM. It is for tests, for rows that are on the driver already, and for programs that embed the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from transom.backends.arrow_frame import ArrowFrame, read_parquet_directories
from transom.backends.arrow_types import plain_table
from transom.backends.base import (
    MAX_ERROR_TEXT,
    Backend,
    Frame,
    ShippedPlan,
    Sink,
    StreamingInput,
    Task,
    error_chain,
)
from transom.backends.day_sink import day_sink
from transom.backends.delta_sink import delta_sink
from transom.backends.local.files import LocalFiles
from transom.backends.local.scalars import LocalScalars
from transom.backends.local.schema import parse_schema, parse_type
from transom.backends.local.sinks import LocalSink
from transom.backends.time_limit import interrupting
from transom.errors import DeadlineError, StateError
from transom.kernel.aggregate import BatchPlan


class _PlanHere(ShippedPlan):
    """A plan for tasks of this process."""

    def __init__(self, plan: BatchPlan):
        self._plan = plan

    def plan(self) -> BatchPlan:
        return self._plan


class LocalBackend(Backend):
    """Everything in this process."""

    name = "local"
    parallelism = 2  # partitions of state that would be with executors

    def __init__(self) -> None:
        self.scalars: LocalScalars = LocalScalars()
        self._functions: set[str] = set()

    @property
    def in_utc(self) -> bool:
        return True

    @property
    def shares_disk(self) -> bool:
        return True

    # --- rows ---

    def frame(self, table: pa.Table) -> ArrowFrame:
        return ArrowFrame(plain_table(table), self.scalars)

    def read_parquet(self, paths: Sequence[str], few: bool = False) -> ArrowFrame:
        return ArrowFrame(read_parquet_directories(paths), self.scalars)

    def copied_to_driver(self, frame: Frame, most_rows: int) -> Frame:
        return frame

    def run(self, task: Task, partitions: int, schema: pa.Schema) -> Frame:
        numbers = ArrowFrame(pa.table({"id": pa.array(range(partitions), pa.int64())}), self.scalars)
        return numbers.distribute("id", partitions).map(task, schema)

    def ship(self, plan: BatchPlan) -> ShippedPlan:
        return _PlanHere(plan)

    # --- input ---

    def open_files(
        self,
        path: str,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        files_per_batch: int = 1,
    ) -> LocalFiles:
        columns = None if schema is None else parse_schema(schema)
        return LocalFiles(path, format, columns, options or {}, files_per_batch, self.scalars)

    def input_of(self, source: Any) -> Frame | StreamingInput | None:
        return self.frame(source) if isinstance(source, pa.Table) else None

    def parse_schema(self, text: str) -> dict[str, pa.DataType]:
        return parse_schema(text)

    # --- functions ---

    def register_function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        self.scalars.register(name, function, parse_type(returns))
        self._functions.add(name.lower())

    def functions(self) -> set[str]:
        return set(self._functions)

    def function_failures(self, name: str) -> int:
        return self.scalars.failures(name)

    # --- output ---

    def sink(self, format: str, options: Mapping[str, Any]) -> Sink:
        return delta_sink(format, options) or day_sink(format, options) or LocalSink(format, options)

    def stop(self) -> None:
        self.scalars.stop()

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        self.scalars.prepare()
        with self.scalars.limited(time.monotonic() + seconds), interrupting(seconds):
            yield

    def error_text(self, error: BaseException) -> str:
        return " ".join(str(error).split("\n")[0].split())[:MAX_ERROR_TEXT] or type(error).__name__

    def is_external(self, error: BaseException) -> bool:
        is_late = isinstance(error, DeadlineError)
        return not is_late and any(isinstance(one, OSError | StateError) for one in error_chain(error))
