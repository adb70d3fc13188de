"""Which types hold the values of which, and what a look at a file finds."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.backends.file_problems import Problem
from transom.backends.input_files import FileCheck, holds_every_value


@pytest.mark.parametrize(
    "kind, have, fits",
    [
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.int64(), False),
        (pa.int32(), pa.uint16(), True),
        (pa.int32(), pa.uint32(), False),
        (pa.float64(), pa.int32(), True),
        (pa.float64(), pa.int64(), False),
        (pa.float32(), pa.int16(), True),
        (pa.float32(), pa.float64(), False),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(12, 2), pa.int32(), True),
        (pa.decimal128(12, 2), pa.int64(), False),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("ns"), True),
        (pa.timestamp("us", tz="UTC"), pa.int64(), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.string(), pa.binary(), True),
        (pa.string(), pa.int32(), False),
        (pa.int32(), pa.string(), False),
        (pa.date32(), pa.null(), True),
        (pa.bool_(), pa.int8(), False),
    ],
    ids=str,
)
def test_a_type_holds_every_value_of_another(kind: pa.DataType, have: pa.DataType, fits: bool) -> None:
    assert holds_every_value(kind, have) is fits


def checker(format: str, content: bytes, **columns: pa.DataType) -> FileCheck:
    def open_file(file: str) -> BinaryIO:
        return io.BytesIO(content)

    return FileCheck(format, columns, open_file)


def parquet(**columns: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


def test_a_footer_tells_whether_large_integers_fit() -> None:
    small, large = parquet(n=pa.array([1, None])), parquet(n=pa.array([1 << 40]))
    assert checker("parquet", small, n=pa.int32()).check("f").problems == ()
    (problem,) = checker("parquet", large, n=pa.int32()).check("f").problems
    assert (problem.problem, problem.column) == (Problem.UNREADABLE, "n")
    assert problem.reason == "its column n is int64, the stream's is int32: not every value fits"


@pytest.mark.parametrize(
    "format, content, found",
    [
        ("csv", b"a,c\n1,2\n", [("missing column", "b"), ("new column", "c")]),
        ("csv", b"", []),
        ("json", b'{"a": 1}\n{"B": 1}\n', []),
        ("json", b'no json\n{"a": 1, "c": 2}\n', [("missing column", "b"), ("new column", "c")]),
        ("json", b"no json\n", []),
        ("orc", b"anything", []),
    ],
)
def test_columns_are_compared(format: str, content: bytes, found: list[tuple[str, str]]) -> None:
    problems = checker(format, content, a=pa.int32(), b=pa.int32()).check("f").problems
    assert [(problem.problem.value, problem.column) for problem in problems] == found


def test_a_file_with_two_columns_of_a_name_is_unreadable() -> None:
    target = io.BytesIO()
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), target)
    (problem,) = checker("parquet", target.getvalue(), a=pa.int64()).check("f").problems
    assert problem.problem is Problem.UNREADABLE and problem.reason == "it has several columns a"


def test_an_error_of_the_disk_is_not_the_files() -> None:
    def broken(file: str) -> BinaryIO:
        raise OSError(5, "Input/output error")

    assert FileCheck("parquet", {}, broken).check("f").is_readable
