"""Conditions evaluate no more of their operands than they need."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from transom.sql.interpreter.conditions import all_of, member
from transom.sql.interpreter.typed_expression import TypedExpression, literal


class Counted:
    """An expression that counts how often it is evaluated."""

    def __init__(self, value: Any, type: pa.DataType):
        self.value, self.times = value, 0
        self.expression = TypedExpression(type, self._of)

    def _of(self, row: Any) -> Any:
        self.times += 1
        return self.value


def test_in_evaluates_the_value_that_it_looks_for_once() -> None:
    sought = Counted(7, pa.int64())
    condition = member(sought.expression, [literal(number, pa.int64()) for number in range(64)])
    assert condition.of({}) is True
    assert sought.times == 1


def test_in_is_null_if_the_value_or_an_entry_that_could_be_equal_is_null() -> None:
    entries = [literal(1, pa.int64()), literal(None, pa.int64())]
    assert [member(literal(value, pa.int64()), entries).of({}) for value in (1, 2, None)] == [
        True,
        None,
        None,
    ]


def test_and_ends_with_the_first_false_operand() -> None:
    later = Counted(True, pa.bool_())
    assert all_of(literal(False, pa.bool_()), later.expression).of({}) is False
    assert later.times == 0
    assert all_of(literal(None, pa.bool_()), later.expression).of({}) is None
    assert later.times == 1
