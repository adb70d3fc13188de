"""The scalar expressions that tasks evaluate themselves, without Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.backends.scalar_placement import ANY_TIME
from transom.backends.spark.scalars import SparkScalars
from transom.columns.types import Columns


@dataclass(frozen=True)
class CompiledExpressions:
    """The types of expressions, and the columns that they read."""

    types: tuple[pa.DataType, ...]
    used: set[str]
    calls_python: bool = False


class TaskExpressions:
    """Compiles expressions that have vector forms or call functions of the program, and the values and types that
    Spark gives them."""

    def __init__(self, scalars: SparkScalars):
        self.scalars = scalars

    def compiled(self, columns: Columns, texts: Sequence[str]) -> CompiledExpressions | None:
        """The expressions as tasks evaluate them; None if Spark has to evaluate one of them."""
        places = self.scalars.placement.places(columns, texts)
        found = {text: self.scalars.interpreter.compiled(columns, text) for text in places}
        compiled = {text: expression for text, expression in found.items() if expression is not None}
        # Tasks are parts of Spark's jobs, and end with them.
        if any(place.reason not in (None, ANY_TIME) for place in places.values()):
            return None
        if not all(compiled[text].is_vectorized or place.calls_python for text, place in places.items()):
            return None
        cancelled = [text for text, place in places.items() if place.reason == ANY_TIME]
        if self.scalars.types(columns, cancelled) != [compiled[text].typed.type for text in cancelled]:
            return None
        used = {name for expression in compiled.values() for name in expression.used}
        calls_python = any(place.calls_python for place in places.values())
        return CompiledExpressions(tuple(compiled[text].typed.type for text in texts), used, calls_python)
