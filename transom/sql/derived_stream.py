"""A derived stream: its rows are computed from the rows of declared streams, by UNION ALL or by explode.

Views and subqueries that only filter and project are inlined instead. Queries over the same union, or over the same
exploded array of a stream, share one derived stream, whose rows are computed once for all of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

# The columns of an exploded array or map, beside the stream's own.
ELEMENT_POSITION, ELEMENT, KEY, VALUE = "exploded_pos", "exploded_col", "exploded_key", "exploded_value"


@dataclass(frozen=True)
class Branch:
    """The rows that one declared stream contributes: SQL texts over its columns, and perhaps a condition.

    With `unnest`, the text of an array or a map, each of its elements is a row; a row without elements is one row
    whose position is null.
    """

    stream: str
    columns: tuple[tuple[str, str], ...]
    where: str | None = None
    unnest: str | None = None

    @property
    def text(self) -> str:
        """The branch as SQL, for EXPLAIN."""
        listed = ", ".join(sql if sql == f"`{name}`" else f"{sql} AS {name}" for name, sql in self.columns)
        where = "" if self.where is None else f" WHERE {self.where}"
        if self.unnest is not None:
            return f"explode({self.unnest}) of {self.stream}{where}"
        return f"SELECT {listed} FROM {self.stream}{where}"


@dataclass(frozen=True)
class DerivedStream:
    """A derived stream: its columns with their types, the column of its time, and its branches."""

    columns: tuple[tuple[str, pa.DataType], ...]
    time: str
    branches: tuple[Branch, ...]
    functions: frozenset[str] = frozenset()  # user-defined functions that its definition calls

    @cached_property
    def name(self) -> str:
        """A name that follows from the definition, so that equal definitions are one stream."""
        streams = "_".join(dict.fromkeys(branch.stream for branch in self.branches))
        definition = repr(
            [(branch.stream, branch.columns, branch.where, branch.unnest) for branch in self.branches]
        )
        kind = "exploded" if self.is_exploded else "union"
        return f"{streams[:60]}.{kind}.{hashlib.sha256(definition.encode()).hexdigest()[:8]}"

    @property
    def is_exploded(self) -> bool:
        """Whether its rows are those of one stream, with the elements of an array."""
        return len(self.branches) == 1

    @property
    def streams(self) -> tuple[str, ...]:
        """The declared streams that it is derived from."""
        return tuple(dict.fromkeys(branch.stream for branch in self.branches))

    @property
    def text(self) -> str:
        """The definition as SQL, for EXPLAIN."""
        return " UNION ALL ".join(branch.text for branch in self.branches)
