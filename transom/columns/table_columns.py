"""The columns of tables of slices: sheets, shards, and the tables that windows are lowered from.

Each group column and each column of an accumulator's state has a name by its place. Only the functions here
make and recognise these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SELECTION = "selection"  # the id of the selection that a slice belongs to
SLICE = "slice"  # where a slice starts
SESSION_START = "start"  # where a session starts, beside the id that tells where it ends
STOP = "stop"  # where a slice stops
FRAGMENT = "fragment"  # the fragment that a cell of a shard belongs to
ROWS = "rows"  # how many tuples a row stands for

_GROUP_COLUMN = re.compile(r"k\d+")
_STATE_COLUMN = re.compile(r"s\d+_\d+")
_AGGREGATE_COLUMN = re.compile(r"a\d+")


def group_column(place: int) -> str:
    """The name of the group column at a place of GROUP BY.

    >>> group_column(1)
    'k1'
    """
    return f"k{place}"


def group_columns(count: int) -> list[str]:
    """The names of the first `count` group columns."""
    return [group_column(place) for place in range(count)]


def is_group_column(name: str) -> bool:
    """Whether a column is a group column.

    >>> is_group_column("k12"), is_group_column("kind"), is_group_column("k")
    (True, False, False)
    """
    return _GROUP_COLUMN.fullmatch(name) is not None


def groups_in(names: Iterable[str]) -> list[str]:
    """The group columns among some columns, in their order."""
    return [name for name in names if is_group_column(name)]


def state_column(place: int, part: int) -> str:
    """The name of a part of the state of the accumulator at a place.

    >>> state_column(2, 0)
    's2_0'
    """
    return f"s{place}_{part}"


def is_state_column(name: str) -> bool:
    """Whether a column holds a part of an accumulator's state.

    >>> is_state_column("s2_0"), is_state_column("slice"), is_state_column("s2")
    (True, False, False)
    """
    return _STATE_COLUMN.fullmatch(name) is not None


def aggregate_column(place: int) -> str:
    """The name of the column of an aggregate's answers, by the place of the call in the query.

    >>> aggregate_column(0)
    'a0'
    """
    return f"a{place}"


def is_aggregate_column(name: str) -> bool:
    """Whether a column holds an aggregate's answers.

    >>> is_aggregate_column("a0"), is_aggregate_column("a0_low"), is_aggregate_column("at")
    (True, False, False)
    """
    return _AGGREGATE_COLUMN.fullmatch(name) is not None


def bound_column(place: int, side: str) -> str:
    """The name of the column of the lower (`low`) or the upper (`high`) ends of an aggregate's intervals.

    >>> bound_column(0, "low")
    'a0_low'
    """
    return f"{aggregate_column(place)}_{side}"
