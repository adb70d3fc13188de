"""The scalar expressions that tasks evaluate themselves, without Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.backends.spark.scalars import SparkScalars
from transom.columns.types import Columns


@dataclass(frozen=True)
class CompiledExpressions:
    """The types of expressions, and the columns that they read."""

    types: tuple[pa.DataType, ...]
    used: set[str]


class TaskExpressions:
    """Compiles expressions that have vector forms, and the values and types that Spark gives them."""

    def __init__(self, scalars: SparkScalars):
        self.scalars = scalars

    def compiled(self, columns: Columns, texts: Sequence[str]) -> CompiledExpressions | None:
        """The expressions as tasks evaluate them; None if Spark has to evaluate one of them."""
        places = self.scalars.placement.places(columns, texts)
        if any(place.reason is not None or not place.is_vectorized for place in places.values()):
            return None
        found = [self.scalars.interpreter.compiled(columns, text) for text in texts]
        compiled = [expression for expression in found if expression is not None]
        used = {name for expression in compiled for name in expression.used}
        return CompiledExpressions(tuple(expression.typed.type for expression in compiled), used)
