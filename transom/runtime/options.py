"""Options of streams and engines, parsed into `StreamRules`, `Overload` and `Strategy`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from transom.backends.hidden_columns import SOURCE_PARTITION
from transom.columns.types import Columns
from transom.durations import parse_duration
from transom.elements import Clock, ClockKind, Overload
from transom.errors import SettingError, SQLError, near_miss
from transom.ingest.event_time import bound_expression
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Place, Strategy
from transom.sql.catalog import Scalars
from transom.windows.stream_rules import StreamRules

DEFAULT_HORIZON = "366 days"
DEFAULT_MAX_AHEAD = "1 day"  # more than any time zone differs from another
OVERLOADS = ("sideline", "shed")
STRATEGIES = ("auto", "shared_paired", "shared_paned", "unshared_paired", "unshared_paned", "naive")


def clock_kind(column: str, kind: pa.DataType) -> ClockKind:
    """The kind of clock that a column of this type is."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return ClockKind.TIME
    if pa.types.is_integer(kind):
        return ClockKind.INTEGER
    raise SettingError(f"the column {column} is {kind}: windows need a time or an integer")


def check_column_names(stream: str, columns: Iterable[str]) -> None:
    """Refuse columns that queries can't tell apart: names are the same in any case."""
    folded: dict[str, str] = {}
    for name in columns:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise SettingError(
                f"the stream {stream} has the columns {other} and {name}, which differ in case only: rename one, "
                "or leave it out"
            )


def declared_column(stream: str, column: str, columns: Mapping[str, pa.DataType]) -> str:
    """A column's name as the stream spells it."""
    folded = {name.casefold(): name for name in columns}
    if column.casefold() not in folded:
        raise SettingError(f"the stream {stream} has no column {column}{near_miss(column, columns)}")
    return folded[column.casefold()]


def stream_rules(
    stream: str,
    columns: Mapping[str, pa.DataType],
    time: str,
    slack: Any,
    horizon: Any,
    live: bool,
    idle: Any,
    overload: Overload | None = None,
    max_ahead: Any = "default",
) -> StreamRules:
    """The rules of a stream. Lengths along integer columns are plain numbers.

    A stream without a horizon has no largest distance from the engine's clock either, unless it is given.
    """
    time = declared_column(stream, time, columns)
    clock = Clock(stream, time, clock_kind(time, columns[time]))
    slacks: dict[str, int | None] = {}
    if isinstance(slack, Mapping):
        for column, value in slack.items():
            name = declared_column(stream, column, columns)
            slacks[name] = length(f"the slack of {name}", value, clock_kind(name, columns[name]))
        base = slacks.get(time, 0)
    else:
        base = 0 if slack == "default" else length("slack", slack, clock.kind)
    if horizon == "default":
        horizon = DEFAULT_HORIZON if clock.kind is ClockKind.TIME else None
    is_time = clock.kind is ClockKind.TIME
    if max_ahead == "default":
        max_ahead = DEFAULT_MAX_AHEAD if is_time and horizon is not None else None
    elif max_ahead is not None and not is_time:
        raise SettingError(
            f"max_ahead compares times with the clock, and {time} is {columns[time]}: leave it out"
        )
    return StreamRules(
        clock,
        base,
        slacks,
        length("horizon", horizon, clock.kind),
        live,
        length("idle", idle, ClockKind.TIME),
        overload,
        length("max_ahead", max_ahead, clock.kind),
    )


def overload_rule(overload: str | None, budget: Any, share: int) -> Overload | None:
    """The overload rule of a stream; its budget is a number of rows or a duration."""
    if overload is None:
        if budget is not None:
            raise SettingError(f"a budget needs overload = {' or '.join(map(repr, OVERLOADS))}")
        return None
    if overload not in OVERLOADS:
        raise SettingError(
            f"unknown overload {overload!r}: {' or '.join(OVERLOADS)}{near_miss(str(overload), OVERLOADS)}"
        )
    if budget is None or isinstance(budget, bool):
        raise SettingError(
            "overload needs a budget: the rows of a batch, as in 50_000, or a time, as in '2 s'"
        )
    in_time = not isinstance(budget, int)
    size = parse_duration(budget) if in_time else budget
    if size < 1:
        raise SettingError(f"a budget is at least one row, or some time: {budget!r}")
    if isinstance(share, bool) or not isinstance(share, int) or share < 1:
        raise SettingError(f"share is a whole number of at least 1, not {share!r}")
    return Overload(size, in_time, overload == "shed", share)


def partition_rule(
    stream: str, source: Columns, columns: Columns, partition: str | None, idle: Any, scalars: Scalars
) -> tuple[str | None, int | None]:
    """The expression that tells the partitions of a stream, in canonical text, and when one counts as idle."""
    if partition == "default":
        partition = None
        if SOURCE_PARTITION in source:
            return f"`{SOURCE_PARTITION}`", length("partition_idle", idle, ClockKind.TIME)
    if partition is None:
        return None, None
    try:
        sql, _ = bound_expression(stream, columns, f"CAST({partition} AS STRING)", scalars)
    except SQLError as error:
        raise SettingError(f"the partition of {stream}, {partition}: {error.message}") from None
    return sql, length("partition_idle", idle, ClockKind.TIME)


def length(what: str, value: Any, kind: ClockKind) -> int | None:
    """A distance along a clock."""
    if value is None:
        return None
    if kind is ClockKind.TIME:
        if isinstance(value, int):
            raise SettingError(f"{what} needs a unit: write '{value} seconds', for example")
        length_given = parse_duration(value)
    elif isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
        length_given = int(value)
    else:
        raise SettingError(f"{what} is along an integer column: a plain number, not {value!r}")
    if length_given < 0:
        raise SettingError(f"{what} can't be negative: {value!r}")
    return length_given


def sharing_strategy(strategy: str, fragments: str, state: str, limits: Limits | None = None) -> Strategy:
    """How an engine shares work and where it keeps its state."""
    for name, given, choices in (
        ("strategy", strategy, STRATEGIES),
        ("fragments", fragments, tuple(kind.value for kind in FragmentSharing)),
        ("state", state, tuple(place.value for place in Place)),
    ):
        if given not in choices:
            raise SettingError(f"unknown {name} {given!r}: {' or '.join(choices)}{near_miss(given, choices)}")
    return Strategy(
        shared=not strategy.startswith("unshared"),
        paned=strategy.endswith("paned"),
        fragments=FragmentSharing(fragments),
        adapts=strategy == "auto",
        place=Place(state),
        limits=limits or Limits(),
    )
