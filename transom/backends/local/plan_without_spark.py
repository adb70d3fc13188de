"""Plans of the Spark backend without a JVM: which expressions are compiled, and which Spark would evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from transom.backends.base import Sink
from transom.backends.local.backend import LocalBackend
from transom.backends.scalar_placement import ScalarPlacement
from transom.columns.types import Columns
from transom.errors import SettingError, SQLError, near_miss

# Writers that Spark has, or usual connectors add to it. A name that only resembles one is a mistake.
SPARK_WRITERS = (
    "parquet",
    "json",
    "csv",
    "orc",
    "text",
    "xml",
    "avro",
    "jdbc",
    "kafka",
    "delta",
    "iceberg",
    "hudi",
    "console",
    "noop",
    "memory",
)


class PlanningBackend(LocalBackend):
    """Binds and plans queries as an engine on Spark would, and says which expressions Spark would evaluate.

    It refuses expressions whose types only Spark knows. It has the name of Spark's backend, so that it reads the
    checkpoints of engines on Spark.
    """

    name = "spark"

    def __init__(self) -> None:
        super().__init__()
        # Where the two differ in type, Spark evaluates the expression. That is not known here, and rare.
        self._placement = ScalarPlacement(self.scalars, self._types, in_utc=True)

    def sink(self, format: str, options: Mapping[str, Any]) -> Sink:
        name = format.lower()
        if name not in SPARK_WRITERS and (hint := near_miss(name, SPARK_WRITERS)):
            raise SettingError(f"Spark has no writer for {name}{hint}")
        return super().sink(format, options)

    def _types(self, columns: Columns, texts: Sequence[str]) -> list[pa.DataType | SQLError]:
        return self.scalars.types(columns, texts)

    def delegated(self, columns: Columns, texts: Iterable[str]) -> dict[str, str]:
        places = self._placement.places(columns, texts)
        return {text: place.reason for text, place in places.items() if place.reason is not None}
