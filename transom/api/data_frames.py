"""Results as data frames: of pandas, of Polars, or as a relation of DuckDB. None of them is a dependency."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from transom.errors import MissingPackage


class ResultFrames(ABC):
    """Gives the results of a query to data tools, in one call each."""

    @abstractmethod
    def results(self) -> pa.Table:
        """All results so far."""

    def to_pandas(self, **options: Any) -> Any:
        """All results so far as a DataFrame of pandas.

        `options` are those of Arrow's `Table.to_pandas`: `types_mapper=pandas.ArrowDtype` keeps integers with nulls
        as integers, which pandas otherwise turns into floats.
        """
        with _needed("to_pandas()", "pandas"):
            return self.results().to_pandas(**options)

    def to_polars(self) -> Any:
        """All results so far as a DataFrame of Polars."""
        with _needed("to_polars()", "polars"):
            import polars
        return polars.from_arrow(self.results())

    def to_duckdb(self, connection: Any = None) -> Any:
        """All results so far as a relation of DuckDB, on a connection or on DuckDB's default one.

        SQL reads the relation by the name of its variable: `found = query.to_duckdb()`, then
        `duckdb.sql("SELECT max(n) FROM found")`.
        """
        with _needed("to_duckdb()", "duckdb"):
            import duckdb
        return (duckdb if connection is None else connection).from_arrow(self.results())


@contextmanager
def _needed(method: str, package: str) -> Iterator[None]:
    """Name a package whose import fails in the block."""
    try:
        yield
    except ImportError as error:
        if (error.name or package).partition(".")[0] != package:
            raise
        raise MissingPackage(f"{method} needs the package {package}: pip install {package}") from None
