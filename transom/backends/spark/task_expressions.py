"""The scalar expressions that tasks evaluate themselves, without Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.backends.spark.scalars import SparkScalars
from transom.columns.types import Columns
from transom.sql.interpreter.scalars import InterpretedScalars


@dataclass(frozen=True)
class CompiledExpressions:
    """The types of expressions, and the columns that they read."""

    types: tuple[pa.DataType, ...]
    used: set[str]


class TaskExpressions:
    """Compiles expressions that have vector forms, and the values and types that Spark gives them."""

    def __init__(self, scalars: SparkScalars):
        self._spark, self._interpreted = scalars, InterpretedScalars()

    def compiled(self, columns: Columns, texts: Sequence[str]) -> CompiledExpressions | None:
        """The expressions as tasks evaluate them; None if Spark has to evaluate one of them."""
        found = [self._interpreted.compiled(columns, text) for text in texts]
        used: set[str] = set()
        types = []
        for expression in found:
            if expression is None or not expression.is_vectorized or not expression.is_exact:
                return None
            used.update(expression.used)
            types.append(expression.typed.type)
        if self._spark.types(columns, texts) != types:
            return None
        return CompiledExpressions(tuple(types), used)
