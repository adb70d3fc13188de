"""Which expressions are compiled to vectors, and what a program sees of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from transom.sql.interpreter.scalars import CACHED_EXPRESSIONS, ColumnScope, InterpretedScalars

COLUMNS = {
    "price": pa.float64(),
    "vol": pa.int64(),
    "symbol": pa.string(),
    "ts": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
}
VECTORIZED = [
    "`price`",
    "1.5",
    "`price` * `vol`",
    "abs(`price` - 3) / `price`",
    "`price` > 3 AND NOT `vol` <= 5 OR `symbol` = 'A'",
    "CAST(`vol` AS DOUBLE)",
    "CASE WHEN `price` > 3 THEN 'high' ELSE `symbol` END",
    "coalesce(`price`, `vol`, 0)",
    "unix_micros(`ts`)",
    "`ts` < timestamp_micros(5)",
]


@pytest.mark.parametrize("text", VECTORIZED)
def test_an_expression_is_vectorized(text: str) -> None:
    compiled = InterpretedScalars().compiled(COLUMNS, text)
    assert compiled is not None and compiled.is_vectorized


@pytest.mark.parametrize("text", ["initcap(`symbol`)", "`symbol` RLIKE 'a+'", "CAST(`symbol` AS DOUBLE) + 1"])
def test_an_expression_whose_time_depends_on_its_values_is_not_vectorized(text: str) -> None:
    compiled = InterpretedScalars().compiled(COLUMNS, text)
    assert compiled is not None and not compiled.is_vectorized


def test_an_expression_that_only_spark_evaluates_is_not_compiled() -> None:
    assert InterpretedScalars().compiled(COLUMNS, "soundex(`symbol`)") is None


def test_a_compiled_expression_names_its_type_and_its_columns() -> None:
    compiled = InterpretedScalars().compiled(COLUMNS, "`price` * `vol`")
    assert compiled is not None
    assert compiled.typed.type == pa.float64() and compiled.used == ("price", "vol")


def test_a_python_function_is_called_for_every_row_that_needs_it() -> None:
    calls: list[int] = []
    scalars = InterpretedScalars({"seen": (lambda x: calls.append(x) or x, pa.int64())})
    table = pa.table({"x": [1, 1, 2, None]})
    found = scalars.project(table, {"y": "CASE WHEN `x` < 2 THEN seen(`x`) END"})
    assert found["y"].to_pylist() == [1, 1, None, None] and calls == [1, 1]


def test_a_value_that_a_branch_can_t_compute_does_not_disturb_the_other_branch() -> None:
    table = pa.table({"l": [5, 2**62]})
    text = "CASE WHEN `l` < 100 THEN year(CAST(`l` AS TIMESTAMP)) ELSE 7 END"
    assert InterpretedScalars().project(table, {"y": text})["y"].to_pylist() == [1970, 7]


def test_a_sub_expression_of_several_expressions_is_evaluated_once() -> None:
    scalars = InterpretedScalars()
    texts = ("`vol` * 2 + 1", "abs(`vol` * 2)", "`vol` * 2", "`vol` * 3")
    *_, shared, single = (scalars.compiled(COLUMNS, text) for text in texts)
    assert shared is not None and shared.typed.is_shared
    assert single is not None and not single.typed.is_shared


@pytest.mark.parametrize(
    "texts", [("'a'", "'A'"), (r"'a\tb'", r"'a\nb'"), ("1", "1L"), ("1.0", "1.00"), ("0", "false")]
)
def test_literals_that_differ_are_not_shared(texts: tuple[str, str]) -> None:
    table = pa.table({"x": [1]})
    found = InterpretedScalars().project(table, {"left": texts[0], "right": texts[1]})
    assert (
        found["left"].to_pylist() != found["right"].to_pylist() or found["left"].type != found["right"].type
    )


def test_long_chains_of_conditions_compile_in_linear_time() -> None:
    text = " OR ".join(f"`vol` = {i}" for i in range(300))
    found = InterpretedScalars().project(pa.table({"vol": [299, 300, None]}), {"x": text})
    assert found["x"].to_pylist() == [True, False, None]


def test_threads_that_compile_at_once_do_not_confuse_expressions() -> None:
    scalars = InterpretedScalars()
    table = pa.table({"x": [3]})

    def values(thread: int) -> list[int]:
        numbers = range(thread, 400, 4)
        found = scalars.project(table, {str(n): f"(`x` + {n}) * {n + 1}" for n in numbers}).to_pylist()[0]
        return [n for n in numbers if found[str(n)] != (3 + n) * (n + 1)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(values, range(4))) == [[]] * 4


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE"])
def test_no_text_takes_long_to_compare_with_a_pattern(operator: str) -> None:
    table = pa.table({"s": ["a" * 5_000, "ä" + "a" * 5_000, "a" * 5_000 + "b"]})
    texts = {"x": f"`s` {operator} '{'%a' * 25}%b'"}
    for project in (InterpretedScalars().project, InterpretedScalars().project_by_row):
        assert project(table, texts)["x"].to_pylist() == [False, False, True]


def test_an_error_of_a_branch_that_is_not_taken_is_no_error() -> None:
    table = pa.table({"s": ["a", "b"], "pattern": ["a", "("]})
    text = "CASE WHEN `s` = 'a' THEN `s` RLIKE `pattern` END"
    assert InterpretedScalars().project(table, {"x": text})["x"].to_pylist() == [True, None]


def test_expressions_of_queries_that_left_are_forgotten() -> None:
    scope = ColumnScope({"x": pa.int64()}, {})
    staying = {f"c{i}": f"`x` + {i}" for i in range(10)}
    for number in range(CACHED_EXPRESSIONS + 500):
        plan = scope.plan(staying | {"own": f"`x` * {number}"})
        assert plan.schema.names == [*staying, "own"] and len(scope) <= CACHED_EXPRESSIONS
    assert len(scope) < 1_000


def test_expressions_of_queries_whose_rows_have_not_come_yet_are_kept() -> None:
    scope = ColumnScope({"x": pa.int64()}, {})
    texts = [f"`x` + {i}" for i in range(CACHED_EXPRESSIONS + 500)]
    compiled = [scope.compiled(text) for text in texts]
    plan = scope.plan({f"c{i}": text for i, text in enumerate(texts)})
    assert all(kept is before for kept, before in zip(plan.compiled, compiled, strict=True))
    scope.plan({"one": "`x` * 2"})
    assert all(scope.compiled(text) is before for text, before in zip(texts, compiled, strict=True))
