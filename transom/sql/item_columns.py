"""The columns that SELECT items and HAVING are written over: keys, aggregates, values of earlier windows, and the
ends of the window.

The text of an item refers to them by place: `` `k0` `` is the first key, `` `a0` `` the first aggregate, and
`` `l0` `` the first value of an earlier window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa

from transom.columns.table_columns import aggregate_column, group_column, is_aggregate_column, is_group_column

_REFERENCE = re.compile(r"`([akl])(\d+)`")


def item_columns(
    keys: Iterable[pa.DataType],
    aggregates: Iterable[pa.DataType],
    clock: pa.DataType,
    lags: Iterable[pa.DataType] = (),
) -> dict[str, pa.DataType]:
    """The types of the columns, by name, given the types of keys, aggregates, the clock and earlier values."""
    columns = {group_column(place): kind for place, kind in enumerate(keys)}
    columns |= {aggregate_column(place): kind for place, kind in enumerate(aggregates)}
    columns |= {lag_column(place): kind for place, kind in enumerate(lags)}
    return columns | {"window_start": clock, "window_end": clock}


def key_reference(place: int) -> str:
    """The text that refers to a key.

    >>> key_reference(0)
    '`k0`'
    """
    return f"`{group_column(place)}`"


def aggregate_reference(place: int) -> str:
    """The text that refers to an aggregate.

    >>> aggregate_reference(1)
    '`a1`'
    """
    return f"`{aggregate_column(place)}`"


def lag_column(place: int) -> str:
    """The column with a value of an earlier window."""
    return f"l{place}"


def lag_reference(place: int) -> str:
    """The text that refers to a value of an earlier window.

    >>> lag_reference(0)
    '`l0`'
    """
    return f"`{lag_column(place)}`"


def is_lag_reference(sql: str) -> bool:
    """Whether a text is a value of an earlier window and nothing more.

    >>> is_lag_reference("`l0`"), is_lag_reference("`l0` <=> `l1`")
    (True, False)
    """
    return re.fullmatch(r"`l\d+`", sql) is not None


def is_key_reference(sql: str) -> bool:
    """Whether a text is a key and nothing more.

    >>> is_key_reference("`k0`"), is_key_reference("`k0` + 1"), is_key_reference("`a0`")
    (True, False, False)
    """
    return sql == f"`{sql[1:-1]}`" and is_group_column(sql[1:-1])


def is_aggregate_reference(sql: str) -> bool:
    """Whether a text is an aggregate and nothing more.

    >>> is_aggregate_reference("`a0`"), is_aggregate_reference("`a0` + `a1`"), is_aggregate_reference("`k0`")
    (True, False, False)
    """
    return sql == f"`{sql[1:-1]}`" and is_aggregate_column(sql[1:-1])


def replace_references(
    sql: str,
    key: Callable[[int], str],
    aggregate: Callable[[int], str],
    lag: Callable[[int], str] = lag_reference,
) -> str:
    """A text with other texts in place of its references.

    >>> replace_references("`a0` > `k1`", key=["site", "price"].__getitem__, aggregate=["count(*)"].__getitem__)
    'count(*) > price'
    """
    kinds = {"k": key, "a": aggregate, "l": lag}
    return _REFERENCE.sub(lambda match: kinds[match[1]](int(match[2])), sql)
