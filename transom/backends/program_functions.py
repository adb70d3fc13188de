"""Python functions of the program on their way to other processes, and results of them in the declared type."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from transom.sql.interpreter.casts import cast
from transom.sql.interpreter.scalars import InterpretedScalars

_KEPT_PARCELS = 4
_scalars: OrderedDict[str, InterpretedScalars] = OrderedDict()  # of this process, by parcel


def is_simple_type(kind: pa.DataType) -> bool:
    """Whether values of a type are the same in Python, however a function gets or returns them."""
    return (
        kinds.is_boolean(kind)
        or kinds.is_signed_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.string())
    )


class DeclaredResult:
    """A function whose results have the declared type: others become null, or are converted, as Spark does.

    >>> [DeclaredResult(lambda x: x, pa.int32())(value) for value in (7, 1.0, True, "7", 1 << 31)]
    [7, None, None, None, -2147483648]
    >>> [DeclaredResult(lambda x: x, pa.string())(value) for value in ("a", 7, True)]
    ['a', '7', 'true']
    """

    def __init__(self, function: Callable[..., Any], type: pa.DataType):
        self.function, self.type = function, type

    def __call__(self, *values: Any) -> Any:
        return self._declared(self.function(*values))

    def _declared(self, value: Any) -> Any:
        kind = self.type
        if isinstance(value, bool):
            return value if kinds.is_boolean(kind) else str(value).lower() if kinds.is_string(kind) else None
        if isinstance(value, int):
            if kinds.is_string(kind):
                return str(value)
            if not kinds.is_integer(kind) or not -(1 << 63) <= value < 1 << 63:
                return None
            half = 1 << (kind.bit_width - 1)
            return (value + half) % (2 * half) - half
        if isinstance(value, float):
            if kinds.is_string(kind):
                return cast(float(value), pa.float64(), kind)
            if not kinds.is_floating(kind):
                return None
            with np.errstate(all="ignore"):
                return float(value) if kind == pa.float64() else float(np.float32(value))
        return str(value) if isinstance(value, str) and kinds.is_string(kind) else None


@dataclass(frozen=True)
class FunctionParcel:
    """Functions, pickled by name with the types of their results."""

    key: str
    packed: bytes

    def scalars(self) -> InterpretedScalars:
        """Scalars of this process that call the functions, with the expressions that they have compiled."""
        if self.key not in _scalars:
            _scalars[self.key] = InterpretedScalars(pickle.loads(self.packed))
            while len(_scalars) > _KEPT_PARCELS:
                _scalars.popitem(last=False)
        return _scalars[self.key]


class FailureCount:
    """The calls of functions that failed since it was last asked."""

    def __init__(self, scalars: InterpretedScalars):
        self._scalars = scalars
        self._before = scalars.all_failures()

    def new(self) -> Mapping[str, int]:
        """By function, if there are any."""
        now = self._scalars.all_failures()
        found = {name: count - self._before.get(name, 0) for name, count in now.items()}
        self._before = now
        return {name: count for name, count in found.items() if count}
