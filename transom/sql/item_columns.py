"""The columns that SELECT items and HAVING are written over: keys, aggregates, and the ends of the window.

The text of an item refers to them by place: `` `k0` `` is the first key, and `` `a0` `` the first aggregate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa

from transom.columns.table_columns import aggregate_column, group_column, is_aggregate_column, is_group_column

_REFERENCE = re.compile(r"`([ak])(\d+)`")


def item_columns(
    keys: Iterable[pa.DataType], aggregates: Iterable[pa.DataType], clock: pa.DataType
) -> dict[str, pa.DataType]:
    """The types of the columns, by name, given the types of the keys, the aggregates and the clock."""
    columns = {group_column(place): kind for place, kind in enumerate(keys)}
    columns |= {aggregate_column(place): kind for place, kind in enumerate(aggregates)}
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


def replace_references(sql: str, key: Callable[[int], str], aggregate: Callable[[int], str]) -> str:
    """A text with other texts in place of its references.

    >>> replace_references("`a0` > `k1`", key=["site", "price"].__getitem__, aggregate=["count(*)"].__getitem__)
    'count(*) > price'
    """
    return _REFERENCE.sub(lambda match: (key if match[1] == "k" else aggregate)(int(match[2])), sql)
