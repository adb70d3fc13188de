"""A declared stream, and the punctuations that its rows carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from transom.control.rules import StreamRules
from transom.elements import Clock, Punctuation
from transom.plan.compiled import plain_value
from transom.spark.projection import micros
from transom.spark.session import ansi_off
from transom.spark.sources import Source
from transom.spark.types import to_table


@dataclass
class Stream:
    """A declared stream."""

    name: str
    columns: Mapping[str, pa.DataType]
    rules: StreamRules
    source: Source
    marker: str | None = None  # true for rows that are punctuations
    last_data: int = 0  # the loop's clock when it last brought rows
    idle_closed: bool = True  # nothing has come since its windows were closed


def carried_punctuations(stream: Stream, df: DataFrame) -> tuple[list[Punctuation], DataFrame]:
    """The punctuations that a page's rows are, and its other rows."""
    if stream.marker is None:
        return [], df
    named = {
        column.name.casefold()
        for column in sqlglot.parse_one(stream.marker, read="spark").find_all(exp.Column)
    }
    clock = stream.rules.clock
    until = micros(f"`{clock.attribute}`", stream.columns[clock.attribute])
    columns = [
        name
        for name, kind in stream.columns.items()
        if name.casefold() not in named and name != clock.attribute and not pa.types.is_nested(kind)
    ]
    is_one = f"({stream.marker}) AND ({until}) IS NOT NULL"
    with ansi_off(df.sparkSession):
        marked = df.filter(is_one).select(
            F.expr(until).alias("until"), *(F.col(f"`{name}`").alias(f"is {name}") for name in columns)
        )
        rest = df.filter(f"NOT coalesce({is_one}, false)")
    return [_punctuation(clock, row) for row in to_table(marked).to_pylist()], rest


def believable(punctuations: list[Punctuation], rules: StreamRules, high: int | None) -> list[Punctuation]:
    """Those no further ahead of the stream than a row may be: a garbled one must not close everything."""
    if rules.horizon is None or high is None:
        return punctuations
    return [one for one in punctuations if one.until <= high + rules.horizon]


def _punctuation(clock: Clock, row: dict[str, Any]) -> Punctuation:
    """A row that is a punctuation: its time, and a pattern of its other columns in which null is `*`."""
    pattern = [
        (name.removeprefix("is "), plain_value(value)) for name, value in row.items() if name != "until"
    ]
    return Punctuation(clock, row["until"], None, tuple((n, v) for n, v in pattern if v is not None))
