"""Engines on the backend that a test runs on, and which backends those are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import transom
from transom.backends.base import Backend, Sink
from transom.backends.choose import choose_backend

ON_BOTH = pytest.mark.backends("local", "spark")


def on_spark(reason: str) -> pytest.MarkDecorator:
    """A mark for tests of what the local backend does not do, or that only Spark can show."""
    return pytest.mark.backends("spark", reason=reason)


STREAMING = on_spark("a streaming DataFrame is Spark's")


@dataclass(frozen=True)
class EngineFactory:
    """Makes engines, and rows in the form in which a program of the backend has them."""

    name: str
    session: Any = None  # of Spark

    def __call__(self, checkpoint: Any = None, **options: Any) -> transom.Engine:
        place = None if checkpoint is None else str(checkpoint)
        options = {"sync": False} | options  # no test turns the power off
        return transom.Engine(self.session, place, backend=self.name, **options)

    @property
    def backend(self) -> Backend:
        """A backend for tests of what is below the engine."""
        return choose_backend(self.name, self.session)

    @property
    def sink_type(self) -> type[Sink]:
        """The class of this backend's sinks, for tests that make one fail."""
        return type(self.backend.sink("console", {}))

    def rows(self, table: pa.Table, partitions: int | None = None) -> Any:
        """Rows as a finite source: a DataFrame on Spark (in some partitions), an Arrow table locally."""
        if self.session is None:
            return table
        from transom.backends.spark.types import to_frame

        frame = to_frame(self.session, table)
        return frame if partitions is None else frame.repartition(partitions)


def backends_of(marks: Sequence[pytest.Mark]) -> tuple[str, ...]:
    """The backends that a test's nearest mark names; the local one if it has none.

    A test that does not run locally says why.
    """
    if not marks:
        return ("local",)
    nearest = marks[0]
    if "local" not in nearest.args and not nearest.kwargs.get("reason"):
        raise pytest.UsageError(f"a test for {nearest.args} alone says why: backends(..., reason=...)")
    return nearest.args
