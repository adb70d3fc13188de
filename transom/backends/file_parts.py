"""Files of a batch in parts that tasks read with Arrow, in any format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DeclaredColumns = Mapping[str, pa.DataType]


class PartUnreadable(Exception):
    """Arrow can't read a part of a file as Spark does; Spark may, or says what is wrong with it."""


class FilePart(Protocol):
    """Some rows of a file."""

    def tables(self, columns: DeclaredColumns) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """The rows in tables of a good size, with these columns of the stream, and the rows' positions."""
        ...


class PartedFiles(Protocol):
    """The files of a batch. A position tells a row from all others of the files."""

    def has_columns(self, columns: DeclaredColumns) -> bool:
        """Whether Arrow reads these columns of the stream as Spark does."""
        ...

    def parts(self, tasks: int) -> Sequence[Sequence[FilePart]]:
        """All rows for at most so many tasks, in order."""
        ...

    def rows_at(self, positions: NDArray[np.int64], columns: DeclaredColumns) -> pa.Table:
        """The rows at some positions, in the order of the positions; PartUnreadable if Spark has to read them."""
        ...

    def small_table(self, most_rows: int, columns: DeclaredColumns) -> pa.Table | None:
        """All rows, read in this process; None if they are many. PartUnreadable if Spark has to read them."""
        ...
