"""The kernel's comparisons beside Spark's own, on the same columns and the same constants."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.kernel.test_comparisons import OPERATORS, TABLE, column
from transom.backends.spark.scalars import SparkScalars
from transom.kernel.predicates import evaluate
from transom.sql import Catalog, Relation, bind
from transom.sql.query import Query, scalars_of

pytestmark = pytest.mark.spark

# The same constants as one would write them, one list for each type of the table. Not here: integers
# beyond 64 bits, where Spark's analyzer answers `x < 9223372036854775808` with true even for null.
WRITTEN: dict[pa.DataType, list[str]] = {
    pa.bool_(): ["true", "false"],
    pa.int8(): ["0", "127", "128", "-129", "0.5", "0.5D", "5e-1"],
    pa.int32(): ["5", "5.00", "5.5", "-5.5", "2147483648", "5.0D", "1e300"],
    pa.int64(): ["0", "9007199254740993", "9223372036854775807", "0.1", "-0.1",
                 "0.5D", "1e20"],
    pa.float32(): ["0", "0.0", "-0.0D", "0.5", "0.1", "16777217", "1e39"],
    pa.float64(): ["0", "0.1", "-0.0D", "1e308", "1", "0.10"],
    pa.decimal128(10, 2): ["0", "1", "1.1", "1.105", "-1.105", "1.10000", "99999999.99", "100000000", "1.1D"],
    pa.decimal128(38, 0): ["9" * 38, "0.5", "0", "1e10"],
    pa.decimal128(38, 38): ["0", "1", "0." + "9" * 38],
    pa.string(): ["''", "'a'", "'é'", "'\uffff'", "'😀'"],
    pa.date32(): ["DATE '1970-01-01'", "'1970-01-01'", "DATE '0001-01-01'"],
    pa.timestamp("us", tz="UTC"): ["TIMESTAMP '1970-01-01 00:00:00'",
                                   "'2013-01-01 00:26:40.000001'", "'1970-01-01'"],
    pa.timestamp("us"): ["TIMESTAMP_NTZ '1970-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'"],
}  # fmt: skip


def conditions() -> tuple[pa.Table, list[str]]:
    """One row for each place in the longest list, and every operator on every constant."""
    rows = max(len(values) for _, values, _ in TABLE) + 1
    columns, texts = {"row": pa.array(range(rows))}, []
    for number, (kind, values, _) in enumerate(TABLE):
        padded = [*values, *[None] * (rows - len(values) - 1)]
        columns[f"x{number}"] = column(padded, kind)
        texts += [f"x{number} {operator} {text}" for text in WRITTEN[kind] for operator in OPERATORS]
        texts += [
            f"x{number} IN ({', '.join(WRITTEN[kind])})",
            f"x{number} NOT IN ({WRITTEN[kind][0]}, NULL)",
        ]
    return pa.table(columns), texts


def test_the_kernel_agrees_with_spark_on_every_comparison_that_it_takes(spark: Any) -> None:
    table, texts = conditions()
    kinds = dict(zip(table.column_names, table.schema.types, strict=True)) | {
        "ts": pa.timestamp("us", tz="UTC")
    }
    catalog = Catalog({"s": Relation("s", kinds, "ts")})
    scalars = SparkScalars(spark)
    queries = bind(
        {text: f"SELECT count(*) FROM s [RANGE '1 minute' SLIDE '1 minute'] WHERE {text}" for text in texts},
        catalog,
        scalars,
    )
    theirs = scalars.project(table, {"row": "row"} | {f"c{i}": text for i, text in enumerate(texts)})
    theirs = theirs.sort_by("row")
    differences, taken = [], 0
    for number, text in enumerate(texts):
        query = queries[text]
        assert isinstance(query, Query) and query.where is not None, f"{text}: {query}"
        if any(scalar.column is None for scalar in scalars_of(query.where)):
            continue  # left to Spark
        taken += 1
        found = evaluate(query.where, lambda scalar: table[scalar.column].combine_chunks()).to_pylist()
        if found != theirs[f"c{number}"].to_pylist():
            differences.append(f"{text}: {found}, in Spark {theirs[f'c{number}'].to_pylist()}")
    assert not differences, "\n".join(differences)
    assert taken > 0.7 * len(texts), "most comparisons are the kernel's"
