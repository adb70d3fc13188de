"""The options of a stream that decide how its watermark follows its rows: a learned slack, partitions and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from transom.columns.types import Columns
from transom.elements import ClockKind
from transom.errors import SettingError, near_miss
from transom.runtime.options import declared_column, length, partition_rule
from transom.sql.catalog import Scalars
from transom.windows.learned_slack import SlackRule, slack_share
from transom.windows.stream_rules import StreamRules

FIRST_SLACK = "1 minute"
MOST_CLOCKS = 100_000


@dataclass(frozen=True)
class WatermarkOptions:
    """The options as a program gives them."""

    partition: str | None = None
    partition_idle: Any = "1 minute"
    watermark_by: str | None = None
    watermark_clocks: int = MOST_CLOCKS
    slack_start: Any = "default"
    slack_min: Any = None
    slack_max: Any = None

    def fixed_slack(self, slack: Any, time: str) -> tuple[Any, float | None]:
        """The slack without a share of rows, and the share, if there is one: then the slack is learned.

        >>> WatermarkOptions().fixed_slack("99.9%", "ts"), WatermarkOptions().fixed_slack("5 s", "ts")
        (('default', 0.999), ('5 s', None))
        """
        if isinstance(slack, Mapping):
            shares = {column: slack_share(each) for column, each in slack.items()}
            others = [
                column for column, share in shares.items() if share is not None and not _same(column, time)
            ]
            if others:
                raise SettingError(
                    f"the slack of {others[0]} can't be learned: only that of {time}, the stream's time"
                    f"{near_miss(others[0], [time])}"
                )
            fixed = {column: each for column, each in slack.items() if shares[column] is None}
            return fixed, next((share for share in shares.values() if share is not None), None)
        share = slack_share(slack)
        return (slack, None) if share is None else ("default", share)

    def checked(
        self,
        stream: str,
        rules: StreamRules,
        share: float | None,
        source: Columns,
        columns: Columns,
        scalars: Scalars,
    ) -> StreamRules:
        """The rules of a stream with these options."""
        if isinstance(self.watermark_clocks, bool) or not isinstance(self.watermark_clocks, int):
            raise SettingError(f"watermark_clocks is a number of clocks, not {self.watermark_clocks!r}")
        if self.watermark_clocks < 1:
            raise SettingError(f"watermark_clocks is at least 1, not {self.watermark_clocks}")
        rules = replace(rules, most_clocks=self.watermark_clocks)
        if share is not None:
            learned = self._learned(share, rules.clock.kind)
            rules = replace(rules, slack=learned.first, learned=learned)
        elif self.slack_start != "default" or self.slack_min is not None or self.slack_max is not None:
            raise SettingError(
                "slack_start, slack_min and slack_max are for a slack that is learned: slack='99.9%'"
            )
        partition = self.partition
        if self.watermark_by is not None:
            if partition not in (None, "default"):
                raise SettingError(
                    "the watermark follows partitions or groups: leave out partition or watermark_by"
                )
            column = declared_column(stream, self.watermark_by, columns)
            if rules.overload is not None:
                raise SettingError(
                    "a stream whose groups have clocks can't have a budget: leave out overload or watermark_by"
                )
            rules = replace(rules, group=column)
            partition = group_clock_name(column, columns[column])
        elif rules.learned is not None and partition is None:
            partition = "''"  # one clock for all rows
        sql, idle = partition_rule(stream, source, columns, partition, self.partition_idle, scalars)
        if sql is None and rules.learned is not None:
            sql, idle = partition_rule(stream, source, columns, "''", None, scalars)
        return replace(rules, partition=sql, partition_idle=None if partition == "''" else idle)

    def _learned(self, share: float, kind: ClockKind) -> SlackRule:
        start = self.slack_start
        if start == "default":
            if kind is not ClockKind.TIME:
                raise SettingError(
                    "the stream's time is an integer: say with slack_start which slack it begins with"
                )
            start = FIRST_SLACK
        first, low, high = (
            length(name, value, kind)
            for name, value in (
                ("slack_start", start),
                ("slack_min", self.slack_min),
                ("slack_max", self.slack_max),
            )
        )
        if first is None:
            raise SettingError("slack_start is the slack until it is learned: it can't be none")
        rule = SlackRule(share, first, low or 0, high)
        if rule.high is not None and rule.low > rule.high:
            raise SettingError(f"slack_min, {self.slack_min!r}, is larger than slack_max, {self.slack_max!r}")
        return rule


def _same(column: Any, time: str) -> bool:
    return str(column).casefold() == time.casefold()


def group_clock_name(column: str, kind: pa.DataType) -> str:
    """An expression for the name of a row's group: its value as text after an =, and nothing for null."""
    if not any(is_kind(kind) for is_kind in GROUP_KINDS):
        raise SettingError(
            f"watermark_by needs a column with texts, integers, booleans or dates, and {column} is {kind}"
        )
    quoted = f"`{column.replace('`', '``')}`"
    return f"coalesce(concat('=', CAST({quoted} AS STRING)), '')"


GROUP_KINDS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
NO_OPTIONS = WatermarkOptions()
WATERMARK_DEFAULTS = asdict(NO_OPTIONS)
