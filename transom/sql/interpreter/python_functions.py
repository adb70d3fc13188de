"""Python functions in expressions: a call that raises is null and counted, so that it disturbs no batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from transom.errors import DeadlineError
from transom.sql.interpreter.typed_expression import Row, TypedExpression
from transom.sql.interpreter.types import is_text, is_timestamp, unsupported
from transom.sql.interpreter.values import EPOCH, plain_value


class PythonFunction:
    """A registered function with the type of its results and the number of calls that failed.

    It gets what a Python UDF gets from Spark: a timestamp is a `datetime` without zone, in UTC. `takes` tells which
    types of arguments it can be called with here.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        type: pa.DataType,
        takes: Callable[[pa.DataType], bool] = lambda kind: True,
    ):
        self.function, self.type, self._takes = function, type, takes
        self.failures = 0

    def call(self, args: Sequence[TypedExpression]) -> TypedExpression:
        """The expression of a call with these arguments."""
        for arg in args:
            if not self._takes(arg.type):
                raise unsupported(f"a function of the program with an argument of {arg.type}")
        times = [is_timestamp(arg.type) for arg in args]

        def of(row: Row) -> Any:
            values = [arg.of(row) for arg in args]
            try:
                given = (
                    _datetime(value) if time else value for value, time in zip(values, times, strict=True)
                )
                return self._result(self.function(*given))
            except DeadlineError:  # raised in this thread to interrupt the call
                raise
            except Exception:
                self.failures += 1
                return None

        return TypedExpression(self.type, of)

    def _result(self, value: Any) -> Any:
        """The result as a plain value of the declared type; an exception if it has another type."""
        kind = type(value)
        quick = (kind is float and self.type == pa.float64()) or (kind is str and is_text(self.type))
        return value if value is None or quick else plain_value(pa.scalar(value, self.type))


def _datetime(micros: int | None) -> Any:
    return None if micros is None else (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
