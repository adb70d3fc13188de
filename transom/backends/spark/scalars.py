"""Scalar expressions, typed and evaluated by Spark SQL with ANSI mode off."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transom.backends.program_functions import is_simple_type
from transom.backends.scalar_placement import ScalarPlacement, column_names
from transom.backends.scalar_worker import ScalarWorker, ThreadLimit
from transom.backends.spark.session import ansi_off, interpreted, session_in_utc
from transom.backends.spark.types import arrow_type, spark_schema, to_frame, to_table
from transom.backends.spark.udf import ProgramFunctions
from transom.errors import SettingError, SQLError
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.syntax.expression_guard import reaches_out

_Expression = TypeVar("_Expression")
TypedColumns = tuple[tuple[str, pa.DataType], ...]
MAX_CACHED_TYPES = 100_000  # types kept; a day of queries that come and go must not fill the memory
FOREIGN = "an expression reads nothing but the columns of its streams and tables"
LOCAL_RELATION_ROWS = 10_000  # up to here rows are collected from a local relation, without a job
# Spark analyses and optimises a projection in quadratic time. Expressions are evaluated in chunks of so many.
CHUNK_EXPRESSIONS = 200


class SparkScalars:
    """Types and evaluates scalar expressions (the `Scalars` protocol) in one Spark session."""

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self.interpreter = InterpretedScalars()
        self.placement = ScalarPlacement(self.interpreter, self.types, in_utc=session_in_utc(spark))
        self._types: dict[tuple[TypedColumns, str], pa.DataType] = {}
        self._empty: dict[TypedColumns, DataFrame] = {}
        self.functions = ProgramFunctions()
        self._worker = ScalarWorker()
        self._limit = ThreadLimit()

    def register(self, name: str, function: Callable[..., Any], type: pa.DataType) -> None:
        """Let the worker process and tasks call a function of the program, if they can."""
        self.interpreter.unregister(name)
        if self.functions.add(name, function, type):
            self.interpreter.register(name, function, type, is_simple_type)
        self._worker.forget_failures(name)
        self.placement.forget()
        self._types.clear()

    def failures(self, name: str) -> int:
        """How many calls of a function failed in the worker process."""
        return self._worker.failures(name)

    @contextmanager
    def limited(self, until: float) -> Iterator[None]:
        """Limit the time that functions of the program may take in this thread."""
        if self.functions.parcel is not None:
            self._worker.prepare(self.functions.parcel)
        with self._limit.limited(until):
            yield

    def stop(self) -> None:
        """End the process that calls functions of the program."""
        self._worker.stop()

    def types(
        self, columns: Mapping[str, pa.DataType], expressions: Sequence[str]
    ) -> list[pa.DataType | SQLError]:
        """The type of each expression over such columns, or why it has none; one analysis for each chunk.

        Only types are remembered: an expression that fails now may succeed once its function is registered.
        """
        key = tuple(columns.items())
        cached = {text: self._types[key, text] for text in set(expressions) if (key, text) in self._types}
        new = [text for text in dict.fromkeys(expressions) if text not in cached]
        types: dict[str, pa.DataType | SQLError] = {
            text: SQLError(FOREIGN) for text in new if reaches_out(text)
        }
        new = [text for text in new if text not in types]
        for chunk in chunks(new):
            types |= dict(zip(chunk, self._analyse(self._empty_frame(key), chunk), strict=True))
        if len(self._types) + len(types) > MAX_CACHED_TYPES:
            self._types.clear()
        self._types |= {(key, text): type for text, type in types.items() if not isinstance(type, SQLError)}
        return [cached[text] if text in cached else types[text] for text in expressions]

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """A table with one column for each named expression: compiled ones in this process, others by Spark."""
        if not expressions:
            return table.select([])
        by_spark = self.placement.evaluated_by_spark(table, expressions.values())
        by_worker = self._evaluated_by_worker(table, expressions.values()) - by_spark
        if not by_spark and not by_worker:
            return self.interpreter.project(table, expressions)
        parts: dict[str, pa.Table] = {}
        for chosen, project in ((by_spark, self.project_by_spark), (by_worker, self._project_by_worker)):
            if texts := {name: text for name, text in expressions.items() if text in chosen}:
                parts |= dict.fromkeys(texts, project(_used_part(table, texts.values()), texts))
        ours = self.interpreter.project(table, {n: text for n, text in expressions.items() if n not in parts})
        columns = [parts[name][name] if name in parts else ours[name] for name in expressions]
        return pa.table(columns, names=list(expressions))

    def _evaluated_by_worker(self, table: pa.Table, texts: Iterable[str]) -> set[str]:
        """The expressions that call functions of the program, which may end their process or never return."""
        if self.functions.parcel is None or not table.num_rows:
            return set()
        columns = dict(zip(table.column_names, table.schema.types, strict=True))
        return {text for text, place in self.placement.places(columns, texts).items() if place.calls_python}

    def _project_by_worker(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        return self._worker.project(table, expressions, self._limit.until, self.functions.parcel)

    def project_by_spark(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """The same, all of them evaluated by Spark."""
        frame = to_frame(self.spark, table)
        is_small = table.num_rows <= LOCAL_RELATION_ROWS
        with interpreted(self.spark) if is_small and is_wide(expressions) else nullcontext():
            parts = [
                self._projected(frame, dict(chunk), is_small) for chunk in chunks([*expressions.items()])
            ]
        return beside(parts)

    def _projected(self, frame: DataFrame, expressions: Mapping[str, str], is_small: bool) -> pa.Table:
        with ansi_off(self.spark), _quiet():
            try:
                chosen = frame.select(*[F.expr(text).alias(name) for name, text in expressions.items()])
            except (
                PySparkException
            ) as error:  # also what a literal makes Spark raise, such as a NumberFormatException
                raise SQLError(short_message(error)) from error
        return collect_small(chosen) if is_small else to_table(chosen)

    def _empty_frame(self, columns: TypedColumns) -> DataFrame:
        if columns not in self._empty:
            schema = spark_schema(dict(columns))
            self._empty[columns] = self.spark.createDataFrame(
                pa.table({name: pa.array([], type) for name, type in columns}), schema
            )
        return self._empty[columns]

    def _analyse(self, frame: DataFrame, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        """Analyse all at once; if that fails, each half by itself, down to those that are wrong."""
        with ansi_off(self.spark), _quiet():
            try:
                fields = frame.selectExpr(*expressions).schema.fields
            except (
                PySparkException
            ) as error:  # also what a literal makes Spark raise, such as a NumberFormatException
                problem = short_message(error)
            else:
                if len(fields) == len(expressions):
                    return [_arrow_or_error(field.dataType) for field in fields]
                problem = "not a single expression"
        if len(expressions) == 1:
            return [SQLError(problem)]
        half = len(expressions) // 2
        return self._analyse(frame, expressions[:half]) + self._analyse(frame, expressions[half:])


def _used_part(table: pa.Table, texts: Iterable[str]) -> pa.Table:
    """The columns that some expressions may read, and at least one, which has the number of rows."""
    names = {name for text in texts for name in column_names(text, table.column_names)}
    return table.select([name for name in table.column_names if name in names] or table.column_names[:1])


def is_wide(expressions: Collection[object]) -> bool:
    """Whether so many expressions are evaluated in several chunks."""
    return len(expressions) > CHUNK_EXPRESSIONS


def chunks(expressions: Sequence[_Expression]) -> Iterator[Sequence[_Expression]]:
    """Expressions in chunks that Spark analyses and optimises quickly."""
    for start in range(0, len(expressions), CHUNK_EXPRESSIONS):
        yield expressions[start : start + CHUNK_EXPRESSIONS]


def beside(parts: Sequence[pa.Table]) -> pa.Table:
    """Tables with the same rows as one table with all their columns."""
    columns = [column for part in parts for column in part.columns]
    return pa.Table.from_arrays(columns, schema=pa.schema([field for part in parts for field in part.schema]))


def _arrow_or_error(spark_type: Any) -> pa.DataType | SQLError:
    try:
        return arrow_type(spark_type)
    except SettingError as error:
        return SQLError(str(error))


def short_message(error: Exception) -> str:
    """What Spark says is wrong, without error class, position, SQL dump and plan.

    >>> short_message(ValueError("[CLASS.SUB] Cannot do `x`. SQLSTATE: 42883; line 1 pos 0;\\n'Project"))
    'Cannot do `x`'
    """
    text = str(error).strip().split("\n\n")[0].split("\n== SQL")[0].split(";\n")[0]
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*\(line \d+, pos \d+\)\s*$|;? line \d+,? pos \d+;?\s*$", "", text)
    return " ".join(text.split()).rstrip(".")


@contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs each analysis error with its stack to stderr; ours are caught and reported."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


# --- collecting without a job ----------------------------------------------------------------
# toArrow always runs a job (some 90 ms); collect reads a local relation in place (some 15 ms), but gives
# Python values, in which times are local. So times travel as numbers; other types go by toArrow.


def _numbers(array: list[Any], type: pa.DataType, storage: pa.DataType) -> pa.Array:
    return pa.array(array, storage).cast(type)


def _encoding(type: pa.DataType) -> tuple[str, Callable[[list[Any]], pa.Array]] | None:
    """The function that makes a value travel well, and the way back; None if there is none."""
    if pa.types.is_timestamp(type) and type.tz is not None:
        return "unix_micros", lambda values: _numbers(values, type, pa.int64())
    if pa.types.is_date32(type):
        return "unix_date", lambda values: _numbers(values, type, pa.int32())
    if pa.types.is_timestamp(type) or pa.types.is_nested(type) or pa.types.is_duration(type):
        return None
    if pa.types.is_binary(type):
        return "", lambda values: pa.array([None if v is None else bytes(v) for v in values], type)
    return "", lambda values: pa.array(values, type)


def collect_small(frame: DataFrame) -> pa.Table:
    """A small DataFrame's rows as an Arrow table, without a job if it is a local relation."""
    fields = [(field.name, arrow_type(field.dataType)) for field in frame.schema.fields]
    encodings = [encoding for _, type in fields if (encoding := _encoding(type)) is not None]
    if len(encodings) < len(fields):
        return to_table(frame)
    if any(function for function, _ in encodings):
        frame = frame.toDF(*map(str, range(len(fields))))  # by number: names may differ in case only
        frame = frame.selectExpr(*[f"{function}(`{i}`)" for i, (function, _) in enumerate(encodings)])
    rows = frame.collect()
    arrays = [decode([row[i] for row in rows]) for i, (_, decode) in enumerate(encodings)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(name, type) for name, type in fields]))
