"""Types of expressions, asked for in bulk: one question for many texts, each distinct text once."""

from __future__ import annotations

from typing import Callable, Generator, Hashable, Mapping, TypeVar

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError
from transom.sql.catalog import Scalars
from transom.sql.dialect import Parsed

Result = TypeVar("Result")
Steps = Generator[None, None, Result]


class Inputs:
    """The columns that some expressions are over, and what is known of the types of those."""

    def __init__(self, columns: Mapping[str, pa.DataType]):
        self.columns = columns
        self.known: dict[str, pa.DataType | SQLError] = {}
        self.wanted: dict[str, None] = {}


class TypeTable:
    """All the questions of many queries; `ask` has them answered, one call for each set of columns."""

    def __init__(self, scalars: Scalars):
        self.scalars = scalars
        self.inputs: dict[Hashable, Inputs] = {}

    def over(self, key: Hashable, columns: Callable[[], Mapping[str, pa.DataType]]) -> Inputs:
        """The inputs known by a key; the columns are only worked out the first time."""
        if key not in self.inputs:
            self.inputs[key] = Inputs(columns())
        return self.inputs[key]

    def ask(self) -> None:
        for inputs in self.inputs.values():
            if inputs.wanted:
                texts = list(inputs.wanted)
                inputs.known.update(zip(texts, self.scalars.types(inputs.columns, texts), strict=True))
                inputs.wanted.clear()


class Typer:
    """One query's view of a set of inputs."""

    def __init__(self, parsed: Parsed, inputs: Inputs):
        self.parsed, self.inputs = parsed, inputs
        self.missing = False

    def type(self, text: str, node: exp.Expr) -> pa.DataType | None:
        """The type of a text, or None when it has to be asked for first."""
        known = self.inputs.known.get(text)
        if known is None:
            self.inputs.wanted[text] = None
            self.missing = True
        if isinstance(known, SQLError):
            self.parsed.fail(known.message, node)
        return known

    def until_known(self, build: Callable[[], Result]) -> Steps[Result]:
        """Build again after each round of questions, until nothing had to be asked."""
        while True:
            self.missing = False
            result = build()
            if not self.missing:
                return result
            yield
