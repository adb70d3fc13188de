"""Python functions in queries: a call that fails gives null and is counted, and disturbs no batch."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from transom.backends.program_functions import DeclaredResult, FunctionParcel, is_simple_type
from transom.errors import SettingError

_lock = threading.Lock()
_failures: dict[tuple[str, str], Accumulator[int]] = {}


def register_udf(
    spark: SparkSession, name: str, function: Callable[..., Any], returns: str | DataType
) -> None:
    """Register a scalar function under a name; where it raises, its value is null."""
    try:
        type = DataType.fromDDL(returns) if isinstance(returns, str) else returns
    except PySparkException as error:
        raise SettingError(f"not a type: {returns!r}; expected one like 'double'") from error
    failed = spark.sparkContext.accumulator(0)

    @wraps(function)
    def guarded(*values: Any) -> Any:
        try:
            return function(*values)
        except Exception:
            failed.add(1)
            return None

    spark.udf.register(name, guarded, type)
    with _lock:
        _failures[_key(spark, name)] = failed


class ProgramFunctions:
    """The functions of the program that other processes can call, packed for them."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[DeclaredResult, pa.DataType]] = {}
        self.parcel: FunctionParcel | None = None

    def add(self, name: str, function: Callable[..., Any], type: pa.DataType) -> bool:
        """Add a function; False if only Spark can call it."""
        self._functions.pop(name.lower(), None)
        added = {**self._functions, name.lower(): (DeclaredResult(function, type), type)}
        packed = _pickled(added) if is_simple_type(type) else None
        if packed is not None:
            self._functions = added
        self.parcel = FunctionParcel(uuid.uuid4().hex, packed or _pickled(self._functions) or b"")
        if not self._functions:
            self.parcel = None
        return packed is not None


def _pickled(functions: Any) -> bytes | None:
    try:
        packed: bytes = cloudpickle.dumps(functions)  # type: ignore[no-untyped-call]
    except (
        Exception
    ):  # whatever objects of the program raise; Spark says what is wrong when the function is called
        return None
    return packed


def counters(spark: SparkSession, parcel: FunctionParcel | None) -> dict[str, Accumulator[int]]:
    """The counters of failed calls that tasks add to, by function."""
    if parcel is None:
        return {}
    application = spark.sparkContext.applicationId
    with _lock:
        return {name: failed for (id, name), failed in _failures.items() if id == application}


def failures(spark: SparkSession, name: str) -> int:
    """How many calls failed since the function was registered; a task that ran twice counts twice."""
    with _lock:
        failed = _failures.get(_key(spark, name))
    return 0 if failed is None else failed.value


def user_functions(spark: SparkSession) -> set[str]:
    """The functions that a program registered in this session, in lower case.

    Asked of the session's catalog: `spark.catalog.listFunctions` takes seconds to describe all
    built-in functions, SHOW USER FUNCTIONS a tenth of a second, this a few milliseconds.
    """
    found = spark._jsparkSession.sessionState().catalog().listTemporaryFunctions()
    return {found.apply(i).funcName().lower() for i in range(found.size())}


def _key(spark: SparkSession, name: str) -> tuple[str, str]:
    return spark.sparkContext.applicationId, name.lower()
