"""What a program declares before it starts an engine: streams, feeds, prods, tables and functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

import pyarrow as pa

from transom.backends.base import Backend, StreamingInput
from transom.elements import Prod, Punctuation
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.overload.bursts import Overload
from transom.runtime.handles import Feed
from transom.runtime.loop import BatchLoop
from transom.runtime.options import clock_kind, declared_column, overload_rule, stream_rules
from transom.runtime.prods import clock_of
from transom.runtime.quality import guarded_quality
from transom.runtime.replay import Replay, ReplayOptions, replay_source
from transom.runtime.runner import Runner
from transom.runtime.sources import (
    FeedSource,
    FileSource,
    FrameSource,
    Source,
    StreamingSource,
    visible,
    with_time_column,
)
from transom.runtime.streams import ProdRows, Stream
from transom.windows.stream_rules import StreamRules


class Declarations:
    """The part of an engine that says what there is to read."""

    _backend: Backend
    _loop: BatchLoop
    _runner: Runner

    def stream(
        self,
        name: str,
        source: Any,
        *,
        time: str,
        slack: Any = "default",
        horizon: Any = "default",
        live: bool = False,
        idle: Any = None,
        punctuation: str | None = None,
        prod: str | None = None,
        overload: str | None = None,
        budget: int | str | None = None,
        share: int = 3,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        files_per_batch: int = 1,
    ) -> None:
        """Declare a stream: a streaming DataFrame, a batch DataFrame (a finite stream), or a path of
        json, csv or parquet files.

        `time` is the column of its event time, `slack` the disorder to wait for (by default nothing; None:
        windows close by punctuations alone; a mapping gives other columns a slack of their own), `horizon`
        how far a row may be ahead of the stream before it is rejected, `live` whether it may also not be
        ahead of the clock, `idle` the time without data after which windows close, `punctuation` a
        condition that marks rows as punctuations, `prod` one that marks rows as prods.

        `overload` says what becomes of rows beyond a batch's `budget` (a number of rows, or a time such as
        "2 s"): "sideline" sets the trailing rows of bursts aside and takes one of them in for every `share`
        new rows, or when none come; "shed" drops them. The rest is about the files of a path.
        """
        found = self._source(source, format, schema, options, files_per_batch)
        rules = time, slack, horizon, live, idle, overload_rule(overload, budget, share)
        self._declare(name, found, rules, {Punctuation: punctuation, Prod: prod})

    def feed(
        self,
        name: str,
        schema: str,
        *,
        time: str,
        slack: Any = "default",
        horizon: Any = "default",
        live: bool = False,
        idle: Any = None,
        punctuation: str | None = None,
        prod: str | None = None,
        overload: str | None = None,
        budget: int | str | None = None,
        share: int = 3,
    ) -> Feed:
        """Declare a stream that this program pushes into; options as of `stream`."""
        source = FeedSource(self._backend, self._loop.store, name, self._backend.parse_schema(schema))
        rules = time, slack, horizon, live, idle, overload_rule(overload, budget, share)
        self._declare(name, source, rules, {Punctuation: punctuation, Prod: prod})
        return Feed(self, name, source)  # type: ignore[arg-type]  # an engine is what this is part of

    def replay(self, name: str, source: Any, *, time: str, **options: Unpack[ReplayOptions]) -> Replay:
        """Declare a recorded stream that comes again, by its times, `speed` times as fast as it came.

        The source is a path of files, a batch DataFrame or an Arrow table. Rows come at random up to
        `delay` late, or held back and all at once (`burst`). `drain` delivers the rest at once.
        """
        self._check_new(name)
        loop = self._loop
        found, own = replay_source(self._backend, loop.store, name, source, time, loop.clock, options)
        beyond = overload_rule(own["overload"], own["budget"], own["share"])
        rules = time, own["slack"], own["horizon"], False, own["idle"], beyond
        self._declare(name, found, rules, {Punctuation: own["punctuation"], Prod: own["prod"]})
        return Replay(name, found)

    def prods(
        self,
        name: str,
        source: Any,
        *,
        of: str,
        until: str | None = None,
        at: str | None = None,
        where: Mapping[str, str] | Iterable[str] = (),
        on: str | None = None,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare a stream whose rows become prods of the stream `of`.

        `until` or `at` is the column of a prod's time, `where` the columns of its pattern (a mapping gives
        them the names that they have in the prodded stream); null matches everything.
        """
        if until is not None and at is not None:
            raise SettingError("a prod is for the windows up to a time (until) or for the one at a time (at)")
        if of not in self._loop.queried():
            raise SettingError(f"there is no stream named {of}{near_miss(of, self._loop.queried())}")
        target, found = self._loop.streams[of], self._source(source, format, schema, options, 1)
        columns = visible(found.columns)
        names = where if isinstance(where, Mapping) else {column: column for column in where}
        clock, time = clock_of(target, on), until if at is None else at
        if time is not None:
            time = declared_column(name, time, columns)
            columns = with_time_column(columns, time)
            if clock_kind(time, columns[time]) is not clock.kind:
                raise SettingError(f"the times of {name} are {columns[time]}, and {of} goes by other ones")
        rule = ProdRows(
            clock,
            time,
            at is not None,
            {
                declared_column(of, theirs, target.columns): declared_column(name, ours, columns)
                for theirs, ours in names.items()
            },
        )
        self._check_new(name)
        self._loop.declare(Stream(name, columns, StreamRules(rule.clock), found, prods=rule))

    def _source(
        self,
        source: Any,
        format: str | None,
        schema: str | None,
        options: Mapping[str, Any] | None,
        files_per_batch: int,
    ) -> Source:
        given = self._backend.input_of(source)
        if isinstance(given, StreamingInput):
            return StreamingSource(given)
        if given is not None:
            return FrameSource(given)
        return FileSource(self._backend.open_files(str(source), format, schema, options, files_per_batch))

    def _declare(
        self,
        name: str,
        source: Source,
        rules: tuple[str, Any, Any, bool, Any, Overload | None],
        markers: Mapping[type[Punctuation | Prod], str | None],
    ) -> None:
        """Declare a stream with these rules: time, slack, horizon, live, idle, overload."""
        self._check_new(name)
        columns = visible(source.columns)
        time, *rest = rules
        spelled = declared_column(name, time, columns)
        columns = with_time_column(columns, spelled)
        found = stream_rules(name, columns, spelled, *rest)
        given = {kind: marker for kind, marker in markers.items() if marker is not None}
        for kind, marker in given.items():
            self._check_condition(f"the {kind.__name__.lower()} of {name}", marker, columns)
        self._loop.declare(Stream(name, columns, found, source, given))

    def _check_condition(self, what: str, condition: str, columns: Mapping[str, pa.DataType]) -> None:
        kind = self._loop.scalars.types(columns, [condition])[0]
        if isinstance(kind, SQLError):
            raise SettingError(f"{what}: {kind.message}")
        if not pa.types.is_boolean(kind):
            raise SettingError(f"{what} is {kind}, expected a condition")

    def _check_new(self, name: str) -> None:
        if self._runner.running:
            raise StateError("streams are declared before the engine is started")
        self._check_name(name)

    def _check_name(self, name: str) -> None:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise SettingError(f"not a name: {name!r}; letters, digits, _, - and . will do")
        if name in self._loop.streams or name in self._loop.versions:
            raise StateError(
                f"there is a {'stream' if name in self._loop.streams else 'table'} named {name} already"
            )

    def table(
        self,
        name: str,
        source: Any,
        *,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare a static table to join with, or give it a new version, which batches from now on see.

        The source is a batch DataFrame, a path of files (which the other arguments are about), an Arrow
        table or a list of mappings.
        """
        if name not in self._loop.versions:
            self._check_name(name)
        version = self._loop.tables.snapshot(name, source, format, schema, options)
        with self._loop.lock:
            self._loop.check_version(name, version)
            self._loop.versions[name] = version

    def udf(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Register a Python function for queries to call. Where it raises, it gives null, and the query
        that called it is suspended when that happens in several batches in a row."""
        self._backend.register_function(name, function, returns)
        self._loop.functions.add(name.casefold())

    def quality(self, name: str, function: Callable[[Any, Any, float], float]) -> None:
        """Declare how good an early value is, for queries that say QUALITY and its name.

        The function is given the early value, the final one and the seconds between them, and says how good
        the early one was: 1 for as good as the final, 0 for worthless. Where it raises, nothing is judged.
        """
        if not re.fullmatch(r"[^\W\d]\w*", name):
            raise SettingError(f"not a name: {name!r}; letters, digits and _ will do")
        if not callable(function):
            raise SettingError(f"the quality {name} is {function!r}, expected a function")
        self._loop.qualities[name.casefold()] = guarded_quality(name, function)
