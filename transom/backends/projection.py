"""The shared projection of a batch: joins with static tables, then each scalar once, by Spark SQL."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transom.backends.spark.session import ansi_off
from transom.errors import SettingError
from transom.sql.query import Join

# Strings and quoted names first, so that nothing inside them is taken for a call.
_CLOCK_CALL = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
    r"""|\b(?P<keyword>current_timestamp|current_date|localtimestamp)\b(?:\s*\(\s*\))?"""
    r"""|\b(?P<call>now|curdate|unix_timestamp)\s*\(\s*\)""",
    re.IGNORECASE | re.DOTALL,
)


def project(
    df: DataFrame,
    scalars: Mapping[str, str],
    joins: Sequence[Join] = (),
    tables: Mapping[str, DataFrame] | None = None,
    keep: Sequence[str] = (),
    now: int | None = None,
) -> DataFrame:
    """The batch's columns in `keep` and the named scalars, over the batch left-joined with its tables.

    `tables` are the snapshots by table name. `now` is the batch's clock in microseconds: what
    `current_timestamp()` and its like mean in the scalars.
    """
    # As texts, and few steps: each column object and each step is several calls of the JVM.
    with ansi_off(df.sparkSession):
        for join in joins:
            df = df.join(_side((tables or {})[join.table], join), F.expr(join.on), "left")
        if joins:
            flags = {join.id: F.expr(f"coalesce({quoted(join.id)}, false)") for join in joins}
            df = df.withColumns(flags)
        computed = [f"{at(text, now)} AS {quoted(name)}" for name, text in scalars.items()]
        return df.selectExpr(*map(quoted, keep), *computed)


def _side(table: DataFrame, join: Join) -> DataFrame:
    """A table's columns as `<id>.column`, and `<id>`, which is null for rows that find no match."""
    names = dict.fromkeys((*join.keys, *join.columns))
    renamed = [f"{quoted(name)} AS {quoted(f'{join.id}.{name}')}" for name in names]
    return table.selectExpr(*renamed, f"true AS {quoted(join.id)}")


def at(sql: str, now: int | None) -> str:
    """The expression with the batch's clock in place of the calls that ask what time it is.

    >>> at("`ts` < current_timestamp() AND `note` = 'now()'", 5)
    "`ts` < timestamp_micros(5) AND `note` = 'now()'"
    """
    if now is None:
        return sql
    instant = f"timestamp_micros({now})"
    meanings = {
        "current_timestamp": instant,
        "now": instant,
        "current_date": f"CAST({instant} AS DATE)",
        "curdate": f"CAST({instant} AS DATE)",
        "localtimestamp": f"CAST({instant} AS TIMESTAMP_NTZ)",
        "unix_timestamp": f"unix_seconds({instant})",
    }

    def meaning(found: re.Match[str]) -> str:
        name = found["keyword"] or found["call"]
        return meanings[name.lower()] if name else found[0]

    return _CLOCK_CALL.sub(meaning, sql)


def micros(sql: str, type: pa.DataType) -> str:
    """The expression as the integer its clock counts in: microseconds since 1970 for times.

    A timestamp without zone and a date are read as UTC, whatever the session's zone.
    """
    if pa.types.is_timestamp(type) and type.tz is not None:
        return f"unix_micros({sql})"
    if pa.types.is_timestamp(type):
        since = f"({sql}) - TIMESTAMP_NTZ '1970-01-01 00:00:00'"
        return f"CAST(CAST({since} AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"
    if pa.types.is_date(type):
        return f"CAST(unix_date({sql}) AS BIGINT) * 86400000000"
    if pa.types.is_integer(type):
        return f"CAST({sql} AS BIGINT)"
    raise SettingError(f"a clock is a time or an integer, and {sql} is of type {type}")


def quoted(name: str) -> str:
    """A column's name in backticks, dots and all."""
    return "`" + name.replace("`", "``") + "`"
