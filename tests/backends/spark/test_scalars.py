"""Scalar expressions, typed in bulk and evaluated without ANSI mode."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from transom.backends.spark.scalars import SparkScalars, collect_small
from transom.backends.spark.session import ANSI, INTERPRETED
from transom.backends.spark.types import to_frame
from transom.errors import SQLError
from transom.sql.binding.expression_types import shape

INSTANT = pa.timestamp("us", tz="UTC")
COLUMNS = {
    "site": pa.int32(),
    "price": pa.float64(),
    "fee": pa.decimal128(10, 2),
    "ts": INSTANT,
    "name": pa.string(),
    "closing#1a2b3c4d.cp": pa.float64(),
    "closing#1a2b3c4d": pa.bool_(),
}
TYPED = [
    ("`site` + 1", pa.int32()),
    ("`site` / 2", pa.float64()),
    ("`price` * `site`", pa.float64()),
    ("`fee` * `fee`", pa.decimal128(21, 4)),
    ("`fee` + `site`", pa.decimal128(13, 2)),
    ("`ts` + INTERVAL 1 HOUR", INSTANT),
    ("CAST(`ts` AS DATE)", pa.date32()),
    ("abs(`price` - `closing#1a2b3c4d.cp`) / `closing#1a2b3c4d.cp`", pa.float64()),
    ("`closing#1a2b3c4d`", pa.bool_()),
    ("upper(`name`)", pa.string()),
    ("NULL", pa.null()),
]


@pytest.fixture(scope="module")
def scalars(spark: SparkSession) -> SparkScalars:
    return SparkScalars(spark)


def test_each_expression_has_its_type(scalars: SparkScalars) -> None:
    assert scalars.types(COLUMNS, [text for text, _ in TYPED]) == [type for _, type in TYPED]


WHOLE = [0, 1, 9, 10, 99, 32767, 32768, 10**9 - 1, 10**9, 2**31 - 1, 2**31, 2**31 + 1, 10**10 - 1]
WHOLE += [2**63 - 1, 2**63, 2**63 + 1, 10**20 - 1]
NUMBERS = [*map(str, WHOLE), "00", "007", "0.0", "0.5", "0.05", "0.50", "1.5", "9.99", "10.0", "010.0"]
NUMBERS += ["12345678.12345678", "0.00000000000000000001"]


@pytest.mark.parametrize("column", ["site", "price", "fee", "name"])
def test_numbers_of_one_shape_give_arithmetic_one_type(scalars: SparkScalars, column: str) -> None:
    texts = [
        form.format(f"`{column}`", number)
        for form in ("{} + {}", "{} * {}", "{1} - {0}", "{} / {}", "{} % {}", "abs({} * -{})", "NOT {} > {}")
        for number in NUMBERS
    ]
    found: dict[str, set[pa.DataType]] = {}
    for text, kind in zip(texts, scalars.types(COLUMNS, texts), strict=True):
        assert not isinstance(kind, SQLError)
        found.setdefault(shape(text), set()).add(kind)
    assert len(found) < len(texts)
    assert all(len(kinds) == 1 for kinds in found.values())


WRONG = [
    ("prise", "A column, variable, or function parameter with name `prise` cannot be resolved"),
    ("nosuch(`site`)", "Cannot resolve routine `nosuch`"),
    ("`site` +", "Syntax error at or near end of input"),
    ("upper(`site`, 1)", "requires 1 parameters"),
    ("*", "not a single expression"),
    ("date_add(`site`, 1)", "requires the"),
]


@pytest.mark.parametrize("text, said", WRONG)
def test_a_wrong_expression_is_told_in_one_short_line(
    scalars: SparkScalars, text: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (error,) = scalars.types(COLUMNS, [text])
    assert isinstance(error, SQLError)
    assert said in error.message
    for noise in ("\n", "SQLSTATE", "Project", "== SQL", "line 1"):
        assert noise not in error.message
    assert capfd.readouterr().err == ""


def test_wrong_expressions_among_many_right_ones_are_found(scalars: SparkScalars) -> None:
    texts = [f"`site` + {i}" for i in range(60)]
    texts[7], texts[8], texts[59] = "prise", "nosuch(1)", "`site` +"
    found = scalars.types(COLUMNS, texts)
    wrong = [i for i, type in enumerate(found) if isinstance(type, SQLError)]
    assert wrong == [7, 8, 59]
    assert {type for i, type in enumerate(found) if i not in wrong} == {pa.int32()}


def test_repeated_expressions_are_analysed_once(
    scalars: SparkScalars, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    analyse = scalars._analyse

    def noted(frame: DataFrame, new: Sequence[str]) -> list[pa.DataType | SQLError]:
        asked.extend(new)
        return analyse(frame, new)

    monkeypatch.setattr(scalars, "_analyse", noted)
    scalars.types(COLUMNS, ["`site` - 1", "`site` - 1", "`site` - 2"])
    scalars.types(COLUMNS, ["`site` - 2", "nosuch(1)"])
    scalars.types(COLUMNS, ["nosuch(1)"])
    assert asked == ["`site` - 1", "`site` - 2", "nosuch(1)", "nosuch(1)"]


ROWS = pa.table(
    {
        "site": pa.array([1, 0, None], pa.int32()),
        "price": pa.array([1.5, float("nan"), None]),
        "fee": pa.array([Decimal("12.34"), Decimal("-0.01"), None], pa.decimal128(10, 2)),
        "ts": pa.array([0, -1, None], INSTANT),
        "name": pa.array(["a", "", None]),
    }
)


def test_expressions_are_evaluated_row_by_row_with_exact_types(scalars: SparkScalars) -> None:
    found = scalars.project(
        ROWS,
        {
            "next": "`site` + 1",
            "divided": "10 / `site`",
            "single": "CAST(`price` AS FLOAT)",
            "squared": "`fee` * `fee`",
            "later": "`ts` + INTERVAL 1 HOUR",
            "day": "CAST(`ts` AS DATE)",
            "bad": "CAST(`name` AS INT)",
            "bytes": "CAST(`name` AS BINARY)",
            "dot.ted": "`name`",
        },
    )
    assert found.schema.types == [
        pa.int32(),
        pa.float64(),
        pa.float32(),
        pa.decimal128(21, 4),
        INSTANT,
        pa.date32(),
        pa.int32(),
        pa.binary(),
        pa.string(),
    ]
    hour = datetime(1970, 1, 1, 1, tzinfo=UTC)
    before = datetime(1970, 1, 1, 0, 59, 59, 999999, UTC)
    assert found.drop_columns("single").to_pydict() == {
        "next": [2, 1, None],
        "divided": [10.0, None, None],
        "squared": [Decimal("152.2756"), Decimal("0.0001"), None],
        "later": [hour, before, None],
        "day": [date(1970, 1, 1), date(1969, 12, 31), None],
        "bad": [None, None, None],
        "bytes": [b"a", b"", None],
        "dot.ted": ["a", "", None],
    }
    assert str(found["single"].to_pylist()) == "[1.5, nan, None]"


def test_names_may_differ_in_case_only(scalars: SparkScalars) -> None:
    found = scalars.project(ROWS.slice(0, 1), {"n": "`site`", "N": "`site` + 1", "ts": "`ts`"})
    assert found.column_names == ["n", "N", "ts"] and found.to_pylist()[0]["N"] == 2


def test_nothing_but_constants_over_rows_gives_a_row_each(scalars: SparkScalars) -> None:
    assert scalars.project(ROWS, {"one": "1"}).to_pydict() == {"one": [1, 1, 1]}


def test_no_rows_give_a_typed_empty_table(scalars: SparkScalars) -> None:
    found = scalars.project(ROWS.slice(0, 0), {"later": "`ts`", "fee": "`fee`"})
    assert found.num_rows == 0 and found.schema.types == [INSTANT, pa.decimal128(10, 2)]


def test_many_rows_take_the_other_way_with_the_same_answer(scalars: SparkScalars) -> None:
    many = pa.table({"n": pa.array(range(20_000)), "ts": pa.array(range(20_000), INSTANT)})
    texts = {"twice": "`n` * 2", "ts": "`ts`", "day": "CAST(`ts` AS DATE)"}
    found = scalars.project(many, texts)
    few = scalars.project(many.slice(19_990), texts)
    assert found.schema == few.schema and found.slice(19_990).equals(few)


def test_the_session_keeps_its_ansi_mode(scalars: SparkScalars, spark: SparkSession) -> None:
    scalars.project(ROWS, {"x": "1 / `site`"})
    assert spark.conf.get(ANSI) == "true"


def test_a_wrong_expression_is_refused(scalars: SparkScalars) -> None:
    with pytest.raises(SQLError, match="`prise` cannot be resolved"):
        scalars.project(ROWS, {"x": "prise"})


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_times_do_not_depend_on_the_sessions_zone(spark: SparkSession, zone: str) -> None:
    table = ROWS.select(["ts"]).append_column("local", pa.array([0, -1, None], pa.timestamp("us")))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for columns in (["ts"], ["ts", "local"]):
            assert collect_small(to_frame(spark, table.select(columns))).equals(table.select(columns))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_many_expressions_are_typed_and_evaluated_in_chunks(spark: SparkSession) -> None:
    scalars, table = SparkScalars(spark), pa.table({"x": pa.array([1, 2], pa.int64())})
    texts = [f"x + {i}" if i % 150 else f"no_such_{i}(x)" for i in range(501)]
    types = scalars.types({"x": pa.int64()}, texts)
    assert [i for i, type in enumerate(types) if isinstance(type, SQLError)] == [0, 150, 300, 450]
    before = {key: spark.conf.get(key, None) for key in INTERPRETED}
    found = scalars.project(table, {f"c{i}": f"x * {i}" for i in range(501)})
    assert [column.to_pylist() for column in found.columns] == [[i, 2 * i] for i in range(501)]
    assert {key: spark.conf.get(key, None) for key in INTERPRETED} == before
