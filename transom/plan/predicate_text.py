"""Predicates as text: for people, and as the id of equal predicates."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Truth


def predicate_text(predicate: Predicate) -> str:
    """A predicate as it would be written."""
    match predicate:
        case And(parts):
            return " AND ".join(map(_inner, parts))
        case Or(parts):
            return " OR ".join(map(_inner, parts))
        case Not(part):
            return f"NOT {_inner(part)}"
        case IsNull(scalar):
            return f"{scalar.sql} IS NULL"
        case Truth(scalar):
            return scalar.sql
        case Member(scalar, values, null):
            return f"{scalar.sql} IN ({', '.join([*map(literal_text, values), *(['NULL'] if null else [])])})"
        case Comparison(scalar, op, value):
            return f"{scalar.sql} {op} {literal_text(value)}"
    raise TypeError(f"not a predicate: {predicate!r}")


def _inner(predicate: Predicate) -> str:
    text = predicate_text(predicate)
    return f"({text})" if isinstance(predicate, And | Or) else text


def literal_text(value: Any) -> str:
    """A constant as SQL writes it; constants of different types have different texts.

    >>> literal_text("it's"), literal_text(Decimal("1.50")), literal_text(1.5), literal_text(True)
    ("'it''s'", '1.50BD', '1.5', 'true')
    >>> literal_text(date(2013, 1, 1))
    "DATE '2013-01-01'"
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case Decimal():
            return f"{value}BD"
        case date():
            return f"DATE '{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
    raise TypeError(f"not a constant: {value!r}")
