"""The engine: streams, tables and queries that a program declares, and the life of its batch loop."""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from transom.backends.base import Backend
from transom.durations import parse_duration
from transom.elements import Drop, Punctuation, Register, Summarize, Summary, Tune
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.plan.limits import Limits
from transom.runtime.answers import Answers
from transom.runtime.batch_report import say
from transom.runtime.declarations import Declarations
from transom.runtime.delivery import Delivery
from transom.runtime.file_store import Store
from transom.runtime.handles import QueryHandle
from transom.runtime.lookups import Lookups
from transom.runtime.loop import BatchLoop
from transom.runtime.options import sharing_strategy
from transom.runtime.preferred_handle import PreferredHandle, refuse_statement
from transom.runtime.prods import Prodding, clock_of, instant_of, pattern_of
from transom.runtime.runner import Runner
from transom.runtime.sources import FeedSource
from transom.sql.binding.bind_preferred import bind_all_preferred
from transom.sql.binding.cascades import bind_all
from transom.sql.clauses.summary import bind_drop, bind_summary, read_statement
from transom.sql.preferred_query import Preferred
from transom.sql.query import Query
from transom.sql.syntax.dialect import is_preferred

log = logging.getLogger("transom")

BACKENDS = ("spark", "local")


Bound = TypeVar("Bound")


def _without_errors(outcome: Mapping[str, Bound | SQLError]) -> dict[str, Bound]:
    """Queries that were bound; the first one that could not be is an error that names it."""
    bound = {}
    for name, query in outcome.items():
        if isinstance(query, SQLError):
            of = f"{name}: " if name else ""
            raise SQLError(f"{of}{query.message}", query.text, query.start, query.end)
        bound[name] = query
    return bound


def _backend_of(backend: str | Backend, spark: Any) -> Backend:
    """The backend that a program names, imported when it is needed: the local one needs no Spark."""
    if isinstance(backend, Backend):
        return backend
    if backend == "spark":
        from transom.backends.spark.backend import SparkBackend

        return SparkBackend(spark)
    if spark is not None:
        raise SettingError(f"a Spark session is for the Spark backend, not for {backend!r}")
    if backend == "local":
        from transom.backends.local.backend import LocalBackend

        return LocalBackend()
    raise SettingError(f"unknown backend {backend!r}: spark or local{near_miss(str(backend), BACKENDS)}")


class Engine(Declarations, Answers):
    """Runs standing window-aggregate queries over streams.

    `backend` is where it computes: on Spark, or (local) in this process alone, without a JVM. `spark` is a
    session to run in (none given: a local one is started), `checkpoint` a directory from
    which an engine continues as if it had never stopped (none given: a temporary one). `clock` tells the
    time in microseconds; tests set it. `retention` is for how long results can be read back: a number
    of batches or a duration; None keeps them all. `strategy` is how windows are computed: from paired
    slices, or naively by rescanning the rows of each window. `state` is where slices are kept: on the
    driver, on the executors, or (auto) wherever their number says. `limits` are the numbers by which the
    planner decides; they change costs, not answers.
    """

    def __init__(
        self,
        spark: Any = None,
        checkpoint: str | None = None,
        *,
        backend: str | Backend = "spark",
        clock: Callable[[], int] | None = None,
        retention: int | str | None = None,
        strategy: str = "auto",
        fragments: str = "families",
        state: str = "auto",
        limits: Limits | None = None,
        poll: str | int = "200 ms",
        max_failures: int = 3,
    ):
        chosen = sharing_strategy(strategy, fragments, state, limits)
        self._backend = _backend_of(backend, spark)
        store = Store(checkpoint) if checkpoint is not None else Store.temporary()
        if checkpoint is None:
            weakref.finalize(self, store.delete)
            if not self._backend.shares_disk:
                log.warning("no checkpoint: the executors must be able to read and write %s", store.uri)
        clock = clock or (lambda: time.time_ns() // 1000)
        self._loop = BatchLoop(self._backend, store, clock, max_failures, chosen, strategy == "naive")
        self._loop.followers.append(functools.partial(say, self._loop))
        self._runner = Runner(self._loop, parse_duration(poll) / 1e6)
        in_batches = isinstance(retention, int)
        kept = parse_duration(retention) if isinstance(retention, str) else retention
        self._delivery = Delivery(self._loop, kept, in_batches)
        self._prodding = Prodding(self._loop)
        self._lookups = Lookups(self._loop)
        self._journals = []
        self._names = 0

    @property
    def spark(self) -> Any:
        """The Spark session that the engine runs in; only the Spark backend has one."""
        session = getattr(self._backend, "spark", None)
        if session is None:
            raise StateError(f"the {self._backend.name} backend has no Spark session")
        return session

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # --- queries ---

    def register(self, sql: str, name: str | None = None, *, partial: bool = False) -> QueryHandle:
        """Register a query; it joins with the next batch.

        A query that joins a running stream reports from the first window of which it saw everything;
        `partial` asks for earlier windows too, marked as not complete.
        """
        if name is None:
            name = self._free_name(sql)
        try:
            return self.register_all({name: sql}, partial=partial)[name]
        except SQLError as error:
            raise SQLError(
                error.message.removeprefix(f"{name}: "), error.text, error.start, error.end
            ) from None

    def register_all(self, queries: Mapping[str, str], *, partial: bool = False) -> dict[str, QueryHandle]:
        """Register many queries at once: all of them, or none if one is wrong."""
        loop = self._loop
        for name, text in queries.items():
            refuse_statement(text, f"{name}: ")
        bound, preferred = self._bind(queries)
        if partial and preferred:
            raise SettingError("partial is for windows, and a query WITH PREFERENCE has none")
        for name, query in bound.items():
            stream = loop.streams.get(query.stream)
            if query.overload is not None and stream is not None and stream.rules.overload is None:
                log.warning("%s says ON OVERLOAD PREFER, and %s has no budget to exceed", name, stream.name)
        with loop.control_lock:
            new = {name: text for name, text in queries.items() if not self._is_known(name, text)}
            loop.bound |= {text: bound[name] for name, text in new.items() if name in bound}
            loop.preferred |= {text: preferred[name] for name, text in new.items() if name in preferred}
            loop.say(Register(name, text, partial) for name, text in new.items())
        self._wake()
        return {
            name: PreferredHandle(self, name, text, preferred[name])
            if name in preferred
            else QueryHandle(self, name, text, bound[name])
            for name, text in queries.items()
        }

    def check(self, sql: str) -> Query | Preferred:
        """The query that a text would be, if it were registered now; raises what is wrong with it."""
        if not isinstance(sql, str):
            raise SettingError(f"a query is a text, not {sql!r}")
        refuse_statement(sql)
        bound, preferred = self._bind({"": sql})
        return bound[""] if bound else preferred[""]

    def _bind(self, queries: Mapping[str, str]) -> tuple[dict[str, Query], dict[str, Preferred]]:
        """Queries by name, bound; those with a preference apart. The first that is wrong is an error."""
        loop = self._loop
        loop.functions |= {function.casefold() for function in self._backend.functions()}
        preferring = {name: text for name, text in queries.items() if is_preferred(text)}
        plain = {name: text for name, text in queries.items() if name not in preferring}
        pushing = loop.preferring() | preferring.keys()
        known = frozenset({*dict(loop.texts), *queries})
        catalog = replace(loop.catalog(), queries=known, preferring=pushing)
        preferred = _without_errors(bind_all_preferred(preferring, catalog, loop.scalars, catalog.summaries))
        return _without_errors(bind_all(plain, catalog, loop.scalars, loop.known_queries())), preferred

    def execute(self, statement: str) -> None:
        """Run CREATE SUMMARY or DROP SUMMARY; it takes effect with the next batch.

        A summary that is there already with the same text, perhaps from an earlier run, stays as it is.
        """
        loop = self._loop
        if (read := read_statement(statement)) is None:
            raise SQLError("expected CREATE SUMMARY or DROP SUMMARY; queries are registered", statement)
        with loop.control_lock:
            catalog = loop.catalog()
            if isinstance(read, Summary):
                summary = bind_summary(statement, catalog)
                if summary.name not in catalog.summaries:
                    loop.say([Summarize(summary.name, statement)])
            elif (dropped := bind_drop(statement, loop.summary_names())) is not None:
                if users := loop.users(dropped.name):
                    raise StateError(f"{dropped.name} is read by {', '.join(users[:3])}: drop that first")
                loop.say([dropped])
        self._wake()

    def _is_known(self, name: str, text: str) -> bool:
        """Whether a query is registered already, perhaps by an earlier run of the program."""
        known = self._loop.texts.get(name)
        if known is not None and known != text:
            raise StateError(f"a query named {name} is registered already, with another text; drop it first")
        return known is not None

    def _free_name(self, sql: str) -> str:
        """The next of q1, q2, ...; that of an earlier run of the program if it is the same query."""
        while True:
            self._names += 1
            if self._loop.texts.get(f"q{self._names}", sql) == sql:
                return f"q{self._names}"

    def _drop(self, name: str) -> None:
        with self._loop.control_lock:
            if name not in self._loop.texts:
                raise StateError(f"there is no query named {name}")
            if readers := self._loop.readers(name):
                raise StateError(f"{name} is read by {', '.join(readers[:3])}: drop that first")
            self._loop.say([Drop(name)])
        self._delivery.forget(name)
        self._wake()

    # --- control ---

    def _tune(self, name: str, point: float | None) -> None:
        self._loop.say([Tune(name, point)])
        self._wake()

    def punctuate(
        self,
        stream: str,
        until: Any,
        since: Any = None,
        where: Mapping[str, Any] | None = None,
        on: str | None = None,
    ) -> None:
        """No more rows with a time from `since` to `until` that match `where` will come.

        `on` names the column that the times are of, if it is not the stream's own time.
        """
        declared = self._stream(stream)
        clock = clock_of(declared, on)
        start = None if since is None else instant_of(clock, since)
        element = Punctuation(clock, instant_of(clock, until), start, pattern_of(declared, where))
        if isinstance(declared.source, FeedSource):
            declared.source.control(element)
        else:
            self._loop.say([element])
        self._wake()

    def start(self) -> None:
        """Process batches in the background until stopped."""
        self._runner.start()

    def stop(self) -> None:
        """Stop; what is committed is kept, and a new engine on the same checkpoint continues from there."""
        self._runner.stop()

    @property
    def running(self) -> bool:
        """Whether batches are processed in the background."""
        return self._runner.running

    @property
    def failure(self) -> BaseException | None:
        """What made it stop, if it failed."""
        return self._runner.failure

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the engine is stopped, or for some seconds; raises what made it fail."""
        return self._runner.await_termination(timeout)

    def step(self) -> int:
        """Process what was pushed and what waits, batch by batch, in this thread; how many batches that was."""
        return self._runner.step()

    def drain(self, close: bool | None = None) -> None:
        """Process all that is available, close every window of streams that end, and stop.

        Feeds, batch DataFrames and paths end here; Spark streams do not, unless `close` is True. With
        False, no window is closed.
        """
        self._runner.drain(close)

    def _wake(self) -> None:
        self._runner.wake()

    def sink(self, format: str, path: str | None = None, **options: Any) -> None:
        """Write the results of all queries, in one schema, with any Spark writer."""
        self._delivery.sink(None, format, path, options)
