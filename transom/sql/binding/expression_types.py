"""Types of expressions, resolved in bulk: one call for many texts, each distinct text once."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any, Callable, Generator, Hashable, Mapping, TypeVar

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError
from transom.sql.catalog import Scalars
from transom.sql.query import Scalar
from transom.sql.syntax.parsed_query import Parsed
from transom.sql.syntax.spark_parser import nested_too_deeply

_Result = TypeVar("_Result")
Steps = Generator[None, None, _Result]
Shared = TypeVar("Shared", bound=Hashable)

_NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])"
_NAME_OR_NUMBER = re.compile(rf"`[^`]*`|({_NUMBER})")
_ARITHMETIC = re.compile(rf"(?:`[^`]*`|{_NUMBER}|[-+*/%()<>=! ]|\b(?:abs|AND|OR|NOT)\b)+")


def shape(text: str) -> str:
    """The part of a text on which its type depends: of numbers in plain arithmetic only the length.

    Spark gives a number the smallest type that holds it, a decimal's being its number of digits.

    >>> shape("`price` * 250 + 0.5"), shape("round(`price`, 2)")
    ('`price` * #3 + #1e-1', 'round(`price`, 2)')
    """
    return _NAME_OR_NUMBER.sub(_length, text) if _ARITHMETIC.fullmatch(text) else text


def _length(match: re.Match[str]) -> str:
    if not match[1]:
        return match[0]
    number = Decimal(match[1])  # an int is read from some thousands of digits only
    _, digits, exponent = number.as_tuple()
    if exponent:
        return f"#{len(digits)}e{exponent}"
    # The bounds of the integer types; a number after a minus sign may be one larger.
    above = sum(number >= limit + sign for limit in (2**31, 2**63) for sign in (0, 1))
    return f"#{len(digits)}.{above}" if above else f"#{len(digits)}"


class Inputs:
    """A set of columns, and the resolved types of expressions over them."""

    def __init__(self, columns: Mapping[str, pa.DataType]):
        self.columns = columns
        self.types: dict[str, pa.DataType | SQLError] = {}
        self.shapes: dict[str, pa.DataType] = {}
        self.wanted: dict[str, None] = {}

    def find(self, text: str) -> pa.DataType | SQLError | None:
        """The type of a text or its error; None if it is not resolved yet: then it is added to the wanted ones."""
        kind = self.types.get(text)
        if kind is None:
            kind = self.shapes.get(shape(text))
            if kind is None:
                self.wanted[text] = None
            else:
                self.types[text] = kind
        return kind

    def resolve(self, scalars: Scalars) -> None:
        """Resolve the wanted types: one text of each shape first, then the unresolved texts."""
        first: dict[str, str] = {}
        for text in self.wanted:
            first.setdefault(shape(text), text)
        for texts in (first.values(), self.wanted):
            left = [text for text in texts if self.find(text) is None]
            for text, kind in zip(left, scalars.types(self.columns, left) if left else (), strict=True):
                self.types[text] = kind
                if not isinstance(kind, SQLError):
                    self.shapes[shape(text)] = kind
        self.wanted.clear()


class TypeTable:
    """The types that many queries want; `resolve` finds them, with one call for each set of columns."""

    def __init__(self, scalars: Scalars):
        self.scalars = scalars
        self.inputs: dict[Hashable, Inputs] = {}
        self._shared: dict[Any, Any] = {}

    def over(self, key: Hashable, columns: Callable[[], Mapping[str, pa.DataType]]) -> Inputs:
        """The inputs of a key; the columns are computed the first time only."""
        if key not in self.inputs:
            self.inputs[key] = Inputs(columns())
        return self.inputs[key]

    def shared(self, value: Shared) -> Shared:
        """The first of all equal values, which queries share to save memory and to send less to executors."""
        found: Shared = self._shared.setdefault(value, value)
        return found

    def resolve(self) -> None:
        """Resolve all wanted types."""
        for inputs in self.inputs.values():
            if inputs.wanted:
                inputs.resolve(self.scalars)

    def evict(self, most: int) -> None:
        """Drop errors, which may be fixed later, and all types if there are more than `most`."""
        for inputs in self.inputs.values():
            for text in [text for text, kind in inputs.types.items() if isinstance(kind, SQLError)]:
                del inputs.types[text]
        if max(sum(len(inputs.types) for inputs in self.inputs.values()), len(self._shared)) > most:
            for inputs in self.inputs.values():
                inputs.types.clear()
            self._shared.clear()


class Typer:
    """One query's view of a set of inputs."""

    def __init__(self, parsed: Parsed, inputs: Inputs):
        self.parsed, self.inputs = parsed, inputs
        self.missing = False

    def type(self, text: str, node: exp.Expr) -> pa.DataType | None:
        """The type of a text, or None if it has to be resolved first."""
        type = self.inputs.find(text)
        self.missing |= type is None
        if isinstance(type, SQLError):
            self.parsed.fail(type.message, node)
        return type

    def build_until_typed(self, build: Callable[[], _Result]) -> Steps[_Result]:
        """Build again after each round of type resolution, until all types are known."""
        while True:
            self.missing = False
            try:
                result = build()
            except SQLError:
                if not self.missing:
                    raise
                # A part before it has no type yet and may be wrong, too: the first error is reported.
            else:
                if not self.missing:
                    return result
            yield


class ScalarBinder(ABC):
    """Expressions with their types, over a row or over a result."""

    def __init__(self, parsed: Parsed, utc: bool):
        self.parsed, self.utc = parsed, utc

    @abstractmethod
    def scalar(self, node: exp.Expr) -> Scalar | None:
        """The scalar of a node; None if its type is not resolved yet."""

    def is_whole(self, node: exp.Expr) -> bool:
        """Whether a condition is a value of its own, such as a GROUP BY key: its parts can't be read alone."""
        return False

    def truth(self, node: exp.Expr) -> Scalar:
        """A condition that Spark evaluates."""
        scalar = self.scalar(node)
        if scalar is None:
            return Scalar("", pa.bool_())  # not resolved yet: this build is discarded
        if pa.types.is_boolean(scalar.type):
            return scalar
        if not pa.types.is_null(scalar.type):
            self.parsed.fail(f"expected a condition, and this is {scalar.type}", node)
        return Scalar(scalar.sql, pa.bool_(), scalar.column)


def run_steps(
    running: dict[str, Steps[_Result]], texts: Mapping[str, str], table: TypeTable
) -> dict[str, _Result | SQLError]:
    """Bind queries side by side, so that the types that they want are resolved together.

    Each gives its bound query or its own error.
    """
    outcome: dict[str, _Result | SQLError] = {}
    while running:
        for name, steps in list(running.items()):
            try:
                next(steps)
                continue
            except StopIteration as done:
                outcome[name] = done.value
            except SQLError as error:
                outcome[name] = error
            except RecursionError:
                outcome[name] = nested_too_deeply(texts[name])
            del running[name]
        table.resolve()
    return outcome
