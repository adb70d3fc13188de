"""From a pipeline to an engine that is ready to start."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator

from transom.cli.pipeline import Pipeline, Settings
from transom.errors import SettingError, SQLError
from transom.sql.clauses.summary import parse_summary
from transom.sql.syntax.canonical import quote

if TYPE_CHECKING:
    from transom.runtime.engine import Engine
    from transom.runtime.handles import QueryHandle


log = logging.getLogger("transom")

UNSENT = (
    "a query without SLIDE pushes no results that could be written: take its sinks away, or give it a SLIDE; "
    "`transom run` prints its lookups (--lookup-every '10 seconds')"
)


def open_engine(settings: Settings) -> Engine:
    """An engine on the master that the settings name; Spark is imported and started here, not before."""
    from transom.backends.spark.session import start_session
    from transom.runtime.engine import Engine

    options = dict(settings)
    return Engine(spark=start_session(master=options.pop("master", "local[*]")), **options)


@contextmanager
def building(pipeline: Pipeline, keep: bool = False) -> Iterator[Engine]:
    """An engine with everything of the pipeline declared, stopped at the end whatever happens."""
    engine = open_engine(pipeline.engine)
    try:
        declare(engine, pipeline, keep)
        yield engine
    finally:
        engine.stop()


def declare(engine: Engine, pipeline: Pipeline, keep: bool = False) -> None:
    """Declare all that a pipeline names, each before what reads it; an error names the one it is about.

    With `keep`, queries and summaries of the checkpoint stay that the pipeline does not name: people
    registered them while it was served.
    """
    for name, settings in pipeline.tables.items():
        with _place(f"table {name}:"):
            engine.table(name, **_with_source(settings))
    for name, settings in pipeline.streams.items():
        with _place(f"stream {name}:"):
            _declare_stream(engine, name, _with_source(settings))
    _leave(engine, pipeline, keep)
    for text in pipeline.summaries:
        with _place("summaries:"):
            engine.execute(text)
    queries = _register(engine, pipeline)
    for name, entry in pipeline.queries.items():
        for at, sink in enumerate(entry.sinks):
            with _place(f"query {name}: sink {at}:"):
                if queries[name].on_demand:
                    raise SettingError(UNSENT)
                queries[name].sink(**_with_options(sink))
    for at, sink in enumerate(pipeline.sinks):
        with _place(f"sink {at}:"):
            engine.sink(**_with_options(sink))


def _declare_stream(engine: Engine, name: str, settings: Settings) -> None:
    replayed = settings.pop("replay", None)
    if replayed is None:
        engine.stream(name, **settings)
    else:
        engine.replay(name, settings.pop("source"), time=settings.pop("time"), **settings, **replayed)


def _leave(engine: Engine, pipeline: Pipeline, keep: bool) -> None:
    """Queries and summaries of the checkpoint leave that the file no longer has, or has with another text.

    A query begins anew, too, when its summary does.
    """
    wanted = {summary.name: summary for summary in map(parse_summary, pipeline.summaries)}
    leaving = {
        name: known
        for name, known in engine.summaries().items()
        if wanted.get(name) != parse_summary(known.text) and (name in wanted or not keep)
    }
    led = {query for known in leaving.values() for query in known.queries}
    for name, query in engine.queries().items():
        if name not in pipeline.queries and keep:
            continue
        elif name not in pipeline.queries:
            log.warning("query %s of the checkpoint is not in the pipeline any more: dropped", name)
            query.drop()
        elif pipeline.queries[name].sql != query.text:
            log.warning("query %s has another text than in the checkpoint: it begins anew", name)
            query.drop()
        elif name in led:
            log.warning("query %s begins anew, as its summary does", name)
            query.drop()
    for name in leaving:
        if name in wanted:
            log.warning("summary %s has another text than in the checkpoint: it begins anew", name)
        else:
            log.warning("summary %s of the checkpoint is not in the pipeline any more: dropped", name)
        engine.execute(f"DROP SUMMARY {quote(name)}")


def _register(engine: Engine, pipeline: Pipeline) -> dict[str, QueryHandle]:
    """Register the queries all at once, since there may be thousands."""
    queries: dict[str, QueryHandle] = {}
    for partial in (False, True):
        texts = {name: entry.sql for name, entry in pipeline.queries.items() if entry.partial is partial}
        with _place("query"):  # whose name the engine adds
            queries |= engine.register_all(texts, partial=partial)
    return queries


def _with_source(settings: Settings) -> Settings:
    """The engine calls it a source, whatever it is; a file calls it a path."""
    return {"source" if name == "path" else name: value for name, value in settings.items()}


def _with_options(sink: Settings) -> Settings:
    """A sink's own options are given to the engine side by side with the rest."""
    return {name: value for name, value in sink.items() if name != "options"} | sink.get("options", {})


@contextmanager
def _place(where: str) -> Iterator[None]:
    """Say of an error what it is about."""
    try:
        yield
    except SQLError as error:
        raise SQLError(f"{where} {error.message}", error.text, error.start, error.end) from None
    except SettingError as error:
        raise SettingError(f"{where} {error}") from None
