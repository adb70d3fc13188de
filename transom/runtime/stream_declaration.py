"""What a program says of a stream, checked: a declaration becomes a `Stream`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from transom.elements import Overload, Prod, Punctuation
from transom.errors import SettingError, SQLError
from transom.ingest.event_time import event_time
from transom.ingest.sources import Source, visible, with_time_column
from transom.ingest.streams import ProdRows, Stream
from transom.runtime.options import check_column_names, clock_kind, declared_column, length, stream_rules
from transom.runtime.prods import clock_named
from transom.runtime.watermark_options import NO_OPTIONS, WatermarkOptions
from transom.sql.catalog import Scalars
from transom.windows.stream_rules import StreamRules


@dataclass(frozen=True)
class StreamDeclaration:
    """A stream of rows and its options, as a program gives them.

    `markers` are the conditions that mark rows as punctuations and prods, `left_out` the columns of types that are
    not supported.
    """

    name: str
    source: Source
    time: str
    time_unit: str | None = None
    slack: Any = "default"
    horizon: Any = "default"
    live: bool = False
    idle: Any = None
    overload: Overload | None = None
    max_ahead: Any = "default"
    markers: Mapping[type[Punctuation | Prod], str | None] = field(default_factory=dict)
    left_out: Mapping[str, str] | None = None
    watermark: WatermarkOptions = NO_OPTIONS
    retain: Any = None

    def checked(self, scalars: Scalars) -> Stream:
        """The stream that is declared; SettingError if an option is wrong."""
        name, columns = self.name, visible(self.source.columns)
        check_column_names(name, columns)
        expressed = event_time(name, columns, self.time, self.time_unit, scalars)
        if expressed is not None:
            columns[expressed[0].column] = expressed[1]
            time = expressed[0].column
        else:
            time = declared_column(name, self.time, columns)
            columns = with_time_column(columns, time)
        rules = self._rules(time, columns, scalars)
        markers = {kind: marker for kind, marker in self.markers.items() if marker is not None}
        for kind, marker in markers.items():
            _check_condition(f"the {kind.__name__.lower()} of {name}", marker, columns, scalars)
        return Stream(
            name,
            columns,
            rules,
            self.source,
            markers,
            event_time=None if expressed is None else expressed[0],
            unsupported=self.left_out or {},
            retain=length("retain", self.retain, rules.clock.kind),
        )

    def _rules(self, time: str, columns: Mapping[str, pa.DataType], scalars: Scalars) -> StreamRules:
        """The rules of the stream, given its column of time."""
        slack, share = self.watermark.fixed_slack(self.slack, time)
        rules = stream_rules(
            self.name,
            columns,
            time,
            slack,
            self.horizon,
            self.live,
            self.idle,
            self.overload,
            self.max_ahead,
        )
        return self.watermark.checked(self.name, rules, share, self.source.columns, columns, scalars)


def _check_condition(what: str, condition: str, columns: Mapping[str, pa.DataType], scalars: Scalars) -> None:
    kind = scalars.types(columns, [condition])[0]
    if isinstance(kind, SQLError):
        raise SettingError(f"{what}: {kind.message}")
    if not pa.types.is_boolean(kind):
        raise SettingError(f"{what} is {kind}, expected a condition")


def prod_stream(
    name: str,
    source: Source,
    target: Stream,
    until: str | None,
    at: str | None,
    where: Mapping[str, str] | Iterable[str],
    on: str | None,
) -> Stream:
    """A stream whose rows become prods of the stream `target`."""
    columns = visible(source.columns)
    names = where if isinstance(where, Mapping) else {column: column for column in where}
    clock, time = clock_named(target, on), until if at is None else at
    if time is not None:
        time = declared_column(name, time, columns)
        columns = with_time_column(columns, time)
        if clock_kind(time, columns[time]) is not clock.kind:
            raise SettingError(
                f"the times of {name} are {columns[time]}, and {target.name} goes by other ones"
            )
    pattern = {
        declared_column(target.name, theirs, target.columns): declared_column(name, ours, columns)
        for theirs, ours in names.items()
    }
    rule = ProdRows(clock, time, at is not None, pattern)
    return Stream(name, columns, StreamRules(clock), source, prods=rule)
