"""Predicates as text: for people, and as the name by which equal ones are found."""

from __future__ import annotations

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
            return f"{scalar.sql} IN ({', '.join([*map(repr, values), *(['NULL'] if null else [])])})"
        case Comparison(scalar, op, value):
            return f"{scalar.sql} {op} {value!r}"
    raise TypeError(f"not a predicate: {predicate!r}")


def _inner(predicate: Predicate) -> str:
    text = predicate_text(predicate)
    return f"({text})" if isinstance(predicate, And | Or) else text
